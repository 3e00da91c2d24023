"""Trained models as files that other programs load, and predictions of such files."""
