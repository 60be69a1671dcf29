"""A wrapping policy after its migration, as the passes hand it on."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.variables import Definition
from fsdplint.source.source import Source


@dataclass
class Policy:
    """How submodules are chosen.

    Attributes:
        test: a test on `variable`, or "" where a helper does it all.
        guard: a condition under which there is a policy at all, "" if there always is.
        helper: head of the call of a helper, `shard_large_modules({model}, 1000`, where there is
            one.
        before: lines that have to come before the loop.
        variables: definitions of variables that are needed no longer, with their names.
        root: whether the test might hold for the root itself.
        classes: the classes that are tested for, as far as they are known.
        variable: the loop's variable.
    """

    test: str = ""
    guard: str = ""
    helper: str = ""
    before: list[str] = field(default_factory=list)
    variables: list[tuple[Source, Definition]] = field(default_factory=list)
    root: bool = False
    classes: list[cst.BaseExpression] | None = field(default_factory=list)
    variable: str = "module"
