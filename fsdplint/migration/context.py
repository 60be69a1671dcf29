"""The state of a migration: the program, its uses of FSDP1, the blockers and the notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.fixes.syntax import library_name
from fsdplint.interpreter import Program
from fsdplint.interpreter.values import ModuleValue, Unknown, Value
from fsdplint.migration.analysis.aliases import Alias, aliases_in, whole_name
from fsdplint.migration.analysis.ddp_arms import nodes_of_ddp_arms
from fsdplint.migration.analysis.isinstance_narrowing import narrowed_nodes
from fsdplint.migration.analysis.other_arms import excluded_nodes
from fsdplint.migration.analysis.passed_names import passed_names
from fsdplint.migration.analysis.static_methods import static_methods
from fsdplint.migration.analysis.typed_models import typed_models
from fsdplint.migration.analysis.unreached_code import UnreachedNames, is_synthetic
from fsdplint.migration.analysis.variables import function_name
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.changes import Changes
from fsdplint.migration.facts import (
    ConditionalImports,
    ForwardMethods,
    Policies,
    Precision,
    StateDicts,
)
from fsdplint.migration.frameworks.fabric_names import nodes_of_other_strategies
from fsdplint.migration.names import FSDP, PREFIX, fsdp1_name
from fsdplint.migration.text import on_one_line
from fsdplint.source.source import Source, once
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.layout import line_indent, statement_of
from fsdplint.syntax.qualified_names import canonical, references, symbols_in, walk


@dataclass
class Step:
    """One use of FSDP1 and the title of its rewrite."""

    source: Source
    node: cst.CSTNode
    title: str


@dataclass
class Note:
    """A change in cost or in a detail of behaviour.

    Attributes:
        text: the change, in a few words.
        detail: how much changes, and what the user can do about it.
        places: the code that it concerns, if any.
        unsafe: whether the program certainly trains differently than before.
    """

    text: str
    detail: str = ""
    unsafe: bool = False
    places: list[tuple[Source, cst.CSTNode]] = field(default_factory=list)


# Expressions that need their parentheses when they become an argument.
BARE = cst.Tuple | cst.GeneratorExp | cst.NamedExpr | cst.Yield


@dataclass
class Migration(Changes):
    """The migration of some files of a program that belong together.

    Attributes:
        names: every reference to a name of FSDP1 in the files, by node.
        symbols: the canonical dotted name of every reference to anything imported.
        uncalled_nodes: the nodes of functions that nothing calls and that stay as they are, of arms
            for models of DDP or other strategies of Fabric, and those of `undecided_nodes`.
        undecided_nodes: the nodes of statements that an assisted migration sets aside.
        consumed: references that a pass has accounted for.
        lost_reads: reads of variables in arguments that FSDP2 does not need.
        copied_data: the targets `p.data` of assignments that became copies.
        norms_apart: the constructor calls after which batch norms stay out of mixed precision.
        unread: those of them in values that nothing reads.
        aliases: variables that are other names of FSDP1's.
        emitted_helpers: keys of the helper functions that are already written.
        helper_variants: those of which a file may have several, by the file and the kind.
        blocking_if_called: functions that nothing calls here; a caller elsewhere would block.
        notes: changes in cost or in details of behaviour, by their text.
        imports, precision, policies, states, methods: facts that the passes find (`facts`).
    """

    program: Program
    sources: list[Source]
    uncalled_nodes: frozenset[cst.CSTNode] = frozenset()
    undecided_nodes: frozenset[cst.CSTNode] = frozenset()
    steps: list[Step] = field(default_factory=list)
    blockers: list[Blocked] = field(default_factory=list)
    notes: dict[str, Note] = field(default_factory=dict)
    names: dict[cst.CSTNode, str] = field(default_factory=dict)
    symbols: dict[cst.CSTNode, str] = field(default_factory=dict)
    consumed: set[cst.CSTNode] = field(default_factory=set)
    norms_apart: set[cst.Call] = field(default_factory=set)
    lost_reads: set[cst.CSTNode] = field(default_factory=set)
    copied_data: set[cst.CSTNode] = field(default_factory=set)
    unread: set[cst.CSTNode] = field(default_factory=set)
    aliases: list[Alias] = field(default_factory=list)
    emitted_helpers: set[str] = field(default_factory=set)
    helper_variants: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    blocking_if_called: dict[cst.CSTNode, Source] = field(default_factory=dict)
    imports: ConditionalImports = field(default_factory=ConditionalImports)
    precision: Precision = field(default_factory=Precision)
    policies: Policies = field(default_factory=Policies)
    states: StateDicts = field(default_factory=StateDicts)
    methods: ForwardMethods = field(default_factory=ForwardMethods)
    _unreached_modules: dict[cst.CSTNode, str] | None = None
    _narrowed_nodes: dict[cst.CSTNode, str] | None = None
    _excluded_nodes: set[cst.CSTNode] | None = None
    _typed_models: set[cst.CSTNode] | None = None
    _values: dict[cst.CSTNode, list[Value]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.uncalled_nodes |= self.undecided_nodes
        for source in self.sources:
            self.uncalled_nodes |= nodes_of_ddp_arms(self.program, source)
            self.uncalled_nodes |= nodes_of_other_strategies(source)
            for node, full in symbols_in(source).items():
                self.symbols[node] = full
                name = fsdp1_name(full)
                if (
                    name is not None
                    and node not in self.uncalled_nodes
                    and not _is_placeholder(source, node)
                ):
                    self.names[node] = name
            for method in static_methods(source, self._is_always_wrapped):
                if method not in self.uncalled_nodes:
                    self.names.setdefault(method, f"{FSDP}.{method.attr.value}")
        for one in passed_names(self.program):
            if not one.is_fsdp1 and one.source in self.sources:
                for use in one.uses:
                    node, rest = whole_name(one.source, use)
                    self.symbols[node] = canonical(f"{one.full}{rest}")

    # Reading ----------------------------------------------------------------------------------

    def symbol(self, node: cst.CSTNode | None) -> str:
        """The canonical dotted name of a library that a node refers to, or ""."""
        return self.symbols.get(node, "") if node is not None else ""

    def fsdp1(self, node: cst.CSTNode | None) -> str:
        """The name of FSDP1 that a node refers to, or ""."""
        return self.names.get(node, "") if node is not None else ""

    def undecided_name(self, node: cst.CSTNode | None) -> str:
        """The name of FSDP1 that a node of an undecided statement refers to, or ""."""
        return (fsdp1_name(self.symbol(node)) or "") if node in self.undecided_nodes else ""

    def any_name(self, node: cst.CSTNode | None) -> str:
        """The name of FSDP1 that a node refers to, also in an undecided statement, or ""."""
        return self.fsdp1(node) or self.undecided_name(node)

    def called_name(self, node: cst.CSTNode | None) -> str:
        """The name of FSDP1 that a node is a call of, or ""."""
        return self.fsdp1(node.func) if isinstance(node, cst.Call) else ""

    def values(self, node: cst.CSTNode) -> list[Value]:
        """The distinct values that a node had.

        A synthetic argument counts only where the program passes no real one.
        """
        known = self._values.get(node)
        if known is None:
            found = self.program.values(node)
            known = [value for value in found if not is_synthetic(value, node)] or found
            self._values[node] = known
        return known

    def is_blocked(self, node: cst.CSTNode) -> bool:
        """Whether a node already has a blocker."""
        return any(blocker.node is node for blocker in self.blockers)

    @contextmanager
    def collecting(
        self, source: Source | None = None, use: cst.CSTNode | None = None
    ) -> Iterator[None]:
        """Turn a `Blocked` that the block raises into a blocker of the migration.

        use: the use of FSDP1 that the block rewrites.
        """
        try:
            yield
        except Blocked as blocked:
            if source is not None and use is not None:
                blocked.use = source, use
            self.blockers.append(blocked)

    def wrapping_of(self, node: cst.CSTNode) -> str:
        """Whether a node is a module that FSDP1 wraps: "always", "sometimes" or "" for never."""
        values = self.values(node)
        if node in self.uncalled_nodes:
            return ""
        if not values and (self.in_other_arm(node) or self.is_excluded(node)):
            return ""
        if all(is_synthetic(value, node) for value in values):
            return self._unreached_models().get(node) or self.narrowing(node)
        found = [is_fsdp1(value) for value in values]
        if not any(found):
            return self.narrowing(node)
        certain = all(found) and not any(map(_may_be_plain, values))
        return "always" if certain else "sometimes"

    def _is_always_wrapped(self, node: cst.CSTNode) -> bool:
        values = self.values(node)
        return bool(values) and all(map(is_fsdp1, values))

    def in_other_arm(self, node: cst.CSTNode) -> bool:
        """Whether a node runs only where FSDP1's name refers to another library's class."""
        return any(
            x.in_other_arm(node) for choices in self.imports.choices.values() for x in choices
        )

    def _unreached_models(self) -> dict[cst.CSTNode, str]:
        if self._unreached_modules is None:
            files = self.program.sources.values()
            self._unreached_modules = UnreachedNames(
                self.sources, self.values, is_fsdp1, files
            ).found
        return self._unreached_modules

    def narrowing(self, node: cst.CSTNode) -> str:
        """How a test such as `isinstance(model, FSDP)` narrows a node of unknown value.

        The result is "always", "sometimes" or "", as of `wrapped`.
        """
        if self._narrowed_nodes is None:
            self._narrowed_nodes = narrowed_nodes(
                self.sources, lambda node: self.fsdp1(node) == FSDP
            )
        if not all(isinstance(v, Unknown) or is_synthetic(v, node) for v in self.values(node)):
            return ""
        return self._narrowed_nodes.get(node, "")

    def is_excluded(self, node: cst.CSTNode) -> bool:
        """Whether a node runs only if a test `isinstance(model, FSDP)` of a wrapped model is false."""
        if self._excluded_nodes is None:
            self._excluded_nodes = excluded_nodes(
                self.sources, lambda node: self.fsdp1(node) == FSDP, self._is_always_wrapped
            )
        return node in self._excluded_nodes

    def has_typed_state(self, node: cst.CSTNode) -> bool:
        """Whether code beside a node of unknown value calls FSDP1's methods for states with it."""
        if self._typed_models is None:
            self._typed_models = typed_models(self.sources, self.fsdp1)
        unknown = all(isinstance(v, Unknown) or is_synthetic(v, node) for v in self.values(node))
        return node in self._typed_models and unknown and node not in self.uncalled_nodes

    # Statements, helpers and imports ------------------------------------------------------------

    def replace_statement(self, source: Source, node: cst.CSTNode, lines: list[str]) -> None:
        """Replace the statement of a node by lines, which contain the new texts of its parts."""
        statement = statement_of(source, node)
        self.own(source, statement)
        self.rewrite.replace_statement(source, statement, lines)

    def delete_statement(
        self, source: Source, node: cst.CSTNode, *, comments: bool | None = None
    ) -> None:
        statement = statement_of(source, node)
        self.own(source, statement)
        self.forget(source, statement)
        self.rewrite.delete_statement(source, statement, comments=comments)

    def add_helper(self, key: str, variant: str = "", conflict: Blocked | None = None) -> bool:
        """Record that a file gets a helper function; returns False if it has this variant already.

        key: the kind of the helper and the path of the file.

        Raises:
            Blocked: `conflict`, if the file has another variant.
        """
        full = f"{key} {variant}"
        if full in self.emitted_helpers:
            return False
        if conflict is not None and any(x.startswith(f"{key} ") for x in self.emitted_helpers):
            raise conflict
        self.emitted_helpers.add(full)
        return True

    def helper_name(self, source: Source, kind: str, wanted: str, variant: str) -> tuple[str, bool]:
        """The name of a file's helper function, and whether it is still to be written.

        Each variant of a kind is a function of its own: the first one has the wanted name.
        """
        variants = self.helper_variants.setdefault((source.path, kind), [])
        is_new = variant not in variants
        if is_new:
            variants.append(variant)
        number = variants.index(variant) + 1
        return function_name(source, wanted if number == 1 else f"{wanted}_{number}"), is_new

    def forget(self, source: Source, node: cst.CSTNode) -> None:
        """Mark imports that a node uses as perhaps unused now."""
        for part in source.descend(node):
            if part in self.symbols:
                text = dotted_name(part)
                pieces = text.split(".")
                for count in range(1, len(pieces) + 1):
                    self.rewrite.remove_import_if_unused(source, ".".join(pieces[:count]))

    def account_for(self, source: Source, node: cst.CSTNode) -> None:
        """Mark all references to FSDP1 inside a node as rewritten."""
        for part in source.descend(node):
            if part in self.names:
                self.consumed.add(part)
        self.forget(source, node)

    def step(self, source: Source, node: cst.CSTNode, title: str) -> None:
        self.steps.append(Step(source, node, title))

    def note(
        self,
        text: str,
        source: Source | None = None,
        node: cst.CSTNode | None = None,
        *,
        detail: str = "",
        unsafe: bool = False,
    ) -> None:
        """Add a note on a change in cost or behaviour, or a place to the note with this text."""
        note = self.notes.setdefault(text, Note(text))
        note.unsafe = note.unsafe or unsafe
        note.detail = note.detail or detail
        if source is not None and node is not None and (source, node) not in note.places:
            note.places.append((source, node))

    def need(self, source: Source, module: str, name: str | None, at: cst.CSTNode) -> str:
        """The text for `module.name` at a node. Adds an import if the file has none."""
        full = module if name is None else f"{module}.{name}"
        for one in passed_names(self.program):
            if (
                one.source is source
                and one.full == full
                and not one.is_fsdp1
                and one.is_visible(at)
            ):
                return one.local
        return self.rewrite.need_import(source, module, name, at=at)

    def torch(self, source: Source, at: cst.CSTNode) -> str:
        return self.need(source, "torch", None, at)

    def dist(self, source: Source, at: cst.CSTNode, function: str) -> str:
        """How the file writes a function of `torch.distributed` at a node."""
        return library_name(self.rewrite, source, f"torch.distributed.{function}", at)


