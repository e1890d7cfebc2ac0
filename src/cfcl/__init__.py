"""Unsupervised federated learning with device-to-device exchange."""

__version__ = "0.1.0"
