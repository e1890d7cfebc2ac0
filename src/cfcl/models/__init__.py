"""Encoders: networks, their weights as flat vectors, and files of trained ones."""

from cfcl.models.encoder import Encoder, Entering, Weights, as_input, portions, usable_device
from cfcl.models.trained import TrainedEncoder, load_encoder

__all__ = ["Encoder", "Entering", "TrainedEncoder", "Weights", "as_input", "load_encoder", "portions", "usable_device"]
