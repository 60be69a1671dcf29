"""The direct form of the files of a program, and the changes that lead to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from fsdplint.diagnostics.finding import Edit, Safety
from fsdplint.edits.apply import BrokenFixError, complete
from fsdplint.edits.pieces import Pieces
from fsdplint.interpreter import Program
from fsdplint.migration.analysis.components import full_program, parts
from fsdplint.migration.context import Migration
from fsdplint.migration.direct_form import calls, contexts, names
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.direct_form.relevance import Depth
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import walk

MAX_ROUNDS = 4  # what one change makes direct may let another one follow
FORMS: dict[type[cst.CSTNode], Callable[..., bool]] = {
    cst.Call: calls.rewrite_call,
    cst.With: contexts.rewrite_with,
    cst.Attribute: names.rewrite_class_attribute,
}


@dataclass
class DirectForm:
    """The direct form of a program.

    Attributes:
        program: its part that matters for the migration.
        sources: its files that use FSDP1.
        pieces: the changed files, with their relation to the files of the original.
        dropped: imports that passed names on to other files, by path and spelling.
    """

    program: Program
    sources: list[Source]
    pieces: dict[str, Pieces] = field(default_factory=dict)
    dropped: set[tuple[str, str]] = field(default_factory=set)

    @property
    def texts(self) -> dict[str, str]:
        """The new text of each changed file."""
        return {path: pieces.text for path, pieces in self.pieces.items()}


def rewritten(program: Program, sources: Sequence[Source], depth: Depth) -> DirectForm | None:
    """The direct form of the files of a migration; None if they are direct already."""
    direct = DirectForm(program, list(sources))
    paths = {source.path for source in sources}
    for _ in range(MAX_ROUNDS):
        edits = _round(direct, depth)
        if not edits:
            break
        files = full_program(direct.program).files
        for path in dict.fromkeys(edit.path for edit in edits):
            pieces = direct.pieces.setdefault(path, Pieces(files[path].text))
            pieces.apply([edit for edit in edits if edit.path == path])
        texts = {Path(path): text for path, text in direct.texts.items()}
        whole = full_program(program).with_texts(texts)
        if whole is None:
            return None
        found = [pair for pair in parts(whole) if paths & {source.path for source in pair[1]}]
        if len(found) != 1:
            return None
        direct.program, direct.sources = found[0]
    return direct if direct.pieces else None


def _round(direct: DirectForm, depth: Depth) -> Sequence[Edit]:
    """The edits of one round."""
    migration = Migration(direct.program, direct.sources)
    changed = _rewrite_imports(direct, migration)
    for source in direct.sources:
        inlining = Inlining(migration, source, depth)
        for node in _inner_first(source):
            form = FORMS.get(type(node))
            if form is not None:
                form(inlining, node)
        inlining.finish()
        changed = changed or inlining.changed
    if not changed:
        return ()
    migration.finish()
    try:
        fix = migration.rewrite.fix("Use FSDP1 by its own names", Safety.SAFE)
        return complete(full_program(direct.program).files, fix)
    except (BrokenFixError, ValueError):
        return ()


def _rewrite_imports(direct: DirectForm, migration: Migration) -> bool:
    """Import passed names from torch, and remove the imports that passed them on; in later rounds."""
    for path, spelling in direct.dropped:
        source = full_program(direct.program).sources[path]
        migration.rewrite.remove_import_if_unused(source, spelling, anyway=True)
    found = names.rewrite_imports(migration)
    changed = bool(found or direct.dropped)
    direct.dropped = found
    return changed


def _inner_first(source: Source) -> list[cst.CSTNode]:
    """The nodes of a file in the order in which they are evaluated."""
    found = walk(source, skip_imports=True)
    spans = {node: source.span(node) for node in found}
    return sorted(found, key=lambda node: (spans[node][1], -spans[node][0]))
