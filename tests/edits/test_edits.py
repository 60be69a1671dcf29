"""Fixes onto files: groups, clashes, imports that come and go."""

from __future__ import annotations

import libcst as cst
import pytest
from rewriting import edited, node, source_of

from fsdplint.diagnostics.finding import Edit, Fix, Import, Safety
from fsdplint.edits.apply import Applied, BrokenFixError, apply, complete
from fsdplint.edits.pieces import Pieces
from fsdplint.edits.rewrite import Rewrite
from fsdplint.source.source import Source

FSDP = "torch.distributed.fsdp"


def fix(*edits: Edit, group: str | None = None, **others: object) -> Fix:
    return Fix("test", Safety.SAFE, tuple(edits), group=group, **others)  # type: ignore[arg-type]


def edit(start: int, end: int, text: str, path: str = "train.py") -> Edit:
    return Edit(path, start, end, text)


def applied(text: str, *fixes: Fix) -> Applied:
    return apply({"train.py": source_of(text)}, fixes)


def test_fixes_that_do_not_touch() -> None:
    one, two = fix(edit(4, 5, "2")), fix(edit(0, 1, "y"))
    result = applied("x = 1\n", one, two)
    assert result.texts == {"train.py": "y = 2\n"}
    assert result.applied == [one, two]
    assert not result.deferred
    assert not result.broken


def test_the_earlier_fix_wins() -> None:
    one, two, three = fix(edit(0, 5, "f()")), fix(edit(4, 5, "2")), fix(edit(6, 7, "g"))
    result = applied("x = 1\ny\n", one, two, three)
    assert result.texts == {"train.py": "f()\ng\n"}
    assert (result.applied, result.deferred) == ([one, three], [two])


def test_a_fix_waits_for_one_that_it_relies_on() -> None:
    leaning = fix(edit(6, 7, "g"), depends_on=(("train.py", 0, 5),))
    inside, outside = fix(edit(4, 5, "2")), fix(edit(8, 9, "h"))
    result = applied("x = 1\ny\nz\n", inside, outside, leaning)
    assert (result.applied, result.deferred) == ([inside, outside], [leaning])
    result = applied("x = 1\ny\nz\n", leaning, inside)  # also where it stands first
    assert (result.applied, result.deferred) == ([inside], [leaning])


def test_the_same_change_is_made_once() -> None:
    line = edit(0, 0, "import a\n")
    one, two = fix(line, edit(0, 1, "y")), fix(line, edit(4, 5, "2"))
    result = applied("x = 1\n", one, two)
    assert result.texts == {"train.py": "import a\ny = 2\n"}
    assert result.applied == [one, two]


def test_the_same_fix_is_made_once() -> None:
    one = fix(edit(4, 4, "a, "), edit(4, 4, "a, "))
    result = applied("x = 1\n", one, one)
    assert result.texts == {"train.py": "x = a, a, 1\n"}


def test_lines_at_one_place_keep_the_order_of_the_fixes() -> None:
    one, two = fix(edit(0, 0, "b\n")), fix(edit(0, 0, "a\n"))
    assert applied("x\n", one, two).texts == {"train.py": "b\na\nx\n"}


def test_the_end_of_a_block_comes_before_what_follows_it() -> None:
    source = source_of("if a:\n    b\nc\n")
    outer, inner = Rewrite(), Rewrite()
    outer.insert_after(source, node(source, "if"), ["outer"])
    inner.insert_after(source, node(source, "b"), ["inner"])
    fixes = [outer.fix("outer", Safety.SAFE), inner.fix("inner", Safety.SAFE)]
    result = apply({"train.py": source}, fixes)
    assert result.texts == {"train.py": "if a:\n    b\n    inner\nouter\nc\n"}


