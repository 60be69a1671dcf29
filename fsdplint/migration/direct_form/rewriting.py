"""The direct form of the files of a program, and the changes that lead to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from fsdplint.diagnostics.finding import Edit, Safety
from fsdplint.edits.apply import BrokenFixError, complete
from fsdplint.edits.imports.spelling import local_name
from fsdplint.edits.pieces import Pieces
from fsdplint.interpreter import Program
from fsdplint.migration.analysis.components import full_program, parts
from fsdplint.migration.context import Migration, Note
from fsdplint.migration.direct_form import (
    api_questions,
    argument_dicts,
    assignments,
    attributes,
    calls,
    chosen_calls,
    chosen_contexts,
    chosen_types,
    class_calls,
    class_names,
    constants,
    contexts,
    double_wraps,
    flat_parameters,
    forwarding,
    forwarding_policies,
    items,
    names,
    parameters,
    refused_calls,
    returned_dicts,
    returned_partials,
    subclasses,
    type_blocks,
)
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.direct_form.item_reads import ItemReads
from fsdplint.migration.direct_form.relevance import Depth
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import walk

MAX_ROUNDS = 4  # what one change makes direct may let another one follow


def _rewrite_call(inlining: Inlining, node: cst.Call) -> bool:
    return (
        api_questions.rewrite_expression(inlining, node)
        or class_calls.rewrite_call(inlining, node)
        or double_wraps.rewrite_call(inlining, node)
        or flat_parameters.rewrite_call(inlining, node)
        or refused_calls.rewrite_call(inlining, node)
        or chosen_calls.rewrite_call(inlining, node)
        or calls.rewrite_call(inlining, node)
    )


def _rewrite_if(inlining: Inlining, node: cst.If) -> bool:
    return api_questions.rewrite_if(inlining, node) or assignments.rewrite_test(inlining, node)


def _rewrite_with(inlining: Inlining, node: cst.With) -> bool:
    return (
        contexts.rewrite_with(inlining, node)
        or chosen_types.rewrite_with(inlining, node)
        or chosen_contexts.rewrite_with(inlining, node)
    )


FORMS: dict[type[cst.CSTNode], Callable[..., bool]] = {
    cst.Call: _rewrite_call,
    cst.Name: refused_calls.rewrite_name,
    cst.With: _rewrite_with,
    cst.IndentedBlock: type_blocks.rewrite_block,
    cst.Module: type_blocks.rewrite_block,
    cst.Attribute: attributes.rewrite_attribute,
    cst.Arg: constants.rewrite_argument,
    cst.Lambda: forwarding_policies.rewrite_lambda,
    cst.FunctionDef: forwarding_policies.rewrite_function,
    cst.Assign: assignments.rewrite_assignment,
    cst.If: _rewrite_if,
    cst.Return: returned_partials.rewrite_return,
    cst.IfExp: api_questions.rewrite_choice,
    cst.Comparison: api_questions.rewrite_expression,
}


@dataclass
class DirectForm:
    """The direct form of a program.

    Attributes:
        program: its part that matters for the migration.
        sources: its files that use FSDP1.
        pieces: the changed files, with their relation to the files of the original.
        dropped: imports that passed names on to other files, by path and spelling.
        added: imports that the changes need, by path and spelling.
        notes: what the changes decide.
    """

    program: Program
    sources: list[Source]
    pieces: dict[str, Pieces] = field(default_factory=dict)
    dropped: set[tuple[str, str]] = field(default_factory=set)
    added: set[tuple[str, str]] = field(default_factory=set)
    notes: dict[str, Note] = field(default_factory=dict)


def deepen(direct: DirectForm, depth: Depth) -> bool:
    """Make more of a program direct; whether something changed.

    A direct form without changes is the program itself.
    """
    changed = False
    for _ in range(MAX_ROUNDS):
        edits = _edits_of_round(direct, depth)
        program = changed_program(direct, edits) if edits else None
        if program is None:
            return changed
        direct.program, direct.sources = program
        changed = True
    return changed


def changed_program(
    direct: DirectForm, edits: Sequence[Edit]
) -> tuple[Program, list[Source]] | None:
    """The part of a program, and its files that use FSDP1, after edits; the pieces get them."""
    before = full_program(direct.program)
    pieces = {path: one.copy() for path, one in direct.pieces.items()}
    for path in dict.fromkeys(edit.path for edit in edits):
        one = pieces.setdefault(path, Pieces(before.files[path].text))
        one.apply([edit for edit in edits if edit.path == path])
    whole = before.with_texts({Path(path): one.text for path, one in pieces.items()})
    paths = {source.path for source in direct.sources} | set(pieces)
    found = [pair for pair in parts(whole) if paths & {s.path for s in pair[1]}] if whole else []
    if len(found) != 1:
        return None
    direct.pieces = pieces
    return found[0]


def _edits_of_round(direct: DirectForm, depth: Depth) -> Sequence[Edit]:
    """The edits of one round."""
    migration = Migration(direct.program, direct.sources)
    changed = _rewrite_imports(direct, migration)
    inlinings = [Inlining(migration, source, depth) for source in direct.sources]
    callers = _callers(migration, depth)
    for inlining in inlinings:
        forwarding.call_directly(inlining, [*inlinings, *callers])
    for inlining in (*inlinings, *callers):
        class_names.ask_for_class(inlining)
    if depth is not Depth.NAMES and not any(one.changed for one in inlinings):
        for inlining in inlinings:
            subclasses.write_functions(inlining, [*inlinings, *callers])
    if depth.writes_items_out and not any(one.changed for one in inlinings):
        changed = _write_dicts_out(inlinings, callers) or changed
    if depth.reads_items and not any(one.changed for one in inlinings):
        for inlining in inlinings:
            ItemReads(inlining).write()
    for inlining in inlinings:
        if not inlining.changed:  # else the next round
            _rewrite_nodes(inlining)
        inlining.finish()
        changed = changed or inlining.changed
    changed = changed or any(one.changed for one in callers)
    if not changed:
        return ()
    migration.finish()
    for text in migration.notes:
        direct.notes[text] = Note(text)
    try:
        fix = migration.rewrite.fix("Use FSDP1 by its own names", Safety.SAFE)
        edits = complete(full_program(direct.program).files, fix)
    except (BrokenFixError, ValueError):
        return ()
    direct.added |= {(path, local_name(item)) for path, item in fix.imports}
    return edits


def _callers(migration: Migration, depth: Depth) -> list[Inlining]:
    """The files without FSDP1, whose calls may give it arguments or get some."""
    others = full_program(migration.program).sources.values()
    return [Inlining(migration, one, depth) for one in others if one not in migration.sources]


def _write_dicts_out(inlinings: list[Inlining], callers: list[Inlining]) -> bool:
    """Write out dicts of arguments; those that functions get or return come first.

    Returns whether something changed.
    """
    for inlining in inlinings:
        parameters.name_parameters(inlining)
    calls = {call for one in inlinings for call in parameters.handing_on(one)}
    for one in inlinings:
        calls |= set(argument_dicts.fsdp1_calls(one.migration, one.source))
    files = [*inlinings, *callers]
    users = argument_dicts.Users(frozenset(calls))
    found = returned_dicts.returning(files, users)
    if not any(one.changed for one in files):
        taken: set[returned_dicts.Variable] = set()
        for function in found:
            returned_dicts.return_values(function, taken)
    if not any(one.changed for one in files):
        users = argument_dicts.Users(users.calls, frozenset(one.function for one in found))
        for one in files:
            items.write_items_out(one, users, files)
    return any(one.changed for one in files)


def _rewrite_nodes(inlining: Inlining) -> None:
    for node in _inner_first(inlining.source):
        form = FORMS.get(type(node))
        if form is not None:
            form(inlining, node)


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
