"""Rewrite or remove the arguments that `fully_shard` does not accept."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from fsdplint.diagnostics.finding import Safety
from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import uses
from fsdplint.interpreter import Program
from fsdplint.interpreter.values import LibraryObject
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant, without
from fsdplint.syntax.enclosing import function_around

FSDP = "torch.distributed.fsdp"
# FSDP1 keywords for what FSDP2 always does.
_ALWAYS = {"use_orig_params", "limit_all_gathers"}
# FSDP1 keywords that have no effect with None or False.
_OFF = {
    "cpu_offload", "auto_wrap_policy", "mixed_precision", "ignored_modules", "ignored_states",
    "param_init_fn", "device_id", "sync_module_states", "forward_prefetch", "process_group",
    "sharding_strategy",
}  # fmt: skip
_STRATEGIES = {"FULL_SHARD": "", "SHARD_GRAD_OP": "reshard_after_forward=False"}


@dataclass
class _Change:
    """The edits of one call, collected before any is applied."""

    program: Program
    source: Source
    call: cst.Call
    safety: Safety = Safety.SAFE

    def apply(self, rewrite: Rewrite, wrong: set[str]) -> bool:
        removed: list[cst.Arg] = []
        named = {arg.keyword.value: arg for arg in self.call.args if arg.keyword is not None}
        for name in sorted(wrong):
            arg = named.get(name)
            if arg is None:
                return False
            if name in {"mp_policy", "offload_policy"}:
                if name == "mp_policy" and is_constant(arg.value, "None"):
                    removed.append(arg)
                elif not self._policy(rewrite, arg):
                    return False
            elif self._is_droppable(arg, name):
                removed.append(arg)
            elif not self._rename(rewrite, arg, name, named):
                return False
        for start, end in without(self.source, self.call, removed):
            rewrite.delete(self.source, start, end)
        for arg in removed:
            self._release_name(rewrite, arg.value)
        return True

    def _is_droppable(self, arg: cst.Arg, name: str) -> bool:
        if name in _ALWAYS or (name in _OFF and is_constant(arg.value, "None", "False")):
            return True
        if name == "backward_prefetch":
            return self._last(arg.value) in {"BackwardPrefetch.BACKWARD_PRE"}
        return name == "sharding_strategy" and _STRATEGIES.get(self._strategy(arg)) == ""

    def _rename(self, rewrite: Rewrite, arg: cst.Arg, name: str, named: dict[str, cst.Arg]) -> bool:
        if name == "device_mesh" and "mesh" not in named and arg.keyword is not None:
            rewrite.replace(self.source, arg.keyword, "mesh")
            return True
        other = _STRATEGIES.get(self._strategy(arg))
        if name == "sharding_strategy" and other and "reshard_after_forward" not in named:
            start = self.source.span(arg)[0]
            rewrite.replace_span(self.source, start, self.source.span(arg.value)[1], other)
            self._release_name(rewrite, arg.value)
            return True
        return False

    def _strategy(self, arg: cst.Arg) -> str:
        owner, _, member = self._last(arg.value).rpartition(".")
        return member if owner == "ShardingStrategy" else ""

    def _last(self, node: cst.BaseExpression) -> str:
        """The last two parts of a dotted name."""
        return ".".join(self.source.code(node).split(".")[-2:])

    def _policy(self, rewrite: Rewrite, arg: cst.Arg) -> bool:
        """Replace FSDP1's MixedPrecision or CPUOffload by FSDP2's policy where it is
        constructed."""
        constructor = self._maker(arg.value)
        if constructor is None:
            return False
        source, call = constructor
        self.safety = Safety.UNSAFE
        if re.search(r"\bMixedPrecision$", source.code(call.func)):
            return self._precision(rewrite, source, call)
        if re.search(r"\bCPUOffload$", source.code(call.func)):
            name = rewrite.need_import(source, FSDP, "CPUOffloadPolicy", at=call)
            rewrite.replace(source, call, f"{name}()")
            self._release_name(rewrite, call.func)
            return True
        return False

    def _precision(self, rewrite: Rewrite, source: Source, call: cst.Call) -> bool:
        for number, arg in enumerate(call.args):
            keyword = arg.keyword.value if arg.keyword is not None else None
            if arg.star or keyword not in {None, "param_dtype", "reduce_dtype"}:
                return False
            if keyword is None and number > 1:
                return False
        name = rewrite.need_import(source, FSDP, "MixedPrecisionPolicy", at=call)
        rewrite.replace(source, call.func, name)
        self._release_name(rewrite, call.func)
        return True

    def _maker(self, node: cst.BaseExpression) -> tuple[Source, cst.Call] | None:
        """The call that constructs an argument's value, if only such arguments read the value."""
        if isinstance(node, cst.Call):
            return self.source, node
        values = self.program.values(node)
        if (
            not isinstance(node, cst.Name)
            or len(values) != 1
            or not isinstance(values[0], LibraryObject)
        ):
            return None
        created_at = values[0].created_at
        if created_at is None or created_at.source is not self.source:
            return None
        call, scope = created_at.node, function_around(self.source, node)
        assign = self.source.parent(call)
        if not isinstance(call, cst.Call) or not isinstance(assign, cst.Assign):
            return None
        if function_around(self.source, call) is not scope or len(assign.targets) != 1:
            return None
        target = assign.targets[0].target
        for use in uses(scope, node.value):
            parent = self.source.parent(use)
            keyword = parent.keyword if isinstance(parent, cst.Arg) else None
            given = keyword is not None and keyword.value in {"mp_policy", "offload_policy"}
            if use is not target and not given:
                return None
        return self.source, call

    def _release_name(self, rewrite: Rewrite, node: cst.CSTNode) -> None:
        """Declare that the name at the start of an expression may have lost its last use."""
        while isinstance(node, cst.Attribute | cst.Call):
            node = node.value if isinstance(node, cst.Attribute) else node.func
        if isinstance(node, cst.Name):
            rewrite.remove_import_if_unused(self.source, node.value)


def mend_arguments(
    rewrite: Rewrite, program: Program, source: Source, call: cst.Call, wrong: set[str]
) -> Safety | None:
    """Rewrite the arguments with these names; returns the safety, None if one cannot be
    rewritten."""
    change = _Change(program, source, call)
    return change.safety if change.apply(rewrite, wrong) else None
