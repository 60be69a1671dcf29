"""Queries of a trace that several rules use."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator

from fsdplint.trace import (
    ANY_ATTRIBUTE,
    BackwardRun,
    Collective,
    Event,
    Fsdp1Used,
    GuardKind,
    OptimizerBuilt,
    OptimizerStepped,
    Prepared,
    Ranks,
    Sharded,
    Sharding,
    Trace,
    Wrapped,
)
from fsdplint.trace.groups import Groups


def only_fsdp2(trace: Trace, module: str, before: Event) -> bool:
    """Whether `fully_shard` shards the module or a part of it, without a wrapper around it.

    DDP and FSDP1 have their own methods. The wrapper of torch.compile passes calls on.
    """
    seen: set[str] = set()
    current: str | None = module
    while current is not None and current not in seen:
        info = trace.modules.get(current)
        if info is None or info.wrapper in ("fsdp1", "ddp"):
            return False
        seen.add(current)
        current = info.inner
    return trace.sharded_within(module, before) is Sharding.FSDP2


def fsdp1_on_fsdp2(trace: Trace, event: Fsdp1Used) -> bool:
    """Whether FSDP1's API is used on a model that `fully_shard` shards."""
    return event.module is not None and only_fsdp2(trace, event.module, event)


def sharded_by_fsdp2(trace: Trace, module: str, before: Event) -> bool:
    """Whether `fully_shard` shards the module, a part of it, or the unit that it belongs to."""
    if only_fsdp2(trace, module, before):
        return True
    groups = Groups(trace)
    owner = groups.owner(module, before)
    return (
        owner is not None
        and groups.shards_parameters(module, before)
        and only_fsdp2(trace, owner, before)
    )


def sharded_here(trace: Trace, module: str, before: Event) -> list[tuple[Event, str]]:
    """The event that sharded the module, else a part of it, for `because` of a finding."""
    parts = set(trace.submodules(module))
    best: Event | None = None
    for event in trace.events[: before.index]:
        if not isinstance(event, Sharded | Wrapped | Prepared):
            continue
        modules = _sharded_at(event)
        if module in modules:
            return [(event, "sharded here")]
        if best is None and parts & modules:
            best = event
    return [(best, "sharded here")] if best is not None else []


def _sharded_at(event: Sharded | Wrapped | Prepared) -> set[str]:
    if isinstance(event, Prepared):
        return set(event.modules)
    return {event.module, *(event.group if isinstance(event, Sharded) else ())}


def class_name(trace: Trace, module: str) -> str:
    """The class of the module inside all wrappers, for messages."""
    info = trace.modules.get(trace.unwrap(module))
    return info.class_name if info is not None else "the model"


def module_path(trace: Trace, root: str, module: str) -> str:
    """The attribute path from the root to a module under it; "" for the root itself."""
    stack = [(root, "")]
    seen: set[str] = set()
    while stack:
        current, path = stack.pop()
        if current == module:
            return path
        if current in seen or current not in trace.modules:
            continue
        seen.add(current)
        info = trace.modules[current]
        if info.inner is not None:
            stack.append((info.inner, path))
        for name, child in info.children.items():
            stack.append((child, f"{path}.{name}" if path else name))
    return ""


def optimizer_of(trace: Trace, name: str) -> OptimizerBuilt | None:
    """The event that built the optimizer of this name; None if there is none."""
    return next((event for event in trace.of(OptimizerBuilt) if event.optimizer == name), None)


def optimizers_over(trace: Trace, module: str) -> set[str]:
    """The optimizers that hold parameters of a module, or of a part of it."""
    return {
        built.optimizer
        for built in trace.of(OptimizerBuilt)
        if any(trace.related(module, held) for held in built.modules)
    }


def sharded_module_of(trace: Trace, modules: Iterable[str], before: Event) -> str | None:
    """The first of some modules that has sharded parameters; None if no sharding of one is seen.

    The sharding may be that of the module, of its parts, or of what it is a part of.
    """
    for module in modules:
        if trace.sharded_within(module, before) is not None:
            return module
        if any(trace.sharding(one, before) is not None for one in trace.ancestors(module)):
            return module
    return None


