"""FSDP1's types of state dicts and their configs."""

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
    "LOCAL_STATE_DICT": ("LocalStateDictConfig", "LocalOptimStateDictConfig"),
}
# Methods of the FSDP class that take an optimizer's state or prepare it for loading.
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
    """The fields of a state dict config.

    Attributes:
        offload: whether the state is offloaded to the CPU.
        test: the text of the test that decides `offload` at run time.
        rank0: whether only rank 0 gets the state.
        rank0_test: the text of the test that decides `rank0` at run time (`rank0` is True then).
        name: the text of the variable that holds the config.
        variable: the definition of that variable.
    """

    offload: bool = False
    test: str = ""
    rank0: bool = False
    rank0_test: str = ""
    name: str = ""
    variable: tuple[Source, cst.BaseExpression] | None = None


@dataclass
class Kind:
    """A type of state dict with its configs, as in a call of `state_dict_type`.

    Attributes:
        full: whether the state is gathered.
        local: whether it is LOCAL_STATE_DICT, which becomes a sharded state.
        options: the name of a variable that holds the options.
    """

    full: bool
    model: Config
    optimizer: Config
    local: bool = False
    options: str = ""

    @property
    def tests(self) -> list[str]:
        """The texts of the tests that decide the options of the state at run time.

        The options of a gathered state do not depend on the test of `offload` (`StateOptions`).
        """
        configs = (self.model, self.optimizer)
        found = [
            text for one in configs for text in (one.rank0_test, *([] if self.full else [one.test]))
        ]
        return [text for text in found if text]

    def is_equivalent(self, other: Kind) -> bool:
        """Whether another kind gives the same state."""

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
