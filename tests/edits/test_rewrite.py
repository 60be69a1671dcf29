"""Rewrites of statements: what changes, and that nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst
import pytest
from rewriting import done, edited, node, source_of

from fsdplint.diagnostics.finding import Edit, Safety
from fsdplint.edits.rewrite import Rewrite
from fsdplint.source.source import Source

Step = Callable[[Rewrite, Source], None]


def delete(*starts: str, **options: bool) -> Step:
    def step(rewrite: Rewrite, source: Source) -> None:
        for start in starts:
            rewrite.delete_statement(source, node(source, start), **options)

    return step


def before(start: str, *lines: str) -> Step:
    return lambda rewrite, source: rewrite.insert_before(source, node(source, start), lines)


def after(start: str, *lines: str) -> Step:
    return lambda rewrite, source: rewrite.insert_after(source, node(source, start), lines)


def replace(start: str, *lines: str, **options: bool) -> Step:
    return lambda rewrite, source: rewrite.replace_statement(
        source, node(source, start), lines, **options
    )


def unwrap(start: str, *lines: str) -> Step:
    return lambda rewrite, source: rewrite.unwrap(source, node(source, start), lines)


def both(*steps: Step) -> Step:
    def step(rewrite: Rewrite, source: Source) -> None:
        for one in steps:
            one(rewrite, source)

    return step


def function(start: str, *lines: str) -> Step:
    return lambda rewrite, source: rewrite.insert_function(source, node(source, start), lines)


CASES = {
    # functions
    "a function takes the place of a deleted one": (
        "a = 1\n\n\ndef f():\n    pass\n\n\nb = 2\n",
        both(delete("def f"), after("def f", "", "", "def g():", "\tpass")),
        "a = 1\n\n\ndef g():\n    pass\n\n\nb = 2\n",
    ),
    "a function goes above the comment of the next one": (
        "a = 1\n\n\n# What g is.\n# More.\ndef g():\n    pass\n",
        function("def g", "def f():", "\tpass"),
        "a = 1\n\n\ndef f():\n    pass\n\n\n# What g is.\n# More.\ndef g():\n    pass\n",
    ),
    "a function goes below a comment that a blank line follows": (
        "# Part one.\n\ndef g():\n    pass\n",
        function("def g", "def f():", "\tpass"),
        "# Part one.\n\ndef f():\n    pass\n\n\ndef g():\n    pass\n",
    ),
    "a function goes below a comment about the file": (
        "# Licence.\ndef g():\n    pass\n",
        function("def g", "def f():", "\tpass"),
        "# Licence.\ndef f():\n    pass\n\n\ndef g():\n    pass\n",
    ),
    "a function has two blank lines above it": (
        "a = 1\n\nif a:\n    b\n",
        function("if a", "def f():", "\tpass"),
        "a = 1\n\n\ndef f():\n    pass\n\n\nif a:\n    b\n",
    ),
    "a second function too": (
        "a = 1\nif a:\n    b\n",
        both(function("if a", "def f():", "\tpass"), function("if a", "def g():", "\tpass")),
        "a = 1\n\n\ndef f():\n    pass\n\n\ndef g():\n    pass\n\n\nif a:\n    b\n",
    ),
    # deleting
    "delete a line": ("a\nb\nc\n", delete("b"), "a\nc\n"),
    "delete the first line": ("a\nb\n", delete("a"), "b\n"),
    "delete the last line": ("a\nb\n", delete("b"), "a\n"),
    "delete the last line of a file without a final newline": ("a\nb", delete("b"), "a\n"),
    "delete keeps a trailing comment": ("a\nb()  # why\nc\n", delete("b"), "a\n# why\nc\n"),
    "delete drops a comment to a tool": ("a\nb()  # noqa: F401\nc\n", delete("b"), "a\nc\n"),
    "delete keeps the comments inside": (
        "if x:\n    a(\n        1,  # one\n        # two\n        2,\n    )  # three\n    b\n",
        delete("a("),
        "if x:\n    # one\n    # two\n    # three\n    b\n",
    ),
    "delete drops all comments when told to": (
        "a\nb(\n  1,  # one\n)  # two\nc\n",
        delete("b", comments=False),
        "a\nc\n",
    ),
    "delete keeps the comment above": ("# about b\nb\nc\n", delete("b"), "# about b\nc\n"),
    "delete joins blank lines": ("a\n\nb\n\nc\n", delete("b"), "a\n\nc\n"),
    "delete joins two blank lines with one": ("a\n\n\nb\n\nc\n", delete("b"), "a\n\n\nc\n"),
    "delete leaves no blank line at the start of a block": (
        "def f():\n    a\n\n    b\n",
        delete("a"),
        "def f():\n    b\n",
    ),
    "delete joins the blank lines around two statements": (
        "a\n\nb\nc\n\nd\n",
        delete("b", "c"),
        "a\n\nd\n",
    ),
    "delete leaves a blank line that stands alone": ("a\nb\n\nc\n", delete("b"), "a\n\nc\n"),
    "delete the only statement of a block": (
        "if x:\n    a  # why\nb\n",
        delete("a"),
        "if x:\n    pass  # why\nb\n",
    ),
    "delete all statements of a block": (
        "def f():\n  a\n  b; c\n  with d:\n    e\n",
        delete("a", "b", "c", "with"),
        "def f():\n  pass\n",
    ),
    "delete all but one statement of a block": (
        "def f():\n  a\n  b; c\n",
        delete("a", "b"),
        "def f():\n  c\n",
    ),
    "delete in an else block": (
        "if x:\n  a\nelse:\n  b\n",
        delete("b"),
        "if x:\n  a\nelse:\n  pass\n",
    ),
    "delete the first of a line": ("a; b; c\n", delete("a"), "b; c\n"),
    "delete the middle of a line": ("a ; b;  c\n", delete("b"), "a ; c\n"),
    "delete the last of a line": ("a; b; c  # d\n", delete("c"), "a; b  # d\n"),
    "delete before a last semicolon": ("a; b;\n", delete("b"), "a;\n"),
    "delete all of a line": ("a; b  # c\nd\n", delete("a", "b"), "# c\nd\n"),
    "delete from a one-line suite": ("if x: a; b\n", delete("a"), "if x: b\n"),
    "delete a one-line suite": ("if x: a  # b\n", delete("a"), "if x: pass  # b\n"),
    "delete the suite of an else": ("if x: a\nelse: b\n", delete("b"), "if x: a\nelse: pass\n"),
    "delete a decorated function": (
        "a\n\n\n@one\n# two\n@three(\n  4)\ndef f():\n    b\n    # c\n\n\nd\n",
        delete("def"),
        "a\n\n\nd\n",
    ),
    "delete a block with what is below it at its depth": (
        "for x in y:\n    a\n    # of the loop\n# of the module\nb\n",
        delete("for"),
        "# of the module\nb\n",
    ),
    "delete a backslash line": ("a\nb = 1 + \\\n    2\nc\n", delete("b"), "a\nc\n"),
    "delete in CRLF": ("a\r\n\r\nb\r\n\r\nc\r\n", delete("b"), "a\r\n\r\nc\r\n"),
    "delete in CR": ("a\rb\rc\r", delete("b"), "a\rc\r"),
    # inserting before
    "before a line": ("a\nb\n", before("b", "new"), "a\nnew\nb\n"),
    "before keeps the comment above above": (
        "# about a\na\n",
        before("a", "new"),
        "# about a\nnew\na\n",
    ),
    "before in a block with tabs": (
        "if x:\n\ta\n",
        before("a", "for y in z:", "\tw"),
        "if x:\n\tfor y in z:\n\t\tw\n\ta\n",
    ),
    "before in a block of two spaces": (
        "if x:\n  a\n",
        before("a", "for y in z:", "\tw"),
        "if x:\n  for y in z:\n    w\n  a\n",
    ),
    "before the second of a line": ("a; b  # c\n", before("b", "new"), "a\nnew\nb  # c\n"),
    "before the first of a line": ("a; b\n", before("a", "new"), "new\na; b\n"),
    "before in a one-line suite": (
        "  \nif x: a; b  # c\nd\n",
        before("a", "new"),
        "  \nif x:\n    new\n    a\n    b  # c\nd\n",
    ),
    "before in the one-line suite of a nested else": (
        "def f():\n\tif x: a\n\telse: b\n",
        before("b", "new"),
        "def f():\n\tif x: a\n\telse:\n\t\tnew\n\t\tb\n",
    ),
    "before a decorator": ("@a\ndef f(): b\n", before("def", "new"), "new\n@a\ndef f(): b\n"),
    "before an elif goes before its if": (
        "if a:\n    b\nelif c:\n    d\nelif e:\n    f\n",
        before("elif e", "new"),
        "new\nif a:\n    b\nelif c:\n    d\nelif e:\n    f\n",
    ),
    "before with an empty line": ("a\n", before("a", "new", ""), "new\n\na\n"),
    "before in CRLF": ("if x:\r\n  a\r\n", before("a", "b"), "if x:\r\n  b\r\n  a\r\n"),
    "before in CR": ("if x:\r  a\r", before("a", "b"), "if x:\r  b\r  a\r"),
    "before in a file with form feeds": ("a\n\fb\nc\n", before("c", "new"), "a\n\fb\nnew\nc\n"),
    "before text that is not ASCII": ('a = "ä→"; b\nc\n', before("c", "ö"), 'a = "ä→"; b\nö\nc\n'),
    # inserting after
    "after a line": ("a  # c\nb\n", after("a", "new"), "a  # c\nnew\nb\n"),
    "after a file's last line without newline": ("a\nb", after("b", "x", "y"), "a\nb\nx\ny"),
    "after a last comment without newline": ("if a:\n  b\n  # c", after("b", "x"), None),
    "after a block": (
        "for a in b:\n    c\nd\n",
        after("for", "new"),
        "for a in b:\n    c\nnew\nd\n",
    ),
    "after a block and the comments that belong to it": (
        "if a:\n    b\n\n    # of the block\n\n# of d\nd\n",
        after("if", "new"),
        "if a:\n    b\n\n    # of the block\nnew\n\n# of d\nd\n",
    ),
    "after a block at the end of a file without newline": (
        "if a:\n    b\n    # c",
        after("if", "new"),
        "if a:\n    b\n    # c\nnew",
    ),
    "after the first of a line": ("a; b\n", after("a", "new"), "a\nnew\nb\n"),
    "after the last of a line": ("a; b # c\n", after("b", "new"), "a; b # c\nnew\n"),
    "after in a one-line suite": (
        "class A: a  # c\nd\n",
        after("a", "new"),
        "class A:\n    a  # c\n    new\nd\n",
    ),
    "after several lines of one call": (
        "a(\n    1,\n)  # c\nb\n",
        after("a(", "new"),
        "a(\n    1,\n)  # c\nnew\nb\n",
    ),
    "after, twice, in order": (
        "a\nb\n",
        both(after("a", "one"), after("a", "two")),
        "a\none\ntwo\nb\n",
    ),
    # replacing
    "replace keeps the trailing comment": ("a\nb  # c\n", replace("b", "x", "y"), "a\nx\ny  # c\n"),
    "replace keeps the comments inside": (
        "b = f(\n    1,  # one\n    2,  # noqa\n)\n",
        replace("b", "x"),
        "# one\nx\n",
    ),
    "replace leaves out comments that the new lines have": (
        "b = f(\n    1,  # one\n    2,  # two\n)\n",
        replace("b", "x = g(", "\t1,  # one", ")"),
        "# two\nx = g(\n    1,  # one\n)\n",
    ),
    "replace drops comments when told to": (
        "b = f(\n    1,  # one\n)\n",
        replace("b", "x", comments=False),
        "x\n",
    ),
    "replace one of a line by one": ("a; b; c\n", replace("b", "x"), "a; x; c\n"),
    "replace one of a line by a block": (
        "if q:\n  a; b; c  # d\n",
        replace("b", "if x:", "\ty"),
        "if q:\n  a\n  if x:\n    y\n  c  # d\n",
    ),
    "replace in a one-line suite": ("if x: a\n", replace("a", "y"), "if x: y\n"),
    "replace in a one-line suite by two": ("if x: a\n", replace("a", "y", "z"), None),
    "replace in a one-line suite by a block": (
        "if x: a; b\n",
        replace("b", "for y in z:", "\tw"),
        "if x:\n    a\n    for y in z:\n        w\n",
    ),
    "replace a whole block": (
        "a\nwith b:\n    c  # d\n    # e\nf\n",
        replace("with", "new"),
        "a\n# d\n# e\nnew\nf\n",
    ),
    "replace by nothing": ("if x:\n    a\n", replace("a"), "if x:\n    pass\n"),
    "replace and surround": (
        "a\nb\nc\n",
        both(replace("b", "x"), before("b", "w"), after("b", "y")),
        "a\nw\nx\ny\nc\n",
    ),
    "delete and put something there": (
        "if x:\n    a\n",
        both(delete("a"), before("a", "new")),
        "if x:\n    new\n",
    ),
    # unwrapping
    "unwrap a with": (
        "with a:\n    b\n    c\nd\n",
        unwrap("with"),
        "b\nc\nd\n",
    ),
    "unwrap keeps strings, comments and continuation lines": (
        "if x:\n"
        "    with a(\n"
        "        1,  # one\n"
        "    ):  # two\n"
        "        # three\n"
        '        b = """\n'
        "        text\n"
        '    """\n'
        "\n"
        "        c(1,\n"
        "  2)\n"
        "        # four\n"
        "    d\n",
        unwrap("with", "new"),
        "if x:\n"
        "    # one\n"
        "    # two\n"
        "    new\n"
        "    # three\n"
        '    b = """\n'
        "        text\n"
        '    """\n'
        "\n"
        "    c(1,\n"
        "  2)\n"
        "    # four\n"
        "    d\n",
    ),
    "unwrap and change what is inside": (
        "def f():\n  with a:\n    b\n    c\n    return d\n",
        both(unwrap("with"), delete("b"), after("c", "new"), replace("return", "if x:", "\ty")),
        "def f():\n  c\n  new\n  if x:\n    y\n",
    ),
    "unwrap one in the other": (
        "with a:\n    x\n    with b:\n        y\n        z\n",
        both(unwrap("with a"), unwrap("with b", "new"), before("z", "w")),
        "x\nnew\ny\nw\nz\n",
    ),
    "unwrap a one-line with": ("with a: b; c  # d\n", unwrap("with", "new"), "new\nb; c  # d\n"),
    "unwrap with tabs and CRLF": (
        "if 1:\r\n\twith a:\r\n\t\tb\r\n\t\tc\r\n",
        unwrap("with"),
        "if 1:\r\n\tb\r\n\tc\r\n",
    ),
}
CASES["after a last comment without newline"] = (
    "if a:\n  b\n  # c",
    after("b", "x"),
    "if a:\n  b\n  x\n  # c",
)
CASES["replace in a one-line suite by two"] = (
    "if x: a  # b\n",
    replace("a", "y", "z"),
    "if x:\n    y\n    z  # b\n",
)


