"""Ranks, tests of the rank, and positions in meshes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fsdplint.interpreter.values import (
    Unknown,
    Value,
)
from fsdplint.source.source import NodeSite
from fsdplint.trace import (
    Ranks,
)


@dataclass(eq=False, repr=False)
class RankValue(Value):
    """The number of this rank. scope: "global", "local" (in its node) or "group".

    argument: the call of `add_argument` if it is the command-line argument of the old launcher.
    """

    scope: str = "global"
    argument: NodeSite | None = None


@dataclass(eq=False, repr=False)
class MeshPosition(Unknown):
    """The position of this rank in one dimension of a mesh.

    mesh: the name of the whole mesh in the trace. dimension: the name of the dimension.
    """

    mesh: str = ""
    dimension: str = ""


@dataclass(eq=False, repr=False)
class MeshSize(Unknown):
    """The number of ranks in a whole mesh."""


@dataclass(eq=False, repr=False)
class RankTest(Value):
    """A boolean that depends on the rank, with the ranks on which it is true and false.

    each_node: whether it is a test of the local rank: true, or false, on one rank of each machine.
    one_is: its outcome on the one rank of each machine, if it is such a test.
    number: the rank that it tells from the others; None if unknown.
    in_turn: whether this is another rank in each turn of a loop.
    loop: this loop, if it is known.
    """

    true_on: Ranks
    false_on: Ranks
    each_node: bool = False
    number: int | None = None
    one_is: bool = True
    in_turn: bool = False
    loop: NodeSite | None = None

    def negate(self) -> RankTest:
        sides = self.false_on, self.true_on
        return replace(self, true_on=sides[0], false_on=sides[1], one_is=not self.one_is)


@dataclass(frozen=True)
class RankSide:
    """The ranks on which a test of the rank has a certain outcome."""

    test: RankTest
    holds: bool

    def as_test(self) -> RankTest:
        """The test whether a rank is one of these."""
        return self.test if self.holds else self.test.negate()


@dataclass(eq=False, repr=False)
class PartlyHeld(Unknown):
    """A value that there is on some ranks or at times, and else None or nothing.

    held: this value, for which it stands (see `Run.settle`); None if there is anything else.
    """

    held: Value | None = None


@dataclass(eq=False, repr=False)
class HeldAtTimes(PartlyHeld):
    """A value that there is where a test holds that varies, and else None.

    `term` is the predicate of the test, if it is known, and `rank_local` what each rank tests.

    test: the value of a test that is true where there is the value; None if it is not known.
    """

    test: Value | None = None


@dataclass(eq=False, repr=False)
class RankChoice(PartlyHeld):
    """One of two values, by a test of the rank: `one` where it holds, else `two`.

    agreed: whether all ranks may have the same value since then.
    """

    test: RankTest | None = None
    one: Value | None = None
    two: Value | None = None
    agreed: bool = False

    def on_ranks(self, ranks: Ranks) -> Value:
        """The value on certain ranks."""
        if self.test is not None and self.test.true_on is not self.test.false_on:
            if ranks is self.test.true_on:
                return self.one or self
            if ranks is self.test.false_on:
                return self.two or self
        return self


@dataclass(eq=False, repr=False)
class RankElement(PartlyHeld):
    """An element that a list has on some ranks only.

    side: these ranks.
    """

    side: RankSide = field(kw_only=True)
