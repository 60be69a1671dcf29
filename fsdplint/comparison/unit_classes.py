"""The classes whose modules are units, where the modules of a model are not known."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.comparison.class_tests import tested_classes
from fsdplint.comparison.facts import Plan
from fsdplint.comparison.model_names import ModelNames
from fsdplint.trace import Sharded, Trace, Wrapped
from fsdplint.trace.arguments import Argument, Arguments, Built, Named
from fsdplint.trace.groups import sharded_by

TOPIC = "class of units"
_BY_CLASS = {
    "torch.distributed.fsdp.wrap.transformer_auto_wrap_policy": ("transformer_layer_cls",),
    "torch.distributed.fsdp.wrap._module_wrap_policy": ("module_classes",),
    "torch.distributed.fsdp.wrap.ModuleWrapPolicy": ("module_classes", "0"),
}
Found = list[tuple[str, Wrapped | Sharded]]


def unit_classes(plan: Plan, trace: Trace, names: ModelNames, events: Sequence[object]) -> Found:
    """Each class of a library whose modules are units, with what shards them.

    A part without a known class may be of any: the classes are a gap of the plan then.
    """
    found: Found = []
    for event in events:
        if isinstance(event, Wrapped):
            classes = _of_wrapped(trace, event)
        elif isinstance(event, Sharded):
            classes = _of_sharded(trace, names, event)
        else:
            continue
        if classes is None:
            plan.gaps[TOPIC] = "a part of the model that is sharded is unknown"
        else:
            found += [(name, event) for name in classes]
    for name, event in found:
        plan.add(TOPIC, name, "yes", event)
    return found


def _of_wrapped(trace: Trace, event: Wrapped) -> list[str] | None:
    """The classes of a policy whose units are not known; None if it has no list of classes."""
    if event.units is not None:
        return []
    policy = trace.arguments.get(event.index, Arguments()).get("auto_wrap_policy", "4")
    return _classes(policy)


def _classes(policy: Argument | None) -> list[str] | None:
    if not isinstance(policy, Built) or not policy.complete:
        return None
    function = policy.get("function")
    name = function.name if isinstance(function, Named) else policy.name
    given = policy.get(*_BY_CLASS[name]) if name in _BY_CLASS else None
    if not isinstance(given, Built) or not given.complete:
        return None
    parts = [part for _, part in given.items]
    if not all(isinstance(part, Named) and "." in part.name for part in parts):
        return None  # modules of the program's own classes have paths
    return [str(part).rpartition(".")[2] for part in parts]


def _of_sharded(trace: Trace, names: ModelNames, event: Sharded) -> list[str] | None:
    """The classes of unknown parts of a model that an event shards; None if one has no class.

    Where the parts are unknown, the tests before the event are all that says their classes.
    """
    classes: list[str] = []
    for module in sharded_by(event):
        if module not in trace.modules or not _is_unknown_part(trace, names, module):
            continue
        tested = tested_classes(event.guards, trace.modules[module].class_name)
        if tested is None:
            return None
        classes += tested
    return classes


def _is_unknown_part(trace: Trace, names: ModelNames, module: str) -> bool:
    """Whether a module is some part of a model whose parts are not known."""
    root = names.root(module)
    return root != trace.unwrap(module) and names.is_opaque(root)
