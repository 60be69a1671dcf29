"""Coverage: which sites of a program its runs reach, and the reasons for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.interpreter.gaps import Gap
from fsdplint.syntax.api_sites import SiteKind

HEAD = """\
import sys
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
"""
TRAIN = """\
def main(args):
    model = torch.nn.Linear(2, 2)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    loss = model(torch.ones(2)).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    {}


main(parse())
"""
GAPS = {
    "torch.save(model.state_dict(), 'a.pt')": None,
    "if False:\n        torch.save(1, 'a')": (Gap.BRANCH, "if False"),
    "if args.save:\n        torch.save(1, 'a')": None,
    "return\n    torch.save(1, 'a')": (Gap.LEFT, ""),
    "def inner():\n        torch.save(1, 'a')": (Gap.UNCALLED, "inner"),
    "def a():\n        torch.save(1, 'a')\n    def b():\n        a()": (Gap.UNREACHED_CALL, "a"),
    "def a():\n        torch.save(1, 'a')\n    args.unknown.a()": (Gap.UNKNOWN_CALLEE, "a"),
    "False and torch.save(1, 'a')": (Gap.EXPRESSION, ""),
}


@pytest.mark.parametrize("code", GAPS, ids=lambda code: code.split("\n")[0])
def test_the_reason_for_a_site_that_is_not_covered(code: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(HEAD + TRAIN.format(code))
    gaps = [one for one in load([file]).coverage if one.gap is not None]
    expected = GAPS[code]
    assert [(one.gap, one.detail) for one in gaps] == ([expected] if expected else [])
    assert all(one.site.kind is SiteKind.STORAGE for one in gaps)


def test_calls_of_other_files_count(tmp_path: Path) -> None:
    """A function that only another file calls is not one without a call."""
    called = tmp_path / "saving.py"
    called.write_text(
        "import torch\nfrom torch.distributed.fsdp import fully_shard\n\n\n"
        "class Saver:\n    def __init__(self):\n        torch.save(1, 'a')\n\n\n"
        "def save():\n    torch.save(1, 'a')\n"
    )
    file = tmp_path / "train.py"
    file.write_text(
        HEAD
        + "import saving\n"
        + TRAIN.format("def unused():\n        saving.save()\n        saving.Saver()")
    )
    gaps = [one for one in load([file, called]).coverage if one.gap is not None]
    assert [(one.gap, one.detail) for one in gaps] == [
        (Gap.UNREACHED_CALL, "Saver"),
        (Gap.UNREACHED_CALL, "save"),
    ]


def test_a_method_of_an_object_is_no_call_of_a_function(tmp_path: Path) -> None:
    """`model.train()` calls no function `train` of another file."""
    called = tmp_path / "training.py"
    called.write_text(
        "import torch\nfrom torch.distributed.fsdp import fully_shard\n\n\n"
        "def train():\n    torch.save(1, 'a')\n"
    )
    file = tmp_path / "train.py"
    file.write_text(HEAD + "import training\n" + TRAIN.format("args.model.train()"))
    gaps = [one for one in load([file, called]).coverage if one.gap is not None]
    assert [(one.gap, one.detail) for one in gaps] == [(Gap.UNCALLED, "train")]


def test_a_site_that_only_unsharded_models_reach(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        HEAD
        + """
model = torch.nn.Linear(2, 2)
if len(sys.argv) == 17 and unknown(sys.argv):
    fully_shard(model)
    sys.exit()
