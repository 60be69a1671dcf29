"""What every event is made of: sites, guards, modules, and the event itself."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from fsdplint.trace.fields import (
    by_merge,
    combined,
    definition,
    distinct,
    numbered,
    reference,
    unrecorded,
)

E = TypeVar("E")
_FIELDS: dict[type, list[tuple[str, Any, Any]]] = {}  # of each kind of event


@dataclass(frozen=True, order=True)
class Location:
    """A span of source text: lines and columns count from 1, the end column is exclusive."""

    path: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0


class Site(Protocol):
    """Where in the user's code something stands; its location is worked out when asked for."""

    @property
    def path(self) -> str: ...

    def location(self) -> Location: ...


@dataclass(frozen=True)
class FixedSite:
    """A site whose location is known from the start (the recorder's, and findings about a file)."""

    at: Location

    @property
    def path(self) -> str:
        return self.at.path

    def location(self) -> Location:
        return self.at


class Ranks(Enum):
    """Which ranks an event happens on."""

    ALL = "all ranks"
    ONE = "one rank"
    OTHERS = "all ranks but one"
    SOME = "some ranks"

    @property
    def partial(self) -> bool:
        """Whether some rank does not take part."""
        return self is not Ranks.ALL


class GuardKind(Enum):
    RANK = "rank"  # a test of the rank
    CONFIG = "config"  # decided once for a whole run, e.g. `args.fsdp`
    VARYING = "varying"  # differs within a run, e.g. `step % 10 == 0`


@dataclass(frozen=True)
class Guard:
    """A condition that an event stands under. `holds` says whether its text was true or false.

    asserted: the program does not part its ranks here, it states which of them come.
    """

    kind: GuardKind
    text: str
    holds: bool
    site: Site | None = field(default=None, compare=False)
    ranks: Ranks = Ranks.ALL
    asserted: bool = False

    def __str__(self) -> str:
        return f"`{self.text}` is {'true' if self.holds else 'false'}"


class Sharding(Enum):
    """Who shards a module's parameters."""

    FSDP1 = "fsdp1"
    FSDP2 = "fsdp2"


class GradMode(Enum):
    """What autograd records of a call."""

    ON = "grad"
    OFF = "no_grad"
    INFERENCE = "inference_mode"


class Layout(Enum):
    """What a state dict holds of each tensor."""

    FULL = "full"  # whole tensors (possibly on rank 0 only)
    SHARDED = "sharded"  # DTensor or ShardedTensor: 1/N of the data on each rank
    LOCAL = "local"  # FSDP1's flat local shards
    PLAIN = "plain"  # of a module or optimizer that is not sharded
    UNKNOWN = "unknown"


@dataclass
class Module:
    """One nn.Module object of the program (statically: one that may stand for several alike).

    Attributes:
        id: unique in its trace.
        class_name: the class as the user reads it, e.g. "Net".
        qualified_class: dotted name of a library class ("torch.nn.modules.linear.Linear" is given
            as its public name "torch.nn.Linear"), or None for a class of the user's.
        children: submodules by attribute name ("*" for the alike elements of a container).
        children_known: False where the class's code could not be followed: then there may be more.
        repeated: whether this object stands for several alike (an element of a ModuleList).
        own_parameters: whether it registers parameters itself (None: unknown).
        frozen: its own parameters have requires_grad switched off, or may have.
        container: ModuleList, ModuleDict: no forward of its own.
        wrapper: "fsdp1", "ddp", "compile" or "" for a module that wraps another (`inner`).
        inner: the wrapped module's id.
        escaped: it was passed to code that could not be followed, so that anything may have
            happened to it; a rule about something *missing* stays silent about such a module.
        perhaps_chosen: a test that could not be decided put it into a list of modules, which it may
            not be in.
    """

    id: str
    class_name: str
    qualified_class: str | None = None
    children: dict[str, str] = field(default_factory=dict)
    children_known: bool = True
    repeated: bool = False
    own_parameters: bool | None = None
    frozen: bool = False
    container: bool = False
    wrapper: str = ""
    inner: str | None = None
    escaped: bool = False
    perhaps_chosen: bool = False


if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda function: function


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        field,
        reference,
        definition,
        distinct,
        combined,
        numbered,
        by_merge,
        unrecorded,
    ),
)
def event(kind: type[E]) -> type[E]:
    """Make a class of events a dataclass, with the methods that all of them share.

    Methods for each of the fifty classes take longer to make than most programs to check.
    """
    kind.__doc__ = kind.__doc__ or kind.__name__  # else it would be worked out
    return dataclass(kw_only=True, init=False, repr=False, eq=False, match_args=False)(kind)


@event
class Event:
    """One thing that happened.

    `static_only` says of a class why no recorder writes its events; it is empty for the others. How
    the other fields are recorded stands with each of them, see `fsdplint.trace.fields`.

    Attributes:
        site: the user's code that caused it (a call, usually).
        ranks: the ranks on which it happens.
        guards: the conditions that it stands under, outermost first (static traces only).
        in_loop: whether it stands in a loop of the program (for `for step in ...`, not for a loop
            over modules).
        collective: whether every rank has to take part in it.
        stack: the calls of the user's own functions that led to it, outermost first.
        callbacks: the calls of code that cannot be followed, outermost first, which were given the
            function or iterator that this happens in: it may be called, or not, or later (static
            traces only). A finding rests on such an event only if all of its events are in the
            same callback.
        took_part: the ranks that did it (recorded traces only).
        index: its position in the trace; set by `Trace.add`.
    """

    kind: ClassVar[str] = "event"
    static_only: ClassVar[str] = ""

    site: Site = by_merge(kw_only=False)
    ranks: Ranks = by_merge(default=Ranks.ALL)
    guards: tuple[Guard, ...] = unrecorded("what was recorded has happened", default=())
    in_loop: bool = by_merge(default=False)
    collective: bool = False
    stack: tuple[Site, ...] = by_merge(default=())
    callbacks: tuple[Site, ...] = unrecorded("what was recorded has happened", default=())
    took_part: tuple[int, ...] = by_merge(default=())
    index: int = by_merge(default=-1)

    if not TYPE_CHECKING:

        def __init__(self, site: Site, **values: Any) -> None:
            values["site"] = site
            kind = type(self)
            if kind not in _FIELDS:
                _FIELDS[kind] = [(x.name, x.default, x.default_factory) for x in fields(self)]
            own = self.__dict__
            for name, default, factory in _FIELDS[kind]:
                if name in values:
                    own[name] = values.pop(name)
                elif default is not MISSING:
                    own[name] = default
                elif factory is not MISSING:
                    own[name] = factory()
                else:
                    raise TypeError(f"{kind.__name__} needs {name!r}")
            if values:
                raise TypeError(f"{type(self).__name__} has no {', '.join(map(repr, values))}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__qualname__}({shown})"
