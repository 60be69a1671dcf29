"""Changes to a mapping in a settings file, as edits of its text.

The edits touch only what changes. A dropped key loses its line, with the comments that are only
about it. A renamed key keeps its place and its quotes, and its comment unless that names its old
values.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise

from fsdplint.diagnostics.finding import Edit
from fsdplint.edits.config_comments import (
    comment_above,
    is_about,
    names_one_of,
    trailing_comment,
)
from fsdplint.source.config_source import ConfigError, ConfigSource, Entry, Mapping, Scalar


@dataclass
class MappingEdit:
    """Collects the changes to one mapping.

    Attributes:
        after: lines to add after the whole mapping (a further key of the enclosing mapping),
            without indentation and line ends; for a mapping in braces, a single text.
    """

    source: ConfigSource
    mapping: Mapping
    after: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dropped: set[str] = set()
        self._keys: dict[str, str] = {}
        self._old_names: dict[str, Collection[str]] = {}
        self._values: dict[str, object] = {}
        self._added: list[tuple[str, object]] = []

    def drop(self, key: str) -> None:
        self._dropped.add(key)

    def rename(self, key: str, name: str, value: object, old: Collection[str] = ()) -> None:
        """Give a key another name and value in place.

        old: names that mean nothing any more; a comment behind the key that has one is removed.
        """
        self._keys[key] = name
        self._old_names[key] = old
        self._values[key] = value

    def set(self, key: str, value: object) -> None:
        """Set the value of a key; a new key gets a new line."""
        if self.mapping.get(key) is None:
            self._added.append((key, value))
        else:
            self._values[key] = value

    def edits(self) -> tuple[Edit, ...]:
        """The edits, in order. Raises ConfigError if the layout of the text is not supported."""
        edits = [edit for entry in self.mapping for edit in self._in_place(entry)]
        edits += self._flow() if self.mapping.flow else self._block()
        return tuple(sorted(edits))

    def _edit(self, start: int, end: int, text: str) -> Edit:
        return Edit(self.source.path, start, end, text.replace("\n", self.source.newline))

    # Keys and values -------------------------------------------------------------------------

    def _in_place(self, entry: Entry) -> list[Edit]:
        key, value = entry.key.text, entry.value
        edits: list[Edit] = []
        if key in self._dropped:
            return edits
        if key in self._keys:
            name = entry.key.quote + self._keys[key] + entry.key.quote
            edits.append(self._edit(entry.key.start, entry.key.end, name))
        if key in self._values:
            text = self.format_value(self._values[key])
            if not isinstance(value, Scalar) or value.anchored:
                raise ConfigError(f"`{key}` is not a scalar")
            if value.start == value.end:  # `key:` without a value
                text = " " + text
            if self.source.text[value.start : value.end] != text:
                edits.append(self._edit(value.start, value.end, text))
        comment = trailing_comment(self.source, entry)
        if comment and names_one_of(
            self.source.text[slice(*comment)], self._old_names.get(key, ())
        ):
            edits.append(self._edit(*comment, ""))
        return edits

    def format_value(self, value: object) -> str:
        """A value in the style of the mapping's other values."""
        if isinstance(value, bool):
            scalars = {
                entry.value.text
                for entry in self.mapping
                if isinstance(entry.value, Scalar) and not entry.value.quote
            }
            capital = scalars & {"True", "False"} and not scalars & {"true", "false"}
            return str(value) if capital else str(value).lower()
        if isinstance(value, int):
            return str(value)
        return f'"{value}"' if self.source.is_json else str(value)

    def _pair(self, name: str, value: object) -> str:
        quote = '"' if self.source.is_json else ""
        return f"{quote}{name}{quote}: {self.format_value(value)}"

    def _places(self) -> dict[str, list[tuple[str, object]]]:
        """The new keys, by the key that they follow: in sorted position if the keys are sorted,
        else last."""
        keys = [entry.key.text for entry in self.mapping]
        in_order = keys == sorted(keys)
        places: dict[str, list[tuple[str, object]]] = {}
        for name, value in self._added:
            before = [key for key in keys if key < name] if in_order else keys
            places.setdefault((before or keys)[-1], []).append((name, value))
        return places

    # A mapping of lines ----------------------------------------------------------------------

    def _block(self) -> list[Edit]:
        text, edits = self.source.text, []
        places = self._places()
        for number, entry in enumerate(self.mapping):
            start = self.source.line_start(entry.key.start)
            indent = text[start : entry.key.start]
            if indent.strip():
                raise ConfigError(f"`{entry.key.text}` does not begin its line")
            end = self._line_end(entry.end)
            lines = [indent + self._pair(*pair) for pair in places.get(entry.key.text, ())]
            if number == len(self.mapping.entries) - 1:
                lines += self.after
            dropped = entry.key.text in self._dropped
            if dropped:
                self._check_droppable(entry)
                start, end = self._with_comments(entry, start, end)
            if not lines:
                if dropped:
                    edits.append(self._edit(start, end, ""))
                continue
            new = "\n".join(lines)
            closed = text[:end].endswith("\n")
            if dropped:
                edits.append(self._edit(start, end, new + ("\n" if closed else "")))
            else:
                edits.append(self._edit(end, end, new + "\n" if closed else "\n" + new))
        return edits

    def _with_comments(self, entry: Entry, start: int, end: int) -> tuple[int, int]:
        """The lines of a dropped entry, with the comments that are only about it."""
        comment = trailing_comment(self.source, entry)
        if comment is not None:
            end = self._line_end(comment[1])
        above = comment_above(self.source, entry)
        following = self.source.text[end : self._line_end(end)]
        if is_about(self.source.text[above:start], entry, following):
            start = above
        return start, end

    def _line_end(self, offset: int) -> int:
        """The offset after the line end of the line that holds an offset."""
        newline = self.source.text.find("\n", offset)
        return len(self.source.text) if newline < 0 else newline + 1

    def _check_droppable(self, entry: Entry) -> None:
        if not isinstance(entry.value, Scalar) or entry.value.anchored:
            raise ConfigError(f"`{entry.key.text}` is not a scalar")

    # A mapping in braces ---------------------------------------------------------------------

    def _flow(self) -> list[Edit]:
        entries = self.mapping.entries
        remaining = [entry for entry in entries if entry.key.text not in self._dropped]
        added = [self._pair(*pair) for pair in self._added]
        separator = self._separator()
        edits = []
        if not remaining:
            start, end = entries[0].key.start, entries[-1].end
            edits.append(self._edit(start, end, separator.join(added)))
        else:
            for entry, following in pairwise(entries):
                if entry.key.text in self._dropped and entry.end < remaining[-1].key.start:
                    edits.append(self._edit(entry.key.start, following.key.start, ""))
            new = "".join(separator + pair for pair in added)
            if new or remaining[-1] is not entries[-1]:
                edits.append(self._edit(remaining[-1].end, entries[-1].end, new))
        if self.after and self.source.top.flow:
            edits.append(self._edit(self.mapping.end, self.mapping.end, "".join(self.after)))
        elif self.after:
            end = self._line_end(self.mapping.end)
            closed = self.source.text[:end].endswith("\n")
            text = "\n".join(self.after)
            edits.append(self._edit(end, end, text + "\n" if closed else "\n" + text))
        return edits

    def _separator(self) -> str:
        """The text between two entries: a comma and white space."""
        entries = self.mapping.entries
        if len(entries) > 1:
            between = self.source.text[entries[-2].end : entries[-1].key.start]
            if not between.strip(", \t\r\n"):
                return between.replace("\r\n", "\n")
        return ", "
