"""The options of torch's getters and setters of states."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import CONFIG_OF_TWO_KINDS
from fsdplint.migration.state_dicts.kind_reader import KindReader
from fsdplint.migration.state_dicts.kinds import MODULE, Config, Kind
from fsdplint.migration.state_dicts.state_functions import is_saved_by_one_rank
from fsdplint.syntax.enclosing import function_around


class StateOptions(KindReader):
    """Writes the options for kinds of states."""

    def config_key(self, kind: Kind, config: Config, node: cst.Call) -> tuple[str, ...] | str:
        """The arguments of the options, or the name of the variable that holds the options."""
        parts = self._parts(kind, config, node)
        return config.name if parts and config.name else tuple(parts)

    def get_options(self, kind: Kind, node: cst.Call, optimizer: bool = False) -> str:
        """The text of the options with which a state is taken; "" for none."""
        config = kind.optimizer if optimizer else kind.model
        if kind.options:
            return kind.options
        parts = self._parts(kind, config, node)
        if not parts:
            return ""
        if not config.name:
            other = kind.model if optimizer else kind.optimizer
            config = other if self._has_options(kind, other, parts, node) else config
        if config.name and config.variable is not None:
            self._keep_variable(config, parts)
            return config.name
        return self.make_options(parts, node)

    def _has_options(self, kind: Kind, config: Config, parts: list[str], node: cst.Call) -> bool:
        """Whether the variable of a config will certainly hold options with some arguments, here."""
        if not config.name or config.variable is None or not config.rank0 or config.rank0_test:
            return False
        source, at = config.variable
        same = source is self.source and function_around(source, at) is function_around(
            source, node
        )
        return same and kind.full and parts == ["full_state_dict=True", "cpu_offload=True"]

    def _parts(self, kind: Kind, config: Config, node: cst.Call) -> list[str]:
        """The arguments of the options with which a state is taken."""
        parts = ["full_state_dict=True"] if kind.full else []
        if not kind.full:
            return [f"cpu_offload={config.test or True}"] if config.offload else []
        one_rank = config.offload and is_saved_by_one_rank(self.migration, node)
        if config.rank0_test and not one_rank:
            return [*parts, f"cpu_offload={self._rank0_test(config, node)}"]
        if config.rank0 or one_rank:
            if not config.offload:
                self.migration.note(
                    "the gathered state is on the CPU (FSDP1: on rank 0's GPU)", self.source, node
                )
            return [*parts, "cpu_offload=True"]
        if config.offload:
            self.migration.note(
                "the gathered state is on the device on every rank (FSDP1: CPU)",
                self.source,
                node,
                detail="While it is taken, each device also holds the whole model.",
            )
        return parts

    def _rank0_test(self, config: Config, node: cst.Call) -> str:
        """Add a note, since torch's getter gives a CPU state to rank 0 only, and others to all ranks."""
        case = f"where `{config.rank0_test}` is"
        if config.offload:
            text = f"{case} false, the gathered state is on the device on every rank (FSDP1: CPU)"
            detail = "While it is taken, each device also holds the whole model."
            self.migration.note(text, self.source, node, detail=detail)
        else:
            text = f"{case} true, the gathered state is on the CPU (FSDP1: on rank 0's GPU)"
            self.migration.note(text, self.source, node)
        return config.rank0_test

    def make_options(self, parts: list[str], node: cst.CSTNode) -> str:
        """The text of new options with some arguments."""
        options = self.migration.need(self.source, MODULE, "StateDictOptions", node)
        return f"{options}({', '.join(parts)})"

    def set_options(self, kind: Kind, more: list[str], node: cst.CSTNode) -> str:
        """The text of the options with which a state is loaded; "" for none.

        more: their further arguments.
        """
        if not kind.full:
            return self.make_options(more, node) if more else ""
        if kind.options and not more:
            return kind.options
        return self.make_options(["full_state_dict=True", *more], node)

    def _keep_variable(self, config: Config, parts: list[str]) -> None:
        """Let the variable that holds the config hold the options instead."""
        assert config.variable is not None
        source, node = config.variable
        if node in self.migration.states.option_variables:
            if self.migration.states.option_variables[node] != parts:
                raise Blocked(source, node, CONFIG_OF_TWO_KINDS())
            return
        self.migration.states.option_variables[node] = parts
        options = self.migration.need(source, MODULE, "StateDictOptions", node)
        self.migration.put_call(source, node, options, parts)