def test_insertions_inside_a_line_wait() -> None:
    # Both together would give `g(f(x)`: each closes the other's call.
    one = fix(edit(0, 0, "f("), edit(1, 1, ", 1)"))
    two = fix(edit(0, 0, "g("), edit(1, 1, ", 2)"))
    result = applied("x\n", one, two)
    assert result.texts == {"train.py": "f(x, 1)\n"}
    assert result.deferred == [two]


def test_a_group_goes_together() -> None:
    first = fix(edit(0, 1, "a"))
    whole = [fix(edit(0, 1, "b"), group="model"), fix(edit(4, 5, "2"), group="model")]
    for order in ([first, *whole], [whole[0], first, whole[1]]):  # single fixes come first
        result = applied("x = 1\n", *order)
        assert result.texts == {"train.py": "a = 1\n"}
        assert (result.applied, result.deferred) == ([first], whole)
    assert applied("x = 1\n", *whole).texts == {"train.py": "b = 2\n"}


def test_a_group_over_files() -> None:
    sources = {path: source_of("x\n", path) for path in ("a.py", "b.py")}
    both = [fix(edit(0, 1, "y", "a.py"), group="m"), fix(edit(0, 1, "z", "b.py"), group="m")]
    assert apply(sources, both).texts == {"a.py": "y\n", "b.py": "z\n"}
    broken = [*both, fix(edit(1, 1, "(", "b.py"), group="m")]
    result = apply(sources, broken)
    assert result.texts == {}
    assert [one for one, _ in result.broken] == broken


def test_a_result_that_does_not_parse_is_dropped() -> None:
    good, bad = fix(edit(0, 1, "y")), fix(edit(4, 5, ")"))
    result = applied("x = 1\n", good, bad)
    assert result.texts == {"train.py": "y = 1\n"}
    assert result.applied == [good]
    assert result.broken[0][0] is bad
    assert "train.py" in result.broken[0][1]


def test_fixes_that_break_only_together_are_made_in_turn() -> None:
    source = source_of("if x:\n    a\n    b\n")
    fixes = []
    for start in "ab":
        rewrite = Rewrite()
        rewrite.delete_statement(source, node(source, start))
        fixes.append(rewrite.fix(start, Safety.SAFE))
    result = apply({"train.py": source}, fixes)
    assert result.texts == {"train.py": "if x:\n    b\n"}
    assert result.deferred == [fixes[1]]


@pytest.mark.parametrize(
    "bad",
    [
        fix(edit(0, 1, "y", "other.py")),
        fix(edit(0, 99, "y")),
        fix(imports=(("other.py", Import("a", "b")),)),
        fix(edit(0, 3, "y"), edit(2, 4, "z")),
    ],
    ids=["no such file", "no such place", "import in no such file", "overlap"],
)
def test_impossible_fixes_are_reported(bad: Fix) -> None:
    result = applied("x = 1\n", bad)
    assert (result.texts, result.applied, result.deferred) == ({}, [], [])
    assert result.broken[0][0] is bad


def shard(source: Source, call: str, *, unused: str = "FSDP") -> Fix:
    """What a migration does to one constructor call."""
    rewrite = Rewrite()
    at = node(source, call, cst.Call)
    written = rewrite.need_import(source, FSDP, "fully_shard", at=at)
    rewrite.replace(source, at, f"{written}(model)")
    for name in unused.split():
        rewrite.remove_import_if_unused(source, name)
    return rewrite.fix("Shard", Safety.SAFE)


TWO = f"""\
import torch
from {FSDP} import FullyShardedDataParallel as FSDP  # both

a = FSDP(one)
b = FSDP(two)
"""


def test_imports_of_several_fixes_are_one() -> None:
    source = source_of(TWO)
    first, second = shard(source, "FSDP(one"), shard(source, "FSDP(two")
    result = apply({"train.py": source}, [first, second])
    assert result.applied == [first, second]
    assert result.texts["train.py"] == TWO.replace(
        "FullyShardedDataParallel as FSDP", "fully_shard"
    ).replace("FSDP(one)", "fully_shard(model)").replace("FSDP(two)", "fully_shard(model)")


