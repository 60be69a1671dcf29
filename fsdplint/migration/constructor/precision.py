"""`MixedPrecision(...)` becomes `MixedPrecisionPolicy(...)` in its place.

The new code writes out what FSDP2 does differently. In FSDP1 `reduce_dtype=None` means
`param_dtype`, only the root casts its inputs, and `buffer_dtype` casts the buffers; FSDP2 has no
counterpart of `buffer_dtype`.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import (
    CAST_INPUTS_UNKNOWN,
    CAST_ROOT_INPUTS,
    CLASSES_TO_IGNORE,
    LOW_PRECISION_GRADS,
    PRECISION_ARGUMENTS,
)
from fsdplint.migration.constructor import batch_norms
from fsdplint.migration.constructor.dtypes import is_dtype
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.facts import Precision
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant, value_end, without
from fsdplint.syntax.layout import line_end

PARAMETERS = (
    "param_dtype",
    "reduce_dtype",
    "buffer_dtype",
    "keep_low_precision_grads",
    "cast_forward_inputs",
    "cast_root_forward_inputs",
    "_module_classes_to_ignore",
)


def convert(migration: Migration, source: Source, call: cst.Call, known: Precision) -> None:
    """Rewrite one `MixedPrecision(...)` call in its place.

    Raises:
        Blocked: an argument has no counterpart.
    """
    named, rest = arguments(call, PARAMETERS)
    if rest or not set(named) <= set(PARAMETERS):
        raise Blocked(source, call, PRECISION_ARGUMENTS())
    keep = named.get("keep_low_precision_grads")
    if keep is not None and not is_constant(keep.value, "False"):
        raise Blocked(source, keep, LOW_PRECISION_GRADS())
    ignored = named.get("_module_classes_to_ignore")
    if ignored is not None and not batch_norms.are_all(migration, ignored.value):
        raise Blocked(source, ignored, CLASSES_TO_IGNORE())
    _read_input_casts(migration, source, call, named, known)
    _read_dtypes(migration, source, call, named, known)
    known.calls.append(call)
    changes: list[tuple[int, int, str]] = []
    removed_args = [
        named[name]
        for name in (
            "buffer_dtype",
            "keep_low_precision_grads",
            "cast_forward_inputs",
            "cast_root_forward_inputs",
            "_module_classes_to_ignore",
        )
        if name in named
    ]
    param, reduce = named.get("param_dtype"), named.get("reduce_dtype")
    inner = named.get("cast_forward_inputs")
    writes_own = known.own_casts or known.casts_none
    if writes_own and inner is not None and is_constant(inner.value, "False"):
        removed_args.remove(inner)
    own = writes_own and inner is None and param is not None
    last = next((arg for arg in reversed(call.args) if arg not in removed_args), None)
    added: list[tuple[cst.Arg, str]] = []
    if reduce is not None and is_constant(reduce.value, "None") and param is not None:
        start, end = source.span(reduce.value)
        changes.append((start, end, migration.text(source, param.value)))
    elif reduce is None and param is not None and not is_constant(param.value, "None"):
        added.append((param, f"reduce_dtype={migration.text(source, param.value)}"))
    if own:
        assert last is not None
        added.append((last, "cast_forward_inputs=False"))
    for arg in dict.fromkeys(arg for arg, _ in added):
        changes += _additions(source, arg, [text for one, text in added if one is arg])
    if param is not None and param.keyword is None:
        start = source.span(param)[0]
        changes.append((start, start, "param_dtype="))
    if reduce is not None and reduce.keyword is None:
        start = source.span(reduce)[0]
        changes.append((start, start, "reduce_dtype="))
    changes.extend((start, end, "") for start, end in without(source, call, removed_args))
    name = migration.need(source, "torch.distributed.fsdp", "MixedPrecisionPolicy", call)
    migration.account_for(source, call.func)
    migration.forget(source, call)
    migration.substitute(source, call.func, name)
    for start, end, text in sorted(changes, key=lambda change: (change[0] == change[1], change)):
        migration.substitute_span(source, start, end, text)


def _additions(source: Source, last: cst.Arg, texts: list[str]) -> list[tuple[int, int, str]]:
    """The changes that add arguments behind one: on lines of their own if each has its own line.

    A comment behind the argument stays there.
    """
    start, end = source.span(last)[0], value_end(source, last)
    indent = source.text[source.line_start(start) : start]
    if indent.strip() or not indent:
        return [(end, end, "".join(f", {text}" for text in texts))]
    line = line_end(source, end)[0]
    rest = source.text[end:line].strip()
    if not rest.removeprefix(",").lstrip().startswith("#"):
        return [(end, end, "".join(f",\n{indent}{text}" for text in texts))]
    if rest.startswith(","):
        return [(line, line, "".join(f"\n{indent}{text}," for text in texts))]
    return [(end, end, ","), (line, line, ",".join(f"\n{indent}{text}" for text in texts))]


def _read_input_casts(
    migration: Migration,
    source: Source,
    call: cst.Call,
    named: dict[str, cst.Arg],
    known: Precision,
) -> None:
    inner, root = named.get("cast_forward_inputs"), named.get("cast_root_forward_inputs")
    every = set(_all_casts(migration))
    if (root is not None and not is_constant(root.value, "True", "False")) or (
        (False, False) in every and len(every) > 1
    ):
        raise Blocked(source, root or call, CAST_ROOT_INPUTS())
    known.own_casts = len({casts for casts, _ in every}) > 1
    known.casts_none = every == {(False, False)}
    if inner is None or is_constant(inner.value, "False"):
        known.casts_inner = known.casts_none
    elif not is_constant(inner.value, "True"):
        raise Blocked(source, inner, CAST_INPUTS_UNKNOWN())


def _all_casts(migration: Migration) -> Iterator[tuple[bool, bool]]:
    """Whether inner modules cast their inputs, and whether the root does, for each policy of the
    files."""
    for source in migration.sources:
        for node in nodes(source):
            if isinstance(node, cst.Call) and migration.called_name(node) == "MixedPrecision":
                named, _ = arguments(node, PARAMETERS)
                inner = named.get("cast_forward_inputs")
                root = named.get("cast_root_forward_inputs")
                casts = inner is not None and is_constant(inner.value, "True")
                yield casts, casts or root is None or not is_constant(root.value, "False")


def _read_dtypes(
    migration: Migration,
    source: Source,
    call: cst.Call,
    named: dict[str, cst.Arg],
    known: Precision,
) -> None:
    def text(name: str) -> str:
        arg = named.get(name)
        if arg is None or is_constant(arg.value, "None"):
            return ""
        return migration.text(source, arg.value)

    known.lowers = known.lowers or bool(text("param_dtype"))
    fields = {
        "param_dtype": text("param_dtype"),
        "reduce_dtype": text("reduce_dtype") or text("param_dtype"),
    }
    known.equal_fields[call] = tuple(
        x for x, dtype in fields.items() if dtype == text("buffer_dtype")
    )
    if text("buffer_dtype"):
        known.buffers[call] = named["buffer_dtype"].value
    given = named.get("param_dtype")
    if given is not None and is_dtype(migration, source, given.value):
        known.lowering.add(call)
