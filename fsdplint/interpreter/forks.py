"""The sides of a test, and what the search learns of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.branch_conditions import Truth, Verdict
from fsdplint.interpreter.configurations import BranchTaken
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.skipped_reductions import doubt_returned


@dataclass(frozen=True)
class Fork:
    """A test of a statement, and the code on both of its sides.

    Attributes:
        place: what it is known by.
        test: the tested expression.
        code: the nodes of all its code, the test included.
        body: what is executed if it holds.
        rest: what is executed if it does not hold.
        ends: how the body certainly leaves the block, or None.
        other_ends: the same of the rest.
    """

    place: cst.CSTNode
    test: cst.BaseExpression
    code: Sequence[cst.CSTNode]
    body: cst.CSTNode
    rest: Sequence[cst.CSTNode]
    ends: str | None
    other_ends: str | None

    @property
    def prefer(self) -> bool:
        """The outcome with which the program continues."""
        return self.ends is None or self.other_ends is not None

    @property
    def leaves(self) -> bool:
        """Whether one side leaves the block and the other one continues."""
        return (self.ends is None) != (self.other_ends is None)

    @contextmanager
    def leaving(self, run: Run) -> Iterator[None]:
        """A context in which the test is evaluated."""
        run.decisions.leaving = self.leaves
        yield
        run.decisions.leaving = False

    def note(self, run: Run, verdict: Verdict) -> None:
        """Note what the search can try: the other outcome of the test."""
        if self.leaves and verdict.outcome is (Truth.FALSE if self.prefer else Truth.TRUE):
            self._note_early_end(run, verdict)
        else:
            self._note_branches(run, verdict)

    def _note_early_end(self, run: Run, verdict: Verdict) -> None:
        """The run leaves the block with an outcome that the program does not prefer."""
        keys = [key for _, key in verdict.guards]
        run.note_leaving(keys)
        self._note_taken(run, verdict, not self.prefer, {self.prefer})
        if any(map(run.project.words.stand_in, self.code)):
            run.decisions.relevant.update(verdict.decided_by)
        if keys:
            doubt_returned(run)

    def _note_branches(self, run: Run, verdict: Verdict) -> None:
        """Mark a decision as relevant if a side has code that the contract depends on. Both sides
        run if ranks or turns of a loop differ."""
        words, keys = run.project.words, verdict.keys
        if not keys:
            return
        if not any(map(words.stand_in, self.code)):
            self._note_skipped(run, verdict)
            return
        run.decisions.relevant.update(keys)
        goals = {True} if words.stand_in(self.body) else set()
        if any(map(words.stand_in, self.rest)):
            goals.add(False)
        for holds, outcome in ((True, Truth.TRUE), (False, Truth.FALSE)):
            if verdict.outcome is outcome or verdict.runs_both_sides:
                self._note_taken(run, verdict, holds, goals)
        if any(map(run.project.fsdp_words.stand_in, self.code)):
            run.decisions.urgent.update(keys)

    def _note_skipped(self, run: Run, verdict: Verdict) -> None:
        """Keep the side that the run leaves out: functions that it calls may use the contract's
        API."""
        if verdict.runs_both_sides:
            return
        holds = verdict.outcome is Truth.TRUE
        skipped = self._side(not holds)
        taken = BranchTaken(holds, verdict.keys, frozenset(), run.keys_around(), skipped)
        run.decisions.note_branch(self.place, taken)

    def _side(self, holds: bool) -> tuple[cst.CSTNode, ...]:
        """The code that is executed with an outcome of the test."""
        return (self.body,) if holds else tuple(self.rest)

    def _note_taken(self, run: Run, verdict: Verdict, holds: bool, goals: set[bool]) -> None:
        left_out = self._side(not holds) if not verdict.runs_both_sides else ()
        taken = BranchTaken(
            holds, verdict.keys, frozenset(goals), run.keys_around(), left_out=left_out
        )
        run.decisions.note_branch(self.place, taken)
