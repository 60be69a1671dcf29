"""Class definitions that may be executed when their names are used, instead of in order.

The statement of such a class has no effect but to bind its name, and makes the same class at any
time: its body, bases, decorators and defaults read names that are bound once, call functions of
libraries that make a field or an alias, and no hook of a base class does more than change the new
class. A file has many classes, of which a run uses few.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import libcst as cst

from fsdplint.interpreter.module_files import FileAnswer, FileQuestion
from fsdplint.interpreter.project import Project
from fsdplint.source.source import Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.module_names import ImportedName, ModuleNames, module_names
from fsdplint.syntax.subclass_hooks import changed_names

MAX_BASES = 40  # classes that are looked at for one class
MAX_IMPORTS = 5  # files through which one name is imported
# Libraries whose functions and decorators, called in a class body, only make an object.
_DECLARE = frozenset(
    "abc attr attrs collections contextlib dataclasses enum functools logging parameterized pytest "
    "re types typing typing_extensions unittest".split()
)
_OF_TORCH = ("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.cuda.",
             "torch.testing.", "torch.compile", "torch.jit.")  # fmt: skip
_PROPERTIES = ("setter", "getter", "deleter")
_BUILTINS = frozenset(vars(builtins))
_LITERALS = cst.BaseNumber | cst.SimpleString | cst.Ellipsis


def may_be_deferred(project: Project, source: Source, node: cst.ClassDef) -> bool:
    """Whether the statement of a class at the top level of a file may be executed later."""
    known = project.deferrals.get(node)
    if known is None:
        search = _Search(project)
        known = project.deferrals[node] = search.allows(source, node), search.consulted
    project.consulted.update(known[1])
    return known[0]


class _Search:
    """Looks at one class and its base classes.

    consulted: the other files that it looked at, as questions with answers.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self.consulted: dict[FileQuestion, FileAnswer] = {}
        self._seen: set[cst.ClassDef] = set()

    def allows(self, source: Source, node: cst.ClassDef) -> bool:
        names = module_names(source)
        if names.stars or names.meaning(node.name.value) is not node:
            return False
        definition = _Definition(names, lambda module: self._file(source, module) is None)
        return definition.is_plain(node) and self._is_hookless(source, node, definition.aliases)

    def _is_hookless(self, source: Source, node: cst.ClassDef, aliases: set[str]) -> bool:
        """Whether no hook of a base class does more than change the new class.

        aliases: the names by which the class holds objects that others hold, too.
        """
        todo = list(self._bases(source, node))
        while todo:
            found = todo.pop()
            if found is None or len(self._seen) > MAX_BASES:
                return False
            home, base = found
            if base in self._seen:
                continue
            self._seen.add(base)
            changed = [changed_names(hook) for hook in _hooks(base)]
            if any(names is None or names & aliases for names in changed):
                return False
            todo += self._bases(home, base)
        return True

    def _bases(
        self, source: Source, node: cst.ClassDef
    ) -> Iterator[tuple[Source, cst.ClassDef] | None]:
        """The base classes that the project defines; None for each that is not known.

        Those of nested classes are included.
        """
        for arg in node.bases:
            value = arg.value.value if isinstance(arg.value, cst.Subscript) else arg.value
            if arg.star:
                yield None
            else:
                yield from self._definition(source, dotted_name(value), 0)
        for statement in node.body.body:
            if isinstance(statement, cst.ClassDef):
                yield from self._bases(source, statement)

    def _definition(
        self, source: Source, path: str, depth: int
    ) -> Iterator[tuple[Source, cst.ClassDef] | None]:
        """The class of a dotted name; nothing for one of a library."""
        names = module_names(source)
        head, _, rest = path.partition(".")
        meaning = names.meaning(head)
        if isinstance(meaning, cst.ClassDef):
            found: cst.ClassDef | None = meaning
            for part in rest.split(".") if rest else ():
                found = _member(found, part) if found is not None else None
            yield (source, found) if found is not None else None
        elif isinstance(meaning, ImportedName) and depth < MAX_IMPORTS:
            yield from self._imported_classes(source, meaning, rest, depth)
        elif not head or names.binds(head) or head not in _BUILTINS:
            yield None

    def _imported_classes(
        self, source: Source, imported: ImportedName, rest: str, depth: int
    ) -> Iterator[tuple[Source, cst.ClassDef] | None]:
        module, name = imported.module, imported.name
        home = self._file(source, module)
        inner = "" if module.endswith(".") else "."
        within = self._file(source, f"{module}{inner}{name}") if name is not None else None
        if home is None and within is None:
            if module.startswith("."):
                yield None
        elif name is None:
            yield None  # `import package`, `package.module.Class`
        elif isinstance(home, Source) and home.path and module_names(home).binds(name):
            yield from self._definition(home, f"{name}.{rest}".rstrip("."), depth + 1)
        elif isinstance(within, Source):
            yield from self._definition(within, rest, depth + 1)
        else:
            yield None

    def _file(self, source: Source, module: str) -> Source | str | None:
        """A module of the project, or its path where it cannot be read; None for a library's."""
        level = len(module) - len(module.lstrip("."))
        if level:
            found = self._project.find_relative(level, module[level:], source.path)
        else:
            found = self._project.find(module, source.path)
        if found is None:
            return None
        home = self._project.source(Path(found[1]), imported=True)
        if home is None:
            return found[1]
        self.consulted["source", found[1]] = home.path, home.text
        return home


