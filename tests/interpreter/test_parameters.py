"""Parameters that are read off modules: what they are once the model is sharded."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Collective, OptimizerBuilt, ParameterMarked

SHARDED = """\
dist.init_process_group("gloo")
rank = dist.get_rank()
model = Net()
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
model(torch.zeros(2, dtype=torch.long)).mean().backward()
"""


def gathered(folder: Path, code: str, setup: str = SHARDED) -> list[bool]:
    """Of each `full_tensor()` in the code, whether not all ranks run it."""
    found = program(folder, setup + textwrap.dedent(code))
    return [e.ranks.partial for e in events(found, Collective) if e.api == "full_tensor"]


@pytest.mark.parametrize(
    "code",
    [
        "if rank == 0: print(model.head.weight.full_tensor())\n",
        "if rank == 0 and model.head.weight.full_tensor().sum() > 0:\n    print('positive')\n",
        "def show():\n    if rank:\n        return\n    print(model.head.bias.full_tensor())\nshow()\n",
        "if rank == 0:\n    with torch.no_grad():\n        model.embed.weight.full_tensor()\n",
        "if not rank:\n    print(f'{model.head.weight.full_tensor()}')\n",
        "match rank:\n    case 0:\n        model.head.weight.full_tensor()\n",
        "w = model.head.weight\nif rank == 0:\n    w.full_tensor()\n",
        "if rank == 0:\n    model.head.weight.data.full_tensor()\n",
        "if rank == 0:\n    model.head.weight.detach().full_tensor()\n",
        "if rank == 0:\n    model.head.weight.grad.full_tensor()\n",
        "if rank == 0:\n    model.layers[0].linear.weight.full_tensor()\n",
        "if rank == 0:\n    dict(model.named_parameters())['head.weight'].full_tensor()\n",
        "if rank == 0:\n    next(model.head.parameters()).full_tensor()\n",
        "if rank == 0:\n    model.get_parameter('head.weight').full_tensor()\n",
        "if rank == 0:\n    getattr(model.head, 'weight').full_tensor()\n",
        "for p in model.head.parameters():\n    if rank == 0:\n        p.full_tensor()\n",
    ],
)  # fmt: skip
def test_a_parameter_of_a_part_of_a_sharded_model_is_gathered(tmp_path: Path, code: str) -> None:
    assert set(gathered(tmp_path, code)) == {True}


OWN = """\
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return self.inner(x) * self.scale


