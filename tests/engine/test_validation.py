"""Fixes are tried before they are offered: those that make a program worse are not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fsdplint.diagnostics.finding import Edit, Finding, Fix, Safety, Severity
from fsdplint.edits.lines import LineMap
from fsdplint.engine.examine import examine
from fsdplint.engine.fix import fix
from fsdplint.engine.migration import MigrationRun
from fsdplint.engine.validation import Validation
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import Program
from fsdplint.registry.refusal import Refusal
from fsdplint.registry.rule import Rule
from fsdplint.registry.rules import own_rules
from fsdplint.source.source import NodeSite
from fsdplint.trace import BackwardRun, Trace

TRAIN = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.randn(2, 4)).sum()
loss.backward()
optimizer.step()
"""

TIED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)))


dist.init_process_group("gloo")
model = LanguageModel()
model.embed = FSDP(model.embed, use_orig_params=True)
model.head = FSDP(model.head, use_orig_params=True)
model = FSDP(model, use_orig_params=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.zeros(2, 4, dtype=torch.long)).sum()
loss.backward()
optimizer.step()
"""


class Planted(Rule):
    """A rule whose fix replaces a part of the text.

    ## What it does
    Finds every backward.
    """

    code = "TEST1"
    name = "planted"
    severity = Severity.WARNING
    old: ClassVar[str]
    new: ClassVar[str]

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(BackwardRun):
            yield self.finding(event, "a backward")

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        assert isinstance(finding.site, NodeSite)
        source = finding.site.source
        start = source.text.index(self.old)
        edit = Edit(source.path, start, start + len(self.old), self.new)
        return Fix("Do it", Safety.SAFE, (edit,))


def planted(old: str, new: str, code: str = "TEST1") -> Rule:
    return type("Planted", (Planted,), {"old": old, "new": new, "code": code, "name": code})()


def blockers(path: Path, *rules: Rule) -> list[str | None]:
    return [one.blocker for one in examine(Workspace([path]), rules).found]


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def test_a_fix_that_does_no_harm_is_offered(train: Path) -> None:
    (finding,) = examine(Workspace([train]), [planted("lr=0.1", "lr=0.2")]).found
    assert finding.fix is not None
    assert finding.blocker is None


def test_another_path_of_the_same_objects_is_not_tried(
    train: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train.write_text(TRAIN.replace("torch.distributed.fsdp", "torch.distributed._composable.fsdp"))
    monkeypatch.setattr("fsdplint.engine.validation.load_program", None)
    (finding,) = examine(Workspace([train]), [rule() for rule in own_rules()]).found
    assert finding.rule.code == "FSDP213"
    assert finding.fix is not None


def test_a_fix_that_brings_an_error_is_not_offered(train: Path) -> None:
    rule = planted("loss = model(", "loss = model.forward(")
    (finding,) = examine(Workspace([train]), [rule]).found
    assert finding.fix is None
    assert "train.py:10" in (finding.blocker or "")
    assert "FSDP101" in (finding.blocker or "")
    assert fix(Workspace([train]), [rule]).texts == {}


def test_an_error_that_was_there_before_speaks_against_no_fix(train: Path) -> None:
    train.write_text(TRAIN.replace("loss = model(", "\n\nloss = model.forward("))
    rule = planted("import torch\n", "import os\nimport torch\n")
    assert blockers(train, rule) == [None]


def test_a_fix_that_moves_an_error_is_offered(train: Path) -> None:
    text = TRAIN.replace("loss = model(", "loss = model.forward(")
    train.write_text(text)
    line = "loss = model.forward(torch.randn(2, 4)).sum()\n"
    (blocker,) = blockers(train, planted(line, f"for _ in range(2):\n    {line}"))
    assert blocker is None


def test_a_fix_that_leaves_a_name_unbound_is_not_offered(train: Path) -> None:
    (blocker,) = blockers(train, planted("optimizer = ", "adam = "))
    assert "`optimizer` without a value" in (blocker or "")
    (blocker,) = blockers(train, planted("lr=0.1", "lr=rate"))
    assert "`rate` without a value" in (blocker or "")


def test_a_fix_that_takes_away_what_a_string_names_is_not_offered(
    train: Path, tmp_path: Path
) -> None:
    test = tmp_path / "test_train.py"
    test.write_text('import train\nfrom unittest import mock\nmock.patch("train.dist")\n')
    new = planted("import torch.distributed as dist\n", "import torch.distributed as d\n")
    both = planted("dist.init_process_group", "d.init_process_group", "TEST2")
    found = examine(Workspace([train, test]), [_together(new, both)]).found
    assert '"train.dist"' in (found[0].blocker or "")
    assert "test_train.py:3" in (found[0].blocker or "")


def _together(*rules: Rule) -> Rule:
    class Both(Planted):
        """Several planted fixes as one."""

        def fix(self, finding: Finding, program: Program) -> Fix | None:
            fixes = [one for one in (rule.fix(finding, program) for rule in rules) if one]
            return Fix("Both", Safety.SAFE, tuple(edit for x in fixes for edit in x.edits))

    return Both()


def test_only_the_fix_that_does_harm_is_refused(train: Path) -> None:
    good = planted("lr=0.1", "lr=0.2", "TEST1")
    bad = planted("loss = model(", "loss = model.forward(", "TEST2")
    other = planted("nn.Linear(4, 4))", "nn.Linear(4, 4), nn.ReLU())", "TEST3")
    found = {one.rule.code: one for one in examine(Workspace([train]), [good, bad, other]).found}
    assert [code for code, one in sorted(found.items()) if one.fix] == ["TEST1", "TEST3"]
    result = fix(Workspace([train]), [good, bad])
    assert "lr=0.2" in result.texts[train]
    assert "model.forward" not in result.texts[train]


def test_what_is_applied_alone_is_tried_alone(train: Path) -> None:
    """A fix that does no harm together with another one may do some without it."""
    use = planted("lr=0.1", "lr=rate", "TEST1")
    bind = planted('dist.init_process_group("gloo")', 'rate = 0.1\ndist.init_process_group("gloo")')
    bind = type(bind)  # of the same findings, another code
    bind.code = bind.name = "TEST2"
    rules = [use, bind()]
    assert "rate" in fix(Workspace([train]), rules).texts[train]
    assert fix(Workspace([train]), rules, codes=["TEST1"]).texts == {}


def test_a_migration_after_which_tied_weights_are_in_two_groups_is_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where neither the plan nor the rule on FSDP1's units sees it."""
    monkeypatch.setattr("fsdplint.migration.group_state.check_tied_weights", lambda *_: None)
    monkeypatch.setattr(
        "fsdplint.rules.fsdp127_tied_across_groups._separate_units", lambda *_: None
    )
    path = tmp_path / "train.py"
    path.write_text(TIED)
    found = examine(Workspace([path]), [rule() for rule in own_rules()]).found
    migration = [one for one in found if one.rule.grouped]
    assert migration
    assert all(one.fix is None for one in migration)
    assert any("FSDP127" in (one.blocker or "") for one in migration)
    assert all("FSDP127" in one.help for one in migration)
    (section,) = MigrationRun([path]).migrate().report.sections
    (obstacle,) = section.obstacles
    assert "FSDP127" in obstacle.reason
    assert obstacle.place.line == 23


