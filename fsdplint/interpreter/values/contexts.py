"""Context managers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fsdplint.interpreter.values.base import Value
from fsdplint.interpreter.values.objects import ModuleValue
from fsdplint.trace.predicates import Predicate


@dataclass(eq=False, repr=False)
class GeneratorContext(Value):
    """A call of a function under @contextmanager, whose body runs around the `with` block.

    certain, opens: as in `Context`.
    """

    function: Value
    args: list[Value] = field(default_factory=list)
    kwargs: dict[str, Value] = field(default_factory=dict)
    certain: bool = True
    opens: Predicate | None = field(default=None, repr=False)


@dataclass(eq=False, repr=False)
class Context(Value):
    """A context manager that the contract depends on.

    kind: its effect: "no_sync", "meta_device", "state_dict_type", "summon_full_params", "no_grad",
        "inference_mode", "null", ...
    certain: whether it is certainly what `model.no_sync()` returns here. A variable that was
        assigned on two ways may hold another context manager at times.
    opens: the test by which the program chooses it, and not another context manager; None if that
        is not known.
    use: the index of the event of the call that made it, for `summon_full_params`.
    """

    kind: str
    module: ModuleValue | None = None
    details: dict[str, Value] = field(default_factory=dict)
    use: int | None = None
    on_exit: Callable[[], None] | None = None
    certain: bool = False
    opens: Predicate | None = field(default=None, repr=False)


def gathers(contexts: Iterable[object]) -> bool:
    """Whether one of some contexts gathers the parameters of FSDP1's modules."""
    return any(isinstance(c, Context) and c.kind == "summon_full_params" for c in contexts)
