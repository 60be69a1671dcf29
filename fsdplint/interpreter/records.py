"""Objects with named fields: `NamedTuple`, `collections.namedtuple` and `SimpleNamespace`.

Each is an instance of a class. The classes that a call of a library makes have the code of an
equivalent class.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Class, Instance, Sequence, Symbol, Unknown, Value
from fsdplint.syntax.dotted import dotted_name

# Decorators of attrs that make a constructor of the annotated fields.
ATTRS = frozenset(
    f"{home}.{name}"
    for home in ("attr", "attrs")
    for name in ("attrs", "dataclass", "define", "frozen", "mutable", "s")
)
# All decorators that make one.
MAKERS = ATTRS | {
    f"{home}.dataclass" for home in ("chex", "dataclasses", "flax.struct", "pydantic.dataclasses")
}
UNKNOWN_MAKER = "a decorator that is not known"
MADE_FIELD = "a field that a function makes"  # `field(default_factory=function)`
NAMED_TUPLES = {"typing.NamedTuple", "typing_extensions.NamedTuple"}
# Library classes whose subclasses have fields as dataclasses do.
RECORD_BASES = {
    *("pydantic.BaseModel", "pydantic.main.BaseModel", "pydantic.BaseSettings"),
    *("pydantic_settings.BaseSettings", "pydantic_settings.main.BaseSettings", "msgspec.Struct"),
}
_PLAIN_TYPES = {"bool", "float", "int", "str"}


def field_names(klass: Class) -> list[str]:
    """The annotated names of fields in the body of a class, in order."""
    names = []
    for line in klass.node.body.body:
        for statement in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if not isinstance(statement, cst.AnnAssign) or _is_of_class(statement.annotation):
                continue
            if isinstance(statement.target, cst.Name):
                names.append(statement.target.value)
    return names


def _is_of_class(annotation: cst.Annotation) -> bool:
    """Whether an annotation says `ClassVar`: the class has the value, and no field."""
    node = annotation.annotation
    node = node.value if isinstance(node, cst.Subscript) else node
    return dotted_name(node).rpartition(".")[2] == "ClassVar"


def dataclass_fields(run: Run, klass: Class) -> list[str]:
    """The names of the fields of a dataclass, those of its bases first."""
    known = run.project.fields
    names: dict[str, None] = {}
    for one in reversed(klass.mro()):
        if not one.maker:
            continue
        if one.node not in known:
            known[one.node] = field_names(one)
        names.update(dict.fromkeys(known[one.node]))
    return list(names)


def holds_no_none(klass: Class, name: str) -> bool:
    """Whether a field has a plain type, such as `int`: it cannot be None (`Optional[int]` can)."""
    for one in klass.mro():
        for line in one.node.body.body:
            for statement in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                if isinstance(statement, cst.AnnAssign) and dotted_name(statement.target) == name:
                    return dotted_name(statement.annotation.annotation) in _PLAIN_TYPES
    return False


def is_record(klass: Class) -> bool:
    """Whether a library class gives a class the constructor of its annotated fields."""
    return bool(record_base(klass))


def record_base(klass: Class) -> str:
    """The library class that gives a class the constructor of its annotated fields, or ""."""
    return next((base for base in klass.library_bases() if base in RECORD_BASES), "")


def is_named_tuple(klass: Class) -> bool:
    return not NAMED_TUPLES.isdisjoint(klass.library_bases())


def tuple_fields(klass: Class) -> list[str]:
    """The fields of a named tuple; of a subclass with further names, those of its base."""
    owners = [one for one in klass.mro() if any(_names_a_tuple(base) for base in one.bases)]
    return field_names(owners[0]) if owners else []


def _names_a_tuple(base: Value) -> bool:
    return getattr(base, "name", "") in NAMED_TUPLES


def as_tuple(value: Value) -> Sequence | None:
    """The elements of a named tuple; None for any other value."""
    if not isinstance(value, Instance) or not is_named_tuple(value.cls):
        return None
    names = tuple_fields(value.cls)
    items = [value.attributes.get(name, Unknown()) for name in names]
    return Sequence(items, "tuple", every=True, created_at=value.created_at)


def named_tuple_fields(klass: Class, call: Call) -> dict[str, Value]:
    """The fields of a named tuple that a call makes: each has its argument or its default."""
    names = tuple_fields(klass)
    fields = dict(zip(names, call.args, strict=False)) | call.kwargs
    defaults = {name: klass.lookup(name) or Unknown(f"{klass.name}.{name}") for name in names}
    return defaults | {name: value for name, value in fields.items() if name in names}


def class_from_fields(run: Run, node: cst.CSTNode, name: str, fields: list[str]) -> Class:
    """The class of a named tuple with some fields."""
    body = "".join(f"    {field}: object\n" for field in fields) or "    pass\n"
    definition = _definition(f"class {name}:\n{body}")
    return Class(name, definition, run.scope, run.site(node), [Symbol("typing.NamedTuple")])


def namespace(run: Run, node: cst.CSTNode, attributes: dict[str, Value]) -> Instance:
    """An object with some attributes."""
    return Instance(empty_class(run, node, "SimpleNamespace"), attributes)


def empty_class(run: Run, node: cst.CSTNode, name: str) -> Class:
    """A class of this name without attributes, as if a node of the program defined it."""
    return Class(name, _definition(f"class {name}:\n    pass\n"), run.scope, run.site(node))


def _definition(text: str) -> cst.ClassDef:
    statement = cst.parse_statement(text)
    assert isinstance(statement, cst.ClassDef)
    return statement
