"""Members of modules and namespaces that a name chooses: `getattr(module, name)`."""

from __future__ import annotations

from typing import TypeGuard

import libcst as cst

from fsdplint.interpreter.call_shapes import accepts, calls_of
from fsdplint.interpreter.choices import ANY, choose
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Class,
    Function,
    LazyClass,
    LazyImport,
    Namespace,
    ProjectModule,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
)

_PACKAGES = {"torch.optim", "torch.optim.lr_scheduler"}


# The most used come first: a configuration tries a name of a group, and not each name of it.
_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")


def is_strategy_class(value: Value) -> TypeGuard[Symbol]:
    """Whether a value is FSDP1's enumeration of strategies."""
    return isinstance(value, Symbol) and value.name == "torch.distributed.fsdp.ShardingStrategy"


def member(run: Run, owner: Value, name: Value, node: cst.CSTNode) -> Value | None:
    """The member of a module that an unknown name chooses; None if that is not known."""
    if isinstance(owner, Symbol) and owner.name in _PACKAGES:
        return Symbol(f"{owner.name}.{ANY}")
    if isinstance(owner, Symbol) and owner.name == "torch" and isinstance(name, Unknown):
        text = constant(name)  # of a setting that the program leaves at its default
        if not isinstance(text, str) or not text.isidentifier():
            return None
        named = Symbol(f"torch.{text}")
        return Unknown(f"getattr(torch, {name.origin})", default=named, is_default=True)
    if is_strategy_class(owner):
        strategies = {one: Symbol(f"{owner.name}.{one}") for one in _STRATEGIES}
        return choose(run, name, strategies, node)
    if not isinstance(owner, Namespace | ProjectModule):
        return None
    names = owner.scope.names
    offered = offered_names(run, name)
    found: dict[object, Value] = {one: names[one] for one in offered if one in names}
    if len(found) == 1 and _is_of_file(run, name):  # the only file shows no other name
        others = _called_so(run, _own_members(run, owner), node)
        if len(set(map(type, others.values()))) == 1:
            found = {**found, **others}
    if found:
        complete = len(found) == len(offered) and not _is_of_file(run, name)
        return choose(run, name, found, node, complete=complete)
    own = _called_so(run, _own_members(run, owner), node)
    own = own or _called_so(run, _imported_members(run, owner), node)
    if (
        isinstance(name, Unknown)
        and name.template is None
        and len(set(map(type, own.values()))) > 1
    ):
        return None  # it may be a class or a function
    return choose(run, name, own, node, complete=False)


def _called_so(run: Run, members: dict[object, Value], node: cst.CSTNode) -> dict[object, Value]:
    """The members that can take the arguments of the calls of the chosen one."""
    calls = calls_of(run.source, node)
    return {
        name: value
        for name, value in members.items()
        if all(accepts(run, value, call) for call in calls)
    }


def _own_members(run: Run, owner: Namespace | ProjectModule) -> dict[object, Value]:
    """The public classes and functions that a file defines."""
    names = {
        name: run.settle(value) if isinstance(value, LazyClass) else value
        for name, value in list(owner.scope.names.items())
        if not name.startswith("_")
    }
    executing = {id(frame.function) for frame in run.frames}
    return {
        name: value
        for name, value in names.items()
        if isinstance(value, Class | Function)
        and value.scope is owner.scope
        and id(value) not in executing
    }


def _imported_members(run: Run, owner: Namespace | ProjectModule) -> dict[object, Value]:
    """The public classes and functions that a file imports from other files of the project."""
    names = {
        name: run.settle(value)
        for name, value in list(owner.scope.names.items())
        if isinstance(value, LazyImport | Class | Function) and not name.startswith("_")
    }
    return {
        name: value
        for name, value in names.items()
        if isinstance(value, Class | Function) and value.scope is not owner.scope
    }


def offered_names(run: Run, name: Value) -> tuple[str, ...]:
    """What `choices=` of a command-line argument, or the files of settings, offer for a name."""
    if not isinstance(name, Unknown):
        return ()
    if name.origin in run.offered_settings:
        offered = run.offered_settings[name.origin]
        return tuple(one for one in offered if isinstance(one, str))
    if "parse_args()" not in name.origin:
        return ()
    return run.argument_choices.get(name.origin.rpartition(".")[2], ())


def _is_of_file(run: Run, name: Value) -> bool:
    """Whether a settings file has the name, so that the command line may say any other."""
    return isinstance(name, Unknown) and name.origin in run.offered_settings


def namespace_of(value: Symbol) -> Symbol | None:
    """The library module whose `__dict__` a value is."""
    head, _, last = value.name.rpartition(".")
    return Symbol(head) if last == "__dict__" else None


def parsed_object(run: Run, arguments: Unknown, name: str, node: cst.CSTNode) -> Value | None:
    """The function or object that a parsed argument is; None if it is another value."""
    offered = run.argument_values.get(name)
    if offered is None or "parse_args()" not in arguments.origin:
        return None
    named = {_title(value, number): value for number, value in enumerate(offered)}
    return choose(run, Unknown(origin=f"{arguments.origin}.{name}"), named, node)


def _title(value: Value, number: int) -> object:
    """The name of a function, or the names of those in a list; the number of any other object."""
    if isinstance(value, Sequence):
        return f"[{', '.join(str(_title(one, at)) for at, one in enumerate(value.items))}]"
    return getattr(value, "name", number)
