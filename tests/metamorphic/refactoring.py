"""Refactorings: changes of a program's text that keep its meaning.

A refactoring is a function over one file: it gives the changed file, or None where it does not apply. The
decorator registers it under its own name; its docstring says what it does. One of a whole program is
given the script alone, and may give further files, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import libcst as cst

Files = dict[str, str]  # the texts of a program by file name, the script first


@dataclass(frozen=True)
class Split:
    """A file, and the new files that hold what was taken out of it."""

    module: cst.Module
    files: Mapping[str, str]


Change = Callable[[cst.Module], "cst.Module | Split | None"]


@dataclass(frozen=True)
class Refactoring:
    """A change of a program's text that keeps its meaning.

    Attributes:
        name: its name in the table.
        description: what it does, in one line.
        theme: the module that defines it.
        change: the function over a file.
        is_of_script: whether it applies to the script only, not to the files that it imports.
    """

    name: str
    description: str
    theme: str
    change: Change
    is_of_script: bool

    def apply(self, files: Files) -> Files | None:
        """The program after the refactoring; None where it applies to no file.

        Where the result is no Python (quotes inside of an f-string, say), it does not apply.
        """
        try:
            return self._apply(files)
        except (SyntaxError, cst.ParserSyntaxError, cst.CSTValidationError):
            return None

    def _apply(self, files: Files) -> Files | None:
        result: Files = {}
        added: Files = {}
        for index, (name, text) in enumerate(files.items()):
            result[name] = text
            if self.is_of_script and index:
                continue
            changed = self.change(cst.parse_module(text))
            if isinstance(changed, Split):
                if not set(changed.files).isdisjoint(files):
                    return None
                added.update(changed.files)
                changed = changed.module
            if changed is not None:
                result[name] = changed.code
        for name, text in (result | added).items():
            compile(text, name, "exec")
        return None if result == files else result | added


REFACTORINGS: dict[str, Refactoring] = {}


def refactoring(*, is_of_script: bool = False) -> Callable[[Change], Change]:
    """Register a function as a refactoring."""

    def register(change: Change) -> Change:
        name, theme = change.__name__, change.__module__.rpartition(".")[2]
        assert name not in REFACTORINGS and change.__doc__
        description = change.__doc__.strip()
        REFACTORINGS[name] = Refactoring(name, description, theme, change, is_of_script)
        return change

    return register


def chain(*steps: Refactoring) -> Refactoring:
    """Refactorings one after the other. It applies where each of them applies."""

    class Chain(Refactoring):
        def apply(self, files: Files) -> Files | None:
            result: Files | None = files
            for step in steps:
                result = None if result is None else step.apply(result)
            return result

    name = " + ".join(step.name for step in steps)
    return Chain(name, "", "pairs", steps[0].change, True)