def test_a_name_in_use_stays() -> None:
    source = source_of(TWO)
    result = apply({"train.py": source}, [shard(source, "FSDP(one")])
    assert (
        "import FullyShardedDataParallel as FSDP, fully_shard  # both" in result.texts["train.py"]
    )


def test_different_things_of_one_name_wait() -> None:
    one = fix(edit(0, 1, "thing"), imports=(("train.py", Import("a", "thing")),))
    two = fix(edit(4, 5, "thing"), imports=(("train.py", Import("b", "thing")),))
    result = applied("x = 1\n", one, two)
    assert result.texts == {"train.py": "from a import thing\n\nthing = 1\n"}
    assert result.deferred == [two]


def gone(text: str, use: str, *names: str, path: str = "train.py", **others: str) -> str:
    """The text after the only use of a name was replaced by 0 and the names were said unused."""
    source = source_of(text, path)
    sources = {path: source} | {x.replace("_", "/") + ".py": source_of(others[x]) for x in others}
    sources = {name: Source(name, x.text) for name, x in sources.items()}
    source = sources[path]
    rewrite = Rewrite()
    rewrite.replace(source, node(source, use, cst.Call), "0")
    for name in names:
        rewrite.remove_import_if_unused(source, name)
    result = apply(sources, [rewrite.fix("test", Safety.SAFE)])
    assert not result.broken
    return result.texts[path]


def test_an_import_without_use_goes() -> None:
    assert gone("from a import b, c\nx = b()\n", "b()", "b") == "from a import c\nx = 0\n"
    assert gone("import a.b\nx = a.b.c()\n", "a.b.c()", "a.b") == "x = 0\n"
    assert (
        gone("import a\nimport a.b\na.b.c()\na.d()\n", "a.b.c()", "a.b") == "import a\n0\na.d()\n"
    )
    guarded = "try:\n    from a import b\nexcept ImportError:\n    b = None\nx = b()\n"
    assert gone(guarded, "b()", "b") == "x = 0\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from a import b, c\nx = b()\n", "c"),  # never had a use
        ("from a import b\nx = b()\ny = b\n", "b"),
        ("from a import b\nx = b()\ndef f(y: 'list[b]'): 1\n", "b"),
        ("from a import b\nx = b()\ny = cast('b.c', z)\n", "b"),
        ("from a import b\nx = b()\ny = []  # type: list[b]\n", "b"),
        ("from a import b\nx = b()\ndel b\n", "b"),
        ("from a import b\nx = b()\n__all__ = ['b']\n", "b"),
        ("from a import b\nx = b()\n__all__ += ['b']\n", "b"),
        ("from a import b as b\nx = b()\n", "b"),
        ("import b as b\nx = b()\n", "b"),
        ("try:\n    from a import b\nexcept ImportError:\n    b = c\nx = b()\n", "b"),
        ("try:\n    from a import b\nexcept ImportError:\n    b = None\nx = b()\nb and c\n", "b"),
        ("b = None\ntry:\n    from a import b\nexcept ImportError:\n    pass\nx = b()\n", "b"),
        ("from a import b\nx = b()\ndef f():\n    global b\n", "b"),
        ("import a.b\nx = a.b()\na.c()\n", "a.b"),  # binds `a`
        ("import a.b.c\nimport a\nx = a.b.c()\na.b.d()\n", "a.b.c"),  # loads `a.b`
        ("from a import *\nx = b()\n", "b"),
    ],
)
def test_an_import_with_a_use_stays(text: str, name: str) -> None:
    use = next(x for x in ("a.b.c()", "a.b()", "b()") if x in text)
    assert gone(text, use, name) == text.replace(use, "0", 1)


def test_scopes_are_told_apart() -> None:
    text = (
        "from a import b\ndef f():\n    from a import b\n    return b()\ndef g(b): return b\n"
        "def h(): return b\n"
    )
    expected = text.replace("    from a import b\n", "").replace("b()", "0")
    assert gone(text, "b()", "b") == expected
    text = "from a import b\ndef f(): return b()\ndef g(b): return b\n"
    assert gone(text, "b()", "b") == text.replace("b()", "0").removeprefix("from a import b\n")


