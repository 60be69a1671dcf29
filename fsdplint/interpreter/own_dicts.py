"""Objects of the program's own classes that derive from `dict`: registries and settings."""

from __future__ import annotations

from fsdplint.interpreter.values import Class, Dict, Instance, Namespace, Symbol, Value

# The attribute under which an object has its entries; no program can write this name.
ENTRIES = "*entries"
CONFIG_LISTS = ("omegaconf.ListConfig", "omegaconf.listconfig.ListConfig")
_BASES = {
    "builtins.dict",
    "collections.OrderedDict",
    "collections.UserDict",
    "typing.Dict",
    "typing.OrderedDict",
}
_READERS = {f"{base}.{name}" for base in _BASES for name in ("get", "__getitem__")}
_WRITERS = {f"{base}.__setitem__" for base in _BASES}


def derives_from_dict(klass: Class) -> bool:
    """Whether the objects of a class certainly have entries as those of `dict`."""
    return not klass.has_unknown_base() and not _BASES.isdisjoint(klass.library_bases())


def entries_of(value: Value) -> Dict | None:
    """The entries of an object of a class that derives from `dict`; None for any other value."""
    held = value.attributes.get(ENTRIES) if isinstance(value, Instance) else None
    return held if isinstance(held, Dict) else None


def as_dict(value: Value) -> Value:
    """The entries of an object of a class that derives from `dict`; any other value itself."""
    return entries_of(value) or value


def dict_to_read(value: Value) -> Value:
    """The same, or the attributes of an object (`vars(config)`) as a new dict."""
    owner = value.owner if isinstance(value, Namespace) else None
    if not isinstance(owner, Instance):
        return as_dict(value)
    is_open = owner.attributes_unknown or owner.cls.has_unknown_base()
    return Dict({**owner.attributes}, is_open)


def entry_as_attribute(instance: Instance, name: str) -> Value | None:
    """The entry that an object gives as an attribute of this name (`__getattr__ = dict.get`, or
    `self.__dict__ = self`); None if it does not."""
    held = entries_of(instance)
    if held is None or name not in held.items:
        return None
    getter = instance.cls.lookup("__getattr__")
    if isinstance(getter, Symbol) and getter.name in _READERS:
        return held.items[name]
    return held.items[name] if instance.attributes.get("__dict__") is instance else None


def sets_entry(instance: Instance, name: str, value: Value) -> bool:
    """Whether an object takes an attribute as an entry (`__setattr__ = dict.__setitem__`); it then
    has it."""
    held, setter = entries_of(instance), instance.cls.lookup("__setattr__")
    if held is None or not isinstance(setter, Symbol) or setter.name not in _WRITERS:
        return False
    held.items[name] = value
    return True
