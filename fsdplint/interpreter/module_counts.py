"""How many submodules `m.children()`, `m.modules()` and the like have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdplint.interpreter.module_tree import named_children
from fsdplint.interpreter.torch_values import Length, ModulesOf
from fsdplint.interpreter.values import ModuleValue, Unknown, Value

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Run


def count(run: Run, value: ModulesOf, text: str) -> Value:
    """The number of modules, at least a lower bound; `text` is the code that asks for it."""
    number, exact = _least_number(run, value)
    return Length(number) if exact else Unknown(origin=text, at_least=number)


def has_some(run: Run, value: ModulesOf) -> bool | None:
    """Whether there is a module; None if unknown. An iterator itself is true, also without any."""
    number, exact = _least_number(run, value)
    return True if number or value.is_iterator else False if exact else None


def _least_number(run: Run, value: ModulesOf) -> tuple[int, bool]:
    """A number of modules that there are at least, and whether there are no more."""
    direct = value.method in {"children", "named_children"}
    found = set[str]() if direct else {value.module.id}
    stack = [value.module]
    exact = not value.some
    while stack:
        module = stack.pop()
        exact = exact and run.trace.modules[module.id].children_known
        for _, child in named_children(run, module, None):
            if child.id in found:
                continue
            found.add(child.id)
            exact = exact and not _stands_for_several(run, child)
            if not direct:
                stack.append(child)
    return 0 if value.some else len(found), exact


def _stands_for_several(run: Run, module: ModuleValue) -> bool:
    return run.trace.modules[module.id].repeated or module.stands_for_parts
