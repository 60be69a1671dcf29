"""What the interpreter knows of a value: what the FSDP contract cares about, else Unknown.

Values are mutable where the program's objects are (lists, dicts, instances, modules) and are
compared by identity. `created_at` is the node that made a value (the call of `partial(...)`, the
dict display, ...), so that a rewrite can find the definition of what it reads at a use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

import libcst as cst

from fsdplint.source.source import NodeSite, Source

MAX_ELEMENTS = 4_000  # of a list, and characters of a text, that are kept
MAX_BITS = 4_000  # of a number that is reckoned with


@dataclass(eq=False, repr=False)
class Value:
    """Base of all values."""

    created_at: NodeSite | None = field(default=None, kw_only=True, repr=False)

    def __repr__(self) -> str:  # for all of them: making one for each takes its time
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"


@dataclass(eq=False)
class Scope:
    """The names of a module, function, class body or comprehension.

    kind: "module", "function" or "class" (whose names the functions in it don't see).
    aliases: names declared `global` or `nonlocal`, with the scope that they live in.
    """

    source: Source
    parent: Scope | None = None
    kind: str = "module"
    module_name: str = ""
    names: dict[str, Value] = field(default_factory=dict)
    aliases: dict[str, Scope] = field(default_factory=dict)

    @property
    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def lookup(self, name: str) -> Value | None:
        scope: Scope | None = self
        first = True
        while scope is not None:
            if (first or scope.kind != "class") and name in scope.names:
                return scope.names[name]
            first = False
            scope = scope.parent
        return None

    def assign(self, name: str, value: Value) -> None:
        self.aliases.get(name, self).names[name] = value

    def owner(self, name: str) -> Scope | None:
        """The nearest enclosing function scope that has the name (for `nonlocal`)."""
        scope = self.parent
        while scope is not None:
            if scope.kind == "function" and name in scope.names:
                return scope
            scope = scope.parent
        return None


@dataclass(eq=False, repr=False)
class Unknown(Value):
    """Nothing is known, but where it comes from: `origin` is a stable name such as "args.fsdp"
    (the same for the same thing within a run) or "" where not even that is known.

    varying: it differs within a run (derives from a loop's variable).
    by_rank: it differs between ranks (a path with the rank in it).
    by_process: it is made of what a process has of its own (its device, its id, its place in a
        mesh), and may differ between ranks; nothing is concluded from a test of it.
    default: a value that it has unless the user sets it otherwise (a dataclass field's default).
    part_of: it was read off this module, whose children are not all known.
    owner: the unknown value that it was read off.
    label: the first name that the program gave it.
    refined: what it turned out to be, once it was used as a module.
    library: the library's function that it comes from, "" where that is not known.
    parts: what was read off it (attributes; "[]" for its elements), so that reading the same thing
        twice gives the same value.
    synthetic_for: the class or function that is executed by itself, of which this is an argument.
    """

    origin: str = ""
    varying: bool = False
    by_rank: bool = False
    by_process: bool = False
    default: Value | None = None
    part_of: ModuleValue | None = None
    owner: Unknown | None = field(default=None, repr=False)
    label: str = ""
    refined: ModuleValue | None = None
    library: str = ""
    parts: dict[str, Value] = field(default_factory=dict, repr=False)
    synthetic_for: cst.CSTNode | None = field(default=None, repr=False)


@dataclass(eq=False, repr=False)
class Const(Value):
    """A constant of Python: str, int, float, bool, None, bytes, Ellipsis."""

    value: Any


@dataclass(eq=False, repr=False)
class Sequence(Value):
    """A list, tuple or set. `open` where it may hold more than `items`."""

    items: list[Value] = field(default_factory=list)
    kind: str = "list"  # "list", "tuple", "set"
    open: bool = False
    optimizer: OptimizerValue | None = None  # whose param_groups these are

    def extend(self, items: Iterable[Value]) -> None:
        """Add elements; one that would become too long has more than are known from there on."""
        self.items += list(islice(items, max(MAX_ELEMENTS - len(self.items), 0) + 1))
        if len(self.items) > MAX_ELEMENTS:
            del self.items[MAX_ELEMENTS:]
            self.open = True


@dataclass(eq=False, repr=False)
class Lazy(Value):
    """An iterator that does its work when it is consumed: see `fsdplint.interpreter.lazy`.

    produce: works its elements out. node: the expression that made it. source: what it runs over,
    where it runs over something. elements: what was worked out, once it was consumed.
    """

    produce: Callable[[], Value]
    node: cst.CSTNode
    source: Value | None = None
    elements: Value | None = field(default=None, repr=False)


@dataclass(eq=False, repr=False)
class Dict(Value):
    """A dict with constant keys; `open` where it may hold more.

    tensors: what was put in under keys that are not known (the names of a state dict): one value by
        the text of the key.
    """

    items: dict[Any, Value] = field(default_factory=dict)
    open: bool = False
    tensors: dict[str, Value] = field(default_factory=dict)
    optimizer: OptimizerValue | None = None  # whose param_groups (or `__dict__`) this is one of


@dataclass(eq=False, repr=False)
class Symbol(Value):
    """Something of a library, by its canonical dotted name, e.g. "torch.optim.AdamW"."""

    name: str


@dataclass(eq=False, repr=False)
class ProjectModule(Value):
    """A module (file) of the user's project."""

    name: str
    scope: Scope


@dataclass(eq=False, repr=False)
class Function(Value):
    """A function or lambda of the project, with the scope in which it was defined."""

    node: cst.FunctionDef | cst.Lambda
    scope: Scope
    site: NodeSite
    defaults: dict[str, Value] = field(default_factory=dict)
    owner: Class | None = None  # the class in whose body it was defined
    decorators: tuple[str, ...] = ()  # "property", "staticmethod", "classmethod", or dotted names
    contexts: tuple[Value, ...] = ()  # what decorators run it in: @torch.no_grad(), or unknown

    @property
    def name(self) -> str:
        return self.node.name.value if isinstance(self.node, cst.FunctionDef) else "<lambda>"


@dataclass(eq=False, repr=False)
class Bound(Value):
    """A function bound to its receiver."""

    function: Value
    receiver: Value


@dataclass(eq=False, repr=False)
class Method(Value):
    """A method of a modelled or unknown object, looked up but not yet called: `receiver.name`."""

    receiver: Value
    name: str


@dataclass(eq=False, repr=False)
class Class(Value):
    """A class of the project."""

    name: str
    node: cst.ClassDef
    scope: Scope
    site: NodeSite
    bases: list[Value] = field(default_factory=list)
    attributes: dict[str, Value] = field(default_factory=dict)
    dataclass: bool = False

    def mro(self) -> list[Class]:
        """The project's classes in lookup order (depth first, each once)."""
        result: list[Class] = []
        for klass in [self, *(c for b in self.bases if isinstance(b, Class) for c in b.mro())]:
            if klass not in result:
                result.append(klass)
        return result

    def library_bases(self) -> list[str]:
        """Canonical names of the library classes that it inherits from, directly or not."""
        return [b.name for c in self.mro() for b in c.bases if isinstance(b, Symbol)]

    def has_unknown_base(self) -> bool:
        return any(isinstance(b, Unknown) for c in self.mro() for b in c.bases)

    def lookup(self, name: str) -> Value | None:
        for klass in self.mro():
            if name in klass.attributes:
                return klass.attributes[name]
        return None


@dataclass(eq=False, repr=False)
class Instance(Value):
    """An object of a class of the project that is not an nn.Module.

    attributes_unknown: `setattr` with an unknown name may have set any attribute.
    """

    cls: Class
    attributes: dict[str, Value] = field(default_factory=dict)
    attributes_unknown: bool = False


@dataclass(eq=False, repr=False)
class Partial(Value):
    """functools.partial(function, *args, **kwargs)."""

    function: Value
    args: list[Value] = field(default_factory=list)
    kwargs: dict[str, Value] = field(default_factory=dict)
    open: bool = False  # built with a ** or * that could not be followed


@dataclass(eq=False, repr=False)
class LibraryObject(Value):
    """An object made by calling a library class or function that the contract reads but that has no
    behaviour of its own: MixedPrecision(...), ModuleWrapPolicy(...), torch.device(...).

    args: by parameter name where the signature is known, positional ones as "0", "1", ...
    """

    name: str
    args: dict[str, Value] = field(default_factory=dict)
    open: bool = False  # called with a ** or * that could not be followed

    def get(self, *names: str) -> Value | None:
        """The first of these arguments that was given."""
        return next((self.args[n] for n in names if n in self.args), None)


@dataclass(eq=False, repr=False)
class ModuleValue(Value):
    """An nn.Module. `id` is its name in the trace; `attributes` what its code set on it.

    synthetic_for: the class (or function) of which this is an argument that was made up, since no
        program was seen to call it.
    """

    id: str
    cls: Class | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    inner: ModuleValue | None = None  # of an FSDP1, DDP or compile wrapper
    wrapper: str = ""  # "fsdp1", "ddp", "compile"
    sharded: bool = False  # by FSDP2
    elements: Sequence | None = None  # of a ModuleList or Sequential
    library_class: str | None = None
    on_meta: bool = False  # perhaps
    must_be_meta: bool = False  # its own parameters, as they are now, on every rank
    stands_for_parts: bool = False  # for any part of a module whose class can't be seen
    some_frozen: bool = False  # some of its own parameters, if it has any, have no gradient
    all_frozen: bool = False  # surely none of its parameters, parts included, has a gradient
    synthetic_for: cst.CSTNode | None = field(default=None, repr=False)


@dataclass(eq=False, repr=False)
class OptimizerValue(Value):
    id: str
    class_name: str
    modules: tuple[ModuleValue, ...] = ()


@dataclass(eq=False, repr=False)
class Condition(Value):
    """A boolean whose value is decided per configuration. `key` names what it depends on.

    negated: it is true where the key is decided false.
    subject, relation, operand: what it says ("args.strategy", "==", "fsdp"), so that decisions
        about one subject agree with each other; relation is "truth", "==", ">", "is None" or "".
    """

    key: str
    text: str
    negated: bool = False
    subject: str = ""
    relation: str = ""
    operand: Any = None


@dataclass(eq=False, repr=False)
class Super(Value):
    """`super()` in a method of `owner`, for `receiver`."""

    owner: Class
    receiver: Value


@dataclass(eq=False, repr=False)
class LazyImport(Value):
    """A name imported from a file of the project that has not been looked at yet."""

    load: Callable[[], Value]
    value: Value | None = None


@dataclass(eq=False, repr=False)
class GeneratorContext(Value):
    """A call of a function under @contextmanager, whose body runs around the `with` block."""

    function: Value
    args: list[Value] = field(default_factory=list)
    kwargs: dict[str, Value] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Context(Value):
    """A context manager that the contract cares about, by what it does: "no_sync", "meta_device",
    "state_dict_type", "summon_full_params", "no_grad", "inference_mode", "null", ...
    """

    kind: str
    module: ModuleValue | None = None
    details: dict[str, Value] = field(default_factory=dict)
    on_exit: Callable[[], None] | None = None


def is_none(value: Value | None) -> bool:
    return isinstance(value, Const) and value.value is None


def constant(value: Value | None) -> Any:
    """The Python constant of a value, or None where it has none."""
    return value.value if isinstance(value, Const) else None
