"""Values that a name chooses: `getattr(module, name)` and `registry[name]` with an unknown name.

The name is a setting, so each candidate is a configuration of the program. The classes of
`torch.optim` need none: each of them builds an optimizer of the parameters that it gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Condition,
    Function,
    Instance,
    ModuleValue,
    Namespace,
    OptimizerValue,
    Partial,
    ProjectModule,
    Sequence,
    Symbol,
    Unknown,
    Value,
)

MAX_CANDIDATES = 32
ANY = "*"  # the name of a class of one of the packages that an unknown name chooses
_OPTIM = "torch.optim."
_PACKAGES = {"torch.optim", "torch.optim.lr_scheduler"}

_CHOSEN = Bound | Class | Function | Instance | ModuleValue | OptimizerValue | Partial


def choose(run: Run, name: Value, candidates: Mapping[object, Value]) -> Value | None:
    """The candidate that a name chooses in this configuration; None if that is not known."""
    if not isinstance(name, Unknown) or name.varying or name.by_rank or name.by_process:
        return None
    known = {key: run.settle(value) for key, value in candidates.items()}
    if known and all(map(_is_optimizer_class, known.values())):
        return Symbol(_OPTIM + ANY) if len(known) > 1 else next(iter(known.values()))
    if not known or len(known) > MAX_CANDIDATES or not all(map(_is_choice, known.values())):
        return None
    return _decide(run, name, known)


def _decide(run: Run, name: Unknown, candidates: Mapping[object, Value]) -> Value | None:
    *others, last = sorted(
        candidates.items(), key=lambda item: not _leads_to_contract(run, item[1])
    )
    if others and not name.origin:
        return None
    matters = any(_leads_to_contract(run, value) for value in candidates.values())
    for key, value in others:
        origin = name.origin
        test = Condition(f"{origin} == {key!r}", f"{origin} == {key!r}", False, origin, "==", key)
        chosen = run.decisions.decide(test)
        if matters:
            run.decisions.relevant.add(test.key)
        if chosen:
            return value
    return last[1]


def _is_choice(value: Value) -> bool:
    if isinstance(value, Sequence):  # a class and its arguments
        return value.kind == "tuple" and any(map(_is_choice, value.items))
    return isinstance(value, _CHOSEN) or _is_optimizer_class(value)


def _is_optimizer_class(value: Value) -> bool:
    if not isinstance(value, Symbol) or not value.name.startswith(_OPTIM):
        return False
    last = value.name.rpartition(".")[2]
    return "." not in value.name.removeprefix(_OPTIM) and (last[:1].isupper() or last == ANY)


def _leads_to_contract(run: Run, value: Value) -> bool:
    """Whether a candidate has code of its own that the FSDP contract depends on."""
    if isinstance(value, Partial):
        value = run.settle(value.function)
    if isinstance(value, Bound):
        value = value.function
    if isinstance(value, Instance):
        value = value.cls
    return isinstance(value, Function | Class) and run.project.words.stand_in(value.node)


def member(run: Run, owner: Value, name: Value) -> Value | None:
    """The member of a module that an unknown name chooses; None if that is not known."""
    if isinstance(owner, Symbol) and owner.name in _PACKAGES:
        return Symbol(f"{owner.name}.{ANY}")
    if not isinstance(owner, Namespace | ProjectModule):
        return None
    names = owner.scope.names
    offered = [one for one in offered_names(run, name) if one in names]
    if offered:
        return choose(run, name, {one: names[one] for one in offered})
    return choose(run, name, _public(owner))


def _public(owner: Namespace | ProjectModule) -> dict[object, Value]:
    """The classes, or else the functions, that a file defines; none if it defines both."""
    own: dict[object, Value] = {
        name: value
        for name, value in owner.scope.names.items()
        if not name.startswith("_")
        and isinstance(value, Class | Function)
        and value.scope is owner.scope
    }
    kinds = {type(value) for value in own.values()}
    return own if len(kinds) == 1 else {}


def offered_names(run: Run, name: Value) -> Iterable[str]:
    """What `choices=` of a command-line argument offers for a name."""
    if not isinstance(name, Unknown) or "parse_args()" not in name.origin:
        return ()
    return run.argument_choices.get(name.origin.rpartition(".")[2], ())


def namespace_of(value: Symbol) -> Symbol | None:
    """The library module whose `__dict__` a value is."""
    head, _, last = value.name.rpartition(".")
    return Symbol(head) if last == "__dict__" else None
