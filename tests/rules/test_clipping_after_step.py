"""FSDP416 where other optimizers and backward passes stand between the clipping and the next step."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

TWO_MODELS = """
dist.init_process_group("nccl")
one = fully_shard(Net())
two = fully_shard(Net())
first = torch.optim.SGD(one.parameters(), lr=0.1)
second = torch.optim.SGD(two.parameters(), lr=0.1)
for batch in batches:
    {begin}
    two(one(batch).detach()).mean().backward()
    second.step()
    second.zero_grad()
    {zero}
    one(batch).mean().backward()
    {before}
    first.step()
    {after}
    {end}
"""
CLIP = "torch.nn.utils.clip_grad_norm_(one.parameters(), 1.0)"


def _codes(tmp_path: Path, **parts: str) -> set[str]:
    places = dict.fromkeys(("begin", "zero", "before", "after", "end"), "pass") | parts
    code = TWO_MODELS.format(**places)
    return {one.rule.code for one in findings(program(tmp_path, code), "FSDP416")}


@pytest.mark.parametrize("place", ["begin", "zero", "end"])
def test_gradients_are_zeroed_before_the_next_step(tmp_path: Path, place: str) -> None:
    assert _codes(tmp_path, after=CLIP, **{place: "first.zero_grad()"}) == {"FSDP416"}


def test_gradients_that_the_next_step_uses(tmp_path: Path) -> None:
    assert not _codes(tmp_path, after=CLIP)


def test_zeros_of_the_other_optimizer(tmp_path: Path) -> None:
    assert not _codes(tmp_path, after=CLIP, end="second.zero_grad()")


@pytest.mark.parametrize("place", ["begin", "zero", "end"])
def test_clipping_before_the_step(tmp_path: Path, place: str) -> None:
    assert not _codes(tmp_path, before=CLIP, **{place: "first.zero_grad()"})
