"""Settings of the run."""
import argparse
from dataclasses import dataclass, fields


@dataclass
class TrainConfig:
    vocab_size: int = 48
    dim: int = 32
    n_heads: int = 4
    n_layers: int = 3
    seq_len: int = 12
    batch_size: int = 4
    steps: int = 7
    lr: float = 4e-3
    warmup: int = 2
    grad_clip: float = 0.5
    precision: str = "bf16"  # bf16 or fp32
    sharding: str = "FULL_SHARD"  # a name of torch's ShardingStrategy
    seed: int = 7
    out: str = "checkpoints"
    resume: bool = False
    stop_at: int = 0  # stop early after this step, 0 means never


def from_command_line() -> TrainConfig:
    """One option per field of TrainConfig."""
    parser = argparse.ArgumentParser()
    for field in fields(TrainConfig):
        option = "--" + field.name.replace("_", "-")
        if field.type is bool or field.type == "bool":
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(field.default), default=field.default)
    return TrainConfig(**vars(parser.parse_args()))
