"""The truth of a list says whether it has elements, and not which ones."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from own_batches import undecided

STEP = """\
    loss = sum(model(x).mean() for x, y in window)
    loss.backward()
    optimizer.step()
"""
WINDOWS = [
    "batches = iter(loader)\nwhile window := list(islice(batches, 2)):\n{step}",
    "batches = iter(loader)\nwindow = list(islice(batches, 2))\nwhile window:\n{step}"
    "    window = list(islice(batches, 2))\n",
    "batches = iter(loader)\nwhile bool(window := list(islice(batches, 2))):\n{step}",
    "batches = iter(loader)\nwhile (window := list(islice(batches, 2))) != []:\n{step}",
    "batches = iter(loader)\nwhile window := tuple(next(batches) for _ in range(2)):\n{step}",
    "batches = iter(loader)\nwhile len(window := list(islice(batches, 2))):\n{step}",
    "batches = iter(loader)\nwhile len(window := list(islice(batches, 2))) > 0:\n{step}",
    "window = []\nfor batch in loader:\n    window.append(batch)\n    if not window:\n"
    "        continue\n{step}    window = []\n",
    "window = []\nfor batch in loader:\n    window.append(batch)\n    if len(window) < 2:\n"
    "        continue\n{step}    window.clear()\n",
    "losses = {{}}\nfor batch in loader:\n    window = [batch]\n    losses['loss'] = batch[0].sum()\n"
    "    if losses:\n    {step}",
    "for batch in loader:\n    window = [batch]\n    if bool([batch]):\n    {step}",
]


def _body(window: str, step: str) -> str:
    if window.endswith("    {step}"):
        step = textwrap.indent(step, "    ")[4:]
    return "from itertools import islice\n" + window.format(step=step)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_list_of_the_rank_s_batches_has_as_many_as_those_of_other_ranks(
    tmp_path: Path, window: str
) -> None:
    assert undecided(tmp_path, _body(window, STEP)) == []


@pytest.mark.parametrize(
    "test",
    [
        "while long := [x for x, y in loader if x.sum() > 3]:\n    model(long[0]).mean().backward()\n",
        "long = [x for x, y in loader if x.sum() > 3]\nif bool(long):\n    model(long[0]).mean().backward()\n",
        "long = [x for x, y in loader if x.sum() > 3]\nif long != []:\n    model(long[0]).mean().backward()\n",
        "long = [x for x, y in loader if x.sum() > 3]\nif not long:\n    dist.barrier()\n",
    ],
)
def test_a_list_that_the_rank_s_data_fill(tmp_path: Path, test: str) -> None:
    assert len(undecided(tmp_path, test)) == 1
