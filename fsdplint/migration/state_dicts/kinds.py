"""What kind of state dict is asked for, and how: FSDP1's types and configs."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.source.source import Source

MODULE = "torch.distributed.checkpoint.state_dict"
TYPE_PARAMETERS = (
    "module",
    "state_dict_type",
    "state_dict_config",
    "optim_state_dict_config",
)
CONFIG_PARAMETERS = ("offload_to_cpu", "rank0_only")
CONFIGS = {
    "FULL_STATE_DICT": ("FullStateDictConfig", "FullOptimStateDictConfig"),
    "SHARDED_STATE_DICT": ("ShardedStateDictConfig", "ShardedOptimStateDictConfig"),
}
# Methods of the FSDP class that take an optimizer's state or make it loadable.
OPTIMIZER_METHODS = (
    "optim_state_dict",
    "full_optim_state_dict",
    "sharded_optim_state_dict",
    "optim_state_dict_to_load",
    "scatter_full_optim_state_dict",
    "shard_full_optim_state_dict",
    "flatten_sharded_optim_state_dict",
)


@dataclass
class Config:
    """What a state dict config says. `variable` is its definition, `name` how it is read.

    test: the text of what decides at run time whether the state is offloaded.
    rank0_test: the text of what decides whether only rank 0 gets it (`rank0` is true then).
    """

    offload: bool = False
    test: str = ""
    rank0: bool = False
    rank0_test: str = ""
    name: str = ""
    variable: tuple[Source, cst.BaseExpression] | None = None
    used: bool = False


@dataclass
class Kind:
    """A type of state dict with its configs, as `state_dict_type` is given them.

    local: whether it is that of FSDP1's flat parameters, which becomes a sharded one.
    """

    full: bool
    model: Config
    optimizer: Config
    local: bool = False
    options: str = ""  # the name of a variable that holds the options

    def is_equivalent(self, other: Kind) -> bool:
        """Whether another one says the same."""

        def fields(kind: Kind) -> tuple[object, ...]:
            configs = (kind.model, kind.optimizer)
            return (
                kind.full,
                kind.local,
                *(x for c in configs for x in (c.offload, c.rank0, c.test, c.rank0_test)),
            )

        return fields(self) == fields(other)


OLD_OPTIMIZER_LOAD = "torch.distributed.checkpoint.optimizer.load_sharded_optimizer_state_dict"
DEFAULT = Kind(True, Config(), Config(offload=True))
