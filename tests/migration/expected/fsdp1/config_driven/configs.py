"""Presets as one would keep them in YAML files, and the dataclasses they fill."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict

PRESETS: Dict[str, Dict[str, Any]] = {
    'debug_plain': {
        'use_fsdp': False,
        'model': {'width': 32, 'n_layers': 2},
        'optim': {'lr': 0.1, 'momentum': 0.9},
    },
    'fsdp_fp32': {
        'use_fsdp': True,
        'fsdp': {'strategy': 'full_shard', 'precision': 'fp32'},
        'model': {'width': 64, 'n_layers': 3},
        'optim': {'lr': 0.1, 'momentum': 0.9},
    },
    'fsdp_bf16': {
        'use_fsdp': True,
        'fsdp': {'strategy': 'shard_grad_op', 'precision': 'bf16'},
        'model': {'width': 64, 'n_layers': 3},
        'optim': {'lr': 0.1, 'momentum': 0.9},
    },
}


@dataclass
class FSDPConfig:
    strategy: str = 'full_shard'
    precision: str = 'fp32'
    wrap_blocks: bool = True


@dataclass
class ModelConfig:
    n_inputs: int = 16
    width: int = 64
    n_layers: int = 3
    n_classes: int = 10


@dataclass
class OptimConfig:
    lr: float = 0.01
    momentum: float = 0.0
    max_norm: float | None = 1.0
    steps: int = 8
    batch_size: int = 16


@dataclass
class Config:
    use_fsdp: bool = True
    seed: int = 3
    fsdp: FSDPConfig = field(default_factory=FSDPConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)


def load_config(name: str) -> Config:
    preset = dict(PRESETS[name])
    return Config(
        fsdp=FSDPConfig(**preset.pop('fsdp', {})),
        model=ModelConfig(**preset.pop('model', {})),
        optim=OptimConfig(**preset.pop('optim', {})),
        **preset,
    )
