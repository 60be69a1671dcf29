"""The plan for files that belong together: a rewrite of all uses of FSDP1, or blockers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import libcst as cst

from fsdplint.diagnostics.finding import Edit, Fix, Import, Safety
from fsdplint.diagnostics.finding import Note as FixNote
from fsdplint.interpreter import Program
from fsdplint.migration.assisted.undecided import Undecided
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.program import (
    ERROR_BROUGHT,
    ERROR_TURNED,
    FACT_CHANGED,
    REFUSED,
    USE_LEFT,
)
from fsdplint.migration.constructor import wrap
from fsdplint.migration.context import Note, Step, nodes
from fsdplint.registry.refusal import Harm, Refusal
from fsdplint.source.source import Source

REFUSALS = {  # the blockers of a migration whose trial failed
    Harm.UNUSABLE: REFUSED,
    Harm.NEW_ERROR: ERROR_BROUGHT,
    Harm.OLD_ERROR: ERROR_TURNED,
    Harm.USE_LEFT: USE_LEFT,
    Harm.OTHER_FACT: FACT_CHANGED,
}


@dataclass
class Plan:
    """The rewrite of some files, or its blockers.

    Attributes:
        group: the name of the group of fixes.
        blockers: why nothing is rewritten; empty if everything is.
        steps: the uses that are rewritten, with a title each.
        edits, imports, maybe_unused_imports: the whole rewrite.
        notes: changes in cost or in details of behaviour.
        undecided: the statements that the rewrite replaces by a `raise`.
        untouched: functions that nothing calls, by file and name. They stay as they are.
    """

    MAX_NOTES: ClassVar[int] = 2  # notes in a title

    group: str
    sources: list[Source]
    blockers: list[Blocked] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    edits: tuple[Edit, ...] = ()
    imports: tuple[tuple[str, Import], ...] = ()
    maybe_unused_imports: tuple[tuple[str, str], ...] = ()
    notes: tuple[Note, ...] = ()
    undecided: Undecided | None = None
    untouched: frozenset[tuple[str, str]] = frozenset()

    @property
    def safety(self) -> Safety:
        """Whether the program trains as before, as far as the analysis can tell."""
        return Safety.UNSAFE if any(note.unsafe for note in self.notes) else Safety.SAFE

    def fix(self, source: Source, node: cst.CSTNode) -> Fix:
        """The whole rewrite, as the fix of the use at a node.

        Every use gets the whole rewrite, because half a migration is worse than none.
        """
        title = next(
            (s.title for s in self.steps if s.source is source and is_inside(source, s.node, node)),
            "Migrate to FSDP2",
        )
        texts = self._remarks(whole=title == wrap.TITLE)
        if texts:
            title = f"{title} ({'; '.join(texts)})"
        return Fix(
            title=title,
            safety=self.safety,
            edits=self.edits,
            imports=self.imports,
            group=self.group,
            maybe_unused_imports=self.maybe_unused_imports,
            notes=tuple(_public(note) for note in self.notes),
            undecided=self.undecided.names if self.undecided is not None else (),
        )

    def _remarks(self, *, whole: bool) -> list[str]:
        """The notes in a title: those that make the rewrite unsafe and, if `whole`, others after them."""
        unsafe = [note.text for note in self.notes if note.unsafe]
        if not whole:
            return unsafe
        texts = unsafe + [note.text for note in self.notes if not note.unsafe]
        room = max(self.MAX_NOTES, len(unsafe))
        more = len(texts) - room
        return [*texts[:room], *([f"{more} more: see `fsdplint migrate`"] if more > 0 else [])]

    def refuse(self, program: Program, refusal: Refusal) -> None:
        """Block the migration because its result is wrong.

        The blocker stands at the line of the refusal, or where the model is wrapped if it has none.
        """
        if self.blockers:
            return
        at = refusal.at
        step = next((one for one in self.steps if one.title == wrap.TITLE), self.steps[0])
        source, node = step.source, step.node
        if at is not None and at.path in program.sources:
            source = program.sources[at.path]
            here = [x.node for x in self.steps if x.source is source and _on_line(x, at.line)]
            here += [x for x in nodes(source) if _is_line(source, x, at.line)]
            source, node = (source, here[0]) if here else (step.source, node)
        self.blockers = [Blocked(source, node, REFUSALS[refusal.harm](reason=refusal.reason))]

    def blockers_at(self, source: Source, node: cst.CSTNode) -> list[Blocked]:
        """The blockers inside a use, and those of expressions around it."""
        return [
            blocker
            for blocker in self.blockers
            if blocker.source is source
            and (
                is_inside(source, node, blocker.node)
                or (
                    isinstance(blocker.node, cst.BaseExpression)
                    and is_inside(source, blocker.node, node)
                )
            )
        ]


def _public(note: Note) -> FixNote:
    """The note as part of a fix."""
    return FixNote(note.text, note.detail, tuple(s.location(node) for s, node in note.places))


def _on_line(step: Step, line: int) -> bool:
    return step.source.location(step.node).line == line


def _is_line(source: Source, node: cst.CSTNode, line: int) -> bool:
    """Whether a node is the statement that begins in a line."""
    simple = isinstance(node, cst.BaseSmallStatement | cst.BaseCompoundStatement)
    return simple and source.location(node).line == line


def is_inside(source: Source, outer: cst.CSTNode, node: cst.CSTNode) -> bool:
    """Whether a node is inside of another one, or is the same."""
    start, end = source.span(outer)
    left, right = source.span(node)
    return start <= left and right <= end
