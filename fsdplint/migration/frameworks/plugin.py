"""`FullyShardedDataParallelPlugin(...)` of Accelerate: what its arguments become for FSDP2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import function_around, names, uses
from fsdplint.interpreter import Program
from fsdplint.interpreter.values import Class, Partial, Sequence, Symbol
from fsdplint.migration.frameworks.accelerate import (
    NO_SHARD,
    PREFETCHES,
    STATE_TYPES,
    STRATEGIES,
    named,
    truth,
)
from fsdplint.migration.frameworks.versions import FSDP1_ONLY
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import value_end, without
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.layout import statement_of
from fsdplint.syntax.qualified_names import references

TRANSFORMER_POLICY = "torch.distributed.fsdp.wrap.transformer_auto_wrap_policy"
FSDP = "torch.distributed.fsdp"
HYBRID = (
    "`{}` shards within each machine and replicates across them: FSDP2 needs "
    "`Accelerator(parallelism_config=ParallelismConfig(dp_replicate_size=<machines>, "
    "dp_shard_size=<devices of one>))` for it"
)
POLICY = (
    "Accelerate's FSDP2 knows no policies but by class names, and shards nothing but the whole for "
    "any other: name the layers' classes in `transformer_cls_names_to_wrap`"
)
STATE_CONFIG = (
    "`state_dict_config` and `optim_state_dict_config` mean other things to Accelerate's FSDP2, where "
    "optimizers too go by the model's, whose `rank0_only` says that rank 0's state is sent to the "
    "others: leave them out, and choose a `state_dict_type`"
)


@dataclass
class PluginChange:
    """The changes to one call. `options` are what the interpreter knows of its arguments."""

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
        self.gone: list[cst.Arg] = []
        self.new: list[str] = []

    def run(self) -> None:
        """Make the changes, or say what is in their way."""
        if any(arg.keyword is None for arg in self.call.args):
            self.blockers.append("its arguments are not all given by name")
            return
        for name in self.args:
            value = self.options.get(name, ...)
            if value is not None or name in FSDP1_ONLY:
                getattr(self, f"_{name}", self._keep)(name, value)
        if "fsdp_version" in self.args:
            self._text("fsdp_version", "2")
        else:
            self.new.insert(0, "fsdp_version=2")
        if "state_dict_type" not in self.args:
            self.new.append('state_dict_type="FULL_STATE_DICT"')
            self.doubts.append(
                "full state dicts were the default where the launcher's configuration did not say "
                "otherwise"
            )
        self._write()

    def _keep(self, name: str, value: object) -> None:
        """An argument that means the same."""

    # One argument each -------------------------------------------------------------------------

    def _sharding_strategy(self, name: str, value: object) -> None:
        strategy = self._named(name, value, STRATEGIES)
        if strategy is None:
            return
        if strategy == "NO_SHARD":
            self.blockers.append(NO_SHARD)
        elif strategy.startswith("HYBRID"):
            self.blockers.append(HYBRID.format(strategy))
        elif "reshard_after_forward" in self.args:
            self._drop(name)
        else:
            self._drop(name, f"reshard_after_forward={strategy == 'FULL_SHARD'}")

    def _reshard_after_forward(self, name: str, value: object) -> None:
        if "sharding_strategy" in self.args:
            self._text(
                name, str(named(self.options["sharding_strategy"], STRATEGIES) == "FULL_SHARD")
            )
            return
        strategy = self._named(name, value, STRATEGIES)
        if strategy == "FULL_SHARD":
            self._text(name, "True")
        elif strategy == "SHARD_GRAD_OP":
            self._text(name, "False")
            self.doubts.append(
                "Accelerate's FSDP1 reads `sharding_strategy` only and used FULL_SHARD; now gathered "
                "layers stay in memory"
            )
        elif strategy is not None:
            self.blockers.append(
                f"Accelerate's FSDP1 reads `sharding_strategy` only and used FULL_SHARD, not {strategy}"
            )

    def _backward_prefetch(self, name: str, value: object) -> None:
        if value is None or named(value, PREFETCHES) != "BACKWARD_PRE":
            self.notes.append("the next layer's weights are always prefetched in the backward")
        self._drop(name)

    def _forward_prefetch(self, name: str, value: object) -> None:
        if truth(value) is not False:
            self.notes.append("no prefetch in the forward")
        self._drop(name)

    def _use_orig_params(self, name: str, value: object) -> None:
        if truth(value) is False:
            self.notes.append("the optimizer gets each parameter by itself, not flat ones")
        self._drop(name)

    def _limit_all_gathers(self, name: str, value: object) -> None:
        self._drop(name)

    def _sync_module_states(self, name: str, value: object) -> None:
        sends = truth(self.options.get("cpu_ram_efficient_loading", False))
        if value is not None and truth(value) is not False and sends is not True:
            self.doubts.append(
                "rank 0's weights are no longer sent to the others: each rank has to build the same "
                "ones, or `cpu_ram_efficient_loading=True` has to send them"
            )
        self._drop(name)

    def _param_init_fn(self, name: str, value: object) -> None:
        # With `sync_module_states` Accelerate puts a function of its own in its place.
        if value is not None and truth(self.options.get("sync_module_states", False)) is not True:
            self.blockers.append("`param_init_fn` is not called by Accelerate's FSDP2")
        self._drop(name)

    def _cpu_offload(self, name: str, value: object) -> None:
        if isinstance(value, bool):
            return
        node = self.args[name].value
        made = self._made_by(node, f"{FSDP}.CPUOffload")
        if made is None or len(made.args) > 1 or any(arg.star for arg in made.args):
            self.blockers.append("`cpu_offload` is neither a truth value nor `CPUOffload(...)`")
            return
        self._text(name, self.source.code(made.args[0].value) if made.args else "False")
        self._unused(made.func)

    def _mixed_precision_policy(self, name: str, value: object) -> None:
        if isinstance(value, str):
            return  # "bf16": Accelerate makes the policy
        made = self._made_by(self.args[name].value, f"{FSDP}.MixedPrecision")
        given = {} if made is None else {a.keyword.value: a.value for a in made.args if a.keyword}
        if made is None or len(given) < len(made.args) or set(given) - _PRECISIONS:
            self.blockers.append("`mixed_precision_policy` has no such counterpart in FSDP2")
            return
        if "buffer_dtype" in given:
            self.doubts.append("buffers keep their type")
        self.notes.append("inputs are cast for each unit, not for the whole only")
        texts = {key: self.source.code(node) for key, node in given.items()}
        texts.setdefault("reduce_dtype", texts.get("param_dtype", "None"))
        policy = self.rewrite.need_import(self.source, FSDP, "MixedPrecisionPolicy", at=self.call)
        kept = ", ".join(
            f"{key}={texts[key]}" for key in ("param_dtype", "reduce_dtype") if key in texts
        )
        self._text(name, f"{policy}({kept})")
        self._unused(made.func)

    def _auto_wrap_policy(self, name: str, value: object) -> None:
        if isinstance(value, str) and not value.startswith("torch."):
            if value.upper() == "SIZE_BASED_WRAP":
                self.blockers.append(POLICY)
            return
        classes = self._policy_classes(self.args[name].value)
        if classes is None or "transformer_cls_names_to_wrap" in self.args:
            self.blockers.append(POLICY)
            return
        quoted = ", ".join(f'"{one}"' for one in classes)
        self._drop(
            name,
            'auto_wrap_policy="transformer_based_wrap"',
            f"transformer_cls_names_to_wrap=[{quoted}]",
        )

    def _ignored_modules(self, name: str, value: object) -> None:
        self.blockers.append(
            "ignored modules are sharded all the same by Accelerate's FSDP2 with "
            "`cpu_ram_efficient_loading`, and clipped otherwise without it"
        )

    def _state_dict_type(self, name: str, value: object) -> None:
        if self._named(name, value, STATE_TYPES) == "LOCAL_STATE_DICT":
            self.blockers.append(
                "FSDP2 has no LOCAL_STATE_DICT: choose SHARDED_STATE_DICT or FULL_STATE_DICT"
            )

    def _state_dict_config(self, name: str, value: object) -> None:
        if STATE_CONFIG not in self.blockers:
            self.blockers.append(STATE_CONFIG)

    _optim_state_dict_config = _state_dict_config

    def _activation_checkpointing(self, name: str, value: object) -> None:
        if truth(value) is not False:
            self.doubts.append(
                "checkpointed layers are recomputed with other random numbers, so that dropout in "
                "them gives wrong gradients"
            )

    # Help --------------------------------------------------------------------------------------

    def _named(self, name: str, value: object, known: tuple[str, ...]) -> str | None:
        """What a strategy or type is, if it stands there itself; else it is in the way."""
        node = self.args[name].value
        literal = isinstance(node, cst.SimpleString | cst.Integer | cst.Attribute)
        found = named(value, known) if literal else None
        if found is None:
            self.blockers.append(f"`{name}` is only known when the program runs")
        return found

    def _made_by(self, node: cst.BaseExpression, name: str) -> cst.Call | None:
        """The node, if it is a call of a class of a library."""
        if not isinstance(node, cst.Call):
            return None
        wanted = {n for _, n, full in references(self.source, FSDP) if full == name}
        return node if node.func in wanted else None

    def _policy_classes(self, node: cst.BaseExpression) -> list[str] | None:
        """The names of the classes that a transformer policy wraps, and the policy is dropped."""
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
        self._unused(statement.value)
        return True

    def _unused(self, node: cst.CSTNode) -> None:
        for name in names(node):
            self.rewrite.remove_import_if_unused(self.source, name)
        text = dotted_name(node)
        if text and "." in text:
            self.rewrite.remove_import_if_unused(self.source, text.rpartition(".")[0])

    def _drop(self, name: str, *new: str) -> None:
        """Take an argument away, or put others in its place."""
        arg = self.args[name]
        self._unused(arg.value)
        if not new:
            self.gone.append(arg)
            return
        start = self.source.span(arg)[0]
        indent = re.match(r"[ \t]*", self.source.text[self.source.line_start(start) :])
        own_line = indent is not None and self.source.line_start(start) + indent.end() == start
        separator = ",\n" + indent.group() if own_line and indent is not None else ", "
        self.rewrite.replace_span(
            self.source, start, value_end(self.source, arg), separator.join(new)
        )

    def _text(self, name: str, text: str) -> None:
        """Give an argument another value."""
        node = self.args[name].value
        if self.source.code(node) != text:
            self._unused(node)
            self.rewrite.replace(self.source, node, text)

    def _write(self) -> None:
        for start, end in without(self.source, self.call, self.gone):
            self.rewrite.delete(self.source, start, end)
        first = self.call.args[0] if self.call.args else None
        if first is None:
            _, end = self.source.span(self.call)
            self.rewrite.insert(self.source, end - 1, ", ".join(self.new))
            return
        # In front of the first argument, on lines of their own where that has one.
        start = self.source.span(first)[0]
        line = self.source.line_start(start)
        own_line = not self.source.text[line:start].strip()
        indent = self.source.text[line:start]
        if own_line:
            text = "".join(f"{indent}{one},\n" for one in self.new)
            self.rewrite.insert(self.source, line, text)
        elif len(self.gone) < len(self.call.args):
            self.rewrite.insert(self.source, start, "".join(f"{one}, " for one in self.new))
        else:
            self.rewrite.insert(self.source, start, ", ".join(self.new))


def _wrapped_classes(policy: Partial) -> list[str] | None:
    """The names of the classes that a policy wraps, if it is torch's for transformers."""
    function, classes = policy.function, policy.kwargs.get("transformer_layer_cls")
    if not isinstance(function, Symbol) or function.name != TRANSFORMER_POLICY:
        return None
    if policy.open or policy.args or not isinstance(classes, Sequence) or classes.open:
        return None
    found = []
    for one in classes.items:
        if isinstance(one, Class):
            found.append(one.name)
        elif isinstance(one, Symbol):
            found.append(one.name.rpartition(".")[2])
        else:
            return None
    return found


_PRECISIONS = {"param_dtype", "reduce_dtype", "buffer_dtype"}
