import torch
from torch.distributed.fsdp import MixedPrecisionPolicy

from model import DecoderBlock

bfSixteen = MixedPrecisionPolicy(
    param_dtype=torch.bfloat16,
    # Gradient communication precision.
    reduce_dtype=torch.bfloat16,
)


def get_wrapper():
    """Every decoder block is its own unit."""
    return lambda module: isinstance(module, DecoderBlock)


def get_policies(cfg, rank):
    """The policy for mixed precision, if there is one, and that for wrapping."""
    mixed_precision_policy = None
    if cfg.mixed_precision:
        if torch.cuda.is_bf16_supported() and not cfg.use_fp16:
            mixed_precision_policy = bfSixteen
            if rank == 0:
                print("bFloat16 enabled for mixed precision")
        elif rank == 0:
            print("bFloat16 support not present, training in fp32")
    return mixed_precision_policy, get_wrapper()
