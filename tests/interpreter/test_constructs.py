"""What the interpreter can follow is registered by type: each construct of Python, or a reason."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import libcst as cst

from fsdplint.interpreter import constructs, models, semantics
from fsdplint.interpreter.dispatch import CALLERS, EVALUATORS, EXECUTORS
from fsdplint.interpreter.values import Value

sys.path.insert(0, str(Path(__file__).parents[1]))
from test_layers import graph

# Why nothing is registered for a node: an expression is Unknown then, once the expressions directly
# in it are evaluated; a statement does nothing.
NOT_EVALUATED = {
    cst.Imaginary: "a complex number: nothing that FSDP gets is one",
    cst.StarredDictComp: "unpacking in a comprehension: syntax of Python 3.15",
    cst.TemplatedString: "a template: an object of Python 3.14 that holds no values of torch",
}
NOT_EXECUTED = {
    cst.LazyImport: "a lazy import: syntax of Python 3.15",
    cst.LazyImportFrom: "a lazy import: syntax of Python 3.15",
    cst.Pass: "it does nothing",
    cst.TypeAlias: "`type X = ...` is for type checkers: no object of a program is made by it",
}
# Values that a program does not call: the function for `Value` treats them as unknown callees.
NOT_CALLED = {
    "Batches", "Condition", "Const", "Context", "Dict", "GeneratorContext", "HookHandle", "Lazy",
    "LazyClass", "LazyImport", "Length", "LoaderValue", "LocalGradient", "ModulesOf", "Namespace", "NoResult",
    "OptimizerValue", "PartialMethod",
    "GeneratorValue", "HelperState", "MeshPosition", "MeshSize", "NameTest", "ParameterId", "ParameterName",
    "ModulePath", "PossibleLists", "ProjectModule", "RankChoice", "RankElement", "PartlyHeld", "HeldAtTimes", "SamplerValue", "ScalerValue", "SchedulerValue",
    "Sequence", "Super",
    "Unknown",
}  # fmt: skip


def subclasses(kind: type) -> Iterator[type]:
    for below in kind.__subclasses__():
        yield below
        yield from subclasses(below)


def nodes(*bases: type[cst.CSTNode]) -> set[type]:
    """The node types of libcst below some bases, without its abstract ones."""
    return {
        kind
        for base in bases
        for kind in subclasses(base)
        if getattr(cst, kind.__name__, None) is kind and not kind.__name__.startswith("Base")
    }


def test_each_expression_is_evaluated_or_has_a_reason() -> None:
    assert nodes(cst.BaseExpression) == EVALUATORS.keys() | NOT_EVALUATED.keys()
    assert not EVALUATORS.keys() & NOT_EVALUATED.keys()


def test_each_statement_is_executed_or_has_a_reason() -> None:
    assert (
        nodes(cst.BaseStatement, cst.BaseSmallStatement) == EXECUTORS.keys() | NOT_EXECUTED.keys()
    )
    assert not EXECUTORS.keys() & NOT_EXECUTED.keys()


def test_each_value_is_called_or_listed() -> None:
    called = {kind.__name__ for kind in CALLERS if kind is not Value}
    assert {kind.__name__ for kind in subclasses(Value)} == called | NOT_CALLED
    assert not called & NOT_CALLED
    assert Value in CALLERS


def test_semantics_imports_every_module_that_registers_something() -> None:
    held = [module.__name__.rpartition(".")[2] for module in semantics.CONSTRUCTS]
    assert held == [found.name for found in pkgutil.iter_modules(constructs.__path__)]
    held = [module.__name__.rpartition(".")[2] for module in semantics.MODELS]
    there = {found.name for found in pkgutil.iter_modules(models.__path__)}
    assert held == sorted(there - {"nn_classes", "registry"})


def test_modules_import_in_no_circle() -> None:
    below = {
        name: {target for target in targets if target.startswith("fsdplint.interpreter")}
        for name, targets in graph().items()
        if name.startswith("fsdplint.interpreter.")
    }
    while leaves := {name for name, targets in below.items() if not targets & below.keys()}:
        below = {name: targets for name, targets in below.items() if name not in leaves}
    assert not below, "these modules import each other, or one that does"
