"""What the forms of one file share: they read meanings, and put direct text in their place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.reaching import reach
from fsdplint.migration.analysis.variables import Definition, reads
from fsdplint.migration.context import BARE, Migration, attributes
from fsdplint.migration.direct_form.meaning import Meaning, Meanings, display_items
from fsdplint.migration.direct_form.relevance import Depth, is_relevant
from fsdplint.source.source import Source
from fsdplint.syntax.layout import comments_at

Assignment = cst.Assign | cst.AnnAssign


@dataclass
class Inlining:
    """The changes to one file.

    Attributes:
        depth: how much is made direct.
        changed: whether there is a change.
    """

    migration: Migration
    source: Source
    depth: Depth
    changed: bool = False
    _used: dict[cst.CSTNode, tuple[Definition, set[cst.Name]]] = field(default_factory=dict)
    _attributes: dict[Assignment, tuple[cst.ClassDef, set[cst.CSTNode]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self.meanings = Meanings(self.migration, self.source)

    def is_relevant(self, *nodes: cst.CSTNode) -> bool:
        """Whether a part of some nodes is a name of FSDP1, or what the migration changes."""
        return is_relevant(self.migration, self.depth, *nodes)

    def text(self, node: cst.CSTNode) -> str:
        """The direct text of a node, with the parentheses that it needs as an argument."""
        text = self.migration.text(self.source, node)
        is_bare = isinstance(node, BARE) and (node.lpar or isinstance(node, cst.GeneratorExp))
        return f"({text})" if is_bare else text

    def has_comments(self, *nodes: cst.CSTNode) -> bool:
        """Whether a node has comments outside of its arguments, which no new text would keep."""
        return any(
            not any(left <= at < right for left, right in self._kept_spans(node))
            for node in nodes
            for at, _ in comments_at(self.source, node)
        )

    def _kept_spans(self, node: cst.CSTNode) -> list[tuple[int, int]]:
        values: list[cst.CSTNode] = (
            [arg.value for arg in node.args] if isinstance(node, cst.Call) else []
        )
        if isinstance(node, cst.Dict | cst.Tuple | cst.List):
            values = [value for _, value in display_items(node) or ()]
        return [self.source.span(value) for value in values]

    def use(self, *meanings: Meaning) -> None:
        """Record that the variables behind meanings are not read any more where they were."""
        for meaning in meanings:
            for name, definition in meaning.reads:
                _, found = self._used.setdefault(definition.statement, (definition, set()))
                found.add(name)

    def put(self, node: cst.CSTNode, text: str) -> None:
        """Put a direct text in the place of a node."""
        self.changed = True
        self.migration.forget(self.source, node)
        self.migration.substitute(self.source, node, text)

    def put_call(self, node: cst.CSTNode, function: str, given: list[str]) -> None:
        """Put a call in the place of a node."""
        self.changed = True
        self.migration.forget(self.source, node)
        self.migration.put_call(self.source, node, function, given)

    def put_whole(self, node: cst.BaseExpression, text: str) -> None:
        """Put a direct text in the place of a node and of the parentheses around it."""
        self.put(node, text)
        start, end = self.source.span(node)
        if (
            len(node.lpar) == 1
            and self.source.text[start - 1] == "("
            and (self.source.text[end : end + 1] == ")")
        ):
            self.migration.substitute_span(self.source, start - 1, end + 1, text)

    def put_lines(self, statement: cst.CSTNode, lines: list[str]) -> None:
        """Put lines in the place of a statement."""
        self.changed = True
        self.migration.replace_statement(self.source, statement, lines)

    def put_before(self, statement: cst.CSTNode, line: str) -> None:
        """Put a line before a statement."""
        self.changed = True
        self.migration.rewrite.insert_before(self.source, statement, [line])

    def put_after(self, statement: cst.CSTNode, lines: list[str]) -> None:
        """Put lines after a statement."""
        self.changed = True
        self.migration.rewrite.insert_after(self.source, statement, lines)

    def cut_lines(self, start: int, end: int) -> None:
        """Remove the lines from a place to another one."""
        self.changed = True
        following = self.source.text.find("\n", end)
        stop = following + 1 if following != -1 else len(self.source.text)
        self.migration.substitute_span(self.source, start, stop, "")

    def delete(self, statement: cst.CSTNode) -> None:
        self.changed = True
        self.migration.delete_statement(self.source, statement)

    def use_attribute(
        self, klass: cst.ClassDef, assignment: Assignment, node: cst.Attribute
    ) -> None:
        """Record that an attribute of a class is not read any more where it was."""
        _, found = self._attributes.setdefault(assignment, (klass, set()))
        found.add(node)

    def finish(self) -> None:
        """Delete the assignments of what nothing reads any more."""
        self._delete_variables()
        self._delete_attributes()

    def _delete_attributes(self) -> None:
        unread: dict[cst.ClassDef, list[Assignment]] = {}
        read: dict[cst.ClassDef, set[cst.CSTNode]] = {}
        for assignment, (klass, used) in self._attributes.items():
            if used >= set(self._attribute_reads(assignment)):
                unread.setdefault(klass, []).append(assignment)
                read.setdefault(klass, set()).update(used)
        for klass, assignments in unread.items():
            names = reads(self.source, self.source.tree, klass.name.value)
            if len(klass.body.body) == len(assignments) and all(
                self.source.parent(one) in read[klass] for one in names
            ):
                self.delete(klass)
                continue
            for assignment in assignments:
                self.delete(assignment)

    def _attribute_reads(self, assignment: Assignment) -> Iterator[cst.CSTNode]:
        """The reads of the attribute that an assignment sets, in all files."""
        target = assignment_target(assignment)
        name = target.attr.value if isinstance(target, cst.Attribute) else self.source.code(target)
        for source in self.migration.program.sources.values():
            for node in attributes(source):
                if node.attr.value == name and node is not target:
                    yield node

    def _delete_variables(self) -> None:
        for definition, used in self._used.values():
            target = assignment_target(definition.statement)
            assert isinstance(target, cst.Name)
            found = reach(self.source, target)
            if found is not None and used >= set(found.reads):
                self.delete(definition.statement)


def assignment_target(statement: Assignment) -> cst.BaseExpression:
    """What an assignment with one target sets."""
    return statement.target if isinstance(statement, cst.AnnAssign) else statement.targets[0].target