def _is_placeholder(source: Source, node: cst.CSTNode) -> bool:
    """Whether a node is the target of `name = None`, the placeholder for a failed import."""
    target = source.parent(node)
    statement = source.parent(target) if isinstance(target, cst.AssignTarget) else None
    return isinstance(statement, cst.Assign) and is_constant(statement.value, "None")


def is_fsdp1(value: Value | None) -> bool:
    """Whether a value is a module that FSDP1 wraps, compiled or not."""
    if not isinstance(value, ModuleValue):
        return False
    return value.wrapper == "fsdp1" or (value.wrapper == "compile" and is_fsdp1(value.inner))


def _may_be_plain(value: Value) -> bool:
    """Whether a value is a module of unknown origin that may have no wrapper."""
    return isinstance(value, ModuleValue) and value.may_be_plain


def uses_of_fsdp1(source: Source) -> bool:
    """Whether a file refers to FSDP1, judged by its imports."""
    if any(fsdp1_name(full) for _, _, full in references(source, PREFIX)):
        return True
    return any(True for _ in aliases_in(source))


@once
def attributes(source: Source) -> Sequence[cst.Attribute]:
    """Every attribute in a file, including those inside of chains, outer ones first."""
    found: list[cst.Attribute] = []
    for node in nodes(source):
        while isinstance(node, cst.Attribute):
            found.append(node)
            node = node.value
    return tuple(found)


def nodes(source: Source) -> tuple[cst.CSTNode, ...]:
    """The nodes of a file outside of its imports."""
    return walk(source, skip_imports=True)


def expression(migration: Migration, source: Source, node: cst.CSTNode) -> str:
    """A node's new text for a line given to `Rewrite`, on one line where possible.

    Otherwise the indentation of its further lines is relative to that of the statement.
    """
    text = on_one_line(migration.text(source, node))
    if isinstance(node, BARE) and node.lpar:
        text = f"({text})"  # the text of a node leaves out its own parentheses
    if "\n" not in text:
        return text
    indent = line_indent(source, source.span(node)[0])
    first, *rest = text.replace("\r\n", "\n").split("\n")
    return "\n".join([first, *(line.removeprefix(indent) for line in rest)])
