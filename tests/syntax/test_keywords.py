"""Which code speaks of what the contract is about."""

from __future__ import annotations

import libcst as cst
import pytest

from fsdplint.source.fsdp_words import CONTRACT_WORDS, FSDP_WORDS
from fsdplint.syntax.keywords import Words


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("shard_model(m)", True),
        ("m.config.shards = 1", True),
        ("f(optimizer=1)", True),
        ("f('use FSDP')", True),
        ("f(f'{a} fsdp {b}')", True),
        ("import deepspeed.optim as o", True),
        ("torch.save(m, p)", True),
        ("x = [a for a in b if a.to_empty]", True),
        ("f(m)  # sharded", False),
        ("m.save(p)", False),
        ("torch.load(p)", False),
        ("# fsdp\nif a:\n    # fsdp\n    pass", False),
    ],
)
def test_words(code: str, found: bool) -> None:
    assert Words(CONTRACT_WORDS).stand_in(cst.parse_module(code)) is found


def test_words_of_fsdp_itself() -> None:
    words = Words(FSDP_WORDS)
    one, other = cst.parse_module("fully_shard(m)\nshard(m)\n").body
    assert words.stand_in(one) and not words.stand_in(other)
    assert words.stand_in(one)  # asked again
