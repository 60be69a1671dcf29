"""The body of a script in two: what builds, and what trains."""

from __future__ import annotations

import symtable

import libcst as cst
from refactoring import refactoring
from scripts import Script, halves_of, of_main
from syntax_tools import (
    Rename,
    Statement,
    block,
    bound,
    function,
    has_own,
    nested_scopes,
    scope,
    statements,
    with_head,
)


@refactoring(is_of_script=True)
@of_main
def rest_to_function(script: Script) -> cst.Module | None:
    """The second half becomes a function; what it needs is handed over by position."""
    halves = halves_of(script)
    if halves is None:
        return None
    names = ", ".join(halves.handed)
    train = function("train_all", halves.second, names)
    main = function(script.name, [*halves.first, *statements(f"return train_all({names})\n")])
    return script.with_entry([train, main], f"{script.name}()")


@refactoring(is_of_script=True)
@of_main
def rest_by_kwargs(script: Script) -> cst.Module | None:
    """The second half becomes a function; what it needs is handed over by `**parts`."""
    halves = halves_of(script)
    if halves is None:
        return None
    train = function("train_all", halves.second, ", ".join(["*", *halves.handed]))
    parts = ", ".join(f'"{name}": {name}' for name in halves.handed)
    call = statements(f"parts = {{{parts}}}\nreturn train_all(**parts)\n")
    main = function(script.name, [*halves.first, *call])
    return script.with_entry([train, main], f"{script.name}()")


def _set_up(
    script: Script, result: str, reading: str, head: str = "", above: str = ""
) -> cst.Module | None:
    """The first half becomes a function. `result` and `reading` are formatted with the names."""
    halves = halves_of(script)
    if halves is None:
        return None
    names = halves.handed
    keywords = ", ".join(f"{name}={name}" for name in names)
    pairs = ", ".join(f'"{name}": {name}' for name in names)
    values = ", ".join(names) + ("," if len(names) == 1 else "")
    given = {"keywords": keywords, "pairs": pairs, "values": values}
    fields = "".join(f"    {name}: object\n" for name in names)
    set_up = function("set_up", [*halves.first, *statements(f"return {result.format(**given)}\n")])
    if "{name}" in reading:
        text = "parts = set_up()\n" + "".join(reading.format(name=name) + "\n" for name in names)
    else:
        text = f"{values} = set_up()\n"
    main = function(script.name, [*statements(text), *halves.second])
    more = statements(above.format(fields=fields)) if above else []
    changed = script.with_entry([*more, set_up, main], f"{script.name}()")
    return with_head(changed, head) if head else changed


@refactoring(is_of_script=True)
@of_main
def parts_as_tuple(script: Script) -> cst.Module | None:
    """The first half becomes a function that returns a tuple."""
    return _set_up(script, "{values}", "")


@refactoring(is_of_script=True)
@of_main
def parts_as_dict(script: Script) -> cst.Module | None:
    """The first half becomes a function that returns a dict."""
    return _set_up(script, "{{{pairs}}}", '{name} = parts["{name}"]')


@refactoring(is_of_script=True)
@of_main
def parts_as_namespace(script: Script) -> cst.Module | None:
    """The first half becomes a function that returns a `SimpleNamespace`."""
    result = "types.SimpleNamespace({keywords})"
    return _set_up(script, result, "{name} = parts.{name}", "import types\n")


@refactoring(is_of_script=True)
@of_main
def parts_as_dataclass(script: Script) -> cst.Module | None:
    """The first half becomes a function that returns a dataclass."""
    above = "\n\n@dataclasses.dataclass\nclass Parts:\n{fields}"
    reading = "{name} = parts.{name}"
    return _set_up(script, "Parts({keywords})", reading, "import dataclasses\n", above)


@refactoring(is_of_script=True)
@of_main
def parts_as_named_tuple(script: Script) -> cst.Module | None:
    """The first half becomes a function that returns a `NamedTuple`."""
    above = "\n\nclass Parts(typing.NamedTuple):\n{fields}"
    return _set_up(script, "Parts({keywords})", "", "import typing\n", above)


@refactoring(is_of_script=True)
@of_main
def parts_by_item_getter(script: Script) -> cst.Module | None:
    """The first half becomes a function that returns a dict, which `itemgetter` takes apart."""
    halves = halves_of(script)
    if halves is None or len(halves.handed) < 2:
        return None
    getter = ", ".join(f'"{name}"' for name in halves.handed)
    names = ", ".join(halves.handed)
    pairs = ", ".join(f'"{name}": {name}' for name in halves.handed)
    set_up = function("set_up", [*halves.first, *statements(f"return {{{pairs}}}\n")])
    text = f"{names} = operator.itemgetter({getter})(set_up())\n"
    main = function(script.name, [*statements(text), *halves.second])
    return with_head(script.with_entry([set_up, main], f"{script.name}()"), "import operator\n")


