"""The strategy of Lightning's Trainer: `configure_model` of the LightningModule shards the module.

FSDP1 runs each step of the module in the forward of its wrapper. So the steps are registered as
methods before which FSDP2 gathers the parameters of the root.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.interpreter.values import Class, ModuleValue
from fsdplint.migration.analysis.components import files_run_together, full_program
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.lightning import (
    LAYERS_SYNCHRONISED,
    MODULE_CONFIGURED,
    MODULE_ELSEWHERE,
    MODULE_OF_TRAINER,
    SEVERAL_STRATEGIES,
    STRATEGY_ARGUMENT,
    STRATEGY_VALUE,
)
from fsdplint.migration.frameworks.fabric import FabricCall
from fsdplint.migration.frameworks.fabric_strategy import StrategyWriter
from fsdplint.migration.frameworks.lightning_objects import is_trainer
from fsdplint.migration.names import FSDP, PREFIX
from fsdplint.migration.text import call
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import walk

RUNS = ("fit", "validate", "test", "predict")  # methods of Trainer that get a module
STEPS = ("training_step", "validation_step", "test_step", "predict_step")
CONFIGURING = ("configure_model", "configure_sharded_model")
BASES = (".LightningModule",)
CASTS = "a tensor that a step of the LightningModule makes may be cast to bfloat16"
CASTS_DETAIL = (
    "The module casts the tensors that it is called with in a step. FSDP1 cast those of the batch alone. "
    "Give `cast_forward_inputs=False` to the policy of the module to change it."
)
READ = ("parameters", "named_parameters", "grad")
HOOKS = "a hook of the LightningModule reads parameters or gradients, which are DTensors"
HOOKS_DETAIL = (
    "FSDP1 has this rank's part there. A norm of a DTensor is that of all ranks, and `full_tensor()` has the "
    "values."
)
OLD_SHARDS = "sharded checkpoints that FSDP1 wrote cannot be loaded"
OLD_SHARDS_DETAIL = "Lightning saves the state under another key. Load a whole checkpoint."


@dataclass
class TrainerStrategyWriter(StrategyWriter):
    """Writes one strategy of Trainer, and the method of the modules."""

    api: ClassVar[str] = "Trainer"
    saves_whole: ClassVar[bool] = True

    def _write_sharding(self, fabrics: list[FabricCall]) -> list[str]:
        for one in fabrics:
            synchronised = one.named.get("sync_batchnorm")
            if synchronised is not None and not is_constant(synchronised.value, "False"):
                raise Blocked(one.source, synchronised.value, LAYERS_SYNCHRONISED())
        if "plugins" in {name for one in fabrics for name in one.named}:
            raise self._blocked(self.made, STRATEGY_ARGUMENT(name="plugins"))
        for klass in self.modules:
            self._write_method(klass)
        if self._save_argument() == []:
            self.migration.note(OLD_SHARDS, self.source, self.made, detail=OLD_SHARDS_DETAIL)
        return []

    @cached_property
    def modules(self) -> list[Class]:
        """The classes of the modules, which stand in one file.

        Raises:
            Blocked: they are not known.
        """
        found = list({one.node: one for one in self._modules()}.values())
        files = {one.site.source for one in found}
        if len(files) != 1 or any(not isinstance(x.node.body, cst.IndentedBlock) for x in found):
            raise self._blocked(self.made, MODULE_OF_TRAINER())
        return found

    @property
    def place(self) -> tuple[Source, cst.CSTNode]:
        klass = self.modules[0]
        return klass.site.source, klass.node.body

    def _text(self, name: str, node: cst.BaseExpression) -> str:
        count = len(self.before)
        text = super()._text(name, node)
        if len(self.before) > count:
            raise self._blocked(node, STRATEGY_VALUE(name=name))
        return text

    def _modules(self) -> Iterator[Class]:
        """The classes of the modules that Trainers get."""
        program = full_program(self.migration.program)
        for source in files_run_together(program, self.source):
            for node in walk(source, skip_imports=True):
                if not isinstance(node, cst.Call) or not _runs(program, source, node):
                    continue
                given = arguments(node, ("model",))[0].get("model")
                values = program.values(given.value) if given is not None else []
                classes = [one.cls for one in values if isinstance(one, ModuleValue)]
                known = [one for one in classes if one is not None and _is_lightning(one)]
                if given is not None and (not values or len(known) < len(values)):
                    raise Blocked(source, node, MODULE_OF_TRAINER())
                yield from known

    def _write_method(self, klass: Class) -> None:
        source, body = klass.site.source, klass.node.body
        methods = _methods(klass)
        for name in CONFIGURING:
            if name in methods:
                raise self._blocked(self.made, MODULE_CONFIGURED(name=klass.name, method=name))
        self._check_names(klass)
        wrapper, kind = self._need(PREFIX, FSDP), self._need(PREFIX, "FSDPModule")
        register = self._need(PREFIX, "register_fsdp_forward_method")
        if not any("HYBRID" in one for one in self.wrapping):
            self._add("device_mesh", 'self.device_mesh["data_parallel"]')
        names = [f'"{name}"' for name in STEPS if name in methods]
        steps = ", ".join(names) + ("," if len(names) == 1 else "")
        lines = [
            "def configure_model(self):",
            f"\tif self.device_mesh is None or isinstance(self, {kind}):",
            "\t\treturn",
            *(f"\t{line}" for line in self.before),
            *call(source, body.body[0], f"\t{wrapper}", ["self", *self.wrapping], depth=1).split(
                "\n"
            ),
        ]
        for apply, one in self.inside:
            lines += call(source, body.body[0], f"\t{apply}", ["self", one], depth=1).split("\n")
        if names:
            lines += [f"\tfor name in ({steps}):", f"\t\t{register}(self, name)"]
        key = f"configure_model {source.path} {source.span(klass.node)[0]}"
        conflict = self._blocked(self.made, SEVERAL_STRATEGIES(name=klass.name))
        if not self.migration.add_helper(key, "\n".join(lines), conflict):
            return
        first = next((one for one in body.body if _is_method(one, "configure_optimizers")), None)
        if first is not None:
            self.migration.rewrite.insert_before(source, first, [*lines, ""])
        else:
            self.migration.rewrite.insert_after(source, body.body[-1], ["", *lines])
        self._note_casts(klass)
        self._note_hooks(klass)

    def _check_names(self, klass: Class) -> None:
        """Block if the method would read names that the file of the module does not have."""
        bindings = bindings_of(self.source)
        same = klass.site.source is self.source
        for arg in self.named.values():
            for part in descend(self._meaning(arg.value)):
                parent = self.source.parent(part)
                is_name = isinstance(part, cst.Name) and not (
                    (isinstance(parent, cst.Attribute) and parent.attr is part)
                    or (isinstance(parent, cst.Arg) and parent.keyword is part)
                )
                if not is_name or not isinstance(part, cst.Name):
                    continue
                scope = bindings.owner(bindings.scope_at(part), part.value)
                if scope is None or (scope.kind == "module" and same):
                    continue
                if scope.kind in ("module", "function") and not same:
                    if _is_same_name(self.source, part, klass.site.source):
                        continue
                reason = MODULE_ELSEWHERE(name=klass.name, code=part.value)
                raise self._blocked(part, reason)

    def _note_casts(self, klass: Class) -> None:
        """Note that a module casts what its steps call it with."""
        lowers = any("bfloat16" in one for one in (*self.before, *self.wrapping))
        for one in klass.mro() if lowers or self._lowers_by_policy() else ():
            source = one.site.source
            for part in descend(one.node):
                if isinstance(part, cst.FunctionDef) and part.name.value in STEPS:
                    own = part.params.params[0].name.value if part.params.params else ""
                    for node in descend(part.body):
                        if isinstance(node, cst.Call) and is_constant(node.func, own):
                            if not _gives_batch(source, part, node):
                                self.migration.note(
                                    CASTS, source, node, detail=CASTS_DETAIL, unsafe=True
                                )

    def _note_hooks(self, klass: Class) -> None:
        """Note that a hook of the module reads parameters or gradients, which become DTensors."""
        for one in klass.mro():
            source = one.site.source
            for hook in one.node.body.body:
                if not isinstance(hook, cst.FunctionDef) or not hook.name.value.startswith("on_"):
                    continue
                for part in descend(hook.body):
                    is_read = isinstance(part, cst.Attribute) and part.attr.value in READ
                    norm = isinstance(part, cst.Call) and is_constant(part.func, "grad_norm")
                    if is_read or norm:
                        self.migration.note(HOOKS, source, part, detail=HOOKS_DETAIL, unsafe=True)

    def _lowers_by_policy(self) -> bool:
        return "mixed_precision" in self.named


def _runs(program: Program, source: Source, node: cst.Call) -> bool:
    """Whether a call is one of Trainer's that runs a module."""
    func = node.func
    if not isinstance(func, cst.Attribute) or func.attr.value not in RUNS:
        return False
    return is_trainer(program, source, func.value)


