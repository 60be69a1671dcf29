"""A text under change that keeps its relation to the original text.

Edits are applied in two rounds: first those of the fixes, then those of the imports, which depend
on the first result. `Pieces.edits` combines both rounds into one set of edits of the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsdplint.diagnostics.finding import Edit


@dataclass(frozen=True)
class Piece:
    """Characters start..end of the original, or new text if `text` is given."""

    start: int
    end: int
    text: str | None = None

    @property
    def length(self) -> int:
        return self.end - self.start if self.text is None else len(self.text)


class Pieces:
    """The original text, and the changed text as a list of pieces."""

    def __init__(self, original: str) -> None:
        self.original = original
        self._pieces = [Piece(0, len(original))]

    @property
    def text(self) -> str:
        return "".join(
            self.original[x.start : x.end] if x.text is None else x.text for x in self._pieces
        )

    def apply(self, edits: Sequence[Edit]) -> None:
        """Change the text; the offsets refer to the current text.

        edits: ordered and not overlapping; insertions at one place are applied in the given order.
        """
        pieces: list[Piece] = []
        rest = list(reversed(self._pieces))
        at = 0

        def take(until: int, keep: bool) -> None:
            nonlocal at
            while at < until:
                piece = rest.pop()
                length = min(piece.length, until - at)
                head, tail = _cut(piece, length)
                if keep:
                    pieces.append(head)
                if tail is not None:
                    rest.append(tail)
                at += length

        for edit in edits:
            take(edit.start, keep=True)
            if edit.text:
                pieces.append(Piece(0, 0, edit.text))
            take(edit.end, keep=False)
        self._pieces = pieces + list(reversed(rest))

    def current_offset(self, offset: int) -> int:
        """The current offset of a character of the original; if it was deleted, the offset of its
        place."""
        position = 0
        for piece in self._pieces:
            if piece.text is None:
                if piece.start <= offset < piece.end:
                    return position + offset - piece.start
                if piece.start > offset:
                    # The replacement of the deleted text precedes this piece.
                    return max(position - 1, 0)
            position += piece.length
        return max(position - 1, 0)

    def original_offset(self, offset: int) -> int:
        """The offset in the original of a character of the changed text; of a new one, that of its
        place."""
        position = last = 0
        for piece in self._pieces:
            if offset < position + piece.length:
                return last if piece.text is not None else piece.start + offset - position
            position += piece.length
            last = last if piece.text is not None else piece.end
        return last

    def copy(self) -> Pieces:
        """The same changes, to which more can be added."""
        result = Pieces(self.original)
        result._pieces = list(self._pieces)
        return result

    def edits(self, path: str) -> tuple[Edit, ...]:
        """The edits that turn the original into the changed text."""
        result = []
        position = 0
        new: list[str] = []
        for piece in [*self._pieces, Piece(len(self.original), len(self.original))]:
            if piece.text is not None:
                new.append(piece.text)
                continue
            if new or piece.start > position:
                result.append(Edit(path, position, piece.start, "".join(new)))
                new = []
            position = piece.end
        return tuple(result)


def _cut(piece: Piece, length: int) -> tuple[Piece, Piece | None]:
    """The first characters of a piece, and the rest."""
    if length == piece.length:
        return piece, None
    if piece.text is not None:
        return Piece(0, 0, piece.text[:length]), Piece(0, 0, piece.text[length:])
    middle = piece.start + length
    return Piece(piece.start, middle), Piece(middle, piece.end)
