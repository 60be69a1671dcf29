"""Two dataclasses, as finetuning recipes have them."""
from dataclasses import dataclass


@dataclass
class train_config:
    batch_size: int = 4
    lr: float = 1e-2
    steps: int = 2
    accumulation: int = 2
    grad_clip: float = 0.5
    resume: bool = False
    seed: int = 42
    folder: str = "checkpoints"


@dataclass
class fsdp_config:
    mixed_precision: bool = True
    use_fp16: bool = False
    sharding_strategy: str = "FULL_SHARD"
    checkpoint_type: str = "SHARDED_STATE_DICT"
    save_optimizer: bool = True
    fsdp_cpu_offload: bool = False
