"""Comments that turn findings off."""

from __future__ import annotations

import pytest

from fsdplint.diagnostics.suppressions import (
    has_blanket,
    is_addressed,
    read_line_comments,
    read_suppressions,
)

CODE, NAME = "FSDP101", "direct-forward-call"


def off(text: str, line: int = 1, end_line: int = 0) -> bool:
    found = read_suppressions(text).covers(CODE, NAME, line, end_line)
    assert not found or is_addressed(text) or has_blanket(text)
    return found


@pytest.mark.parametrize(
    ("comment", "addressed", "blanket"),
    [
        ("# noqa: F401", False, False),
        ("# noqa: F401, B950 # type: ignore", False, False),
        ("# what FSDP does", False, False),
        ("# fsdplint: FSDP299 blocks the migration: a reason", False, False),
        ("# noqa: F401, FSDP101", True, False),
        ("# fsdplint: ignroe", True, False),
        ("# noqa", False, True),
        ("# noqa: F401  # noqa", False, True),
    ],
)
def test_which_files_have_comments_that_count(comment: str, addressed: bool, blanket: bool) -> None:
    text = f"import a  {comment}\n"
    assert (is_addressed(text), has_blanket(text)) == (addressed, blanket)


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "#noqa",
        "# NOQA",
        "# type: ignore  # noqa",
        "# noqa: FSDP101",
        "# noqa:E501,FSDP101",
        "# noqa: E501 FSDP101",
        "# noqa : FSDP1",
        "# noqa: fsdp101",
        "# fsdplint: ignore",
        "# fsdplint: ignore[FSDP101]",
        "# fsdplint: ignore[FSDP3, FSDP1]",
        "# fsdplint: ignore [FSDP101]",
        "# fsdplint:ignore[direct-forward-call] for the hooks",
    ],
)
def test_turns_off(comment: str) -> None:
    assert off(f"model.forward(x)  {comment}\n")


@pytest.mark.parametrize(
    "comment",
    [
        "# FSDP101",
        "# noqa: E501",
        "# noqa: FSDP103",
        "# noqa: because of the hooks",
        "# noqa-ish",
        "# fsdplint: ignore[FSDP103]",
        "# fsdplint: ignore [FSDP103]",
        "# fsdplint: ignore[]",
        "# fsdplint: ignored",
        "# fsdplint: file-ignore[FSDP103]",
        "",
    ],
)
def test_does_not_turn_off(comment: str) -> None:
    assert not off(f"model.forward(x)  {comment}\n")


def test_a_comment_ends_with_its_line() -> None:
    text = "y = x[1  # noqa\n  : model.forward(x)]\n"
    assert off(text) and has_blanket(text)


def test_all_by_its_name() -> None:
    assert off("model.forward(x)  # fsdplint: ignore[all]\n")


def test_the_selectors_and_their_lines() -> None:
    text = "x  # fsdplint: ignore[a, FSDP1]\n# fsdplint: file-ignore[b]\ny  # noqa: E501, FSDP9\n"
    assert read_suppressions(text).selectors == [(1, "a"), (1, "FSDP1"), (2, "b"), (3, "FSDP9")]


@pytest.mark.parametrize(
    ("comment", "why"),
    [
        ("# fsdplint: ingore[FSDP101]", "did you mean ignore?"),
        ("# type: ignore  #fsdplint:file_ignore", "did you mean file-ignore?"),
        ("# FSDPLINT: Ignore[FSDP101]  because", "did you mean ignore?"),
        ("# fsdplint: ignored", "did you mean ignore?"),
        ("# fsdplint: ignore[FSDP101", "a `]` is missing"),
        ("# fsdplint: ignore [FSDP101", "a `]` is missing"),
        ("# Fsdplint: ignore", "it is written `# fsdplint: ignore`"),
        ("# fsdplint: off", "known are ignore, disable, enable and file-ignore"),
        ("# fsdplint:", "known are ignore, disable, enable and file-ignore"),
        ("# fsdplint: FSDP201 blocks the migration: no", ""),
        ("# fsdplint: ignore[FSDP101] # fsdplint: disable", ""),
        ("# checked by fsdplint: ingore", ""),
    ],
)
def test_what_is_no_directive(comment: str, why: str) -> None:
    read = read_suppressions(f"x = 1\nmodel.forward(x)  {comment}\n")
    if not why:
        assert read.unknown == []
        return
    assert not read.spans
    own = comment[comment.lower().index("#fsdplint" if "#fsdp" in comment else "# fsdplint") :]
    assert read.unknown == [(2, f"unknown comment {own!r}; {why}")]


def test_only_its_own_line() -> None:
    assert not off("# noqa\nmodel.forward(x)\n", line=2)
    assert not off("model.forward(x)\ny = 1  # noqa\n")


