"""Clustered federated learning by principal angles between client data subspaces."""

__version__ = "0.1.0"
