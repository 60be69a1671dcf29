"""Rewrite: builds a `Fix` from changes to nodes of source files.

A fix changes only the characters that it replaces. All other comments, quotes, indentation and line
ends stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import libcst as cst

from fsdplint.diagnostics.finding import Edit, Fix, Import, Safety
from fsdplint.edits.imports import spelling
from fsdplint.edits.statement_edits import Statements
from fsdplint.source.source import Source
from fsdplint.syntax import layout


class Rewrite:
    r"""Collects changes to one or several files; `fix` turns them into a `Fix`.

    The statement methods take lines without the indentation of the place. One leading tab stands
    for one level of the file's indentation (`["for block in model.layers:",
    "\tfully_shard(block)"]`). Texts may use "\n", which becomes the file's own newline.

    A statement may be given as any node in it. That is safer than `source.statement(node)`, which
    returns the `if` of `if x: y` for a node in `y`.
    """

    def __init__(self) -> None:
        self._edits: list[Edit] = []
        self._statements: dict[int, Statements] = {}
        self._imports: dict[tuple[str, Import], None] = {}
        self._maybe_unused: dict[tuple[str, str], None] = {}
        self._relied: dict[tuple[str, int, int], None] = {}

    def replace(self, source: Source, node: cst.CSTNode, text: str) -> None:
        """Replace a node by a text; parentheses around it stay."""
        start, end = source.span(node)
        self.replace_span(source, start, end, text)

    def replace_span(self, source: Source, start: int, end: int, text: str) -> None:
        """Replace the characters start..end by a text."""
        edit = Edit(source.path, start, end, layout.in_file(source, text))
        if start == end or edit not in self._edits:
            self._edits.append(edit)

    def delete(self, source: Source, start: int, end: int) -> None:
        """Delete the characters start..end."""
        self.replace_span(source, start, end, "")

    def insert(self, source: Source, offset: int, text: str) -> None:
        """Insert a text before the character at `offset`."""
        self.replace_span(source, offset, offset, text)

    def delete_statement(
        self, source: Source, statement: cst.CSTNode, *, comments: bool | None = None
    ) -> None:
        """Delete a statement with its line; a block that becomes empty gets a `pass`.

        comments: whether comments inside and behind the statement stay, on their own lines. By
        default they stay unless it is a compound statement. Comments above it always stay.
        """
        changes = self._of(source)
        for part in changes.small_statements(statement):
            change = changes.change(part)
            change.deleted, change.replaced = True, None
            compound = isinstance(part, cst.BaseCompoundStatement)
            change.keep_comments = not compound if comments is None else comments

    def insert_before(self, source: Source, statement: cst.CSTNode, lines: Sequence[str]) -> None:
        """Insert lines directly before a statement, below the comments above it.

        Lines before an `elif` go before its `if`. Lines before a statement of a one-line suite or
        of a line `a; b` split this line.
        """
        changes = self._of(source)
        change = changes.change(changes.small_statements(statement)[0])
        change.before.extend(layout.physical_lines(source, lines))

    def insert_function(self, source: Source, statement: cst.CSTNode, lines: Sequence[str]) -> None:
        """Insert a function before a top-level statement, above its comments."""
        changes = self._of(source)
        change = changes.change(changes.small_statements(statement)[0])
        above = isinstance(statement, cst.BaseCompoundStatement)
        comments = change.above if above else change.before
        start = source.line_start(layout.start_of(source, statement))
        start = layout.comment_start(source, start) if above else start
        missing = [] if comments else [""] * layout.missing_above(source, start)
        comments.extend(layout.physical_lines(source, [*missing, *lines, "", ""]))

    def insert_after(self, source: Source, statement: cst.CSTNode, lines: Sequence[str]) -> None:
        """Insert lines directly after a statement; see `insert_before`."""
        changes = self._of(source)
        change = changes.change(changes.small_statements(statement)[-1])
        change.after.extend(layout.physical_lines(source, lines))

    def replace_statement(
        self,
        source: Source,
        statement: cst.CSTNode,
        lines: Sequence[str],
        *,
        comments: bool = True,
    ) -> None:
        """Replace a statement by lines.

        comments: whether comments inside the statement that `lines` lacks stay above them.
        """
        if not lines:
            self.delete_statement(source, statement, comments=comments)
            return
        changes = self._of(source)
        first, *others = changes.small_statements(statement)
        change = changes.change(first)
        change.replaced, change.deleted = layout.physical_lines(source, lines), False
        change.keep_comments = comments
        for other in others:
            changes.change(other).deleted = True

    def discard(self, source: Source, start: int, end: int) -> None:
        """Discard the changes so far to the characters start..end. Lines that were inserted before
        or after a statement that begins there stay."""
        self._edits = [
            edit
            for edit in self._edits
            if edit.path != source.path or not (start <= edit.start and edit.end <= end)
        ]
        self._of(source).discard(start, end)

    def unwrap(self, source: Source, block: cst.CSTNode, lines: Sequence[str] = ()) -> None:
        """Replace the header of a `with` (or similar statement) by lines, and dedent its body.

        The body keeps every character except its indentation. Other changes of this rewrite may
        fall inside it. Multi-line strings do not change.

        Raises:
            ValueError: the statement has no single body.
        """
        if not isinstance(block, cst.With | cst.If | cst.For | cst.While) or getattr(
            block, "orelse", None
        ):
            raise ValueError("only a statement with a single body can be unwrapped")
        self._of(source).unwrapped[block] = layout.physical_lines(source, lines)

    def need_import(
        self,
        source: Source,
        module: str,
        name: str | None = None,
        *,
        at: cst.CSTNode | None = None,
        usual: str | None = None,
    ) -> str:
        """How to write `module.name` (or the module) at a node; adds an import if needed.

        Returns the name of an existing import (`FSDP`, `dist.barrier`) if it certainly runs before
        `at` and nothing hides it there. Otherwise returns the unaliased name (or `usual`), or a new
        name if that one means something else in this file.
        """
        planned = [addition for path, addition in self._imports if path == source.path]
        text, addition = spelling.name_for(source, module, name, at, planned, usual)
        if addition is not None:
            self._imports[source.path, addition] = None
        return text

    def remove_import_if_unused(self, source: Source, name: str, *, anyway: bool = False) -> None:
        """Remove the import of a name if the fix removes its last use.

        name: the local name; for `import a.b` "a.b".
        anyway: remove the import also if it had no use before.
        """
        self._maybe_unused[source.path, name + "!" if anyway else name] = None

    def depends_on(self, source: Source, node: cst.CSTNode) -> None:
        """Declare that the fix is valid only while a node does not change."""
        start, end = source.span(node)
        self._relied[source.path, start, end] = None

    def fix(self, title: str, safety: Safety, group: str | None = None) -> Fix:
        """Build the fix from all changes so far.

        Raises:
            ValueError: two of the changes overlap.
        """
        edits = list(self._edits)
        less: list[Edit] = []
        for statements in self._statements.values():
            more, dedents = statements.edits()
            edits.extend(more)
            less.extend(dedents)
        edits.extend(
            edit
            for edit in less
            if not any(
                other.path == edit.path and other.start <= edit.start and edit.end <= other.end
                for other in edits
                if other.start < other.end
            )
        )
        return Fix(
            title=title,
            safety=safety,
            edits=in_order(edits),
            imports=tuple(self._imports),
            group=group,
            maybe_unused_imports=tuple(self._maybe_unused),
            depends_on=tuple(self._relied),
        )

    def _of(self, source: Source) -> Statements:
        return self._statements.setdefault(id(source), Statements(source))


def in_order(edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Sort edits by file and place; insertions at one place keep the given order.

    Raises:
        ValueError: two edits overlap.
    """
    result = sorted(edits, key=_place)
    for one, two in pairwise(result):
        if one.path == two.path and two.start < one.end:
            raise ValueError(f"overlapping edits: {one} and {two}")
    return tuple(result)


def _place(edit: Edit) -> tuple[str, int, int, int]:
    """The sort key of an edit.

    At one offset, insertions precede a replacement. Among whole lines, deeper ones come first,
    because the end of a block's last statement is the end of the block.
    """
    if edit.start != edit.end:
        return edit.path, edit.start, 1, 0
    line = edit.text.lstrip("\r\n").expandtabs()
    deep = len(line) - len(line.lstrip(" ")) if is_lines(edit.text) else 0
    return edit.path, edit.start, 0, -deep


def is_lines(text: str) -> bool:
    """Whether an insertion consists of whole lines."""
    return text.startswith(("\n", "\r")) or text.endswith(("\n", "\r"))
