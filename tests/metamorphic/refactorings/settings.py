"""Constants come from somewhere else: constants of the module, settings, arguments."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m
from refactoring import refactoring
from scripts import Script, of_main
from syntax_tools import expression, function, text_of, with_head

_STRING_OR_NUMBER = m.SimpleString() | m.Integer() | m.Float()
_FLAG = m.Name("True") | m.Name("False")


class _Constants(cst.CSTTransformer):
    """Puts other expressions in the place of the constants that are arguments of calls."""

    def __init__(self, spelling: str, kinds: m.BaseMatcherNode) -> None:
        self.spelling, self.kinds = spelling, kinds
        self.values: list[str] = []

    def visit_Decorator(self, node: cst.Decorator) -> bool:
        return False

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        return False

    def visit_FormattedString(self, node: cst.FormattedString) -> bool:
        return False  # before Python 3.12 it cannot hold its own quotes

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        if updated_node.star or not m.matches(updated_node.value, self.kinds):
            return updated_node
        self.values.append(text_of([updated_node.value]))
        value = expression(self.spelling.format(len(self.values)))
        return updated_node.with_changes(value=value)


def _constants(
    module: cst.Module,
    spelling: str,
    line: str,
    before: str,
    after: str = "",
    kinds: m.BaseMatcherNode = _STRING_OR_NUMBER | _FLAG,
) -> cst.Module | None:
    visitor = _Constants(spelling, kinds)
    changed = module.visit(visitor)
    if not visitor.values:
        return None
    lines = "".join(line.format(n, value) for n, value in enumerate(visitor.values, 1))
    return with_head(changed, before + lines + after)


@refactoring()
def module_constants(module: cst.Module) -> cst.Module | None:
    """Constants that are arguments become constants of the module."""
    return _constants(module, "VALUE_{}", "VALUE_{} = {}\n", "")


@refactoring()
def settings_class(module: cst.Module) -> cst.Module | None:
    """Constants that are arguments become attributes of a class."""
    return _constants(
        module, "Settings.value_{}", "    value_{} = {}\n", "class Settings:\n", "\n\n"
    )


@refactoring()
def settings_object(module: cst.Module) -> cst.Module | None:
    """Constants that are arguments become attributes that `__init__` of a settings object sets."""
    before = "class Settings:\n    def __init__(self):\n"
    line, after = "        self.value_{} = {}\n", "\n\nSETTINGS = Settings()\n"
    return _constants(module, "SETTINGS.value_{}", line, before, after)


@refactoring()
def settings_dataclass(module: cst.Module) -> cst.Module | None:
    """Constants that are arguments become defaults of a frozen dataclass's fields."""
    before = "import dataclasses\n\n\n@dataclasses.dataclass(frozen=True)\nclass Settings:\n"
    line, after = "    value_{}: object = {}\n", "\n\nSETTINGS = Settings()\n"
    return _constants(module, "SETTINGS.value_{}", line, before, after)


@refactoring()
def settings_dict(module: cst.Module) -> cst.Module | None:
    """Constants that are arguments become values of a dict of settings."""
    return _constants(
        module, 'SETTINGS["value_{}"]', '    "value_{}": {},\n', "SETTINGS = {\n", "}\n"
    )


@refactoring()
def settings_by_namespace(module: cst.Module) -> cst.Module | None:
    """Constants that are arguments become attributes of `SimpleNamespace(**dict)`."""
    before, after = (
        "import types\n\nSETTINGS_AS_DICT = {\n",
        ("}\nSETTINGS = types.SimpleNamespace(**SETTINGS_AS_DICT)\n"),
    )
    return _constants(module, "SETTINGS.value_{}", '    "value_{}": {},\n', before, after)


@refactoring()
def settings_by_vars(module: cst.Module) -> cst.Module | None:
    """Constants that are arguments become entries of `vars()` of a settings object."""
    before = "class Settings:\n    def __init__(self):\n"
    line, after = "        self.value_{} = {}\n", "\n\nSETTINGS = vars(Settings())\n"
    return _constants(module, 'SETTINGS["value_{}"]', line, before, after)