def test_what_another_file_takes_stays() -> None:
    text = "from a import b\nx = b()\n"
    kept = text.replace("b()", "0")
    assert gone(text, "b()", "b", other="from train import b\n") == kept
    assert gone(text, "b()", "b", other="from .train import b\n") == kept
    assert gone(text, "b()", "b", other="from p.train import *\nb\n") == kept
    assert gone(text, "b()", "b", other="import p.train\np.train.b()\n") == kept
    assert gone(text, "b()", "b", other="import train\ntrain.b.c()\n") == kept
    assert gone(text, "b()", "b", other="from a import b\nimport train\nb()\n") == "x = 0\n"


def test_a_package_re_exports() -> None:
    text = "from a import b\nx = b()\n"
    assert gone(text, "b()", "b", path="p/__init__.py") == text.replace("b()", "0")


def test_complete_edits_hold_the_imports() -> None:
    source = source_of(TWO)
    one = shard(source, "FSDP(one")
    edits = complete({"train.py": source}, one)
    assert edited(TWO, edits) == apply({"train.py": source}, [one]).texts["train.py"]
    both = [one, shard(source, "FSDP(two")]
    edits = complete({"train.py": source}, both)
    assert edited(TWO, edits) == apply({"train.py": source}, both).texts["train.py"]
    with pytest.raises(BrokenFixError, match=r"train\.py"):
        complete({"train.py": source}, fix(edit(0, 0, "(")))


def test_nothing_to_do() -> None:
    assert applied("x\n").texts == {}
    assert applied("x\n", fix()).texts == {}


def test_the_place_of_a_lazy_import_moves_with_the_code() -> None:
    text = "import os\ndef f():\n    import torch\n    x = 1\n    y = g(x)\n"
    source = source_of(text)
    rewrite = Rewrite()
    call = node(source, "g(", cst.Call)
    written = rewrite.need_import(source, FSDP, "fully_shard", at=call)
    rewrite.insert_before(source, node(source, "import os"), ["# a long line above", "import re"])
    rewrite.replace(source, call, f"{written}(x)")
    result = apply({"train.py": source}, [rewrite.fix("test", Safety.SAFE)])
    assert result.texts["train.py"] == (
        "# a long line above\nimport re\nimport os\ndef f():\n    import torch\n"
        f"    from {FSDP} import fully_shard\n    x = 1\n    y = fully_shard(x)\n"
    )


def test_pieces_give_back_their_edits() -> None:
    pieces = Pieces("0123456789")
    pieces.apply([edit(2, 4, "ab"), edit(6, 6, "c"), edit(9, 10, "")])
    assert pieces.text == "01ab45c678"
    assert [pieces.current_offset(x) for x in (0, 2, 3, 4, 6, 8, 9)] == [0, 3, 3, 4, 7, 9, 9]
    pieces.apply([edit(0, 1, ""), edit(3, 5, "X"), edit(10, 10, "end")])
    assert pieces.text == "1aX5c678end"
    assert edited("0123456789", pieces.edits("train.py")) == pieces.text
    assert all(one.path == "train.py" for one in pieces.edits("train.py"))


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("g(\n    1)", True),
        ('g("a")', True),
        ("g('a')", False),
        (r"g('\n')", True),
        ("g(1)", False),
    ],
)
def test_an_f_string_that_only_a_newer_python_reads_is_no_result(text: str, broken: bool) -> None:
    source = Source("a.py", 'x = f"{f(1)}"\n')
    start = source.text.index("f(1)")
    fix = Fix("Change it", Safety.SAFE, (Edit("a.py", start, start + 4, text),))
    applied = apply({"a.py": source}, [fix])
    assert bool(applied.broken) is broken
