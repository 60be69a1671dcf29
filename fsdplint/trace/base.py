"""The base of all events: sites, guards, modules and the event class."""

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
from fsdplint.trace.predicates import Predicate

E = TypeVar("E")
ANY_ATTRIBUTE = "*"  # the name of an attribute that the code does not show
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
    """A place in the code of the user; its location is computed on demand."""

    @property
    def path(self) -> str: ...

    def location(self) -> Location: ...


@dataclass(frozen=True)
class FixedSite:
    """A site with a fixed location (of the recorder, or of a finding about a file)."""

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
        """Whether some ranks do not take part."""
        return self is not Ranks.ALL


class GuardKind(Enum):
    RANK = "rank"  # a test of the rank
    CONFIG = "config"  # decided once for a whole run, e.g. `args.fsdp`
    VARYING = "varying"  # differs within a run, e.g. `step % 10 == 0`


@dataclass(frozen=True)
class Guard:
    """A condition of an event. `holds`: whether the text was true or false.

    asserted: whether an `assert` states which ranks get here, so that the ranks do not diverge.
    own_data: where the data come from that each rank tests for itself, so that the ranks may decide
        differently; None for any other test.
    by_clock: whether these data are the time on the rank's clock.
    by_rank: whether these data derive from the rank alone.
    each_node: whether it is a test of the local rank, which one rank of each machine passes.
    one_of_node: whether it tests for this one rank of each machine, and not for the others.
    rank: the rank that a test of the rank tells from the others; None if unknown.
    in_turn: whether the ranks pass a test of the rank one after the other, each in a turn of a
        loop. loop: this loop, if it is known.
    of_tensor: whether it tests one of several tensors, or its name: what holds for the tensor then
        need not hold for all of them.
    asks_for: the names of the attributes that it asks an object for, with `hasattr` or `getattr`;
        ANY_ATTRIBUTE for a name that the code does not show.
    predicate: what is known where the guard holds; None if nothing is.
    before_fsdp2: whether it holds only with a torch that has no FSDP2.
    diverges_where: what has to hold, too, for a test of the rank to tell the ranks apart: `a` in
        `a and rank == 0`; None if nothing has to, or if it is not known.
    """

    kind: GuardKind
    text: str
    holds: bool
    site: Site | None = field(default=None, compare=False)
    ranks: Ranks = Ranks.ALL
    asserted: bool = False
    own_data: Site | None = field(default=None, compare=False)
    by_clock: bool = field(default=False, compare=False)
    by_rank: bool = field(default=False, compare=False)
    each_node: bool = field(default=False, compare=False)
    one_of_node: bool = field(default=False, compare=False)
    rank: int | None = field(default=None, compare=False)
    in_turn: bool = field(default=False, compare=False)
    loop: Site | None = field(default=None, compare=False, repr=False)
    of_tensor: bool = field(default=False, compare=False)
    asks_for: frozenset[str] = field(default=frozenset(), compare=False)
    predicate: Predicate | None = field(default=None, compare=False, repr=False)
    before_fsdp2: bool = field(default=False, compare=False)
    diverges_where: Predicate | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"`{self.text}` is {'true' if self.holds else 'false'}"

    @property
    def decides_by(self) -> str:
        """By what each rank decides a test of its own data, in words."""
        if self.by_rank:
            return "rank"
        return "clock" if self.by_clock else "data"

    @property
    def own_data_here(self) -> str:
        """What happens at the place of a rank's own data, in words."""
        if self.by_rank:
            return "the value depends on the rank here"
        return f"each rank {'reads its own clock' if self.by_clock else 'has its own data'} here"


class Sharding(Enum):
    """Who shards a module's parameters."""

    FSDP1 = "fsdp1"
    FSDP2 = "fsdp2"


class GradMode(Enum):
    """The autograd mode of a call."""

    ON = "grad"
    OFF = "no_grad"
    INFERENCE = "inference_mode"


class Layout(Enum):
    """The layout of the tensors in a state dict."""

    FULL = "full"  # full tensors (possibly on rank 0 only)
    SHARDED = "sharded"  # DTensor or ShardedTensor: 1/N of the data on each rank
    LOCAL = "local"  # FSDP1's flat local shards
    PLAIN = "plain"  # of a module or optimizer that is not sharded
    UNKNOWN = "unknown"


@dataclass
class Module:
    """One nn.Module object of the program; in a static trace it may stand for several.

    Attributes:
        id: unique in its trace.
        class_name: the class for messages, e.g. "Net".
        qualified_class: the public dotted name of a library class ("torch.nn.Linear"), or None for
            a class of the user.
        children: submodules by attribute name ("*" for the repeated elements of a container).
        children_known: False if the code of the class could not be followed: it may have more.
        repeated: whether this object stands for several (elements of a ModuleList).
        own_parameters: whether it registers parameters itself (None: unknown).
        frozen: whether its own parameters have, or may have, `requires_grad=False`.
        container: whether it has no forward of its own (ModuleList, ModuleDict).
        wrapper: "fsdp1", "ddp", "compile" or "" for a module that wraps another (`inner`).
        inner: the wrapped module's id.
        escaped: whether it was passed to code that could not be followed. Anything may have
            happened to it there, so rules about something *missing* do not report it.
        perhaps_chosen: whether an undecided test selected it for a list of modules.
        block: whether it is one of the repeated blocks of a library model (static traces only).
        key: its key, as code, in the first dict of the program that holds it (static traces only).
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
    block: bool = False
    key: str = ""


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
    """Make an event class a dataclass that inherits the methods of `Event`.

    To generate methods for each of the fifty classes takes longer than to check most programs.
    """
    kind.__doc__ = kind.__doc__ or kind.__name__  # else dataclass computes it
    return dataclass(kw_only=True, init=False, repr=False, eq=False, match_args=False)(kind)


@event
class Event:
    """One thing that happened.

    `static_only` is the reason why no recorder writes events of a class; empty for other classes.
    Each field declares how it is recorded, see `fsdplint.trace.fields`.

    Attributes:
        site: the code of the user that caused it, usually a call.
        ranks: the ranks on which it happens.
        guards: its conditions, outermost first (static traces only).
        facts: what is known besides, because the program would have left the turn of the loop or
            the function otherwise (static traces only).
        in_loop: whether it is in a loop such as `for step in ...`; loops over modules do not
            count.
        collective: whether every rank has to take part in it.
        stack: the calls of functions of the user that led to it, outermost first.
        callbacks: the calls of unknown code, outermost first, that got the function or iterator in
            which it happens and may call it now, later or never (static traces only). A finding
            uses such an event only if all of its events are in the same callback.
        took_part: the ranks that ran it (recorded traces only).
        index: its position in the trace; set by `Trace.add`.
    """

    kind: ClassVar[str] = "event"
    static_only: ClassVar[str] = ""

    site: Site = by_merge(kw_only=False)
    ranks: Ranks = by_merge(default=Ranks.ALL)
    guards: tuple[Guard, ...] = unrecorded("what was recorded has happened", default=())
    facts: tuple[Predicate, ...] = unrecorded("what was recorded has happened", default=())
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