@refactoring()
def settings_as_typed_dict(module: cst.Module) -> cst.Module | None:
    """Constants that are arguments become entries of a `TypedDict`."""
    before = "import typing\n\n\nclass Settings(typing.TypedDict, total=False):\n    name: str\n"
    before += "\n\nSETTINGS = Settings(name='settings')\n"
    line = 'SETTINGS["value_{}"] = {}\n'
    return _constants(module, 'SETTINGS["value_{}"]', line, before)


@refactoring()
def strings_in_enum(module: cst.Module) -> cst.Module | None:
    """Strings that are arguments become values of an enum."""
    before, after = "import enum\n\n\nclass Name(enum.Enum):\n", "\n\n"
    # Members of one value are one member, so that each has a number beside its value.
    line = "    VALUE_{0} = ({0}, {1})\n"
    return _constants(module, "Name.VALUE_{}.value[1]", line, before, after, m.SimpleString())


@refactoring()
def argparse_defaults(module: cst.Module) -> cst.Module | None:
    """Strings and numbers that are arguments become defaults of the command line."""
    before = "import argparse\n\nvalue_parser = argparse.ArgumentParser()\n"
    line = 'value_parser.add_argument("--value-{0}", type=type({1}), default={1})\n'
    after = "VALUES = value_parser.parse_known_args()[0]\n"
    return _constants(module, "VALUES.value_{}", line, before, after, _STRING_OR_NUMBER)


@refactoring()
def environment_defaults(module: cst.Module) -> cst.Module | None:
    """Strings that are arguments become defaults of variables of the environment."""
    line = 'VALUE_{0} = os.environ.get("VALUE_{0}", {1})\n'
    return _constants(module, "VALUE_{}", line, "import os\n\n", "", m.SimpleString())


@refactoring()
def f_strings(module: cst.Module) -> cst.Module | None:
    """Strings that are arguments become f-strings with a part that is a constant."""
    return _joined(module, 'f"{{FIRST_{n}}}{rest}"', "FIRST_{n} = {first!r}\n")


@refactoring()
def joined_strings(module: cst.Module) -> cst.Module | None:
    """Strings that are arguments become a sum of two strings."""
    return _joined(module, "{first!r} + {rest!r}", "")


def _joined(module: cst.Module, spelling: str, line: str) -> cst.Module | None:
    lines: list[str] = []

    class Strings(cst.CSTTransformer):
        count = 0

        def visit_Decorator(self, node: cst.Decorator) -> bool:
            return False

        def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
            if not m.matches(updated_node.value, m.SimpleString()):
                return updated_node
            assert isinstance(updated_node.value, cst.SimpleString)
            value = updated_node.value.evaluated_value
            if not isinstance(value, str) or len(value) < 2 or not value.replace("_", "").isalnum():
                return updated_node
            self.count += 1
            given = {"n": self.count, "first": value[:2], "rest": value[2:]}
            lines.append(line.format(**given))
            return updated_node.with_changes(value=expression(spelling.format(**given)))

    changed = module.visit(Strings())
    if changed.code == module.code:
        return None
    return with_head(changed, "".join(lines)) if line else changed


@refactoring(is_of_script=True)
@of_main
def default_arguments(script: Script) -> cst.Module | None:
    """Constants that are arguments in `main` become defaults of its parameters."""
    visitor = _Constants("value_{}", _STRING_OR_NUMBER | _FLAG)
    body = [statement.visit(visitor) for statement in script.body]
    if not visitor.values:
        return None
    parameters = ", ".join(f"value_{n}={value}" for n, value in enumerate(visitor.values, 1))
    main = function(script.name, body, parameters)  # type: ignore[arg-type]
    return script.with_entry([main], f"{script.name}()")
