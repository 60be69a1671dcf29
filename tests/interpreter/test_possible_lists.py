"""Parameters that go into one of several lists, chosen by an expression."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

from fsdplint.trace import OptimizerBuilt, SyncSwitched

GROUPS = 'groups = [{"params": [], "weight_decay": 0.1}, {"params": [], "weight_decay": 0.0}]\n'
LISTS = "lists = [], []\n"
OF_LISTS = '[{"params": lists[0]}, {"params": lists[1], "weight_decay": 0.0}]'
NAMED = "decay, rest = [], []\n"
OF_NAMED = '[{"params": decay}, {"params": rest, "weight_decay": 0.0}]'

# The lines before a loop over the parameters, its statement, and the argument of the optimizer.
CHOSEN = {
    "a number": (GROUPS, 'groups[int(p.ndim < 2)]["params"].append(p)', "groups"),
    "a conditional": (GROUPS, 'groups[0 if p.ndim > 1 else 1]["params"].append(p)', "groups"),
    "a variable": (
        GROUPS,
        'group = groups[1 if p.ndim < 2 else 0]; group["params"].append(p)',
        "groups",
    ),
    "a sum in place": (GROUPS, 'groups[p.ndim < 2]["params"] += [p]', "groups"),
    "extend": (GROUPS, 'groups[p.ndim < 2]["params"].extend([p])', "groups"),
    "a tuple": (LISTS, "lists[p.ndim < 2].append(p)", OF_LISTS),
    "a test of the name": (LISTS, 'lists["bias" in name].append(p)', OF_LISTS),
    "a dict of booleans": (
        "lists = {True: [], False: []}\n",
        "lists[p.ndim < 2].append(p)",
        OF_LISTS.replace("0]", "True]").replace("1]", "False]"),
    ),
    "a dict of names": (
        'lists = {"decay": [], "rest": []}\n',
        'lists["decay" if p.ndim > 1 else "rest"].append(p)',
        OF_LISTS.replace("0]", '"decay"]').replace("1]", '"rest"]'),
    ),
    "a list or another": (NAMED, "(decay if p.ndim > 1 else rest).append(p)", OF_NAMED),
    "a variable of a list": (
        NAMED,
        'target = rest if p.ndim < 2 or "bias" in name else decay; target.append(p)',
        OF_NAMED,
    ),
    "a defaultdict": (
        "from collections import defaultdict\nlists = defaultdict(list)\n",
        "lists[0.0 if p.ndim < 2 else 0.1].append(p)",
        '[{"params": held, "weight_decay": decay} for decay, held in lists.items()]',
    ),
    "setdefault": (
        "lists = {}\n",
        "lists.setdefault(p.ndim > 1, []).append(p)",
        '[{"params": held, "weight_decay": 0.1 * key} for key, held in lists.items()]',
    ),
    "setdefault of a group": (
        "lists = {}\n",
        "lr = 0.1 if p.ndim > 1 else 0.2; "
        'lists.setdefault(lr, {"params": [], "lr": lr})["params"].append(p)',
        "list(lists.values())",
    ),
    "a new group": (
        "lists = {}\n",
        'key = "a" if p.ndim > 1 else "b"; lists[key] = lists.get(key, {"params": []}); '
        'lists[key]["params"].append(p)',
        "list(lists.values())",
    ),
}


@pytest.mark.parametrize(("before", "statement", "argument"), CHOSEN.values(), ids=CHOSEN)
def test_optimizers_have_parameters_of_chosen_lists(
    tmp_path: Path, before: str, statement: str, argument: str
) -> None:
    loop = f"for name, p in model.named_parameters():\n    {statement}\n"
    found = program(
        tmp_path, f"model = Net()\n{before}{loop}optim = torch.optim.AdamW({argument})\n"
    )
    for trace in found.traces:
        (optimizer,) = trace.of(OptimizerBuilt)
        assert [trace.modules[one].class_name for one in optimizer.modules] == ["Net"]
        assert optimizer.complete


def test_lists_of_other_models_stay_apart(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        one, two = Net(), Net()
        lists = [], []
        for p in one.parameters():
            lists[p.ndim < 2].append(p)
        other = list(two.parameters())
        optim = torch.optim.AdamW(lists[0] + lists[1])
        second = torch.optim.AdamW(other)
        """,
    )
    (first, second) = found.traces[0].of(OptimizerBuilt)
    assert len(first.modules) == len(second.modules) == 1
    assert first.modules != second.modules


FROZEN_GROUPS = """
    model = Net()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    groups = [{"params": [], "weight_decay": 0.1}, {"params": [], "weight_decay": 0.0}]
    for name, p in model.named_parameters():
        groups[int(p.ndim < 2)]["params"].append(p)
    optim = torch.optim.AdamW(groups, lr=1e-3)
    while True:
        micro = [batch() for _ in range(4)]
        for i, x in enumerate(micro):
            model.set_requires_gradient_sync(SWITCH)
            model(x).sum().backward()
        optim.step()
        optim.zero_grad()
"""


@pytest.mark.parametrize(
    ("switch", "found"),
    [
        ("i == 0", True),
        ("True if i == 0 else False", True),
        ("i < len(micro) - 1", True),
        ("i == len(micro) - 1", False),
        ("False if i < len(micro) - 1 else True", False),
        ("True if i == len(micro) - 1 else False", False),
    ],
)
def test_switches_count_for_optimizers_of_chosen_lists(
    tmp_path: Path, switch: str, found: bool
) -> None:
    shown = program(tmp_path, FROZEN_GROUPS.replace("SWITCH", switch))
    assert any(shown.traces[0].of(SyncSwitched))
    assert bool(findings(shown, "FSDP403")) is found