def _is_lightning(klass: Class) -> bool:
    """Whether all bases of a class are known, and one is Lightning's."""
    libraries = klass.library_bases()
    return any(name.endswith(BASES) for name in libraries) and all(
        name.endswith(BASES) or name in ("abc.ABC", "torch.nn.Module") for name in libraries
    )


def _methods(klass: Class) -> set[str]:
    """The names of the methods of a class and its bases."""
    return {
        part.name.value
        for one in klass.mro()
        for part in one.node.body.body
        if isinstance(part, cst.FunctionDef)
    }


def _is_method(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.FunctionDef) and node.name.value == name


def _is_same_name(source: Source, name: cst.Name, other: Source) -> bool:
    """Whether another file knows a name by an import of the same object, or defines it."""
    items = [x for x in bindings_of(source).imports() if x.local == name.value]
    if len(items) != 1:
        return False
    top = bindings_of(other).module
    there = [x for x in top.imports if x.local == name.value]
    if there:
        return len(there) == 1 and there[0].full.lstrip(".") == items[0].full.lstrip(".")
    stem = other.path.replace("\\", "/").removesuffix(".py").rpartition("/")[2]
    defined = len(top.others.get(name.value, ())) == 1
    return defined and items[0].module.rpartition(".")[2] == stem and items[0].name == name.value


def _gives_batch(source: Source, step: cst.FunctionDef, node: cst.Call) -> bool:
    """Whether a step calls its module with parts of the batch alone."""
    params = [one.name.value for one in step.params.params]
    if len(params) < 2:
        return False
    parts = {params[1]}
    for part in descend(step.body):
        if isinstance(part, cst.Assign) and _root(part.value) == params[1]:
            for target in part.targets:
                parts |= {x.value for x in descend(target.target) if isinstance(x, cst.Name)}
    again = [
        x.target.value
        for x in descend(step.body)
        if isinstance(x, cst.AssignTarget) and isinstance(x.target, cst.Name)
    ]
    changed = {one for one in parts if again.count(one) > 1}
    return all(
        isinstance(arg.value, cst.BaseString | cst.BaseNumber)
        or is_constant(arg.value, "None", "True", "False")
        or _root(arg.value) in parts - changed
        for arg in node.args
    )


def _root(node: cst.BaseExpression) -> str:
    """The variable of `batch`, `batch["x"]` or `batch.x`; "" for other expressions."""
    while isinstance(node, cst.Subscript | cst.Attribute):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""