loss = model(torch.ones(2)).sum()
loss.backward()
"""
    )
    (gap,) = [one for one in load([file]).coverage if one.gap is not None]
    assert (gap.gap, gap.site.name) == (Gap.UNSHARDED, "loss.backward")


SAVE = "torch.save(model, 'a')"
KEEP = f"def keep(model):\n    {SAVE}\n\n\n"
EXCLUDED = {
    "the other branch": ("", f"if not args.fsdp:\n        {SAVE}"),
    "the branch of a caller": (KEEP, "if not args.fsdp:\n        keep(model)"),
    "a value that it decides": (
        "",
        f"path = None if args.fsdp else 'a'\n    if path:\n        {SAVE}",
    ),
    "an object that it excludes": (
        "",
        f"scaler = None if args.fsdp else torch.amp.GradScaler()\n    if scaler:\n        {SAVE}",
    ),
    "after a return": ("", f"if args.fsdp:\n        return\n    {SAVE}"),
    "a single rank in either case": (
        "",
        f"if args.merge:\n        if dist.get_world_size() == 1:\n            {SAVE}\n"
        "    elif dist.get_world_size() == 1:\n        print(model.state_dict())",
    ),
    "a single rank where a setting is off": (
        "",
        "if args.merge:\n        if dist.get_world_size() == 1:\n            print(model)\n"
        f"    elif dist.get_world_size() == 1:\n        {SAVE}",
    ),
    "a single rank": (KEEP, "if dist.get_world_size() == 1:\n        keep(model)"),
}
UNSEEN = {
    "no condition": ("", SAVE),
    "another condition": ("", f"if args.save:\n        {SAVE}"),
    "one of two calls": (
        KEEP,
        "if not args.fsdp:\n        keep(model)\n    if args.save:\n        keep(model)",
    ),
}
CHOICE = """\
{}def main(args):
    model = torch.nn.Linear(2, 2)
    if dist.get_world_size() > 1:
        if args.fsdp:
            fully_shard(model){}
    {}


main(parse())
"""


def gaps_of_storage(file: Path, code: tuple[str, str], after: str = "") -> list[Gap | None]:
    file.write_text(HEAD + CHOICE.format(code[0], after, code[1]))
    sites = load([file]).coverage
    return [one.gap for one in sites if one.site.kind is SiteKind.STORAGE]


@pytest.mark.parametrize("code", EXCLUDED.values(), ids=EXCLUDED)
def test_what_sharding_excludes_is_covered(code: tuple[str, str], tmp_path: Path) -> None:
    assert gaps_of_storage(tmp_path / "train.py", code) == [None]


@pytest.mark.parametrize("code", UNSEEN.values(), ids=UNSEEN)
def test_what_sharding_does_not_exclude_needs_it(code: tuple[str, str], tmp_path: Path) -> None:
    exits = "\n            sys.exit()"
    assert gaps_of_storage(tmp_path / "train.py", code, exits) == [Gap.UNSHARDED]


@pytest.mark.parametrize(
    "test, gap",
    [
        ("args.mode == 'ddp'", None),
        ("args.mode in ('ddp', 'none')", None),
        ("args.other == 'ddp'", Gap.UNSHARDED),
        ("args.mode != 'ddp'", Gap.UNSHARDED),
    ],
)
def test_another_choice_excludes_sharding(test: str, gap: Gap | None, tmp_path: Path) -> None:
    choice = CHOICE.replace("if args.fsdp:", "if args.mode == 'fsdp':")
    file = tmp_path / "train.py"
    exits = "\n            sys.exit()" if gap else ""
    file.write_text(HEAD + choice.format("", exits, f"if {test}:\n        {SAVE}"))
    sites = load([file]).coverage
    assert [one.gap for one in sites if one.site.kind is SiteKind.STORAGE] == [gap]


def test_a_program_that_shards_nothing_is_covered(tmp_path: Path) -> None:
    file = tmp_path / "evaluate.py"
    file.write_text(
        HEAD.replace("from torch.distributed.fsdp import fully_shard", "USES_FSDP = 'fsdp'")
        + "model = torch.nn.Linear(2, 2)\nmodel(torch.ones(2)).sum().backward()\ndist.barrier()\n"
    )
    assert all(one.gap is None for one in load([file]).coverage)


def test_sites_do_not_depend_on_what_is_executed(tmp_path: Path) -> None:
    file = tmp_path / "library.py"
    file.write_text(
        HEAD
        + """
def train(model, optimizer, scheduler, scaler):
    with model.no_sync():
        model(1).backward()
    scaler.step(optimizer)
    scheduler.step()
    dist.all_reduce(torch.ones(1))
    optimizer.load_state_dict(torch.load("a"))
"""
    )
    found = {one.site.name: one.site.kind for one in load([file]).coverage}
    assert found == {
        "model.no_sync": SiteKind.SYNCHRONIZATION,
        "(...).backward": SiteKind.BACKWARD,
        "scaler.step": SiteKind.STEP,
        "dist.all_reduce": SiteKind.COLLECTIVE,
        "optimizer.load_state_dict": SiteKind.STATE,
        "torch.load": SiteKind.STORAGE,
    }
    assert {one.gap for one in load([file]).coverage} == {Gap.UNCALLED}
