"""Translates `FullyShardedDataParallelPlugin(...)` of Accelerate to FSDP2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import names, uses
from fsdplint.interpreter import Program
from fsdplint.interpreter.values import Class, Partial, Sequence, Symbol
from fsdplint.migration.frameworks import texts
from fsdplint.migration.frameworks.accelerate import (
    NO_SHARD,
    PREFETCHES,
    STATE_TYPES,
    STRATEGIES,
    setting_name,
    truth,
)
from fsdplint.migration.frameworks.versions import FSDP1_ONLY
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import value_end, without
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import statement_of
from fsdplint.syntax.qualified_names import references

TRANSFORMER_POLICY = "torch.distributed.fsdp.wrap.transformer_auto_wrap_policy"
FSDP = "torch.distributed.fsdp"
HYBRID = (
    "`{}` shards within each machine and replicates across them: FSDP2 needs "
    "`Accelerator(parallelism_config=ParallelismConfig(dp_replicate_size=<machines>, "
    "dp_shard_size=<devices of one>))`"
)
POLICY = (
    "Accelerate's FSDP2 reads only names of classes, and shards only the whole model for any other "
    "policy: name the layers' classes in `transformer_cls_names_to_wrap`"
)
STATE_CONFIG = (
    "`state_dict_config` and `optim_state_dict_config` have other meanings in Accelerate's FSDP2: the "
    "model's also applies to optimizers, and its `rank0_only` sends rank 0's state to the other "
    "ranks. Leave them out, and choose a `state_dict_type`"
)


@dataclass
class PluginChange:
    """The changes to one call. `options` are the known values of its arguments."""

    program: Program
    source: Source
    call: cst.Call
    options: Mapping[str, object]
    rewrite: Rewrite = field(default_factory=Rewrite)
    blockers: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.args = {arg.keyword.value: arg for arg in self.call.args if arg.keyword is not None}
        self.removed_args: list[cst.Arg] = []
        self.new_args: list[str] = []

    def run(self) -> None:
        """Make the changes, or add their blockers."""
        if any(arg.keyword is None for arg in self.call.args):
            self.blockers.append("the call has positional arguments or unpacks arguments")
            return
        for name in self.args:
            value = self.options.get(name, ...)
            if value is not None or name in FSDP1_ONLY:
                getattr(self, f"_{name}", self._keep)(name, value)
        if "fsdp_version" in self.args:
            self._set_text("fsdp_version", "2")
        else:
            self.new_args.insert(0, "fsdp_version=2")
        if "state_dict_type" not in self.args:
            self.new_args.append('state_dict_type="FULL_STATE_DICT"')
            self.doubts.append(
                "full state dicts were the default, which the configuration of the launcher may have "
                "changed"
            )
        self._write()

    def _keep(self, name: str, value: object) -> None:
        """Keep an argument with the same meaning."""

    # One argument each -------------------------------------------------------------------------

    def _sharding_strategy(self, name: str, value: object) -> None:
        strategy = self._literal_name(name, value, STRATEGIES)
        if strategy is None:
            return
        if strategy == "NO_SHARD":
            self.blockers.append(NO_SHARD)
        elif strategy.startswith("HYBRID"):
            self.blockers.append(HYBRID.format(strategy))
        elif "reshard_after_forward" in self.args:
            self._remove(name)
        else:
            self._remove(name, f"reshard_after_forward={strategy == 'FULL_SHARD'}")

    def _reshard_after_forward(self, name: str, value: object) -> None:
        if "sharding_strategy" in self.args:
            self._set_text(
                name,
                str(setting_name(self.options["sharding_strategy"], STRATEGIES) == "FULL_SHARD"),
            )
            return
        strategy = self._literal_name(name, value, STRATEGIES)
        if strategy == "FULL_SHARD":
            self._set_text(name, "True")
        elif strategy == "SHARD_GRAD_OP":
            self._set_text(name, "False")
            self.doubts.append(
                "Accelerate's FSDP1 reads only `sharding_strategy` and used FULL_SHARD, but now "
                "gathered layers stay in memory"
            )
        elif strategy is not None:
            self.blockers.append(
                f"Accelerate's FSDP1 reads only `sharding_strategy` and used FULL_SHARD, not {strategy}"
            )

    def _backward_prefetch(self, name: str, value: object) -> None:
        if value is None or setting_name(value, PREFETCHES) != "BACKWARD_PRE":
            self.notes.append(texts.PREFETCHES_BACKWARD)
        self._remove(name)

    def _forward_prefetch(self, name: str, value: object) -> None:
        if truth(value) is not False:
            self.notes.append(texts.NO_FORWARD_PREFETCH)
        self._remove(name)

    def _use_orig_params(self, name: str, value: object) -> None:
        if truth(value) is False:
            self.notes.append(texts.SEPARATE_PARAMETERS)
        self._remove(name)

    def _limit_all_gathers(self, name: str, value: object) -> None:
        self._remove(name)

    def _sync_module_states(self, name: str, value: object) -> None:
        sends = truth(self.options.get("cpu_ram_efficient_loading", False))
        if value is not None and truth(value) is not False and sends is not True:
            self.doubts.append(texts.WEIGHTS_NOT_SENT.format("cpu_ram_efficient_loading=True"))
        self._remove(name)

    def _param_init_fn(self, name: str, value: object) -> None:
        # With `sync_module_states`, Accelerate replaces the function by its own.
        if value is not None and truth(self.options.get("sync_module_states", False)) is not True:
            self.blockers.append("Accelerate's FSDP2 does not call `param_init_fn`")
        self._remove(name)

    def _cpu_offload(self, name: str, value: object) -> None:
        if isinstance(value, bool):
            return
        node = self.args[name].value
        call = self._library_call(node, f"{FSDP}.CPUOffload")
        if call is None or len(call.args) > 1 or any(arg.star for arg in call.args):
            self.blockers.append("`cpu_offload` is neither a truth value nor `CPUOffload(...)`")
            return
        self._set_text(name, self.source.code(call.args[0].value) if call.args else "False")
        self._remove_imports(call.func)

    def _mixed_precision_policy(self, name: str, value: object) -> None:
        if isinstance(value, str):
            return  # "bf16": Accelerate makes the policy
        call = self._library_call(self.args[name].value, f"{FSDP}.MixedPrecision")
        given = {} if call is None else {a.keyword.value: a.value for a in call.args if a.keyword}
        if call is None or len(given) < len(call.args) or set(given) - _PRECISIONS:
            self.blockers.append("FSDP2 has no counterpart of this `mixed_precision_policy`")
            return
        if "buffer_dtype" in given:
            self.doubts.append("buffers keep their dtype")
        self.notes.append("each unit casts its inputs, not only the whole model")
        texts = {key: self.source.code(node) for key, node in given.items()}
        texts.setdefault("reduce_dtype", texts.get("param_dtype", "None"))
        policy = self.rewrite.need_import(self.source, FSDP, "MixedPrecisionPolicy", at=self.call)
        kept = ", ".join(
            f"{key}={texts[key]}" for key in ("param_dtype", "reduce_dtype") if key in texts
        )
        self._set_text(name, f"{policy}({kept})")
        self._remove_imports(call.func)

    def _auto_wrap_policy(self, name: str, value: object) -> None:
        if isinstance(value, str) and not value.startswith("torch."):
            if value.upper() == "SIZE_BASED_WRAP":
                self.blockers.append(POLICY)
            return
        classes = self._policy_classes(self.args[name].value)
        if classes is None or "transformer_cls_names_to_wrap" in self.args:
            self.blockers.append(POLICY)
            return
        quoted = ", ".join(f'"{each}"' for each in classes)
        self._remove(
            name,
            'auto_wrap_policy="transformer_based_wrap"',
            f"transformer_cls_names_to_wrap=[{quoted}]",
        )

    def _ignored_modules(self, name: str, value: object) -> None:
        self.blockers.append(
            "Accelerate's FSDP2 shards ignored modules, too, with `cpu_ram_efficient_loading`, and "
            "clips their gradients differently without it"
        )

    def _state_dict_type(self, name: str, value: object) -> None:
        if self._literal_name(name, value, STATE_TYPES) == "LOCAL_STATE_DICT":
            self.blockers.append(texts.NO_LOCAL_STATE)

    def _state_dict_config(self, name: str, value: object) -> None:
        if STATE_CONFIG not in self.blockers:
            self.blockers.append(STATE_CONFIG)

    _optim_state_dict_config = _state_dict_config

    def _activation_checkpointing(self, name: str, value: object) -> None:
        if truth(value) is not False:
            self.doubts.append(texts.RECOMPUTED)

    # Helpers -----------------------------------------------------------------------------------

    def _literal_name(self, name: str, value: object, known: tuple[str, ...]) -> str | None:
        """The name of a strategy or type, if it is a literal; else add a blocker."""
        node = self.args[name].value
        literal = isinstance(node, cst.SimpleString | cst.Integer | cst.Attribute)
        found = setting_name(value, known) if literal else None
        if found is None:
            self.blockers.append(f"`{name}` is only known when the program runs")
        return found

    def _library_call(self, node: cst.BaseExpression, name: str) -> cst.Call | None:
        """The node if it is a call of a class with this full name, else None."""
        if not isinstance(node, cst.Call):
            return None
        functions = {n for _, n, full in references(self.source, FSDP) if full == name}
        return node if node.func in functions else None

    def _policy_classes(self, node: cst.BaseExpression) -> list[str] | None:
        """The names of the classes that a transformer policy wraps; deletes the policy's variable."""
        values = self.program.values(node)
        known = [_wrapped_classes(v) if isinstance(v, Partial) else None for v in values]
        if not known or any(classes is None or classes != known[0] for classes in known):
            return None
        found = known[0]
        return found if isinstance(node, cst.Call) or self._drop_variable(node) else None

    def _drop_variable(self, node: cst.BaseExpression) -> bool:
        """Delete the definition of a variable that nothing else reads."""
        if not isinstance(node, cst.Name):
            return False
        scope = function_around(self.source, self.call)
        places = [use for use in uses(scope, node.value) if use is not node]
        statement = statement_of(self.source, places[0]) if len(places) == 1 else None
        if not isinstance(statement, cst.Assign) or len(statement.targets) > 1:
            return False
        if statement.targets[0].target is not places[0]:
            return False
        self.rewrite.delete_statement(self.source, statement)
        self._remove_imports(statement.value)
        return True

    def _remove_imports(self, node: cst.CSTNode) -> None:
        for name in names(node):
            self.rewrite.remove_import_if_unused(self.source, name)
        text = dotted_name(node)
        if text and "." in text:
            self.rewrite.remove_import_if_unused(self.source, text.rpartition(".")[0])

    def _remove(self, name: str, *new: str) -> None:
        """Remove an argument, or replace it by others."""
        arg = self.args[name]
        self._remove_imports(arg.value)
        if not new:
            self.removed_args.append(arg)
            return
        start = self.source.span(arg)[0]
        indent = re.match(r"[ \t]*", self.source.text[self.source.line_start(start) :])
        own_line = indent is not None and self.source.line_start(start) + indent.end() == start
        separator = ",\n" + indent.group() if own_line and indent is not None else ", "
        self.rewrite.replace_span(
            self.source, start, value_end(self.source, arg), separator.join(new)
        )

    def _set_text(self, name: str, text: str) -> None:
        """Set the value of an argument."""
        node = self.args[name].value
        if self.source.code(node) != text:
            self._remove_imports(node)
            self.rewrite.replace(self.source, node, text)

    def _write(self) -> None:
        for start, end in without(self.source, self.call, self.removed_args):
            self.rewrite.delete(self.source, start, end)
        first = self.call.args[0] if self.call.args else None
        if first is None:
            _, end = self.source.span(self.call)
            self.rewrite.insert(self.source, end - 1, ", ".join(self.new_args))
            return
        # Insert before the first argument, on separate lines if it has its own line.
        start = self.source.span(first)[0]
        line = self.source.line_start(start)
        own_line = not self.source.text[line:start].strip()
        indent = self.source.text[line:start]
        if own_line:
            text = "".join(f"{indent}{each},\n" for each in self.new_args)
            self.rewrite.insert(self.source, line, text)
        elif len(self.removed_args) < len(self.call.args):
            self.rewrite.insert(self.source, start, "".join(f"{each}, " for each in self.new_args))
        else:
            self.rewrite.insert(self.source, start, ", ".join(self.new_args))


def _wrapped_classes(policy: Partial) -> list[str] | None:
    """The names of the classes that a transformer policy of torch wraps, else None."""
    function, classes = policy.function, policy.kwargs.get("transformer_layer_cls")
    if not isinstance(function, Symbol) or function.name != TRANSFORMER_POLICY:
        return None
    if policy.open or policy.args or not isinstance(classes, Sequence) or classes.open:
        return None
    found = []
    for value in classes.items:
        if isinstance(value, Class):
            found.append(value.name)
        elif isinstance(value, Symbol):
            found.append(value.name.rpartition(".")[2])
        else:
            return None
    return found


_PRECISIONS = {"param_dtype", "reduce_dtype", "buffer_dtype"}
