"""A variable for each item of a dict of arguments, in the place of the dict.

`options = {"mixed_precision": f()}` and `FSDP(model, **options)` become `mixed_precision = f()` and
`FSDP(model, mixed_precision=mixed_precision)`. A key that the dict has under a condition has FSDP1's
default otherwise. A value without an effect moves into the call where it is the same there.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration.analysis.variables import Definition
from fsdplint.migration.context import expression
from fsdplint.migration.direct_form.argument_dicts import ArgumentDict, Users, argument_dicts
from fsdplint.migration.direct_form.defaults import default
from fsdplint.migration.direct_form.imported_dicts import Importer, Importers
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.direct_form.meaning import constant_key
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant


def write_items_out(inlining: Inlining, users: Users, files: Sequence[Inlining]) -> None:
    """Put variables in the place of the dicts of one file that calls of FSDP1 spread.

    files: all files of the program. Those that import such a dict get its variables.
    """
    importers = Importers(inlining, files, users)
    found = argument_dicts(
        inlining.source, users, lambda name: importers.of(name) is None, importers.names()
    )
    calls: set[cst.CSTNode | None] = set()
    taken = _names(inlining.source)
    for one in found:
        others = (importers.of(one.name) or []) if one.in_module else []
        if others and one.stores:
            continue
        spreads = [(inlining.source, spread) for spread in one.spreads]
        spreads += [(other.inlining.source, x) for other in others for x in other.spreads]
        own = {source.parent(spread) for source, spread in spreads}
        if own & calls or any(_repeats(source, one, spread) for source, spread in spreads):
            continue
        calls |= own
        for other in others:
            taken |= _names(other.inlining.source)
        _Writer(inlining, one, taken, others).write()


def _repeats(source: Source, one: ArgumentDict, spread: cst.Arg) -> bool:
    """Whether a call also names a key itself, or spreads the dict twice."""
    call = source.parent(spread)
    args = call.args if isinstance(call, cst.Call) else ()
    named = {arg.keyword.value for arg in args if arg.keyword is not None}
    keys = one.keys(spread) if spread in one.spreads else list(one.items)
    same = [
        other for other in args if other.star == spread.star and _is_same(source, other, spread)
    ]
    return bool(named & set(keys)) or len(same) > 1


def _is_same(source: Source, one: cst.Arg, other: cst.Arg) -> bool:
    return source.code(one.value) == source.code(other.value)


def _names(source: Source) -> set[str]:
    """The names of all variables of a file."""
    found = set()
    for node in source.descend(source.tree):
        parent = source.parent(node) if isinstance(node, cst.Name) else None
        is_key = isinstance(parent, cst.Arg) and parent.keyword is node
        is_attribute = isinstance(parent, cst.Attribute) and parent.attr is node
        if isinstance(node, cst.Name) and not is_key and not is_attribute:
            found.add(node.value)
    return found


class _Writer:
    """Writes the variables of one dict."""

    def __init__(
        self, inlining: Inlining, found: ArgumentDict, taken: set[str], importers: list[Importer]
    ) -> None:
        self._inlining = inlining
        self._importers = importers
        self._source = inlining.source
        self._dict = found
        self._taken = taken
        self._variables: dict[str, str] = {}

    def write(self) -> None:
        texts = [(use, self._texts(use)) for use in self._dict.uses]
        for use, given in texts:
            if isinstance(use, cst.Return):
                pairs = (f"{string_literal(self._source, key)}: {x}" for key, x in given.items())
                assert use.value is not None
                self._inlining.put(use.value, f"{{{', '.join(pairs)}}}")
            elif given:
                self._inlining.put(use, ", ".join(f"{key}={x}" for key, x in given.items()))
            else:
                self._remove(use)
        for load in self._dict.loads:
            self._inlining.put(load, self._variable(str(constant_key(load))))
        for importer in self._importers:
            self._write_import(importer)
        self._write_definition()
        for store in self._dict.stores:
            self._put_lines(store.statement, self._lines(store.items))

    def _write_import(self, importer: Importer) -> None:
        """Import the variables in the place of the dict, and give them to the calls."""
        given = {
            key: self._inlining.text(value) if _is_constant(value) else self._variable(key)
            for key, value in self._dict.items.items()
        }
        for spread in importer.spreads:
            importer.inlining.put(spread, ", ".join(f"{key}={x}" for key, x in given.items()))
        variables = [x for key, x in given.items() if x == self._variables.get(key)]
        if variables:
            importer.inlining.put(importer.item.alias, ", ".join(variables))
        else:
            migration = self._inlining.migration
            source, spelling = importer.inlining.source, importer.item.spelling
            migration.rewrite.remove_import_if_unused(source, spelling, anyway=True)

    def _texts(self, use: cst.CSTNode) -> dict[str, str]:
        """The values that a place gets instead of the dict."""
        found = {}
        for key in self._dict.keys(use):
            value = self._dict.items.get(key)
            is_kept = key in self._loaded_names() or value is None or not self._moves(key, value)
            text = self._variable(key) if is_kept or value is None else self._inlining.text(value)
            found[key] = text
        return found

    def _remove(self, spread: cst.Arg) -> None:
        """Remove an argument that spreads nothing."""
        call = self._source.parent(spread)
        assert isinstance(call, cst.Call)
        given = [
            (f"{arg.keyword.value}=" if arg.keyword is not None else arg.star)
            + self._inlining.text(arg.value)
            for arg in call.args
            if arg is not spread
        ]
        self._inlining.put_call(call, self._inlining.text(call.func), given)

    def _loaded_names(self) -> set[str]:
        return {str(constant_key(load)) for load in self._dict.loads}

    def _moves(self, key: str, value: cst.BaseExpression) -> bool:
        """Whether the calls get the value itself, instead of a variable."""
        if any(key in store.items for store in self._dict.stores):
            return False
        if len(self._dict.uses) > 1 and not _is_short(value):
            return False
        meanings, definition = self._inlining.meanings, self._dict.definition
        return meanings.is_inert(value) and all(
            meanings.keeps_value(Definition(definition.statement, value), use)
            for use in (use.value for use in self._dict.uses)
            if isinstance(use, cst.Name)
        )

    def _variable(self, key: str) -> str:
        if key not in self._variables:
            wanted = [key, f"fsdp_{key}", f"{self._dict.name}_{key}"]
            wanted += [f"fsdp_{key}_{number}" for number in range(2, 100)]
            name = next(name for name in wanted if name not in self._taken)
            self._taken.add(name)
            self._variables[key] = name
        return self._variables[key]

    def _write_definition(self) -> None:
        statement = self._dict.definition.statement
        lines = self._lines(self._dict.items)
        defaults = [key for key in self._variables if key not in self._dict.items]
        for key in defaults:
            if not all(
                self._dict.is_certain(key, use)
                for use in self._dict.uses
                if key in self._dict.keys(use)
            ):
                lines.append(f"{self._variables[key]} = {default(self._inlining, key, statement)}")
        self._put_lines(statement, lines)

    def _lines(self, items: dict[str, cst.BaseExpression]) -> list[str]:
        """The assignments of the variables that calls get, and the effects of other values."""
        migration = self._inlining.migration
        lines = []
        for key, value in items.items():
            text = expression(migration, self._source, value)
            if key in self._variables:
                lines.append(f"{self._variables[key]} = {text}")
            elif not self._inlining.meanings.is_inert(value):
                lines.append(text)
        return lines

    def _put_lines(self, statement: cst.CSTNode, lines: list[str]) -> None:
        if lines:
            self._inlining.put_lines(statement, lines)
        else:
            self._inlining.delete(statement)


def _is_constant(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.BaseNumber | cst.BaseString) or is_constant(
        value, "True", "False", "None"
    )


def _is_short(value: cst.BaseExpression) -> bool:
    return is_repeatable(value) or is_constant(value, "True", "False", "None")
