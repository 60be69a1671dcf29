"""What the search through a program's configurations aims its runs at."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.interpreter.configurations import Choice, Decisions
from fsdplint.interpreter.values import Condition
from fsdplint.source.fsdp_words import names_strategy

Shown = tuple[object, bool, bool]  # a test's node, its key's value, and whether a model is sharded


@dataclass(frozen=True)
class Target:
    """What a run is to show.

    Attributes:
        choices: the decisions that it is to make.
        branch: the branch that it is to take, if the target is one: the test, its outcome, and
            whether a model is sharded in such a run.
    """

    choices: frozenset[Choice]
    branch: Shown | None = None

    @property
    def name(self) -> object:
        """What two targets have in common that ask for the same."""
        return self.branch or self.choices


def key_order(key: str) -> tuple[bool, str]:
    """Keys whose own name says that they choose how a model is distributed come first."""
    return not names_strategy(key), key


def is_possible(condition: Condition, value: bool) -> bool:
    """Whether the subject of a condition has a value with which it holds, or does not."""
    return Decisions().infer(condition) in (None, value)
