"""Whether a value that can be called has code that the FSDP contract may depend on.

The answer only says what is worth a configuration of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Dict,
    Function,
    Instance,
    ModuleValue,
    OptimizerValue,
    Partial,
    ProjectModule,
    Sequence,
    Symbol,
    Value,
)
from fsdplint.source.positions import code_children

_LIBRARIES = ("torch.nn.", "torch.optim.", "torch.distributed.")
MAX_CODE = 64  # functions and classes that are looked at for one value


def leads_to_contract(run: Run, value: Value) -> bool:
    """Whether a value is a model or an optimizer, or has code that makes or gets one."""
    return any(_is_of_contract(run, part) for part in _code_behind(run, value))


def migration_depends_on(run: Run, value: Value) -> bool:
    """Whether a migration may have to know what a value does, and not only that it is a model.

    The code of a model, such as one of many activations or encoders, matters if it names what is
    not the same for all models.
    """
    if not isinstance(value, Function | Class):
        return _names_what_matters(run, value)
    known = run.project.matters_to_migration
    if value.node not in known:
        known[value.node] = _names_what_matters(run, value)
    return known[value.node]


def _names_what_matters(run: Run, value: Value) -> bool:
    """Whether the code behind a value is too much, or names what a migration depends on."""
    seen = 0
    for part in _code_behind(run, value):
        if not isinstance(part, Function | Class):
            continue
        seen += 1
        is_model = isinstance(part, Class) and _has_library_base(part)
        project = run.project
        words = project.structure_words if is_model else project.migration_words
        if seen == MAX_CODE or words.stand_in(part.node):
            return True
    return False


def _code_behind(run: Run, value: Value) -> Iterator[Value]:
    """A value, and what it calls or consists of, directly or indirectly."""
    todo, seen = [value], set[cst.CSTNode]()
    while todo and len(seen) < MAX_CODE:
        current = run.settle(todo.pop())
        if isinstance(current, Function | Class):
            if current.node in seen:
                continue
            seen.add(current.node)
        yield current
        todo += _parts(run, current)


def _is_of_contract(run: Run, value: Value) -> bool:
    if isinstance(value, ModuleValue | OptimizerValue):
        return True
    if isinstance(value, Symbol):
        return value.name.startswith(_LIBRARIES)
    if isinstance(value, Class) and _has_library_base(value):
        return True
    return isinstance(value, Function | Class) and run.project.model_words.stand_in(value.node)


def _has_library_base(value: Class) -> bool:
    return any(name.startswith(_LIBRARIES) for name in value.library_bases())


def _parts(run: Run, value: Value) -> list[Value]:
    """What a value calls or consists of."""
    if isinstance(value, Sequence):
        return value.items
    if isinstance(value, Dict):
        return list(value.items.values())
    if isinstance(value, Partial):
        return [value.function, *value.args, *value.kwargs.values()]
    if isinstance(value, Bound):
        return [value.function]
    if isinstance(value, Instance):
        return [value.cls]
    if isinstance(value, Class):
        return [*value.bases, *_named_code(run, value)]
    return list(_named_code(run, value)) if isinstance(value, Function) else []


def _named_code(run: Run, value: Function | Class) -> Iterator[Value]:
    """The functions and classes that the code of a value names."""
    names = _names(run, value.node)
    for name in names:
        found = value.scope.lookup(name)
        found = run.settle(found) if found is not None else None
        if isinstance(found, Function | Class | Symbol):
            yield found
        elif isinstance(found, ProjectModule):
            yield from (found.scope.names[one] for one in names if one in found.scope.names)


def _names(run: Run, node: cst.CSTNode) -> frozenset[str]:
    known = run.project.names_in
    if node not in known:
        found, stack = set[str](), [node]
        while stack:
            current = stack.pop()
            if isinstance(current, cst.Name):
                found.add(current.value)
            stack += code_children(current)
        known[node] = frozenset(found)
    return known[node]
