"""Encoders: networks, their weights as flat vectors, and one module from pixels to embeddings."""

from cfcl.models.encoder import Encoder, Entering, Weights, as_input, portions, usable_device
from cfcl.models.whole import WholeEncoder

__all__ = ["Encoder", "Entering", "Weights", "WholeEncoder", "as_input", "portions", "usable_device"]