def first_step(trace: Trace, built: OptimizerBuilt, after: Event) -> OptimizerStepped | None:
    """The first step of an optimizer after an event.

    None if there is none before `__init__` is called again, which replaces the parameters.
    """
    for event in trace.after(after, OptimizerStepped, OptimizerBuilt):
        if event is built or not isinstance(event, OptimizerStepped | OptimizerBuilt):
            continue
        if event.optimizer == built.optimizer:
            return event if isinstance(event, OptimizerStepped) else None
    return None


def steps_with(
    trace: Trace, module: str, after: Event, library: str = ""
) -> Iterator[OptimizerStepped]:
    """The steps of optimizers with parameters of a module, after an event.

    library: the library of the optimizers, "torch"; by default all of them.
    """
    updating = {
        built.optimizer
        for built in trace.of(OptimizerBuilt)
        if library in ("", built.library)
        and any(trace.related(one, module) for one in built.modules)
    }
    return (step for step in trace.after(after, OptimizerStepped) if step.optimizer in updating)


# Packages whose optimizers have kernels for plain tensors only, and refuse DTensors.
PLAIN_OPTIMIZERS = {"bitsandbytes"}

WHOLE_FILE = ("torch.save", "torch.load", "pickle.", "safetensors.")


def whole_file(api: str) -> bool:
    """Whether a function writes or reads a single file, not a distributed checkpoint."""
    return api.startswith(WHOLE_FILE)


def asked_for(event: Event, attribute: str) -> bool:
    """Whether the event is under a test that asks, or may ask, for the attribute."""
    names = {attribute, ANY_ATTRIBUTE}
    return any(guard.holds and not names.isdisjoint(guard.asks_for) for guard in event.guards)


def perhaps_one_rank(event: Event) -> bool:
    """Whether the event is under a test of the rank, or of a flag with the name of one.

    Unknown code may have set the flag: `if self.is_master:`.
    """
    return event.ranks.partial or any(
        guard.kind is not GuardKind.RANK and RANK_WORDS.search(guard.text) for guard in event.guards
    )


RANK_WORDS = re.compile(r"rank|main_?proc|is_?main|master|primary|leader|chief|is_zero", re.I)


def is_under_varying_test(event: Event) -> bool:
    """Whether the event is under a test of a varying value, so that it may not always happen."""
    return any(guard.kind is GuardKind.VARYING for guard in event.guards)


def happens_before_each(first: Event, event: Event) -> bool:
    """Whether an event happens whenever the program comes to a later one.

    It does where no test of a varying value decides about the first event alone.
    """
    tests = [guard for guard in first.guards if guard.kind is GuardKind.VARYING]
    return all(guard in event.guards for guard in tests)


def side(event: Event) -> Ranks:
    """The ranks of an event, where the first rank of each machine counts as the one rank."""
    tests = [g for g in event.guards if g.kind is GuardKind.RANK and g.ranks.partial]
    if event.ranks is not Ranks.SOME or not tests or not all(test.each_node for test in tests):
        return event.ranks
    return Ranks.ONE if any(test.one_of_node for test in tests) else Ranks.OTHERS


def optimizer_named(built: OptimizerBuilt) -> str:
    """The optimizer for messages, by its class."""
    return f"`{built.class_name}`" if built.class_name else "the optimizer"


def reduced_by_hand(trace: Trace, modules: Container[str] | None = None) -> bool:
    """Whether the program may reduce a gradient between a backward pass and the next step.

    A loss or a metric that is averaged there is not one. A record does not tell it from a gradient.

    modules: the modules whose gradients count; by default all.
    """
    after_backward = False
    for event in trace:
        if isinstance(event, BackwardRun):
            after_backward = True
        elif isinstance(event, OptimizerStepped):
            after_backward = False
        elif after_backward and isinstance(event, Collective) and "reduce" in event.api:
            if event.of_metric:
                continue
            if modules is None or not event.gradient_of:
                return True
            if any(part in modules for part in _parts_reduced(trace, event)):
                return True
    return False


def _parts_reduced(trace: Trace, event: Collective) -> Iterator[str]:
    """The modules of which the tensor of a collective may be a gradient."""
    for module in event.gradient_of:
        yield from (module,) if event.own_gradient else trace.submodules(module)