@pytest.mark.parametrize(("text", "step", "expected"), CASES.values(), ids=list(CASES))
def test_statements(text: str, step: Step, expected: str) -> None:
    source = source_of(text)
    rewrite = Rewrite()
    step(rewrite, source)
    assert done(source, rewrite) == expected


def test_replace_is_exact() -> None:
    source = source_of("x = ( a ) + b  # c\n")
    rewrite = Rewrite()
    rewrite.replace(source, node(source, "a", cst.Name), "long.name")
    assert done(source, rewrite) == "x = ( long.name ) + b  # c\n"


def test_replace_writes_the_newlines_of_the_file() -> None:
    source = source_of("x = f(1)\r\n")
    rewrite = Rewrite()
    rewrite.replace(source, node(source, "f(1)", cst.Call), "f(\n    1,\r\n)")
    assert done(source, rewrite) == "x = f(\r\n    1,\r\n)\r\n"


def test_insert_and_delete_by_offset() -> None:
    source = source_of("model.forward(x)\n")
    rewrite = Rewrite()
    rewrite.delete(source, 5, 13)
    rewrite.insert(source, 15, ", y")
    assert done(source, rewrite) == "model(x, y)\n"


def test_a_node_inside_a_suite_means_its_own_statement() -> None:
    source = source_of("if rank == 0: save(model)\n")
    rewrite = Rewrite()
    rewrite.insert_before(source, node(source, "model", cst.Name), ["state = 1"])
    assert done(source, rewrite) == "if rank == 0:\n    state = 1\n    save(model)\n"


