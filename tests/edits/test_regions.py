"""Which lines edits change."""

from __future__ import annotations

import random

from fsdplint.diagnostics.finding import Edit
from fsdplint.edits.lines import lines_of
from fsdplint.edits.regions import regions


def test_a_replaced_an_added_and_a_deleted_line() -> None:
    text = "a\nb\nc\nd\ne\nf\n"
    found = regions(
        text, [Edit("p", 2, 3, "B\nB"), Edit("p", 6, 6, "new\n"), Edit("p", 10, 12, "")]
    )
    assert [(one.line, one.new_line, one.before, one.after) for one in found] == [
        (2, 2, ["b\n"], ["B\n", "B\n"]),
        (4, 5, [], ["new\n"]),
        (6, 8, ["f\n"], []),
    ]


def test_lines_that_come_out_as_they_were_are_left_out() -> None:
    (found,) = regions("a\nb\nc\n", [Edit("p", 0, 5, "a\nx\nc")])
    assert (found.line, found.before, found.after) == (2, ["b\n"], ["x\n"])
    assert found.touches(1, 1)
    assert not found.touches(4, 4)
    assert regions("a\n", [Edit("p", 0, 1, "a")]) == []


def test_the_regions_make_the_new_text() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        alphabet = rng.choice(["ab\n", "ab\r\n", "a\f\n\r", "ab"])
        text = "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 25)))
        places = sorted(rng.sample(range(len(text) + 1), min(len(text) + 1, 6) // 2 * 2))
        edits = [
            Edit("p", start, rng.choice([start, end]), rng.choice(["", "x", "x\n", "\ny", "\r\n"]))
            for start, end in zip(places[::2], places[1::2], strict=True)
        ]
        new, position = "", 0
        for edit in edits:
            new += text[position : edit.start] + edit.text
            position = edit.end
        new += text[position:]
        lines, made, at = lines_of(text), "", 0
        for one in regions(text, edits):
            assert lines[one.line - 1 : one.line - 1 + one.count] == one.before
            made += "".join(lines[at : one.line - 1] + one.after)
            at = one.line - 1 + one.count
        assert made + "".join(lines[at:]) == new
