"""Apply fixes to files: choose fixes that do not clash, and build the resulting texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.diagnostics.finding import Edit, Fix, Import
from fsdplint.edits.imports.plan import plan
from fsdplint.edits.imports.spelling import local_name
from fsdplint.edits.pieces import Pieces
from fsdplint.edits.rewrite import in_order, is_lines
from fsdplint.edits.unused_imports import unused_imports
from fsdplint.source.config_source import ConfigError, ConfigSource
from fsdplint.source.source import Source


@dataclass
class Applied:
    """The result of applying fixes.

    Attributes:
        texts: the new text of every file that changes.
        sources: these files with their new texts, parsed.
        applied: the fixes that are in these texts.
        deferred: fixes that clash with an earlier one; compute them again on the new texts.
        broken: fixes that cannot be applied, with the reason; each is a defect of a rule.
    """

    texts: dict[str, str] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    applied: list[Fix] = field(default_factory=list)
    deferred: list[Fix] = field(default_factory=list)
    broken: list[tuple[Fix, str]] = field(default_factory=list)


_F_STRING = re.compile(r"\b[rR]?[fF][rR]?[\"']")


class BrokenFixError(Exception):
    """The result of fixes is not a Python file, or their edits cannot be combined."""


def apply(sources: Mapping[str, Source], fixes: Sequence[Fix]) -> Applied:
    """Apply as many fixes as do not clash; earlier fixes win over later ones.

    Fixes of one group are applied together or not at all. No file is written.
    """
    result = Applied()
    accepted: list[list[Fix]] = []
    for unit in sorted(_units(fixes), key=_order):
        try:
            _check(sources, unit)
        except BrokenFixError as error:
            result.broken.extend((fix, str(error)) for fix in unit)
            continue
        if any(_clash(unit, other) for other in accepted):
            result.deferred.extend(unit)
        else:
            accepted.append(unit)
    try:
        pieces, parsed = _build(sources, [fix for unit in accepted for fix in unit])
    except BrokenFixError:
        accepted, pieces, parsed = _one_by_one(sources, accepted, result)
    result.applied = [fix for unit in accepted for fix in unit]
    for path, changed in pieces.items():
        if changed.text != sources[path].text:
            result.texts[path] = changed.text
            result.sources[path] = parsed[path]
    return result


def complete(sources: Mapping[str, Source], fixes: Fix | Sequence[Fix]) -> tuple[Edit, ...]:
    """All edits of a fix, or of the fixes of a group, including those of the imports.

    Raises:
        BrokenFixError: the result would not be a Python file.
    """
    unit = [fixes] if isinstance(fixes, Fix) else list(fixes)
    _check(sources, unit)
    pieces, _ = _build(sources, unit)
    return tuple(edit for path in sorted(pieces) for edit in pieces[path].edits(path))


def _units(fixes: Iterable[Fix]) -> list[list[Fix]]:
    """The fixes that must be applied together, without duplicates, in the order of the first of
    each."""
    units: dict[object, list[Fix]] = {}
    for number, fix in enumerate(fixes):
        unit = units.setdefault(number if fix.group is None else fix.group, [])
        if fix not in unit:
            unit.append(fix)
    return list(units.values())


def _order(unit: Sequence[Fix]) -> tuple[bool, bool]:
    """The place of a unit: earlier units win.

    Fixes that depend on code come after those that may change it: migrations before repairs of
    FSDP1. Other single fixes come before migrations: a migration is planned again on the new text,
    and a single fix may not fit what the migration makes of its code.
    """
    depends = any(fix.depends_on for fix in unit)
    return depends, any(fix.group is not None for fix in unit)


def _check(sources: Mapping[str, Source], unit: Sequence[Fix]) -> None:
    for fix in unit:
        for edit in fix.edits:
            if edit.path not in sources:
                raise BrokenFixError(f"the fix edits {edit.path}, which is not part of the program")
            if not 0 <= edit.start <= edit.end <= len(sources[edit.path].text):
                raise BrokenFixError(f"the fix edits characters that {edit.path} does not have")
        for path, _ in (*fix.imports, *fix.maybe_unused_imports):
            if path not in sources:
                raise BrokenFixError(f"the fix names {path}, which is not part of the program")
    try:
        in_order(_edits(unit))
    except ValueError as error:
        raise BrokenFixError(str(error)) from None


def _edits(fixes: Iterable[Fix]) -> list[Edit]:
    """The edits of some fixes, in order; an edit that several fixes share is returned once.

    An edit that one fix makes twice (two equal lines at one place) is returned twice.
    """
    result: list[Edit] = []
    counts: Counter[Edit] = Counter()
    for fix in fixes:
        fix_counts: Counter[Edit] = Counter()
        for edit in fix.edits:
            fix_counts[edit] += 1
            if fix_counts[edit] > counts[edit]:
                result.append(edit)
        counts |= fix_counts
    return result


def _clash(unit: Sequence[Fix], other: Sequence[Fix]) -> bool:
    """Whether two units cannot be applied to one text."""
    edits, other_edits = _edits(unit), _edits(other)
    if set(edits) != set(other_edits) and any(_overlap(a, b) for a in edits for b in other_edits):
        return True
    if _disturbs(unit, other) or _disturbs(other, unit):
        return True
    locals_: dict[tuple[str, str], set[tuple[str, str | None]]] = {}
    for fix in (*unit, *other):
        for path, imported in fix.imports:
            package = imported.name is None and imported.alias is None
            meaning = (local_name(imported) if package else imported.module, imported.name)
            locals_.setdefault((path, local_name(imported)), set()).add(meaning)
    return any(len(meanings) > 1 for meanings in locals_.values())


def _disturbs(unit: Sequence[Fix], other: Sequence[Fix]) -> bool:
    """Whether a unit changes code that the other depends on."""
    dependencies = [span for fix in other for span in fix.depends_on]
    return any(
        edit.path == path and edit.start < end and start < max(edit.end, edit.start + 1)
        for path, start, end in dependencies
        for edit in _edits(unit)
    )


def _overlap(one: Edit, two: Edit) -> bool:
    """Whether two edits of different fixes conflict.

    Insertions at one place inside a line conflict: two fixes that wrap `f(x)` would interleave.
    """
    if one.path != two.path:
        return False
    if one.start < one.end and two.start < two.end:
        return one != two and one.start < two.end and two.start < one.end
    if one.start == one.end and two.start == two.end:
        return one.start == two.start and not (is_lines(one.text) and is_lines(two.text))
    point, span = (one, two) if one.start == one.end else (two, one)
    if is_lines(point.text):
        return span.start < point.start < span.end
    return span.start <= point.start <= span.end


def _one_by_one(
    sources: Mapping[str, Source], units: Sequence[list[Fix]], result: Applied
) -> tuple[list[list[Fix]], dict[str, Pieces], dict[str, Source]]:
    """The units that still build when each is added to the accepted units before it."""
    accepted: list[list[Fix]] = []
    pieces: dict[str, Pieces] = {}
    parsed: dict[str, Source] = {}
    for unit in units:
        try:
            pieces, parsed = _build(sources, [fix for part in [*accepted, unit] for fix in part])
        except BrokenFixError as error:
            if accepted and _works(sources, unit):
                result.deferred.extend(unit)
            else:
                result.broken.extend((fix, str(error)) for fix in unit)
        else:
            accepted.append(unit)
    return accepted, pieces, parsed


def _works(sources: Mapping[str, Source], unit: Sequence[Fix]) -> bool:
    try:
        _build(sources, unit)
    except BrokenFixError:
        return False
    return True


def _build(
    sources: Mapping[str, Source], fixes: Sequence[Fix]
) -> tuple[dict[str, Pieces], dict[str, Source]]:
    """The changed files, and the same files parsed.

    The edits of the fixes come first. The imports are then computed from the result.

    Raises:
        BrokenFixError: a result does not parse.
    """
    pieces: dict[str, Pieces] = {}
    for edit in in_order(_edits(fixes)):
        pieces.setdefault(edit.path, Pieces(sources[edit.path].text))
    for path, changed in pieces.items():
        changed.apply(in_order([edit for edit in _edits(fixes) if edit.path == path]))

    imports: dict[str, list[Import]] = {}
    unused: dict[str, set[str]] = {}
    for fix in fixes:
        for path, item in fix.imports:
            imports.setdefault(path, []).append(item)
        for path, name in fix.maybe_unused_imports:
            unused.setdefault(path, set()).add(name)
    project = {path: one for path, one in sources.items() if not isinstance(one, ConfigSource)}
    parsed = {path: _parse(sources[path], changed.text) for path, changed in pieces.items()}
    project.update(parsed)
    for path in sorted({*imports, *unused}):
        changed = pieces.setdefault(path, Pieces(sources[path].text))
        additions = [_shifted_import(item, changed) for item in imports.get(path, ())]
        removals = unused_imports(sources[path], project[path], unused.get(path, ()), project)
        try:
            edits = in_order(plan(project[path], additions, removals))
        except ValueError as error:
            raise BrokenFixError(str(error)) from None
        if edits:
            changed.apply(edits)
            parsed[path] = _parse(sources[path], changed.text)
    return pieces, parsed


def _shifted_import(item: Import, changed: Pieces) -> Import:
    """The import, with its offset moved to the changed text."""
    if item.at is None:
        return item
    return Import(item.module, item.name, item.alias, changed.current_offset(item.at))


def _parse(source: Source, text: str) -> Source:
    result = source.with_text(text)
    result.earlier = source  # the parser reuses unchanged parts
    try:
        result.validate()
    except (cst.ParserSyntaxError, ConfigError, ValueError, RecursionError) as error:
        # Notebooks raise ValueError. Their module is imported only for notebooks.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BrokenFixError(f"{source.path} could no longer be parsed: {reason}") from None
    if not isinstance(result, ConfigSource) and _newer_strings(result) > _newer_strings(source):
        raise BrokenFixError(f"an f-string of {source.path} would need Python 3.12")
    return result


def _newer_strings(source: Source) -> int:
    """The number of f-strings that only Python 3.12 accepts: their expressions hold line ends,
    comments or the enclosing quotes. The parser accepts all of them."""
    if not _F_STRING.search(source.text):
        return 0
    return sum(
        _is_newer(source.tree.code_for_node(part), node.start.lstrip("rRfF"))
        for node in source.descend(source.tree)
        if isinstance(node, cst.FormattedString)
        for part in node.parts
        if isinstance(part, cst.FormattedStringExpression)
    )


def _is_newer(code: str, quote: str) -> bool:
    lines = len(quote) == 1 and ("\n" in code or "\r" in code)
    return lines or quote in code or "\\" in code
