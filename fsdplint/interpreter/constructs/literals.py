"""Literals and displays: numbers, strings, tuples, lists, sets, dicts."""

from __future__ import annotations

import ast

import libcst as cst

from fsdplint.interpreter import plain_files, rank_means
from fsdplint.interpreter.decided_values import MAX_DECIDING, with_keys
from fsdplint.interpreter.dispatch import evaluates
from fsdplint.interpreter.iteration import iterate
from fsdplint.interpreter.module_tree import note_keys
from fsdplint.interpreter.one_rank_dicts import begin_dict
from fsdplint.interpreter.own_dicts import dict_to_read
from fsdplint.interpreter.position_tests import on_some_ranks
from fsdplint.interpreter.rank_local import derive_rank_local, local_of
from fsdplint.interpreter.ranks import (
    depends_on_process,
    depends_on_rank,
    names_device,
    note_rank_use,
)
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.sets import set_of
from fsdplint.interpreter.settings import override_entries
from fsdplint.interpreter.templates import template_of
from fsdplint.interpreter.torch_values import StateValue
from fsdplint.interpreter.unknown_entries import known_elements
from fsdplint.interpreter.values import (
    MAX_ELEMENTS,
    Const,
    Dict,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
)


@evaluates(cst.Integer)
def eval_integer(run: Run, node: cst.Integer) -> Value:
    return _literal(run, node)


@evaluates(cst.Float)
def eval_float(run: Run, node: cst.Float) -> Value:
    return _literal(run, node)


@evaluates(cst.SimpleString)
def eval_simple_string(run: Run, node: cst.SimpleString) -> Value:
    return _literal(run, node)


def _literal(run: Run, node: cst.Integer | cst.Float | cst.SimpleString) -> Value:
    """The constant of a literal, computed once for all runs."""
    literals = run.project.literals
    if node not in literals:
        literals[node] = Const(_literal_value(node.value), created_at=run.site(node))
    return literals[node]


def _literal_value(text: str) -> object:
    """The value of a literal; its text if Python rejects it (an unknown character name)."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@evaluates(cst.ConcatenatedString)
def eval_concatenated_string(run: Run, node: cst.ConcatenatedString) -> Value:
    texts = run.project.joined_texts
    if node not in texts:
        texts[node] = node.evaluated_value
    return Const(texts[node]) if texts[node] is not None else Unknown()


@evaluates(cst.FormattedString)
def eval_formatted_string(run: Run, node: cst.FormattedString) -> Value:
    result = Unknown(origin=run.text(node))
    texts: list[str | None] = []
    parts: list[str | Value | None] = []
    for part in node.parts:
        if isinstance(part, cst.FormattedStringText):
            texts.append(_text(part))
            parts.append(texts[-1])
        elif isinstance(part, cst.FormattedStringExpression):
            value = run.eval(part.expression)
            rank_means.note_shown(run, value)
            texts.append(_constant_text(part, value))
            parts.append(value if _is_plain(part) else None)
            result.by_rank = depends_on_rank(value) or result.by_rank
            result.by_process = depends_on_process(value) or result.by_process
            result.rank_local = result.rank_local or derive_rank_local(value)
            if names_device(node):
                note_rank_use(run, node, value)
    known = [text for text in texts if text is not None]
    short = sum(map(len, known)) <= MAX_ELEMENTS
    if len(known) == len(texts) and short:
        return Const("".join(known))
    plain = [part for part in parts if part is not None]
    plain_files.note_text(result, parts)
    result.template = template_of(plain) if len(plain) == len(parts) else None
    return result


def _text(part: cst.FormattedStringText) -> str | None:
    """The text between the holes of an f-string; None if it has escapes."""
    return None if "\\" in part.value else part.value.replace("{{", "{").replace("}}", "}")


def _constant_text(part: cst.FormattedStringExpression, value: Value) -> str | None:
    """The text of a constant in an f-string; None if it is unknown or formatted."""
    known = isinstance(value, Const) and type(value.value) in (str, int, bool)
    return str(constant(value)) if _is_plain(part) and known else None


def _is_plain(part: cst.FormattedStringExpression) -> bool:
    return not (part.conversion or part.format_spec or part.equal)


@evaluates(cst.Ellipsis)
def eval_ellipsis(run: Run, node: cst.Ellipsis) -> Value:
    return Const(...)


@evaluates(cst.Tuple)
def eval_tuple(run: Run, node: cst.Tuple) -> Value:
    return _sequence(run, node, "tuple")


@evaluates(cst.List)
def eval_list(run: Run, node: cst.List) -> Value:
    return _sequence(run, node, "list")


@evaluates(cst.Set)
def eval_set(run: Run, node: cst.Set) -> Value:
    result = _sequence(run, node, "set")
    return with_keys(set_of(result.items, not result.open), result.decided_by)


def _sequence(run: Run, node: cst.Tuple | cst.List | cst.Set, kind: str) -> Sequence:
    result = Sequence([], kind, created_at=run.site(node), made_at=run.steps)
    result.chosen = on_some_ranks(run)
    begin = len(run.decisions.tested_keys)
    for element in node.elements:
        value = run.eval_choice(element.value)
        if isinstance(element, cst.StarredElement):
            items, exact = iterate(run, value)
            result.extend(items)
            result.open = result.open or not exact
        else:
            result.items.append(value)
    result.decided_by = tuple(dict.fromkeys(run.decisions.tested_keys[begin:]))[-MAX_DECIDING:]
    return result


def _spreads_once(node: cst.Dict) -> bool:
    """Whether a dict takes the entries of one other mapping only."""
    return sum(isinstance(one, cst.StarredDictElement) for one in node.elements) == 1


@evaluates(cst.Dict)
def eval_dict(run: Run, node: cst.Dict) -> Value:
    result = Dict(created_at=run.site(node), made_at=run.steps)
    for element in node.elements:
        if isinstance(element, cst.DictElement):
            key, value = run.eval(element.key), run.eval_choice(element.value)
            if isinstance(key, Const):
                result.items[key.value] = value
            elif isinstance(key, Symbol):
                result.items[key.name] = value
            else:
                result.items[f"<{run.text(element.key)}>"] = value
                result.open = True
        elif isinstance(element, cst.StarredDictElement):
            value = dict_to_read(run.eval(element.value))
            if isinstance(value, Dict):
                result.take(value)
            elif isinstance(value, StateValue):
                result.open = True
                result.tensors[f"**{value.id}"] = value
            else:
                override_entries(result)
                if isinstance(value, Unknown):
                    result.items.update(known_elements(value))
                    result.rest_local = local_of(value) if _spreads_once(node) else None
    note_keys(run, result.items)
    return begin_dict(run, result)