dist.init_process_group("gloo")
rank = dist.get_rank()
model = Scaled()
fully_shard(model)
"""

UNSEEN = """\
from models import build
dist.init_process_group("gloo")
rank = dist.get_rank()
model = build("large")
fully_shard(model)
"""


@pytest.mark.parametrize(
    ("setup", "code"),
    [
        (OWN, "model.scale.full_tensor()"),
        (OWN, "model.scale.grad.full_tensor()"),
        (OWN, "model.inner.weight.full_tensor()"),
        (UNSEEN, "model.lm_head.weight.full_tensor()"),
        (UNSEEN, "model.lm_head.weight.grad.full_tensor()"),
        (UNSEEN, "model.layers[3].attn.q_proj.bias.data.full_tensor()"),
        (UNSEEN, "model.bias.full_tensor()"),
        (UNSEEN, "model.layers[3].attn.gates.full_tensor()"),
        (UNSEEN, "[layer.attn.gates for layer in model.layers][0].full_tensor()"),
        (
            UNSEEN,
            "gates = [layer.attn.gates for layer in model.layers]\n    [g.full_tensor() for g in gates]",
        ),
        (UNSEEN, "dict(model.named_parameters())['lm_head.weight'].full_tensor()"),
    ],
)
def test_a_parameter_of_any_module_is_gathered(tmp_path: Path, setup: str, code: str) -> None:
    assert gathered(tmp_path, f"if rank == 0:\n    {code}\n", setup) == [True]


PLAIN = SHARDED.replace("    fully_shard(layer)", "    pass").replace("fully_shard(model)\n", "")
DDP = PLAIN.replace("model = Net()", "model = nn.parallel.DistributedDataParallel(Net())").replace(
    "model.layers", "model.module.layers"
)
FSDP1 = PLAIN.replace("model = Net()", "model = FSDP(Net(), use_orig_params=True)")
PART = PLAIN.replace("model(torch", "fully_shard(model.layers)\nmodel(torch")


@pytest.mark.parametrize(
    ("setup", "code"),
    [
        (PLAIN, "model.head.weight.full_tensor()"),
        (DDP, "model.module.head.weight.full_tensor()"),
        (FSDP1, "model.head.weight.full_tensor()"),
        (PART, "model.head.weight.full_tensor()"),
        (UNSEEN.replace("fully_shard(model)", ""), "model.lm_head.weight.full_tensor()"),
        (OWN.replace("fully_shard(model)", "fully_shard(model.inner)"), "model.scale.full_tensor()"),
        (UNSEEN, "model.tracker.full_tensor('loss')"),
        (SHARDED, "model.head.weight.to_local()"),
        (SHARDED, "print(model.head.weight.shape)"),
    ],
)  # fmt: skip
def test_nothing_is_gathered_of_what_is_not_sharded(tmp_path: Path, setup: str, code: str) -> None:
    assert gathered(tmp_path, f"if rank == 0:\n    {code}\n", setup) == []


def test_to_freeze_one_parameter_freezes_no_part(tmp_path: Path) -> None:
    found = program(tmp_path, OWN + "model.scale.requires_grad = False\n")
    assert not any(info.frozen for trace in found.traces for info in trace.modules.values())


HOOKED = "model = nn.Sequential(nn.Linear(8, 8))\nwork = lambda grad: None\n"


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("hooks = [p.register_hook(work) for p in model.parameters()]\nfor h in hooks: h.remove()", 0),
        ("hooks = {}\nfor n, p in model.named_parameters():\n    hooks[n] = p.register_hook(work)\n"
         "for h in hooks.values():\n    h.remove()", 0),
        ("hook = model[0].weight.register_hook(work)\nhook.remove()", 0),
        ("class Keeper:\n    def start(self):\n        self.hooks = []\n        for p in model.parameters():\n"
         "            self.hooks.append(p.register_hook(work))\n    def stop(self):\n"
         "        while self.hooks:\n            self.hooks.pop().remove()\n"
         "keeper = Keeper()\nkeeper.start()\nkeeper.stop()", 0),
        ("model[0].weight.slow = True\ndel model[0].weight.slow", 0),
        ("one = model[0].weight.register_hook(work)\ntwo = model[0].bias.register_hook(work)\none.remove()", 1),
        ("hook = model[0].weight.register_hook(work)\nfully_shard(model)\nhook.remove()", 1),
        ("hook = model[0].weight.register_hook(work)\nnames = []\nnames.remove('a')", 1),
    ],
)  # fmt: skip
def test_hooks_and_marks_are_taken_away(tmp_path: Path, code: str, left: int) -> None:
    found = program(tmp_path, HOOKED + code + "\n")
    assert len([mark for mark in events(found, ParameterMarked) if not mark.removed]) == left


@pytest.mark.parametrize(
    "groups",
    [
        "library.groups_by_decay(model, 0.1)",
        "library.groups_by_decay(model=model, decay=0.1)",
        "library.Groups(0.1).of(model)",
    ],
)
def test_groups_that_a_library_makes_of_a_model(tmp_path: Path, groups: str) -> None:
    text = f"""\
    import library
    import torch
    model = torch.nn.Linear(4, 4)
    groups = {groups}
    optimizer = torch.optim.AdamW(groups)
    """
    found = program(tmp_path, text)
    built = [event for trace in found.traces for event in trace.of(OptimizerBuilt)]
    assert [(len(event.modules), event.complete) for event in built] == [(1, False)]