def _member(node: cst.ClassDef, name: str) -> cst.ClassDef | None:
    """The only class of this name in the body of another."""
    found = [
        one for one in node.body.body if isinstance(one, cst.ClassDef) and one.name.value == name
    ]
    return found[0] if len(found) == 1 else None


def _hooks(node: cst.ClassDef) -> Iterator[cst.FunctionDef]:
    for one in node.body.body:
        if isinstance(one, cst.FunctionDef) and one.name.value == "__init_subclass__":
            yield one


class _Definition:
    """Whether the code of a class that runs when it is defined is plain."""

    def __init__(self, names: ModuleNames, of_library: Callable[[str], bool]) -> None:
        self._names = names
        self._of_library = of_library
        self._own: set[str] = set()
        self.aliases: set[str] = set()  # names of its body that are other names of something

    def is_plain(self, node: cst.ClassDef) -> bool:
        """Whether the definition of a class does nothing but make the class."""
        if not all(arg.star == "" and self._base(arg.value) for arg in node.bases):
            return False
        if not all(arg.star == "" and self._value(arg.value) for arg in node.keywords):
            return False
        if not all(self._decorator(one.decorator) for one in node.decorators):
            return False
        outer, self._own = self._own, set()
        plain = all(map(self._statement, node.body.body))
        self._own = outer
        return plain

    def _statement(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.SimpleStatementLine):
            return all(map(self._statement, node.body))
        if isinstance(node, cst.FunctionDef):
            plain = self._function(node)
            self._own.add(node.name.value)
            return plain
        if isinstance(node, cst.ClassDef):
            plain = self.is_plain(node)
            self._own.add(node.name.value)
            return plain
        if isinstance(node, cst.Assign):
            names = [target.target for target in node.targets]
            return self._is_assigned(names, node.value)
        if isinstance(node, cst.AnnAssign):
            return self._is_assigned([node.target], node.value)
        if isinstance(node, cst.Expr):
            return isinstance(node.value, cst.SimpleString | cst.ConcatenatedString | cst.Ellipsis)
        return isinstance(node, cst.Pass)

    def _is_assigned(
        self, targets: Sequence[cst.CSTNode], value: cst.BaseExpression | None
    ) -> bool:
        plain = value is None or self._value(value)
        is_alias = isinstance(value, cst.Name | cst.Attribute)
        for target in targets:
            if not isinstance(target, cst.Name):
                return False
            self._own.add(target.value)
            if is_alias:
                self.aliases.add(target.value)
        return plain

    def _function(self, node: cst.FunctionDef) -> bool:
        return all(self._decorator(one.decorator) for one in node.decorators) and self._defaults(
            node.params
        )

    def _defaults(self, params: cst.Parameters) -> bool:
        every = (*params.posonly_params, *params.params, *params.kwonly_params)
        return all(one.default is None or self._value(one.default) for one in every)

    def _decorator(self, node: cst.BaseExpression) -> bool:
        """`@property`, `@dataclass(slots=True)`, `@name.setter`."""
        func = node.func if isinstance(node, cst.Call) else node
        head, _, rest = dotted_name(func).partition(".")
        if isinstance(node, cst.Call):
            literal = all(isinstance(arg.value, _LITERALS) for arg in node.args)
            known = self._declares(func) or (literal and self._is_of_library(func))
            return known and self._arguments(node)
        own = head in self._own and rest in _PROPERTIES
        return own or self._declares(func) or self._is_of_library(func)

    def _is_of_library(self, func: cst.BaseExpression) -> bool:
        """Whether a name is one of a library, whose decorators change nothing that is known."""
        meaning = self._names.meaning(dotted_name(func).partition(".")[0])
        if not isinstance(meaning, ImportedName) or _names_fsdp(meaning, dotted_name(func)):
            return False
        modules = [meaning.module]
        if meaning.name is not None:
            modules.append(f"{meaning.module}.{meaning.name}".replace("..", "."))
        return not meaning.module.startswith(".") and all(map(self._of_library, modules))

    def _declares(self, func: cst.BaseExpression) -> bool:
        """Whether calls of what a name stands for only make an object."""
        head, _, rest = dotted_name(func).partition(".")
        meaning = self._names.meaning(head)
        if isinstance(meaning, ImportedName):
            full = ".".join(part for part in (meaning.module, meaning.name, rest) if part)
            return full.partition(".")[0] in _DECLARE or full.startswith(_OF_TORCH)
        return head in ("property", "staticmethod", "classmethod") and not self._names.binds(head)

    def _arguments(self, node: cst.Call) -> bool:
        return all(arg.star == "" and self._value(arg.value) for arg in node.args)

    def _base(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Subscript):
            return self._value(node.value) and all(
                isinstance(item.slice, cst.Index) and self._base(item.slice.value)
                for item in node.slice
            )
        return self._value(node)

    def _value(self, node: cst.BaseExpression) -> bool:
        """Whether an expression has the same value at any time, and no effect."""
        if isinstance(node, _LITERALS):
            return True
        if isinstance(node, cst.Name | cst.Attribute):
            return self._is_stable(dotted_name(node))
        if isinstance(node, cst.Tuple | cst.List | cst.Set):
            return all(
                isinstance(one, cst.Element) and self._value(one.value) for one in node.elements
            )
        if isinstance(node, cst.Dict):
            return all(
                isinstance(one, cst.DictElement) and self._value(one.key) and self._value(one.value)
                for one in node.elements
            )
        if isinstance(node, cst.ConcatenatedString):
            return self._value(node.left) and self._value(node.right)
        if isinstance(node, cst.UnaryOperation):
            return self._value(node.expression)
        if isinstance(node, cst.BinaryOperation):
            return self._value(node.left) and self._value(node.right)
        if isinstance(node, cst.Lambda):
            return self._defaults(node.params)
        if isinstance(node, cst.Call):
            return self._declares(node.func) and self._arguments(node)
        if isinstance(node, cst.Comparison):
            return self._value(node.left) and all(
                self._value(one.comparator) for one in node.comparisons
            )
        return False

    def _is_stable(self, path: str) -> bool:
        """Whether a name means the same wherever it is read, and nothing of FSDP."""
        head, _, rest = path.partition(".")
        if not head:
            return False
        if head in self._own:
            return True
        meaning = self._names.meaning(head)
        if isinstance(meaning, ImportedName):
            return not _names_fsdp(meaning, rest)
        if self._names.binds(head):
            return meaning is not None
        return head in _BUILTINS


def _names_fsdp(imported: ImportedName, rest: str) -> bool:
    """Whether a name is one of FSDP: where it stands is of interest by itself."""
    return "fsdp" in f"{imported.module}.{imported.name}.{rest}".lower()