def test_not_in_strings() -> None:
    assert not off('model.forward("# noqa")\n')
    assert not off('model.forward("""\n# fsdplint: file-ignore\n""")\n')


CALL = """\
loss = criterion(
    model.forward(
        x,{inner}
    ),{arguments}
    y,
){end}
"""


def test_lines_of_a_longer_statement() -> None:
    comment = "  # noqa: FSDP101"
    where = dict.fromkeys(("inner", "arguments", "end"), "")
    assert off(CALL.format(**{**where, "end": comment}), line=2, end_line=4)
    assert off(CALL.format(**{**where, "arguments": comment}), line=2, end_line=4)
    assert not off(CALL.format(**{**where, "inner": comment}), line=2, end_line=4)
    assert not off(CALL.format(**where) + f"z = 1{comment}\n", line=2, end_line=4)


def test_a_block_ends_with_its_header() -> None:
    text = "with f(\n    a\n):{head}\n    b()\n    c(){last}\n"
    assert off(text.format(head="  # noqa", last=""))
    assert not off(text.format(head="", last="  # noqa"))


def test_whole_file() -> None:
    assert off("x = 1\n\n# fsdplint: file-ignore[FSDP101]\nmodel.forward(x)\n", line=4)
    assert off("# fsdplint: file-ignore\nmodel.forward(x)\n", line=2)


def test_what_cannot_be_tokenised_is_read_as_far_as_it_goes() -> None:
    assert off("model.forward(x)  # noqa\nx = '''\n")
    assert not off("model.forward(x)\nx = '''  # noqa\n")


def test_other_line_ends() -> None:
    assert off("a = 1\r\nmodel.forward(x)  # noqa\r\n", line=2)


# In lines of their own ----------------------------------------------------------------------------


def test_the_statement_below() -> None:
    own = "# fsdplint: ignore[FSDP101]\n"
    assert off(f"{own}model.forward(x)\n", line=2)
    assert off(f"{own}\n# why\nloss = f(\n    model.forward(x)\n)\n", line=5)
    assert not off(f"{own}y = 1\nmodel.forward(x)\n", line=3)
    assert not off(f"model.forward(x)\n{own}", line=1)
    assert off(f"{own}# fsdplint: ignore[FSDP103]\nmodel.forward(x)\n", line=3)
    # Of a block only the head.
    assert off(f"{own}with model.forward(x):\n    y()\n", line=2)
    assert not off(f"{own}with f():\n    model.forward(x)\n", line=3)


def test_the_line_below_between_brackets() -> None:
    text = "f(\n    # fsdplint: ignore[FSDP101]\n    model.forward(x),\n    model.forward(y),\n)\n"
    assert off(text, line=3)
    assert not off(text, line=4)


def test_noqa_in_a_line_of_its_own_is_nothing() -> None:
    assert not off("# noqa: FSDP101\nmodel.forward(x)\n", line=2)


RANGE = """\
def f():
    a
    # fsdplint: disable[{off}]
    b(
        1)
    c
    # fsdplint: enable[{on}]
    d
e
"""


def lines_off(text: str, code: str = CODE) -> list[int]:
    read = read_suppressions(text)
    count = text.count("\n")
    return [line for line in range(1, count + 1) if read.covers(code, "name", line)]


def test_ranges() -> None:
    text = RANGE.format(off="FSDP101, FSDP103", on="FSDP101")
    assert lines_off(text) == [3, 4, 5, 6, 7]
    assert lines_off(text, "FSDP103") == [3, 4, 5, 6, 7, 8]  # the block ends
    assert lines_off(text.replace("[FSDP101]\n", "\n"), "FSDP103") == [3, 4, 5, 6, 7]
    assert lines_off(text, "FSDP104") == []
    assert read_suppressions(text).unmatched == []
    other = read_suppressions(RANGE.format(off="FSDP101", on="FSDP102"))
    assert [(one.line, selector) for one, selector in other.unmatched] == [(7, "FSDP102")]


def test_a_range_to_the_end_of_the_file() -> None:
    assert lines_off("a\n# fsdplint: disable\nb\n\n\ndef f():\n    c\n") == [2, 3, 4, 5, 6, 7]
    assert lines_off("if a:\n    b  # fsdplint: disable\n    c\nd\n") == [2, 3]


def test_comments_of_settings() -> None:
    text = "# fsdplint: ignore[FSDP101]\na: 1\nb: '# noqa'\nc: x#y  # noqa: FSDP101\n"
    read = read_line_comments(text)
    assert [line for line in range(1, 5) if read.covers(CODE, NAME, line)] == [2, 4]
