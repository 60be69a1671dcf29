"""Fixes of FSDP103 in shapes that the rules' examples do not show."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from contract_programs import STEP, fixed, found

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import all_rules


def test_the_parameters_that_were_listed_before_move_along(tmp_path: Path) -> None:
    body = """\
    model = Net()
    lr = 0.1
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=lr)
    fully_shard(model)
    """ + textwrap.indent(STEP, "    ")
    after = fixed(tmp_path, "FSDP103", body)
    assert after is not None
    assert after.startswith(
        "model = Net()\n"
        "lr = 0.1\n"
        "fully_shard(model)\n"
        "params = [p for p in model.parameters() if p.requires_grad]\n"
        "optimizer = torch.optim.SGD(params, lr=lr)\n"
    )


def test_what_the_optimizer_needs_is_not_moved_from_under_another_use(tmp_path: Path) -> None:
    body = """\
    model = Net()
    params = list(model.parameters())
    print(len(params))
    optimizer = torch.optim.SGD(params, lr=0.1)
    fully_shard(model)
    """ + textwrap.indent(STEP, "    ")
    assert fixed(tmp_path, "FSDP103", body) is None


@pytest.mark.parametrize(
    "between",
    [
        "optimizer.zero_grad()",
        "print(optimizer)",
        "lr = 0.2",
        "if not torch.cuda.is_available():\n    raise SystemExit(1)",
    ],
)
def test_an_optimizer_does_not_move_across_its_use(tmp_path: Path, between: str) -> None:
    body = "model = Net()\nlr = 0.1\noptimizer = torch.optim.SGD(model.parameters(), lr=lr)\n"
    body += f"{between}\nfully_shard(model)\n{STEP}"
    assert found(tmp_path, "FSDP103", body) == [
        "optimizer = torch.optim.SGD(model.parameters(), lr=lr)"
    ]
    moved = fixed(tmp_path, "FSDP103", body)
    assert moved is None


def test_a_conditional_sharding_moves_the_optimizer_behind_the_condition(tmp_path: Path) -> None:
    body = """\
    def main(args):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # plain

        if args.fsdp:
            model = FSDP(model, device_id=0)
        else:
            model = model.cuda()

        for batch in range(10):
            model(torch.ones(1, 4)).mean().backward()
            optimizer.step()
    """
    after = fixed(tmp_path, "FSDP103", body)
    assert after is not None
    assert (
        "    model = Net()\n\n"
        "    if args.fsdp:\n"
        "        model = FSDP(model, device_id=0)\n"
        "    else:\n"
        "        model = model.cuda()\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # plain\n\n"
        "    for batch"
    ) in after


def test_windows_newlines_stay(tmp_path: Path) -> None:
    body = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    body += f"fully_shard(model)\n{STEP}"
    after = fixed(tmp_path, "FSDP103", body, newline="\r\n")
    assert after is not None
    assert "fully_shard(model)\r\noptimizer = torch" in after
    assert after.count("\n") == after.count("\r\n")


def test_a_function_of_unknown_effect_on_the_optimizer_is_no_finding(tmp_path: Path) -> None:
    body = """\
    from somewhere import rebind

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model)
    rebind(optimizer, model)
    """ + textwrap.indent(STEP, "    ")
    assert found(tmp_path, "FSDP103", body) == []


def test_an_optimizer_given_new_groups_is_no_finding(tmp_path: Path) -> None:
    body = """\
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model)
    optimizer.param_groups.clear()
    optimizer.add_param_group({"params": model.parameters()})
    """ + textwrap.indent(STEP, "    ")
    assert found(tmp_path, "FSDP103", body) == []


def test_use_orig_params_that_is_not_known_is_no_finding(tmp_path: Path) -> None:
    body = """\
    from somewhere import load_options


    def main(args):
        options = load_options()
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model = FSDP(model, {options})
        model(torch.ones(1, 4)).mean().backward()
        optimizer.step()
    """
    assert found(tmp_path, "FSDP103", body.format(options="use_orig_params=args.orig")) == []
    assert found(tmp_path, "FSDP103", body.format(options="**options")) == []
    assert len(found(tmp_path, "FSDP103", body.format(options="use_orig_params=False"))) == 1


def test_a_wrapper_that_no_name_gets(tmp_path: Path) -> None:
    """The model is wrapped again in the expression in which the optimizer steps."""
    (tmp_path / "train.py").write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.nn import Linear\n"
        "from torch.optim import AdamW\n\n"
        "net = Linear(4, 4)\n"
        "model = FSDP(net)\n"
        "optimizer = AdamW(model.parameters())\n"
        "model = FSDP(net) - optimizer.step()\n"
    )
    check(load([tmp_path / "train.py"]), [rule() for rule in all_rules()])