def test_overlapping_changes_are_refused() -> None:
    source = source_of("f(x)\n")
    rewrite = Rewrite()
    rewrite.replace(source, node(source, "f(x)", cst.Call), "g(x)")
    rewrite.replace(source, node(source, "x", cst.Name), "y")
    with pytest.raises(ValueError, match="overlapping"):
        rewrite.fix("test", Safety.SAFE)


def test_only_single_bodies_can_be_unwrapped() -> None:
    source = source_of("if a:\n    b\nelse:\n    c\n")
    with pytest.raises(ValueError, match="single body"):
        Rewrite().unwrap(source, node(source, "if"))


def test_fix_holds_what_was_said() -> None:
    source = source_of("model = FSDP(model)\n")
    rewrite = Rewrite()
    call = node(source, "FSDP(", cst.Call)
    shard = rewrite.need_import(source, "torch.distributed.fsdp", "fully_shard", at=call)
    rewrite.replace_statement(source, call, [f"{shard}(model)"])
    rewrite.remove_import_if_unused(source, "FSDP")
    fix = rewrite.fix("Shard", Safety.UNSAFE, group="model")
    assert fix.edits == (Edit("train.py", 0, 19, "fully_shard(model)"),)
    assert [(path, wanted.name) for path, wanted in fix.imports] == [("train.py", "fully_shard")]
    assert fix.maybe_unused_imports == (("train.py", "FSDP"),)
    assert (fix.title, fix.safety, fix.group) == ("Shard", Safety.UNSAFE, "model")
    assert edited(source.text, fix.edits) == "fully_shard(model)\n"
