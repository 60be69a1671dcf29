"""The weights that a sharded model starts from: memory for those on the meta device, and rank 0's.

FSDP1 does both in its constructor (`sync_module_states=True`, and a `param_init_fn` or `to_empty`
for parameters on the meta device). With FSDP2 they are lines after the sharding.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration.analysis.variables import fresh
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import OFFLOAD_UNKNOWN
from fsdplint.migration.context import Migration
from fsdplint.migration.text import call
from fsdplint.source.source import Source
from fsdplint.syntax.layout import line_indent


@dataclass
class StartingWeights:
    """What the lines about the weights depend on.

    Attributes:
        migration: the migration.
        source: the file of the constructor call.
        at: the constructor call.
        sync: the condition under which rank 0's weights go to all ranks: "", "True" or a text.
        materialize: the device on which parameters on the meta device get memory, or "".
        empty_dtype: the type that these parameters get, or "".
        is_empty: whether all parameters are certainly on the meta device, on all ranks.
        offload: when parameters are offloaded: "True", a condition, "?" if another variable decides.
        has_buffers: whether an offloaded model may have buffers.
        offload_variable: the variable with the policy that decides then; "" for other expressions.
        has_ignored: whether some parameters are not sharded.
        in_group: whether the weights come from the first rank of a group.
        two_dimensional: whether the mesh may have two dimensions.
        empty_ranks: whether some ranks may have no weights of their own.
        state: the variable that holds rank 0's weights, or "".
        holds_parts: whether parts of the module may be sharded before it.
        mesh: the text of the mesh, or "".
    """

    migration: Migration
    source: Source
    at: cst.Call
    sync: str = ""
    materialize: str = ""
    empty_dtype: str = ""
    is_empty: bool = False
    offload: str = ""
    has_buffers: bool = False
    offload_variable: str = ""
    has_ignored: bool = False
    in_group: bool = False
    two_dimensional: bool = False
    empty_ranks: bool = False
    state: str = ""
    holds_parts: bool = False
    mesh: str = ""

    def before_sharding(self, model: str) -> list[str]:
        """Lines before `setup`: they keep the weights that rank 0 sends to the others."""
        casts = self._casts_of_empty(model)
        if not self.sync:
            return casts
        if self._sends_tensors():
            self.state = fresh(self.source, self.at, "full_parameters", "whole_parameters")
            return [*casts, f"{self.state} = dict({model}.named_parameters())"]
        self.state = fresh(self.source, self.at, "full_state", "rank0_state")
        return [*casts, f"{self.state} = {model}.state_dict()"]

    def _casts_of_empty(self, model: str) -> list[str]:
        """Lines that cast parameters without memory: a unit needs one type on all ranks."""
        if not self.empty_dtype:
            return []
        return self._if_on_meta(model, [f"{model}.to({self.empty_dtype})"])

    def lines_of_weights(self, model: str) -> list[str]:
        """Lines after the sharding of a model: memory, and the weights of rank 0."""
        found: list[str] = []
        if self.sync:
            send = self._broadcast_tensors if self._sends_tensors() else self._broadcast_state
            found = send(model)
        if self.materialize:
            found = [*self._materialize_lines(model), *found]
        return found

    def _sends_tensors(self) -> bool:
        """Whether the weights go to the other ranks one by one, instead of as a state.

        torch sets no state whose parameters are on the CPU and whose buffers are on the device.
        """
        on_two_devices = bool(self.offload) and self.has_buffers
        return self.in_group or self.has_ignored or self.holds_parts or on_two_devices

    def _materialize_lines(self, model: str) -> list[str]:
        """Lines that give parameters on the meta device memory; offloaded ones get it on the CPU."""
        device = self.materialize
        if not self.offload:
            return self._if_on_meta(model, [f"{model}.to_empty(device={device})"])
        offloads = self._test_of_policy() if self.offload == "?" else self.offload
        cpu = string_literal(self.source, "cpu")
        target = cpu if offloads == "True" else f"{cpu} if {offloads} else {device}"
        buffer = self._variable("buffer")
        lines = [
            f"{model}.to_empty(device={target})",
            f"for {buffer} in {model}.buffers():",
            f"\t{buffer}.data = {buffer}.data.to({device})",
        ]
        return self._if_on_meta(model, lines)

    def _if_on_meta(self, model: str, lines: list[str]) -> list[str]:
        """Lines for a model on the meta device, under a test if it may be elsewhere."""
        if self.is_empty:
            return lines
        test = f"if any(p.is_meta for p in {model}.parameters()):"
        return [test, *(f"\t{line}" for line in lines)]

    def _test_of_policy(self) -> str:
        """Text that asks a variable whether it offloads."""
        if not self.offload_variable:
            raise Blocked(self.source, self.at, OFFLOAD_UNKNOWN())
        module = "torch.distributed.fsdp"
        policy = self.migration.need(self.source, module, "CPUOffloadPolicy", self.at)
        return f"isinstance({self.offload_variable}, {policy})"

    def _broadcast_tensors(self, model: str) -> list[str]:
        """Lines that send each tensor of the first rank to the others of its group."""
        need = self.migration.need
        distribute = need(self.source, "torch.distributed.tensor", "distribute_tensor", self.at)
        no_grad = self.migration.torch(self.source, self.at) + ".no_grad()"
        empty_like = self.migration.torch(self.source, self.at) + ".empty_like"
        broadcast = self.migration.dist(self.source, self.at, "broadcast")
        state = self.state or "full_parameters"
        name, parameter, full, buffer, group = map(
            self._variable, ("name", "parameter", "full", "buffer", "group")
        )
        mesh = self.mesh if self.in_group else f"{parameter}.device_mesh"
        lines = [
            f"with {no_grad}:",
            f"\tfor {name}, {parameter} in {model}.named_parameters():",
            *self._skip_lines(state, name, parameter),
            f"\t\t{full} = {state}[{name}].to({mesh}.device_type)",
            f"\t\t{parameter}.copy_({distribute}({full}, {mesh}, {parameter}.placements))",
            f"for {buffer} in {model}.buffers():",
            f"\t{broadcast}({buffer}, group={mesh}.get_group(), group_src=0)",
        ]
        if not self.in_group:
            lines[-1] = f"\t{broadcast}({buffer}, src=0)"
        elif self.two_dimensional:
            lines[-1:] = [
                f"\tfor {group} in {mesh}.get_all_groups():",
                f"\t\t{broadcast}({buffer}, group={group}, group_src=0)",
            ]
        if self.empty_ranks:
            at = next(number for number, line in enumerate(lines) if f"{full} = " in line)
            lines[at : at + 1] = [
                f"\t\t{full} = {state}[{name}]",
                f"\t\tif {full}.is_meta:",
                f"\t\t\t{full} = {empty_like}({full}, device={mesh}.device_type)",
                f"\t\t{full} = {full}.to({mesh}.device_type)",
            ]
        if self.sync != "True":
            lines = [f"if {self.sync}:", *("\t" + line for line in lines)]
        comment = "# All ranks of a group start from its first rank's weights and buffers."
        if not self.in_group:
            comment = "# All ranks start from rank 0's weights and buffers."
        return [comment, *lines, f"del {state}"]

    def _variable(self, wanted: str) -> str:
        """The name of a variable that the program does not use there."""
        return fresh(self.source, self.at, wanted, f"fsdp_{wanted}")

    def _skip_lines(self, state: str, name: str, parameter: str) -> list[str]:
        """Lines of the loop that skip ignored parameters, and those of parts that are sharded."""
        tests = [f"isinstance({state}[{name}], {{tensor}})"] if self.holds_parts else []
        tests += [f"not isinstance({parameter}, {{tensor}})"] if self.has_ignored else []
        if not tests:
            return []
        tensor = self.migration.need(self.source, "torch.distributed.tensor", "DTensor", self.at)
        return [f"\t\tif {' or '.join(tests).format(tensor=tensor)}:", "\t\t\tcontinue"]

    def _broadcast_state(self, model: str) -> list[str]:
        """Lines that send rank 0's state to all ranks."""
        need = self.migration.need
        module = "torch.distributed.checkpoint.state_dict"
        setter = need(self.source, module, "set_model_state_dict", self.at)
        options = need(self.source, module, "StateDictOptions", self.at)
        broadcast = self.migration.dist(self.source, self.at, "broadcast")
        state = self.state or "full_state"
        buffer = self._variable("buffer")
        lines: list[str] = []
        indent = line_indent(self.source, self.source.span(self.at)[0])
        if self.sync != "True":
            indent += self.source.tree.default_indent
        lines += [
            call(
                self.source,
                indent,
                setter,
                [
                    model,
                    state,
                    f"options={options}(full_state_dict=True, broadcast_from_rank0=True)",
                ],
            ),
            f"for {buffer} in {model}.buffers():",
            f"\t{broadcast}({buffer}, src=0)",
        ]
        if self.sync != "True":
            lines = [f"if {self.sync}:", *("\t" + x.replace("\n", "\n\t") for x in lines)]
        return ["# All ranks start from rank 0's weights and buffers.", *lines, f"del {state}"]
