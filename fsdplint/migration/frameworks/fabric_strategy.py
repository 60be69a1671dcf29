"""Fabric's `FSDPStrategy(...)` becomes a `ModelParallelStrategy` with a function that shards.

The function wraps the model by FSDP1 as the strategy did. So it is the same code that a program
without Fabric has, and the passes of the migration rewrite it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

import libcst as cst

from fsdplint.interpreter.values import Sequence
from fsdplint.migration.analysis.reaching import reach
from fsdplint.migration.analysis.variables import fresh, home_of
from fsdplint.migration.blockers import Blocked, Reason
from fsdplint.migration.blockers.lightning import (
    STRATEGY_ARGUMENT,
    STRATEGY_ARGUMENTS,
    STRATEGY_OF_SHARDING,
    STRATEGY_OFFLOADS,
    STRATEGY_POLICY,
    STRATEGY_REPLICATES,
    STRATEGY_VALUE,
)
from fsdplint.migration.constructor.strategy import ONE_DIMENSIONAL
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.direct_form.building import only_builds
from fsdplint.migration.frameworks.fabric import FabricCall, events, fabrics_of
from fsdplint.migration.frameworks.fabric_names import FOR_FSDP2, STRATEGY, new_home
from fsdplint.migration.frameworks.fabric_settings import mixed_precision, process_count
from fsdplint.migration.names import FSDP, PARAMETERS, PREFIX, STRATEGIES
from fsdplint.migration.text import call
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, elements, is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend, statement_of

CHECKPOINTING = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
KEPT = ("process_group_backend", "timeout")  # arguments that both strategies have
# Arguments of FSDP1's constructor that the strategy hands on.
HANDED_ON = frozenset(PARAMETERS) - {"module", "device_id"}


@dataclass
class StrategyWriter:
    """Writes one strategy and its function.

    Attributes:
        made: the call that makes the strategy, or its name in the call of Fabric.
        named: the arguments of the call.
        options: what they were in the runs.
        before: lines before the function.
        wrapping: the arguments of FSDP1's constructor.
        inside: calls behind that of the constructor: the function, and its arguments but the model.
        unread: assignments of variables that nothing reads any more.
    """

    api: ClassVar[str] = "Fabric"
    saves_whole: ClassVar[bool] = False  # by default

    migration: Migration
    source: Source
    made: cst.BaseExpression
    named: dict[str, cst.Arg] = field(default_factory=dict)
    options: list[dict[str, object]] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    wrapping: list[str] = field(default_factory=list)
    inside: list[tuple[str, str]] = field(default_factory=list)
    unread: list[cst.CSTNode] = field(default_factory=list)

    def write(self) -> None:
        """Write the new strategy in the place of the old one.

        Raises:
            Blocked: an argument has no counterpart, or a setting of Fabric is not known.
        """
        fabrics = fabrics_of(self.migration, self.source, self.made, self.api)
        if isinstance(self.made, cst.Call):
            self.named, rest = arguments(self.made, ())
            found = events(self.migration, STRATEGY)
            self.options = [dict(one.options) for one, at in found if at.node is self.made]
            if rest:
                raise self._blocked(rest[0].value, STRATEGY_ARGUMENTS(name=STRATEGY))
        elif _word(self.made) == "fsdp_cpu_offload":
            raise self._blocked(self.made, STRATEGY_OFFLOADS())
        counts = {process_count(self.migration, self.source, self.made, x) for x in fabrics}
        if len(counts) > 1:
            raise self._blocked(self.made, STRATEGY_VALUE(name="data_parallel_size"))
        for name, arg in self.named.items():
            self._read(name, self._meaning(arg.value))
        for statement in self.unread:
            self.migration.delete_statement(self.source, statement)
        self._add_precision(fabrics)
        self._add("use_orig_params", "True")
        self._write_call(self._write_sharding(fabrics), counts.pop())

    @property
    def full_name(self) -> str:
        """The full name of the class, or of the class that gets its name."""
        call = self.made if isinstance(self.made, cst.Call) else self._call_around()
        return self.migration.symbol(call.func) if call is not None else ""

    def _call_around(self) -> cst.Call | None:
        around = self.source.parent(self.source.parent(self.made) or self.made)
        return around if isinstance(around, cst.Call) else None

    def _write_sharding(self, fabrics: list[FabricCall]) -> list[str]:
        """Write what shards the model; returns the arguments of the strategy for it."""
        name = fresh(self.source, self.made, "parallelize", "shard_model", "parallelize_model")
        self._write_function(name)
        return [f"parallelize_fn={name}"]

    def _blocked(self, node: cst.CSTNode, reason: Reason) -> Blocked:
        return Blocked(self.source, node, reason)

    @property
    def place(self) -> tuple[Source, cst.CSTNode]:
        """The file of what shards the model, and a node there."""
        return self.source, self.made

    def _need(self, module: str, name: str | None) -> str:
        """How the file of what shards the model writes a name."""
        source, at = self.place
        return self.migration.need(source, module, name, at)

    def _policy_text(self, dtype: str) -> str:
        """The policy of FSDP1 that computes in a type; "None" for no policy."""
        if not dtype:
            return "None"
        name, torch = self._need(PREFIX, "MixedPrecision"), self._need("torch", None)
        given = (f"{key}_dtype={torch}.{dtype}" for key in ("param", "reduce", "buffer"))
        return f"{name}({', '.join(given)})"

    def _add(self, name: str, text: str) -> None:
        """Add an argument of FSDP1's constructor, unless the strategy gives it."""
        if not any(one.startswith(f"{name}=") for one in self.wrapping):
            self.wrapping.append(f"{name}={text}")

    # One argument each ---------------------------------------------------------------------------

    def _read(self, name: str, value: cst.BaseExpression) -> None:
        """Translate one argument of the strategy."""
        if name in KEPT or name == "state_dict_type":
            return
        reader = getattr(self, f"_read_{name}", None)
        if reader is not None:
            reader(value)
        elif name not in HANDED_ON:
            raise self._blocked(value, STRATEGY_ARGUMENT(name=name))
        elif not self._is_none(name, value):
            self._add(name, self._text(name, value))

    def _read_auto_wrap_policy(self, value: cst.BaseExpression) -> None:
        if self._is_none("auto_wrap_policy", value):
            return
        text = self._text("auto_wrap_policy", value)
        if self._is_set("auto_wrap_policy", value):
            policy = self._need(f"{PREFIX}.wrap", "ModuleWrapPolicy")
            text = f"{policy}({text})"
        self._add("auto_wrap_policy", text)

    def _read_mixed_precision(self, value: cst.BaseExpression) -> None:
        if not self._is_none("mixed_precision", value):
            self._add("mixed_precision", self._text("mixed_precision", value))

    def _read_cpu_offload(self, value: cst.BaseExpression) -> None:
        values = self._values("cpu_offload")
        if not is_constant(value, "None", "False") and not set(map(repr, values)) <= {
            "None",
            "False",
        }:
            raise self._blocked(value, STRATEGY_OFFLOADS())

    def _read_sharding_strategy(self, value: cst.BaseExpression) -> None:
        values = [str(one) for one in self._values("sharding_strategy")]
        found = {name.rpartition(".")[2].upper() for name in values}
        if not found or not found <= set(STRATEGIES):
            raise self._blocked(value, STRATEGY_OF_SHARDING())
        if "NO_SHARD" in found:
            raise self._blocked(value, STRATEGY_REPLICATES())
        if found == {"FULL_SHARD"}:
            return
        enum = self._need(PREFIX, "ShardingStrategy")
        if len(found) == 1:
            self._add("sharding_strategy", f"{enum}.{found.pop()}")
        elif found <= set(ONE_DIMENSIONAL) and not any("." in one for one in values):
            text = self._text("sharding_strategy", value)
            self._add("sharding_strategy", f"{enum}[{text}]")
        else:
            raise self._blocked(value, STRATEGY_OF_SHARDING())

    def _read_device_mesh(self, value: cst.BaseExpression) -> None:
        if self._is_none("device_mesh", value):
            return
        text = self._text("device_mesh", value)
        if isinstance(value, cst.Tuple):
            init = self._need("torch.distributed.device_mesh", "init_device_mesh")
            text = f'{init}("cuda", {text})'
        elif not self._all(value, "init_device_mesh"):
            raise self._blocked(value, STRATEGY_VALUE(name="device_mesh"))
        self._add("device_mesh", text)

    def _all(self, value: cst.BaseExpression, name: str) -> bool:
        values = self.migration.values(value)
        return bool(values) and all(getattr(x, "name", "").endswith(name) for x in values)

    def _read_activation_checkpointing(self, value: cst.BaseExpression) -> None:
        if self._is_none("activation_checkpointing", value):
            return
        classes = [value]
        if isinstance(value, cst.List):
            classes = list(elements(value) or ())
            if not classes:
                raise self._blocked(value, STRATEGY_VALUE(name="activation_checkpointing"))
        elif any(isinstance(one, list) for one in self._values("activation_checkpointing")):
            raise self._blocked(value, STRATEGY_VALUE(name="activation_checkpointing"))
        self._checkpoint(", ".join(expression(self.migration, self.source, x) for x in classes))

    def _read_activation_checkpointing_policy(self, value: cst.BaseExpression) -> None:
        if self._is_none("activation_checkpointing_policy", value):
            return
        if isinstance(value, cst.Set):
            items = [x.value for x in value.elements]
            self._checkpoint(", ".join(expression(self.migration, self.source, x) for x in items))
            return
        text = self._text("activation_checkpointing_policy", value)
        if self._is_set("activation_checkpointing_policy", value):
            self._checkpoint(f"tuple({text})", one=True)
        else:
            self._apply_checkpointing(f"auto_wrap_policy={text}")

    def _checkpoint(self, classes: str, *, one: bool = False) -> None:
        """Recompute the modules of some classes in the backward pass."""
        given = classes if one or "," not in classes else f"({classes})"
        self._apply_checkpointing(f"check_fn=lambda module: isinstance(module, {given})")

    def _apply_checkpointing(self, argument: str) -> None:
        apply = self._need(CHECKPOINTING, "apply_activation_checkpointing")
        self.inside.append((apply, argument))

    def _add_precision(self, fabrics: list[FabricCall]) -> None:
        """Add the policy that the strategy makes of the precision of Fabric."""
        texts = {mixed_precision(self.migration, self.source, self.made, x) for x in fabrics}
        if any(one.startswith("mixed_precision=") for one in self.wrapping):
            return
        if len(texts) > 1:
            raise self._blocked(self.made, STRATEGY_VALUE(name="mixed_precision"))
        dtype, test, other = texts.pop()
        if not dtype:
            return
        text = self._policy_text(dtype)
        if test:
            name = fresh(self.source, self.made, "mixed_precision", "fabric_precision")
            parts = [text, f"if {test}", f"else {self._policy_text(other)}"]
            self.before += [f"{name} = (", *(f"\t{one}" for one in parts), ")"]
            text = name
        self._add("mixed_precision", text)

    # Values --------------------------------------------------------------------------------------

    def _values(self, name: str) -> list[object]:
        """What an argument was in the runs; `...` if it is not a constant."""
        return [one.get(name, ...) for one in self.options]

    def _is_none(self, name: str, node: cst.BaseExpression) -> bool:
        """Whether an argument is None.

        Raises:
            Blocked: it is in some runs only.
        """
        values = [one is None for one in self._values(name)]
        if any(values) and not all(values):
            raise self._blocked(node, STRATEGY_VALUE(name=name))
        return is_constant(node, "None") or any(values)

    def _is_set(self, name: str, node: cst.BaseExpression) -> bool:
        """Whether a policy is a set of classes.

        Raises:
            Blocked: this is not known.
        """
        if isinstance(node, cst.Set):
            return True
        values = self._values(name)
        if values and all(isinstance(one, list) for one in values):
            return True
        found = self.migration.values(node)
        known = found and not any(isinstance(one, Sequence) for one in found)
        if known or (values and all(isinstance(one, str) for one in values)):
            return False
        raise self._blocked(node, STRATEGY_POLICY())

    def _text(self, name: str, node: cst.BaseExpression) -> str:
        """The text of an argument inside of the function.

        An expression that may have another value there gets a variable.
        """
        text = expression(self.migration, self.source, node)
        if only_builds(self.migration, self.source, node) and self._stays(node):
            return text
        variable = fresh(self.source, self.made, name, f"fsdp_{name}")
        self.before.append(f"{variable} = {text}")
        return variable

    def _stays(self, node: cst.BaseExpression) -> bool:
        """Whether the variables of an expression are not assigned after the strategy is made."""
        bindings = bindings_of(self.source)
        end = self.source.span(self.made)[1]
        for part in descend(node):
            if isinstance(part, cst.Name):
                scope = bindings.owner(bindings.scope_at(part), part.value)
                targets = scope.others.get(part.value, ()) if scope is not None else ()
                if any(self.source.span(target)[0] > end for target in targets):
                    return False
        return True

    def _meaning(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """The value of a variable that only the strategy reads, which then has no reader left."""
        if not isinstance(node, cst.Name) or is_constant(node, "None", "True", "False"):
            return node
        found = reach(self.source, node)
        if found is None or home_of(self.source, node) is not function_around(self.source, node):
            return node
        value = found.definition.value
        inside = set(descend(self.made))
        if not inside.issuperset(found.reads) or not self._stays(value):
            return node
        if not only_builds(self.migration, self.source, value):
            return node
        if found.definition.statement not in self.unread:
            self.unread.append(found.definition.statement)
        return value

    # Texts ---------------------------------------------------------------------------------------

    def _write_function(self, name: str) -> None:
        source, made = self.source, self.made
        wrapper = self._need(PREFIX, FSDP)
        hybrid = any("HYBRID" in one for one in self.wrapping)
        if not hybrid:
            self._add("device_mesh", 'mesh["data_parallel"]')
        texts = [*self.wrapping, *(one for _, one in self.inside)]
        taken = set(re.findall(r"\w+", " ".join(texts)))
        model = next(one for one in ("model", "module", "net", "root") if one not in taken)
        given = [model, *self.wrapping]
        if self.inside:
            wrap = [call(source, made, f"{model} = {wrapper}", given, depth=1)]
            inside = (
                call(source, made, apply, [model, one], depth=1) for apply, one in self.inside
            )
            body = [*wrap, *inside, f"return {model}"]
        else:
            body = [call(source, made, f"return {wrapper}", given, depth=1)]
        lines = [f"def {name}({model}, mesh):"]
        for one in body:
            first, *rest = one.split("\n")
            lines += [f"\t{first}", *(f"\t{line}" if line[:1] != "\t" else line for line in rest)]
        statement = statement_of(source, made)
        at_top = source.parent(source.statement(made)) is source.tree
        blank = [""] * (2 if at_top else 1)
        above = [*self.before, *blank] if self.before else blank[_blank_above(source, statement) :]
        self.migration.rewrite.insert_before(source, statement, [*above, *lines, *blank])

    def _write_call(self, sharding: list[str], count: str) -> None:
        source, made = self.source, self.made
        given = [*sharding, f"data_parallel_size={count}", "tensor_parallel_size=1"]
        given += self._save_argument()
        for key in KEPT:
            if key in self.named:
                text = expression(self.migration, source, self.named[key].value)
                given.append(f"{key}={text}")
        strategy = self.migration.need(source, new_home(self.full_name), FOR_FSDP2, made)
        self.migration.forget(source, made)
        self.migration.put_call(source, made, strategy, given)

    def _save_argument(self) -> list[str]:
        """The form of checkpoints; the strategy for FSDP2 saves sharded ones by default."""
        arg = self.named.get("state_dict_type")
        kind = _word(arg.value) if arg is not None else "full" if self.saves_whole else "sharded"
        if kind == "sharded":
            return []
        if kind == "full" or arg is None:
            return ["save_distributed_checkpoint=False"]
        text = expression(self.migration, self.source, arg.value)
        return [f'save_distributed_checkpoint={text} == "sharded"']


def _word(node: cst.BaseExpression) -> object:
    """The text of a string, None for other expressions."""
    return node.evaluated_value if isinstance(node, cst.SimpleString) else None


def _blank_above(source: Source, statement: cst.CSTNode) -> int:
    """The number of blank lines above a statement; 2 if it is the first one of its block."""
    line = source.parent(statement)
    block = source.parent(line) if line is not None else None
    if isinstance(block, cst.IndentedBlock) and block.body[0] is line:
        return 2
    lines = source.text[: source.line_start(source.span(statement)[0])].split("\n")[:-1]
    return next((n for n, one in enumerate(reversed(lines)) if one.strip()), 2)
