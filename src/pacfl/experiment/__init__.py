"""Experiments are data: files of settings, runs found by their content, results that outlive a crash."""
