"""Changes at random places of real files: the syntax tree changes as meant and no other line does."""

from __future__ import annotations

import ast
import io
import random
import re
import tokenize
import warnings
from collections import Counter
from functools import lru_cache
from pathlib import Path

import libcst as cst
import pytest
from rewriting import edited, source_of

from fsdplint.diagnostics.finding import Safety
from fsdplint.edits.apply import apply
from fsdplint.edits.rewrite import Rewrite
from fsdplint.source.source import Source
from fsdplint.syntax.layout import PRAGMA, descend

STDLIB = Path(ast.__file__).parent
FIXTURES = Path(__file__).parent.parent / "fixtures"
NAMES = ("bdb.py", "textwrap.py", "unittest/loader.py", "cmd.py")
FILES = [STDLIB / name for name in NAMES] + sorted(FIXTURES.glob("*/[a-z]*.py"))[:3]

# Statements in shapes that hand-written code seldom mixes.
DENSE = '''\
"""Doc."""
import os; import sys
x = 1; y = 2; z = [
    3,  # three
]; w = 4  # end

class A: b = 1; c = 2
class D(A):
\tdef f(self): return 1
\t@staticmethod
\t# between
\tdef g(a, *, b=lambda q: q): # header
\t\tif a: b()
\t\telif b: return """
  deep
"""
\t\telse: pass;
\t\ttry: x()
\t\texcept (E, F) as e: raise
\t\tfinally: y();z()
\t\twith open(a) as h, \\
\t\t     open(b): # why
\t\t\t# lead
\t\t\tk = f"""{a
\t\t\t}"""
\t\t\t# foot

\t\t# foot of g
\tm = 1
for i in x: y += 1; continue
while 1:

    # a comment first
    break
else:
    n = 'ünï→'; o = n

async def h():
    async with a: b
    async for i in j:
        await k
    return await (lambda: 1)
if __name__ == "__main__": h()'''


def variants() -> list[tuple[str, str]]:
    found = [(str(path.name), path.read_text("utf-8")) for path in FILES]
    found += [
        ("dense", DENSE),
        ("dense CRLF", DENSE.replace("\n", "\r\n")),
        ("dense CR", DENSE.replace("\n", "\r")),
        ("dense with newline", DENSE + "\n"),
        ("form feeds", DENSE.replace("\nclass", "\n\f\nclass").replace("\nfor", "\n\ffor")),
    ]
    return found


IDS = [label for label, _ in variants()]


def parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def dumped(tree: ast.Module) -> str:
    return ast.dump(tree)


def lists(tree: ast.AST) -> list[list[ast.stmt]]:
    """Every list of statements in a tree."""
    found = []
    for part in ast.walk(tree):
        for _, value in ast.iter_fields(part):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                found.append(value)
    return found


@lru_cache
def cached(text: str) -> Source:
    """Nothing changes a source, so that the tests can share its positions."""
    return source_of(text)


@lru_cache
def statements(source: Source) -> list[cst.CSTNode]:
    """The statements of a file, `elif` aside, in source order."""
    kinds = (cst.BaseSmallStatement, cst.BaseCompoundStatement)
    found = []
    for part in descend(source.tree):
        if isinstance(part, kinds):
            parent = source.parent(part)
            if not (isinstance(part, cst.If) and isinstance(parent, cst.If)):
                found.append(part)
    return sorted(found, key=lambda part: source.span(part))


def key(source: Source, part: cst.CSTNode) -> tuple[int, int]:
    """What `ast` says of where the statement is."""
    line, column = source.position(source.span(part)[0])
    before = source.line(line)[: column - 1]
    # `ast` starts its count anew neither at form feeds nor at characters, but counts bytes.
    return line, len(before.encode("utf-8"))


def located(tree: ast.Module) -> dict[tuple[int, int], tuple[list[ast.stmt], ast.stmt]]:
    return {(x.lineno, x.col_offset): (body, x) for body in lists(tree) for x in body}


def sample(source: Source, rng: random.Random, count: int) -> list[cst.CSTNode]:
    """Statements of which none stands in another."""
    every = statements(source)
    chosen: list[cst.CSTNode] = []
    for part in rng.sample(every, min(len(every), count)):
        start, end = source.span(part)
        spans = [source.span(other) for other in chosen]
        if not any(a <= start < b or start <= a < end for a, b in spans):
            chosen.append(part)
    return chosen


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text, newline=None).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


@pytest.mark.parametrize(("label", "text"), variants(), ids=IDS)
def test_insertions(label: str, text: str) -> None:
    rng = random.Random(label)
    source = cached(text)
    rewrite = Rewrite()
    chosen = rng.sample(statements(source), min(len(statements(source)), 40))
    for number, part in enumerate(chosen):
        lines = [f"inserted_{number}()", "if inserted_if:", "\tinserted_then"]
        method = rewrite.insert_before if number % 2 else rewrite.insert_after
        method(source, part, lines[: 1 + 2 * (number % 3 == 0)])
    result = edited(text, rewrite.fix("test", Safety.SAFE).edits)

    tree = parsed(result)
    inserted = 0
    for body in lists(tree):
        ours = [x for x in body if ast.unparse(x).startswith(("inserted", "if inserted"))]
        inserted += sum(isinstance(x, ast.Expr) and isinstance(x.value, ast.Call) for x in ours)
        body[:] = [x for x in body if x not in ours]
    assert inserted == len(chosen)
    assert dumped(tree) == dumped(parsed(text))
    assert comments(result) == comments(text)


