"""Which submodules a wrapping policy picks."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.variables import Definition
from fsdplint.migration.constructor.unit_tree import UnitTree
from fsdplint.source.source import Source


@dataclass
class Policy:
    """How submodules are picked.

    Attributes:
        test: a test on `variable`, "" if a helper picks the submodules.
        members: the text of the list whose modules the test certainly picks, "" for other tests.
        guard: the condition under which there is a policy, "" if there always is one.
        helper: the start of the call of a helper, such as `shard_large_modules({model}, 1000`, or
            "".
        setup: lines before the loop.
        variables: definitions of variables that lose their last reader, with their files.
        root: whether the test may hold for the root itself.
        classes: the classes that the test names, None if some are unknown.
        variable: the loop's variable.
        unit: the keywords of `fully_shard` that units get besides those of the model.
        units: the units, if they are known by their names and not picked by a test.
        parts: these units.
        initializes: whether the helper initializes the modules, too.
        ignores: whether the helper leaves parameters out.
        counts_units: whether the helper leaves out, and counts, modules that are sharded already.
        every_test: the test that picks every module but lists and dicts of modules, if the policy, or
            one of those that it combines, does that; else "".
        gives_arguments: whether the test gives such keywords, or None for no unit.
    """

    test: str = ""
    members: str = ""
    guard: str = ""
    helper: str = ""
    setup: list[str] = field(default_factory=list)
    variables: list[tuple[Source, Definition]] = field(default_factory=list)
    root: bool = False
    classes: list[cst.BaseExpression] | None = field(default_factory=list)
    variable: str = "module"
    unit: tuple[tuple[str, str], ...] = ()
    initializes: bool = False
    ignores: bool = False
    counts_units: bool = False
    every_test: str = ""
    gives_arguments: bool = False
    units: UnitTree | None = None
    parts: list[ModuleValue] = field(default_factory=list)
