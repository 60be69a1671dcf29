"""Tests of a known text against a known pattern have one outcome."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from programs import findings, program

BODY = """\
    import fnmatch
    import re
    from fnmatch import fnmatch as alike

    BLOCKS = re.compile(r"^Bl.ck$")

    def shard(model, patterns):
        for name, part in model.named_modules():
            if TEST:
                fully_shard(part)
        ROOT

    dist.init_process_group("gloo")
    model = Net()
    shard(model, ["Blo*"])
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(2, dtype=torch.long)).sum().backward()
    optimizer.step()
"""
BLOCKS = [
    "fnmatch.fnmatch(part.__class__.__name__, patterns[0])",
    "any(fnmatch.fnmatch(type(part).__name__, one) for one in patterns)",
    "alike(type(part).__qualname__, 'Bloc[a-k]')",
    "re.match(r'Blo\\w+$', part.__class__.__name__)",
    "re.fullmatch(pattern=r'B.*', string=type(part).__name__)",
    "re.search(r'^B(lo|co)ck$', type(part).__name__) is not None",
    "BLOCKS.match(type(part).__name__)",
    "BLOCKS.search(part.__class__.__name__) is not None",
    "part.__class__.__name__ == 'Block'",
    "part.__class__ is Block",
]
NOTHING = [
    "fnmatch.fnmatch(part.__class__.__name__, 'Layer*')",
    "re.match(r'lock', type(part).__name__)",
    "re.compile(r'^Blocks').match(type(part).__name__)",
    "part.__class__.__name__ in {'Attention', 'Conv2d'}",
]


def codes(folder: Path, test: str, root: str) -> set[tuple[str, bool]]:
    """The findings, and whether they need a condition."""
    found = program(folder, BODY.replace("TEST", test).replace("ROOT", root))
    return {
        (code, "only when" in one.message)
        for code in ("FSDP104", "FSDP105")
        for one in findings(found, code)
    }


@pytest.mark.parametrize("test", BLOCKS)
def test_parts_that_match_are_sharded(tmp_path: Path, test: str) -> None:
    assert codes(tmp_path, test, "pass") == {("FSDP105", False)}


@pytest.mark.parametrize("test", BLOCKS)
def test_blocks_and_root(tmp_path: Path, test: str) -> None:
    assert not codes(tmp_path, test, "fully_shard(model)")


@pytest.mark.parametrize("test", NOTHING)
def test_no_part_matches(tmp_path: Path, test: str) -> None:
    assert codes(tmp_path, test, "fully_shard(model)") == {("FSDP104", False)}


@pytest.mark.parametrize(
    "test",
    [
        "re.match(r'(' + 'a+' + ')+$', 'a' * 60 + '!')",
        "re.match('a*' * 40 + '$', 'a' * 150 + '!')",
        "fnmatch.fnmatch('a' * 190, '*a' * 60 + '!')",
    ],
)
def test_expensive_patterns_stay_unknown(tmp_path: Path, test: str) -> None:
    begun = time.perf_counter()
    assert ("FSDP105", False) not in codes(tmp_path, test, "pass")
    assert time.perf_counter() - begun < 10
