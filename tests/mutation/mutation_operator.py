"""Mutation operators: each plants the bug that one rule describes into a program without it.

An operator is a function over the syntax of one file: it yields a plan for each of its sites. The decorator
registers it under its own name; its docstring says what it plants. It knows names and calls of torch's API,
and nothing of what the interpreter of fsdplint knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import libcst as cst
from file_syntax import FileSyntax
from planting import Changes, plant

Files = dict[str, str]  # the texts of a program by file name, the script first


@dataclass(frozen=True)
class Plan:
    """How to plant a bug at one site.

    Attributes:
        at: the node of the site in the clean program.
        changes: what takes the place of which nodes.
        head: statements for the top of the file.
        kind: which kind of site it is, if the operator has several.
        rules: the rules that describe the bug, if they depend on the site.
    """

    at: cst.CSTNode
    changes: Changes
    head: str = ""
    kind: str = ""
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mutant:
    """A program with a planted bug.

    Attributes:
        operator: the name of the operator.
        rules: the rules any of which has to find it.
        files: its texts.
        file: the name of the file that was changed.
        line: the line of the site in the clean program.
        kind: which kind of site it is.
    """

    operator: str
    rules: tuple[str, ...]
    files: Files = field(repr=False)
    file: str
    line: int
    kind: str


Planner = Callable[[FileSyntax], Iterator[Plan]]


@dataclass(frozen=True)
class Operator:
    """A mutation operator.

    Attributes:
        name: its name in the table.
        description: what it plants, in one line.
        rules: the rules any of which has to find a mutant.
        planner: the function over a file.
    """

    name: str
    description: str
    rules: tuple[str, ...]
    planner: Planner

    def mutants(self, files: Files) -> Iterator[Mutant]:
        """One mutant for each site in a program."""
        for name, text in files.items():
            if "torch" not in text:
                continue
            syntax = FileSyntax.of(text)
            for plan in self.planner(syntax) if syntax is not None else ():
                changed = plant(syntax.module, plan.changes, plan.head)
                try:
                    compile(changed, name, "exec")
                except SyntaxError:
                    continue
                if changed == text:
                    continue
                yield Mutant(
                    self.name,
                    plan.rules or self.rules,
                    files | {name: changed},
                    name,
                    syntax.line(plan.at),
                    plan.kind,
                )


OPERATORS: dict[str, Operator] = {}


def operator(*rules: str) -> Callable[[Planner], Planner]:
    """Register a function as an operator that plants a bug of one of these rules."""

    def register(planner: Planner) -> Planner:
        add(planner.__name__, planner.__doc__ or "", rules, planner)
        return planner

    return register


def add(name: str, description: str, rules: tuple[str, ...], planner: Planner) -> None:
    assert name not in OPERATORS and description
    OPERATORS[name] = Operator(name, description.strip(), rules, planner)
