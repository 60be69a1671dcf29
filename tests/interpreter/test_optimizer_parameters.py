"""Whose parameters an optimizer gets, and what an optimizer is."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import (
    OptimizerBuilt,
    Sharded,
)

PARAMETERS = {
    "list": "list(model.parameters())",
    "filter": "filter(lambda p: p.requires_grad, model.parameters())",
    "comprehension": "[p for p in model.parameters() if p.requires_grad]",
    "generator": "(p for n, p in model.named_parameters() if 'bias' not in n)",
    "groups": "[{'params': [p for n, p in model.named_parameters()], 'lr': 1e-3}]",
    "two groups": "[{'params': model.head.parameters()}, {'params': model.layers.parameters()}]",
    "helper": "groups(model)",
    "attribute of a layer": "model.head.parameters()",
    "groups with rates of unknown number": (
        "[dict(params=g['params'], lr=r) for g, r in zip([*groups(model)], rates())]"
    ),
    "lists with rates of unknown number": (
        "[dict(params=one, lr=r) for one, r in zip([g['params'] for g in groups(model)], rates())]"
    ),
}


@pytest.mark.parametrize("parameters", PARAMETERS.values(), ids=PARAMETERS)
def test_parameters_keep_their_owner(tmp_path: Path, parameters: str) -> None:
    found = program(
        tmp_path,
        f"""
        def groups(m):
            decay, rest = [], []
            for name, p in m.named_parameters():
                if p.dim() > 1:
                    decay.append(p)
                else:
                    rest.append(p)
            return [{{"params": decay, "weight_decay": 0.1}}, {{"params": rest}}]

        model = Net()
        optim = torch.optim.AdamW({parameters}, lr=1e-3)
        fully_shard(model)
        """,
    )
    trace = found.traces[0]
    (optimizer,) = trace.of(OptimizerBuilt)
    (sharded,) = trace.of(Sharded)
    assert optimizer.modules
    assert all(trace.contains(sharded.module, module) for module in optimizer.modules)


# Lists of the parameters of two models, with the lines before the optimizer.
TOGETHER = {
    "a sum": ("", "list(one.parameters()) + list(two.parameters())"),
    "a sum with a display": ("", "list(one.parameters()) + [*two.parameters()]"),
    "a sum with one parameter": ("", "list(one.parameters()) + [two.head.weight]"),
    "a union": ("", "set(one.parameters()) | set(two.parameters())"),
    "an assignment": ("params = list(one.parameters())\nparams += two.parameters()", "params"),
    "extend": ("params = list(one.parameters())\nparams.extend(two.parameters())", "params"),
    "update": ("params = set(one.parameters())\nparams.update(two.parameters())", "params"),
    "append": ("params = list(one.parameters())\nparams.append(two.head.weight)", "params"),
    "an attribute": (
        "holder = Net()\nholder.of_one = list(one.parameters())\n"
        "holder.of_one.extend(two.parameters())",
        "holder.of_one",
    ),
}


@pytest.mark.parametrize(("lines", "parameters"), TOGETHER.values(), ids=TOGETHER)
def test_lists_of_parameters_have_all_owners(tmp_path: Path, lines: str, parameters: str) -> None:
    body = f"one = Net()\ntwo = Net()\n{lines}\noptim = torch.optim.AdamW({parameters})\n"
    found = program(tmp_path, body + "fully_shard(one)\nfully_shard(two)\n")
    trace = found.traces[0]
    (optimizer,) = trace.of(OptimizerBuilt)
    for sharded in trace.of(Sharded):
        assert any(trace.contains(sharded.module, module) for module in optimizer.modules)
    assert optimizer.complete


def test_a_list_with_unknown_elements_is_not_complete(tmp_path: Path) -> None:
    body = "model = Net()\noptim = torch.optim.AdamW(list(model.parameters()) + more())\n"
    (optimizer,) = events(program(tmp_path, body), OptimizerBuilt)
    assert optimizer.modules and not optimizer.complete


def test_a_sum_of_parameters_is_no_list(tmp_path: Path) -> None:
    body = """
        model = Net()
        total = sum(p + 1 for p in model.parameters())
        optim = torch.optim.AdamW([model.head.weight + model.head.weight])
    """
    (optimizer,) = events(program(tmp_path, body), OptimizerBuilt)
    assert len(optimizer.modules) == 1


def test_an_optimizer_class_of_an_unknown_library_is_one(tmp_path: Path) -> None:
    found = program(
        tmp_path, "import bnb\nmodel = Net()\nopt = bnb.optim.Adam8bit(model.parameters())\n"
    )
    assert [e.class_name for e in events(found, OptimizerBuilt)] == ["Adam8bit"]


@pytest.mark.parametrize("made", ["ExponentialMovingAverage({}, decay=0.9)", "Gathered([{}])"])
def test_not_every_class_that_gets_parameters_is_an_optimizer(tmp_path: Path, made: str) -> None:
    made = made.format("model.parameters()")
    found = program(tmp_path, f"import lib\nmodel = Net()\nwhole = lib.{made}\n")
    assert not list(events(found, OptimizerBuilt))


@pytest.mark.parametrize("made", ["Sign(model.parameters(), lr=0.1)", "Lion(model.parameters())"])
def test_an_optimizer_is_told_by_its_name_or_its_settings(tmp_path: Path, made: str) -> None:
    found = program(tmp_path, f"import lib\nmodel = Net()\noptimizer = lib.{made}\n")
    assert len(list(events(found, OptimizerBuilt))) == 1


@pytest.mark.parametrize(
    "change",
    [
        "optim.param_groups = [{'params': list(model.parameters())}]",
        "optim.param_groups[0]['params'] = list(model.parameters())",
        "for group in optim.param_groups:\n    group['params'] = list(model.parameters())",
    ],
)
def test_an_optimizer_with_other_parameters_put_in_is_not_certain(
    tmp_path: Path, change: str
) -> None:
    found = program(
        tmp_path, f"model = Net()\noptim = torch.optim.SGD(model.parameters())\n{change}\n"
    )
    assert [e.complete for e in events(found, OptimizerBuilt)] == [False]


def test_a_learning_rate_changes_no_parameters(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "model = Net()\noptim = torch.optim.SGD(model.parameters())\n"
        "for group in optim.param_groups:\n    group['lr'] = 0.1\n",
    )
    assert [e.complete for e in events(found, OptimizerBuilt)] == [True]


@pytest.mark.parametrize(
    "chosen", ["n.endswith('.bias')", "no_decay(n)", "not n.startswith('head')", "'bias' in n"]
)
def test_tests_of_the_names_in_a_dict_of_parameters_are_no_settings(
    tmp_path: Path, chosen: str
) -> None:
    found = program(
        tmp_path,
        f"""
        def no_decay(name):
            return name.endswith(".bias") or name == "head.weight"

        model = Net()
        named = {{n: p for n, p in model.named_parameters() if p.requires_grad}}
        groups = [
            {{"params": [p for n, p in named.items() if {chosen}], "weight_decay": 0.0}},
            {{"params": [named[n] for n in named if not ({chosen})]}},
        ]
        optim = torch.optim.AdamW(groups, lr=1e-3)
        """,
    )
    (built,) = found.traces[0].of(OptimizerBuilt)
    assert built.complete and built.modules
    assert len(found.traces) == 1


def test_one_parameter_of_a_module_is_known_to_come_from_it(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 8)

        model = Two()
        groups = [{"params": model.body.parameters()}, {"params": [model.head.weight], "lr": 0.1}]
        optim = torch.optim.SGD(groups, lr=0.01)
        """,
    )
    (built,) = events(found, OptimizerBuilt)
    assert built.complete and len(built.modules) == 2