@pytest.mark.parametrize(("label", "text"), variants(), ids=IDS)
def test_inserted_lines_are_all_that_changes(label: str, text: str) -> None:
    rng = random.Random(label)
    source = cached(text)
    alone = [
        part
        for part in statements(source)
        if not isinstance(part, cst.BaseSmallStatement)
        or (
            isinstance(line := source.parent(part), cst.SimpleStatementLine) and len(line.body) == 1
        )
    ]
    rewrite = Rewrite()
    for part in rng.sample(alone, min(len(alone), 40)):
        rewrite.insert_before(source, part, ["inserted()"])
        rewrite.insert_after(source, part, ["inserted()"])
    result = edited(text, rewrite.fix("test", Safety.SAFE).edits)
    assert result.count("inserted()") == 2 * min(len(alone), 40)
    # A last line without its newline gets the new line, and gives the file's end to it.
    without = re.sub(
        r"[ \t]*inserted\(\)(\r\n|\r|\n)|((\r\n|\r|\n)[ \t]*inserted\(\))+\Z", "", result
    )
    assert without == text


@pytest.mark.parametrize(("label", "text"), variants(), ids=IDS)
def test_deletions(label: str, text: str) -> None:
    rng = random.Random(label)
    source = cached(text)
    rewrite = Rewrite()
    tree = parsed(text)
    where = located(tree)
    chosen = sample(source, rng, 40)
    kept = Counter(comments(text))
    for part in chosen:
        rewrite.delete_statement(source, part)
        body, statement = where[key(source, part)]
        body.remove(statement)
        if not body and body is not tree.body:
            body.append(ast.Pass())
        if isinstance(part, cst.BaseCompoundStatement):
            kept.subtract(comments_within(source, part))
    result = edited(text, rewrite.fix("test", Safety.SAFE).edits)
    assert dumped(parsed(result)) == dumped(tree)
    lost = {comment for comment in kept - comments(result) if not PRAGMA.match(comment)}
    assert not lost

    known = Counter(re.split(r"\r\n|\r|\n", text))
    new = Counter(re.split(r"\r\n|\r|\n", result)) - known
    whole = [line for line in new if line.strip() and not line.strip().startswith(("#", "pass"))]
    # Lines of several statements, of which some are gone, are the only others that may be new.
    assert all(";" in line or ":" in line or line.strip() in text for line in whole)


def comments_within(source: Source, part: cst.CSTNode) -> Counter[str]:
    found = Counter(x.value for x in descend(part) if isinstance(x, cst.Comment))
    line_end = source.text[source.span(part)[1] :].splitlines()[:1]
    tail = line_end[0].strip() if line_end else ""
    return found + Counter([tail] if tail.startswith("#") else [])


@pytest.mark.parametrize(("label", "text"), variants(), ids=IDS)
def test_replacements(label: str, text: str) -> None:
    rng = random.Random(label)
    source = cached(text)
    rewrite = Rewrite()
    tree = parsed(text)
    where = located(tree)
    for number, part in enumerate(sample(source, rng, 40)):
        lines = ["for new in news:", "\tif new:", "\t\tcall(new)"] if number % 2 else ["new()"]
        rewrite.replace_statement(source, part, lines)
        body, statement = where[key(source, part)]
        body[body.index(statement)] = ast.parse("\n".join(lines)).body[0]
    result = edited(text, rewrite.fix("test", Safety.SAFE).edits)
    assert dumped(parsed(result)) == dumped(tree)
    before = {x for x in comments(text) if not PRAGMA.match(x)}
    assert before <= set(comments(result))


@pytest.mark.parametrize(("label", "text"), variants(), ids=IDS)
def test_unwrapping(label: str, text: str) -> None:
    source = cached(text)
    rewrite = Rewrite()
    tree = parsed(text)
    where = located(tree)
    blocks = [
        part
        for part in statements(source)
        if isinstance(part, cst.With | cst.For | cst.While)
        and getattr(part, "orelse", None) is None
        and "continue" not in source.code(part)
        and "break" not in source.code(part)
    ]
    for part in reversed(blocks):
        rewrite.unwrap(source, part, ["new()"])
        body, statement = where[key(source, part)]
        place = body.index(statement)
        body[place : place + 1] = [*ast.parse("new()").body, *statement.body]  # type: ignore[attr-defined]
    result = edited(text, rewrite.fix("test", Safety.SAFE).edits)
    assert dumped(parsed(result)) == dumped(tree)
    assert {x for x in comments(text) if not PRAGMA.match(x)} <= set(comments(result))


@pytest.mark.parametrize(("label", "text"), variants(), ids=IDS)
def test_imports_are_one_more_line(label: str, text: str) -> None:
    rng = random.Random(label)
    source = cached(text)
    for part in rng.sample(statements(source), 5):
        rewrite = Rewrite()
        rewrite.need_import(source, "torch.distributed.fsdp", "fully_shard", at=part)
        rewrite.need_import(source, "itertools", at=part)
        result = apply({source.path: source}, [rewrite.fix("test", Safety.SAFE)])
        assert not result.broken
        new = result.texts.get(source.path, text)
        compile(new, "new", "exec", dont_inherit=True)
        tree, old = parsed(new), parsed(text)
        for each in (tree, old):
            for body in lists(each):
                body[:] = [x for x in body if not isinstance(x, ast.Import | ast.ImportFrom)]
        assert dumped(tree) == dumped(old)
        assert comments(new) == comments(text)
        gone = Counter(re.split(r"\r\n|\r|\n", text)) - Counter(re.split(r"\r\n|\r|\n", new))
        assert all("torch" in line for line in gone)