def test_a_changed_line_stands_where_it_was() -> None:
    lines = LineMap("a\nb\nc\nd\n", "a\nx\ny\nc\nnew\nd\n")
    assert [list(lines.old(n)) for n in range(1, 8)] == [[1], [2], [2], [3], [], [4], []]


BRANCHES = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, optimizer, half, sharded):
    loss = model(torch.randn(2, 4)).sum()
    loss.backward()
    if half:
        if sharded:
            model.clip_grad_norm_(1.0)
    elif sharded:
        model.clip_grad_norm_(1.0)
    optimizer.step()


dist.init_process_group("gloo")
model = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, optimizer, False, True)
plain = nn.Linear(4, 4)
train(plain, torch.optim.SGD(plain.parameters(), lr=0.1), True, False)
"""


def test_what_only_the_wrapper_has_is_not_left_in_a_branch(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(BRANCHES)
    result = MigrationRun([path]).migrate(fix=True)
    for _, after in result.contents.values():
        assert b"model.clip_grad_norm_" not in after
    (section,) = result.report.sections
    reasons = [one.reason for one in section.obstacles]
    assert section.is_written or "would leave `model.clip_grad_norm_` as it is" in reasons[0]


OFFLOADED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = nn.Linear(4, 4)
model = FSDP(model, cpu_offload=CPUOffload(offload_params=True))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(2, 4)).sum().backward()
model.clip_grad_norm_(1.0)
optimizer.step()
"""


