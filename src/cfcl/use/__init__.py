"""What people do with a trained encoder: embed, search, map, label and export."""

from cfcl.use.trained import Origin, TrainedEncoder, load_encoder

__all__ = ["Origin", "TrainedEncoder", "load_encoder"]