@refactoring(is_of_script=True)
@of_main
def parts_by_match(script: Script) -> cst.Module | None:
    """The first half becomes a function that returns a dataclass, which a `match` takes apart."""
    halves = halves_of(script)
    if halves is None or has_own(list(script.body), cst.Return):
        return None
    keywords = ", ".join(f"{name}={name}" for name in halves.handed)
    fields = "".join(f"    {name}: object\n" for name in halves.handed)
    above = statements(f"\n\n@dataclasses.dataclass\nclass Parts:\n{fields}")
    set_up = function("set_up", [*halves.first, *statements(f"return Parts({keywords})\n")])
    matched = statements(f"match set_up():\n    case Parts({keywords}):\n        pass\n")[0]
    case = matched.cases[0].with_changes(body=block(halves.second))  # type: ignore[union-attr]
    main = function(script.name, [matched.with_changes(cases=[case])])
    changed = script.with_entry([*above, set_up, main], f"{script.name}()")
    return with_head(changed, "import dataclasses\n")


@refactoring(is_of_script=True)
@of_main
def parts_by_default_factory(script: Script) -> cst.Module | None:
    """The first half becomes the default factory of a dataclass's field."""
    halves = halves_of(script)
    if halves is None:
        return None
    pairs = ", ".join(f'"{name}": {name}' for name in halves.handed)
    set_up = function("set_up", [*halves.first, *statements(f"return {{{pairs}}}\n")])
    above = statements(
        "\n\n@dataclasses.dataclass\nclass State:\n"
        "    parts: dict = dataclasses.field(default_factory=set_up)\n"
    )
    text = "".join(f'{name} = state_of_run.parts["{name}"]\n' for name in halves.handed)
    main = function(script.name, [*statements(f"state_of_run = State()\n{text}"), *halves.second])
    changed = script.with_entry([set_up, *above, main], f"{script.name}()")
    return with_head(changed, "import dataclasses\n")


@refactoring(is_of_script=True)
@of_main
def self_attributes(script: Script) -> cst.Module | None:
    """`main` becomes a method, and its local variables attributes of `self`."""
    names = local_variables(script.body)
    if not names:
        return None
    renamed = [s.visit(Rename({name: f"self.{name}" for name in names})) for s in script.body]
    run = function("run", renamed, "self")
    return script.with_entry([_class([run])], "Phases().run()")


@refactoring(is_of_script=True)
@of_main
def two_methods(script: Script) -> cst.Module | None:
    """The first half becomes `__init__` of a class and the second a method; they share `self`."""
    halves = halves_of(script)
    if halves is None or not set(halves.handed) <= local_variables(script.body):
        return None
    rename = Rename({name: f"self.{name}" for name in halves.handed})
    first = function("__init__", [s.visit(rename) for s in halves.first], "self")
    second = function("run", [s.visit(rename) for s in halves.second], "self")
    return script.with_entry([_class([first, second])], "Phases().run()")


@refactoring(is_of_script=True)
@of_main
def inherited_methods(script: Script) -> cst.Module | None:
    """The two halves become methods of a base class, and a subclass is built and run."""
    halves = halves_of(script)
    if halves is None or not set(halves.handed) <= local_variables(script.body):
        return None
    rename = Rename({name: f"self.{name}" for name in halves.handed})
    first = function("set_up", [s.visit(rename) for s in halves.first], "self")
    second = function("run", [s.visit(rename) for s in halves.second], "self")
    both = statements(
        "\n\nclass Training(Phases):\n    def all(self):\n        self.set_up()\n        self.run()\n"
    )
    return script.with_entry([_class([first, second]), *both], "Training().all()")


@refactoring(is_of_script=True)
@of_main
def generator_of_phases(script: Script) -> cst.Module | None:
    """`main` becomes a generator that yields between its halves, and a loop consumes it."""
    halves = halves_of(script)
    if halves is None or has_own(script.body, cst.Return):
        return None
    phases = function("phases", [*halves.first, *statements('yield "built"\n'), *halves.second])
    main = function(script.name, statements("for phase in phases():\n    pass\n"))
    return script.with_entry([phases, main], f"{script.name}()")


def _class(methods: list[cst.FunctionDef]) -> Statement:
    return statements("\n\nclass Phases:\n    pass\n")[0].with_changes(body=block(methods))


def local_variables(body: list[Statement]) -> set[str]:
    """The variables of statements that are only assigned, and in no other scope bound."""
    table = scope(body)
    if has_own(body, cst.Global, cst.NamedExpr, cst.Match):
        return set()
    names = {s.get_name() for s in table.get_symbols() if s.is_assigned() and not s.is_imported()}
    names -= {s.get_name() for s in table.get_symbols() if s.is_namespace() or s.is_global()}
    for inner in nested_scopes(table):
        names -= set(_bound_in(inner))
    handlers = cst.matchers.findall(cst.Module(list(body)), cst.matchers.ExceptHandler())
    names -= {h.name.name.value for h in handlers if h.name is not None}  # type: ignore[attr-defined]
    return names & set(bound(body))


def _bound_in(table: symtable.SymbolTable) -> list[str]:
    return [s.get_name() for s in table.get_symbols() if s.is_local() or s.is_parameter()]