SUMMONED = """\
with FSDP.summon_full_params(model, with_grads=True):
    print(sum(p.grad.sum() for p in model.parameters()))
"""


@pytest.mark.parametrize("use", ["model.clip_grad_norm_(1.0)\n", SUMMONED])
def test_the_fix_of_an_error_that_a_migration_brings_is_a_part_of_it(
    tmp_path: Path, use: str
) -> None:
    """FSDP2 clips and gathers on the CPU, which needs a backend for it (FSDP508)."""
    path = tmp_path / "train.py"
    path.write_text(OFFLOADED.replace("model.clip_grad_norm_(1.0)\n", use))
    migrated = MigrationRun([path]).migrate(fix=True)
    assert [one.is_written for one in migrated.report.sections] == [True]
    after = migrated.contents[path][1].decode()
    assert 'dist.init_process_group("cpu:gloo,cuda:nccl")' in after
    assert fix(Workspace([path]), [rule() for rule in own_rules()]).texts[path] == after


def test_the_backend_may_be_a_variable(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        OFFLOADED.replace('("nccl")', "(BACKEND)").replace(
            "dist.init", 'BACKEND = "nccl"\ndist.init'
        )
    )
    migrated = MigrationRun([path]).migrate(fix=True)
    assert [one.is_written for one in migrated.report.sections] == [True]
    assert 'init_process_group("cpu:gloo,cuda:nccl")' in migrated.contents[path][1].decode()


WRAPPED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("nccl")
torch.cuda.set_device(0)
model = FSDP(nn.Linear(4, 4), use_orig_params=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(2, 4)).sum().backward()
optimizer.step()
"""


def test_a_migration_that_does_otherwise_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fix of the same file that migrates nothing is offered, and so are other migrations."""
    paths = [tmp_path / f"{name}.py" for name in ("one", "two", "three", "four")]
    for path in paths:
        path.write_text(WRAPPED)
    changed = str(paths[2])

    def difference(before: Program, after: Program) -> Refusal | None:
        differs = "fully_shard" in after.sources[changed].text
        return Refusal("would change what the program does") if differs else None

    trials: list[object] = []
    load = Validation._load

    def counted(self: Validation, *arguments: Any) -> Program:
        trials.append(arguments)
        return load(self, *arguments)

    monkeypatch.setattr("fsdplint.engine.translation.difference", difference)
    monkeypatch.setattr(Validation, "_load", counted)
    rules = [planted("lr=0.1", "lr=0.2"), *(cls() for cls in own_rules())]
    found = examine(Workspace(paths), rules).found
    migrated = {Path(one.site.path).stem for one in found if one.fix and one.rule.grouped}
    others = {Path(one.site.path).stem for one in found if one.fix and one.rule.code == "TEST1"}
    assert migrated == {"one", "two", "four"}
    assert others == {"one", "two", "three", "four"}
    assert len(trials) <= 2 + len(paths)  # each migration alone, and twice all together


BETWEEN = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
model = FSDP(net, device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())


def report(model):
    with FSDP.summon_full_params(model, with_grads=True, writeback=False):
        for name, p in model.named_parameters():
            if p.grad is not None:
                g = p.grad.detach().float()
                print(name, g.norm().item(), g.abs().flatten().max())


for x in torch.randn(4, 2, 4):
    model(x).sum().backward()
    report(model)
    optimizer.step()
    optimizer.zero_grad()
"""


def test_norms_of_gathered_gradients_between_a_backward_and_its_step(tmp_path: Path) -> None:
    """The root, which has no parameters of its own, gives a loop over them no turn (FSDP413)."""
    path = tmp_path / "train.py"
    path.write_text(BETWEEN)
    migrated = MigrationRun([path]).migrate(fix=True)
    assert [one.is_written for one in migrated.report.sections] == [True]
    assert "full.grad = parameter.grad.full_tensor()" in migrated.contents[path][1].decode()
