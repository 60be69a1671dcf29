"""Values that hold each other: containers, objects, models, optimizers, and what is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from math import nan
from typing import Any, ClassVar

import libcst as cst

from fsdplint.interpreter.values.base import RankLocal, Scope, Value
from fsdplint.source.source import NodeSite
from fsdplint.trace.numbers import Number, Token
from fsdplint.trace.predicates import Predicate

MAX_ELEMENTS = 4_000  # kept elements of a list, and characters of a text
MAX_BITS = 4_000  # of a number that is folded


@dataclass(eq=False, repr=False)
class Unknown(Value):
    """A value of which only the origin may be known.

    origin: a stable name such as "args.fsdp", the same for one object within a run; "" if unknown.
    varying: whether it differs within a run (it derives from a loop variable).
    by_rank: whether it differs between ranks (a path that contains the rank).
    by_process: whether it derives from a property of the process (its device, id or position in a
        mesh) and may differ between ranks; no conclusion is drawn from a test of it.
    rank_local: set if it certainly derives from data that only this rank has.
    default: its value unless the user sets another one (the default of a dataclass field).
    is_default: whether it is the default, because the program itself calls the class without this
        field.
    part_of: the module that it was read from, whose children are not all known.
    owner: the unknown value that it was read from.
    label: the first name that the program gave it.
    refined: the module that it became when the program used it as a module.
    library: the library function that returned it; "" if unknown.
    argument: whether it derives from an argument of the program that a loop over all of them reads.
    parts: the values read from it (attributes; "[]" for its elements), so that a second read gives
        the same value.
    summed: whether an `all_reduce` summed it over all ranks, in place.
    synthetic_for: the class or function that is executed on its own with this as an argument.
    on_cpu: whether it is certainly a tensor on the CPU.
    new_tensor: whether it is a tensor that was just made and is computed from no other.
    below: the number that it is certainly smaller than: the end of the `range` that it is from.
    at_least: the number that it is certainly not smaller than.
    template: what is known of it if it is a text.
    reciprocal: whether it is 1 divided by a number that an `all_reduce` summed.
    own_size: whether it is a tensor whose size certainly differs between ranks.
    few_elements: whether it is a tensor of a few elements that the program made, such as a count.
    dimensionless: whether it is certainly a number, or a tensor without dimensions.
    number: whether it is certainly a number of Python, and no tensor.
    distinct: whether it is certainly another number on each rank: a multiple of the rank, perhaps
        plus a number that is the same on all ranks.
    own_number: set if it is the length of a list, and the length may differ between ranks.
    term: the number or the predicate that it is: see `turn_tests`.
    turn: set if it is the number of the current turn of a loop; each turn gets a token like it.
    changes: whether a loop calls a method of it for its effect, so that its attributes may differ
        from turn to turn.
    called: whether it was called.
    own_order: whether it is certainly a random order that each rank draws for itself.
    symbolic: whether it is certainly an object that equals no constant of Python, such as a dtype.
    present: whether it is certainly not None: a field of a dataclass that has a plain type, or the
        result of an operator.
    grows: whether it is a number that a loop counts up.
    tends_to: what it becomes after many steps, else nan: see `long_run`.
    """

    settles: ClassVar[bool] = True
    origin: str = ""
    varying: bool = False
    by_rank: bool = False
    by_process: bool = False
    rank_local: RankLocal | None = field(default=None, repr=False)
    default: Value | None = None
    is_default: bool = False
    part_of: ModuleValue | None = None
    owner: Unknown | None = field(default=None, repr=False)
    label: str = ""
    refined: ModuleValue | None = None
    library: str = ""
    argument: bool = False
    parts: dict[str, Value] = field(default_factory=dict, repr=False)
    summed: bool = False
    synthetic_for: cst.CSTNode | None = field(default=None, repr=False)
    on_cpu: bool = False
    new_tensor: bool = False
    below: Value | None = field(default=None, repr=False)
    at_least: int = 0
    template: Template | None = field(default=None, repr=False)
    reciprocal: bool = False
    own_size: bool = False
    distinct: bool = False
    own_number: RankLocal | None = field(default=None, repr=False)
    term: Number | Predicate | None = field(default=None, repr=False)
    turn: Token | None = field(default=None, repr=False)
    changes: bool = False
    # Not fields: with 30 of them, Python no longer shares the keys of the objects' dicts.
    few_elements = False
    dimensionless = False
    number = False
    called = False
    own_order = False
    symbolic = False
    present = False
    grows = False
    tends_to = nan

    @property
    def differs(self) -> bool:
        """Whether a test of it may have another result in another turn of a loop."""
        return self.varying or (self.owner is not None and self.owner.changes)


@dataclass(frozen=True)
class Template:
    """A text of which a part is unknown.

    Attributes:
        before: the text before the unknown part.
        hole: the unknown part.
        after: the text after it.
    """

    before: str
    hole: Unknown
    after: str

    def hole_in(self, text: object) -> str | None:
        """What the unknown part is if the whole is `text`; None if it is not."""
        if not isinstance(text, str) or len(text) <= len(self.before) + len(self.after):
            return None
        if not (text.startswith(self.before) and text.endswith(self.after)):
            return None
        return text[len(self.before) : len(text) - len(self.after)]


@dataclass(eq=False, repr=False)
class Sequence(Value):
    """A list, tuple, set or iterator. `open`: it may hold more than `items`.

    made_at: the step of the run at which a display, comprehension or `dict` made it, else 0.
    own_length: set if each rank may hold another number of elements: see `own_lengths`.
    length: the number of elements where one of them stands for all: see `list_lengths`.
    chosen: whether something chooses between it and another value, for which it stands, too, or
        only some ranks have made it.
    decided_by: see `LibraryObject`.
    """

    items: list[Value] = field(default_factory=list)
    kind: str = "list"  # "list", "tuple", "set", "iter" (an iterator over them)
    open: bool = False
    every: bool = False  # it certainly holds each element of what it was made of
    optimizer: OptimizerValue | None = None  # the owner of these param_groups
    made_at: int = 0
    own_length: RankLocal | None = field(default=None, repr=False)
    length: Number | None = field(default=None, repr=False)
    decided_by: tuple[str, ...] = ()
    chosen: bool = False

    def extend(self, items: Iterable[Value]) -> None:
        """Add elements; a sequence that would become too long is open from then on."""
        self.length = None
        self.items += list(islice(items, max(MAX_ELEMENTS - len(self.items), 0) + 1))
        if len(self.items) > MAX_ELEMENTS:
            del self.items[MAX_ELEMENTS:]
            self.open = True


@dataclass(eq=False, repr=False)
class Dict(Value):
    """A dict with constant keys; `open`: it may hold more.

    tensors: values under unknown keys (the names of a state dict), by the text of the key.
    made_at: see `Sequence`.
    doubtful: whether it may have other keys: a function that cannot be followed got it, or it
        stands for two dicts between which something chooses.
    removed: keys that the program has removed, if no unknown entry was added since then.
    empty_elsewhere: whether it is certainly empty on all ranks but one, or on all: see
        `one_rank_dicts`.
    factory: what makes the value of a key that is missing, of a `defaultdict`.
    names_of: the modules whose parameters certainly all have an entry under their names, and the
        number of events when they got it: see `parameter_keys`.
    identities: the identities of parameters that are keys; None if there may be other keys that are
        not known.
    is_first: whether it is certainly the first parameter group of `optimizer`.
    rest_local: what makes each of its unknown entries different on each rank.
    """

    items: dict[Any, Value] = field(default_factory=dict)
    open: bool = False
    tensors: dict[str, Value] = field(default_factory=dict)
    optimizer: OptimizerValue | None = None  # the owner of this param group (or `__dict__`)
    made_at: int = 0
    doubtful: bool = False
    removed: set[Any] = field(default_factory=set, repr=False)
    empty_elsewhere: bool = False
    factory: Value | None = field(default=None, repr=False)
    names_of: tuple[tuple[ModuleValue, ...], int] | None = field(default=None, repr=False)
    identities: tuple[Value, ...] | None = field(default=(), repr=False)
    is_first: bool = False
    rest_local: RankLocal | None = None

    @property
    def lacks_entries(self) -> bool:
        """Whether it is certainly empty on all ranks."""
        return not (self.items or self.tensors or self.open or self.doubtful)

    def has(self, key: Any) -> bool | None:
        """Whether it has a key; None if that is unknown."""
        if key in self.items:
            return True
        lacks = not self.open or (key in self.removed and not self.doubtful)
        return False if lacks else None

    def may_have_more(self) -> None:
        """Note that it may have got entries under any key."""
        self.open = True
        self.identities = None
        self.removed.clear()
        self.rest_local = None

    def take(self, other: Dict) -> None:
        """Take the entries of another dict, as `update` does."""
        if other.open:
            self.removed.clear()
            self.rest_local = other.rest_local if not self.open else None
        self.items.update(other.items)
        self.tensors.update(other.tensors)
        self.open = self.open or other.open
        self.identities = None if other.open else self.identities
        self.doubtful = self.doubtful or other.doubtful
        self.empty_elsewhere = self.empty_elsewhere and other.empty_elsewhere


@dataclass(eq=False, repr=False)
class Symbol(Value):
    """An object of a library, by its canonical dotted name, e.g. "torch.optim.AdamW".

    decided_by: see `Const`.
    """

    name: str
    decided_by: tuple[str, ...] = ()


@dataclass(eq=False, repr=False)
class Class(Value):
    """A class of the project.

    maker: the decorator or base class that makes a constructor of the annotated fields, such as
        "dataclasses.dataclass"; "" if there is none.
    """

    name: str
    node: cst.ClassDef
    scope: Scope
    site: NodeSite
    bases: list[Value] = field(default_factory=list)
    attributes: dict[str, Value] = field(default_factory=dict)
    maker: str = ""

    @property
    def dataclass(self) -> bool:
        """Whether the constructor sets fields, also if it is that of a base class."""
        return bool(self.field_maker)

    @property
    def field_maker(self) -> str:
        """What has made the constructor, here or in a base class; "" for any other one."""
        for one in self.mro():
            if one.maker or "__init__" in one.attributes:
                return one.maker
        return ""

    def mro(self) -> list[Class]:
        """The classes of the project in lookup order (depth first, each once). Not to be changed.

        The bases of a class are known when it is made.
        """
        return self._order

    @cached_property
    def _order(self) -> list[Class]:
        result: list[Class] = []
        for klass in [self, *(c for b in self.bases if isinstance(b, Class) for c in b.mro())]:
            if klass not in result:
                result.append(klass)
        return result

    def library_bases(self) -> list[str]:
        """Canonical names of the library classes that it inherits from, directly or indirectly."""
        return self._library_bases

    @cached_property
    def _library_bases(self) -> list[str]:
        return [b.name for c in self.mro() for b in c.bases if isinstance(b, Symbol)]

    def has_unknown_base(self) -> bool:
        return any(isinstance(b, Unknown) for c in self.mro() for b in c.bases)

    def lookup(self, name: str) -> Value | None:
        for klass in self._order:
            if name in klass.attributes:
                return klass.attributes[name]
        return None


@dataclass(eq=False, repr=False)
class Instance(Value):
    """An object of a class of the project that is not an nn.Module.

    attributes_unknown: `setattr` with an unknown name may have set any attribute.
    building: the optimizer that its constructor builds, until it has its parameters.
    """

    cls: Class
    attributes: dict[str, Value] = field(default_factory=dict)
    attributes_unknown: bool = False
    building: OptimizerValue | None = None


@dataclass(eq=False, repr=False)
class ModuleValue(Value):
    """An nn.Module.

    id: its name in the trace.
    attributes: the attributes that its code set.
    on_meta: whether it may be on the meta device.
    must_be_meta: whether its own parameters are on the meta device now, on every rank.
    stands_for_parts: whether it stands for any part of a module of unknown class.
    some_frozen: whether some of its own parameters, if it has any, certainly have no gradient.
    all_frozen: whether none of its parameters, parts included, certainly has a gradient.
    synthetic_for: the class or function that no program calls and that is executed on its own with
        this as an argument.
    may_be_plain: whether a static method of FSDP1, which takes any module, is all that speaks for
        its wrapper.
    framework: "fsdp1", "fsdp2" or "fsdp" (of either version) if a framework has certainly
        sharded it; its units are not known.
    by_mode: what it computes in training mode alone, see `computed_by_mode`; "" for nothing.
    dtype: the dtype of its own parameters, "float32"; "" if it has none or it is not certain.
    called: whether it was called before it was known to be a module.
    """

    id: str
    cls: Class | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    inner: ModuleValue | None = None  # of an FSDP1, DDP or compile wrapper
    wrapper: str = ""  # "fsdp1", "ddp", "compile"
    sharded: bool = False  # by FSDP2
    elements: Sequence | None = None  # of a ModuleList or Sequential
    library_class: str | None = None
    on_meta: bool = False
    must_be_meta: bool = False
    stands_for_parts: bool = False
    some_frozen: bool = False
    all_frozen: bool = False
    synthetic_for: cst.CSTNode | None = field(default=None, repr=False)
    may_be_plain: bool = False
    framework: str = ""
    by_mode: str = ""
    dtype: str = ""
    called: bool = False


@dataclass(eq=False, repr=False)
class OptimizerValue(Value):
    """An optimizer. library: the package that has its class, as in its event."""

    id: str
    class_name: str
    modules: tuple[ModuleValue, ...] = ()
    library: str = ""
