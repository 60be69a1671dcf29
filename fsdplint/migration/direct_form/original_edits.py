"""The plan for the direct form of some files as a plan for the files themselves."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.diagnostics.finding import Edit, Import
from fsdplint.edits.rewrite import in_order
from fsdplint.interpreter import Program
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.blockers import Blocked, Reason
from fsdplint.migration.context import Note, Step
from fsdplint.migration.direct_form.rewriting import DirectForm
from fsdplint.migration.plan import Plan
from fsdplint.source.source import Source

TITLE = "Use FSDP1 by its own names"


def moved_back(plan: Plan, direct: DirectForm, program: Program, sources: list[Source]) -> Plan:
    """A plan without blockers for the direct form, as one for the files of a program."""
    moved = _Move(direct, program).plan(plan, sources)
    added = ((path, f"{name}!") for path, name in sorted(direct.added))
    return replace(
        moved,
        maybe_unused_imports=(*moved.maybe_unused_imports, *added),
        notes=(*moved.notes, *direct.notes.values()),
    )


def blockers_moved_back(plan: Plan, direct: DirectForm, program: Program) -> list[Blocked]:
    """The blockers of a plan for the direct form, at the places in the files of a program."""
    move = _Move(direct, program)
    return [move.blocker(one) for one in plan.blockers]


class _Move:
    """Moves places of the direct form to the files that it was made of."""

    def __init__(self, direct: DirectForm, program: Program) -> None:
        self._files = full_program(program).sources
        self._pieces = direct.pieces

    def plan(self, plan: Plan, sources: list[Source]) -> Plan:
        return Plan(
            group=plan.group,
            sources=sources,
            steps=[*(self._step(one) for one in plan.steps), *self._own_steps()],
            edits=self._edits(plan.edits),
            imports=tuple((path, self._import(path, one)) for path, one in plan.imports),
            maybe_unused_imports=plan.maybe_unused_imports,
            notes=tuple(self._note(note) for note in plan.notes),
            untouched=plan.untouched,
        )

    def _edits(self, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
        """The changes to the direct form and those that led to it, together."""
        result: list[Edit] = []
        for path in {edit.path: None for edit in edits} | dict.fromkeys(self._pieces):
            own = [edit for edit in edits if edit.path == path]
            if path not in self._pieces:
                result += own
                continue
            pieces = self._pieces[path].copy()
            pieces.apply(own)
            result += pieces.edits(path)
        return in_order(result)

    def _own_steps(self) -> list[Step]:
        return [
            Step(self._files[path], self._node(path, edit.start, edit.end), TITLE)
            for path, pieces in self._pieces.items()
            for edit in pieces.edits(path)
        ]

    def blocker(self, blocked: Blocked) -> Blocked:
        reason = Reason(blocked.blocker, blocked.reason, blocked.advice)
        source, node = self._place(blocked.source, blocked.node)
        return Blocked(source, node, reason, internal=blocked.internal)

    def _step(self, step: Step) -> Step:
        source, node = self._place(step.source, step.node)
        return Step(source, node, step.title)

    def _note(self, note: Note) -> Note:
        return replace(note, places=[self._place(*place) for place in note.places])

    def _import(self, path: str, item: Import) -> Import:
        if item.at is None or path not in self._pieces:
            return item
        return replace(item, at=self._pieces[path].original_offset(item.at))

    def _place(self, source: Source, node: cst.CSTNode) -> tuple[Source, cst.CSTNode]:
        """The node of the original that a node of the direct form comes from."""
        original, pieces = self._files[source.path], self._pieces.get(source.path)
        if original is source:
            return source, node
        start, end = source.span(node)
        if pieces is not None:
            start, end = pieces.original_offset(start), pieces.original_offset(end)
        return original, self._node(source.path, start, end)

    def _node(self, path: str, start: int, end: int) -> cst.CSTNode:
        """The smallest node of the original around some characters."""
        source = self._files[path]
        best: cst.CSTNode = source.tree
        size = len(source.text) + 1
        for node in source.descend(source.tree):
            left, right = source.span(node)
            if left <= start and end <= right and right - left < size:
                best, size = node, right - left
        return best