@pytest.mark.parametrize(
    ("built", "name"),
    [
        ("timm.optim.create_optimizer_v2(model, opt='adamw', lr=1e-3)", "AdamW"),
        ("timm.optim.create_optimizer_v2(model_or_params=model.parameters(), opt=args.opt)", ""),
        ("timm.optim.create_optimizer_v2([{'params': model.parameters()}], 'sgd')", "SGD"),
        ("timm.optim.create_optimizer(args, model)", ""),
        ("create_optimizer(args, model=model)", ""),
    ],
)
def test_an_optimizer_that_timm_builds(tmp_path: Path, built: str, name: str) -> None:
    body = f"""
        import argparse
        import timm.optim
        from timm.optim.optim_factory import create_optimizer

        args = argparse.ArgumentParser().parse_args()
        model = Net()
        optimizer = {built}
        fully_shard(model)
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
        """
    found = program(tmp_path, body)
    (event,) = events(found, OptimizerBuilt)
    assert event.class_name == (name or "Optimizer") and event.complete
    assert findings(found, "FSDP103")


def test_an_optimizer_that_timm_builds_of_what_is_not_known(tmp_path: Path) -> None:
    body = "import timm.optim\noptimizer = timm.optim.create_optimizer_v2(build(), 'adamw')\n"
    assert not list(events(program(tmp_path, body), OptimizerBuilt))
