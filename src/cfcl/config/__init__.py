"""What a run is: every choice as a field, checked before anything starts. No other package uses pydantic."""

from cfcl.config.files import build, fields, load, override, parse, presets, section_meaning, to_toml, with_method
from cfcl.config.schema import (
    AggregationConfig,
    AugmentConfig,
    Config,
    CostConfig,
    DataConfig,
    EvaluationConfig,
    ExchangeConfig,
    GraphConfig,
    ModelConfig,
    PartitionConfig,
    RecordsConfig,
    RegulariserConfig,
    Section,
    TrainConfig,
)
from cfcl.config.uses import given, notes, replaced

__all__ = [
    "AggregationConfig",
    "AugmentConfig",
    "Config",
    "CostConfig",
    "DataConfig",
    "EvaluationConfig",
    "ExchangeConfig",
    "GraphConfig",
    "ModelConfig",
    "PartitionConfig",
    "RecordsConfig",
    "RegulariserConfig",
    "Section",
    "TrainConfig",
    "build",
    "fields",
    "given",
    "load",
    "notes",
    "override",
    "parse",
    "presets",
    "replaced",
    "section_meaning",
    "to_toml",
    "with_method",
]
