"""All mutation operators, one module a theme."""

from operators import (
    forwards,
    fsdp1_training,
    gradients,
    process_groups,
    rank_guards,
    sharding,
    sharding_order,
    states,
    steps,
    training_data,
)

__all__ = [
    "forwards",
    "fsdp1_training",
    "gradients",
    "process_groups",
    "rank_guards",
    "sharding",
    "sharding_order",
    "states",
    "steps",
    "training_data",
]
