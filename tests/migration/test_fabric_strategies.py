"""Fabric's strategy for FSDP1 becomes its strategy for FSDP2, with a function that shards the model."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import BLOCK, NET, plan

from fsdplint.diagnostics.finding import Safety

HEAD = (
    """\
import functools
import os
import torch
import torch.nn as nn
import lightning as L
from lightning.fabric.strategies import FSDPStrategy
from torch.distributed.fsdp import BackwardPrefetch, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy


"""
    + BLOCK
    + NET
)
FABRIC = "fabric = L.Fabric(devices=4, strategy=strategy)\n"
SETUP = "fabric.launch()\nmodel = fabric.setup(Net())\n"
TRAIN = """\
optimizer = torch.optim.AdamW(model.parameters())
optimizer = fabric.setup_optimizers(optimizer)
for _ in range(3):
    fabric.backward(model(torch.randn(4, 8)).sum())
    optimizer.step()
    optimizer.zero_grad()
"""


def program(strategy: str = "", fabric: str = FABRIC, more: str = TRAIN) -> str:
    return f"strategy = FSDPStrategy({strategy})\n{fabric}{SETUP}{more}"


def new_text(tmp_path: Path, body: str, *, safe: bool = True) -> str:
    """The text of the body after the migration, without the definitions above it."""
    found, text = plan(tmp_path, body, head=HEAD)
    assert [one.reason for one in found.blockers] == []
    assert (found.safety is Safety.SAFE) is safe
    assert "FSDPStrategy(" not in text and "FullyShardedDataParallel" not in text
    return text.partition("        return x\n\n\n")[2]


def codes(tmp_path: Path, body: str) -> set[str]:
    found, _ = plan(tmp_path, body, head=HEAD)
    return {one.code for one in found.blockers}


def test_a_set_of_classes(tmp_path: Path) -> None:
    text = new_text(tmp_path, program("auto_wrap_policy={Block}, limit_all_gathers=True"))
    function, _, rest = text.partition("\n\n\n")
    assert function.splitlines() == [
        "def parallelize(model, mesh):",
        '    fsdp_mesh = mesh["data_parallel"]',
        "    for module in reversed(list(model.modules())):",
        "        if isinstance(module, Block):",
        "            fully_shard(module, mesh=fsdp_mesh)",
        "    return fully_shard(model, mesh=fsdp_mesh)",
    ]
    assert rest.startswith(
        "strategy = ModelParallelStrategy(\n"
        "    parallelize_fn=parallelize, data_parallel_size=4, tensor_parallel_size=1\n)\n"
    )


POLICIES = {
    "{Block}": "isinstance(module, Block)",
    "{Block, nn.Linear}": "isinstance(module, (Block, nn.Linear))",
    "functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})": (
        "isinstance(module, Block)"
    ),
    "functools.partial(size_based_auto_wrap_policy, min_num_params=50)": (
        "shard_large_modules(model, 50"
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy(tmp_path: Path, policy: str) -> None:
    assert POLICIES[policy] in new_text(tmp_path, program(f"auto_wrap_policy={policy}"))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_in_a_variable(tmp_path: Path, policy: str) -> None:
    body = f"policy = {policy}\n{program('auto_wrap_policy=policy')}"
    text = new_text(tmp_path, body)
    assert POLICIES[policy] in text or "isinstance(module, tuple(policy))" in text


def test_no_policy_shards_the_model_alone(tmp_path: Path) -> None:
    for given in ("", "auto_wrap_policy=None", "activation_checkpointing_policy=None"):
        text = new_text(tmp_path, program(given))
        assert text.count("fully_shard(") == 1


BF16 = "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)"


@pytest.mark.parametrize("precision", ['"bf16-mixed"', '"bf16"'])
def test_a_precision_that_made_a_policy(tmp_path: Path, precision: str) -> None:
    fabric = FABRIC.replace("devices=4", f"devices=4, precision={precision}")
    text = new_text(tmp_path, program("auto_wrap_policy={Block}", fabric))
    assert BF16 in " ".join(text.split()).replace("( ", "(").replace(" )", ")")


@pytest.mark.parametrize("precision", ['"32-true"', "32", '"bf16-true"', '"16-true"', "None"])
def test_a_precision_of_the_whole_model(tmp_path: Path, precision: str) -> None:
    fabric = FABRIC.replace("devices=4", f"devices=4, precision={precision}")
    assert "mp_policy" not in new_text(tmp_path, program("auto_wrap_policy={Block}", fabric))


def test_a_model_of_half_precision_under_full_precision(tmp_path: Path) -> None:
    more = "model.bfloat16()\n" + TRAIN
    text = new_text(tmp_path, program("auto_wrap_policy={Block}", more=more))
    assert "param_dtype=torch.float32" in text


def test_a_precision_that_is_chosen_at_run_time(tmp_path: Path) -> None:
    fabric = FABRIC.replace("devices=4", "devices=4, precision=precision")
    body = f"precision = os.environ['PRECISION']\n{program('auto_wrap_policy={Block}', fabric)}"
    text = new_text(tmp_path, body)
    assert 'if precision in ("bf16-mixed", "bf16")' in text
    assert BF16 in text


def test_a_policy_of_precision_that_the_strategy_gets(tmp_path: Path) -> None:
    given = "mixed_precision=MixedPrecision(param_dtype=torch.float16)"
    assert "param_dtype=torch.float16" in new_text(tmp_path, program(given))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('state_dict_type="full"', "save_distributed_checkpoint=False"),
        ("timeout=None", "timeout=None"),
        ('process_group_backend="nccl"', 'process_group_backend="nccl"'),
        ('sharding_strategy="SHARD_GRAD_OP"', "reshard_after_forward=False"),
        ('sharding_strategy="shard_grad_op"', "reshard_after_forward=False"),
        ("sharding_strategy=ShardingStrategy.SHARD_GRAD_OP", "reshard_after_forward=False"),
        ('sharding_strategy="HYBRID_SHARD", device_mesh=(2, 2)', "(2, 2)"),
        ("backward_prefetch=BackwardPrefetch.BACKWARD_PRE", "fully_shard(model"),
        ("cpu_offload=False", "fully_shard(model"),
    ],
)
def test_an_argument(tmp_path: Path, given: str, expected: str) -> None:
    assert expected in new_text(tmp_path, program(given))


def test_sharded_checkpoints_are_the_default(tmp_path: Path) -> None:
    for given in ("", 'state_dict_type="sharded"'):
        assert "save_distributed_checkpoint" not in new_text(tmp_path, program(given))


@pytest.mark.parametrize(
    "given", ["activation_checkpointing_policy={Block}", "activation_checkpointing=[Block]"]
)
def test_activation_checkpointing(tmp_path: Path, given: str) -> None:
    text = new_text(tmp_path, program(f"auto_wrap_policy={{Block}}, {given}"))
    assert "check_fn=lambda module: isinstance(module, Block)" in text
    assert text.index("fully_shard(model") < text.index("apply_activation_checkpointing(")


DEVICES = {
    "devices=8": "8",
    "devices=2, num_nodes=4": "8",
    'devices="auto"': "torch.cuda.device_count()",
    "devices=-1": "torch.cuda.device_count()",
    "devices=[0, 1]": "2",
    'devices="4"': "4",
    "devices=count": "count",
    "devices=count, num_nodes=2": "count * 2",
}


@pytest.mark.parametrize("given", DEVICES)
def test_the_number_of_devices(tmp_path: Path, given: str) -> None:
    fabric = f"fabric = L.Fabric({given}, strategy=strategy)\n"
    body = f"count = torch.cuda.device_count() or 1\n{program('', fabric)}"
    assert f"data_parallel_size={DEVICES[given]}," in new_text(tmp_path, body)


def test_devices_that_the_command_line_may_give(tmp_path: Path) -> None:
    body = program("", "fabric = L.Fabric(strategy=strategy)\n")
    found, _ = plan(tmp_path, body, head=HEAD)
    assert "the program trains on all devices of each machine" in [x.text for x in found.notes]


def test_a_strategy_under_a_condition(tmp_path: Path) -> None:
    body = """\
    def main(devices: int, precision: str):
        if devices > 1:
            strategy = FSDPStrategy(auto_wrap_policy={Block})
        else:
            strategy = "auto"
        fabric = L.Fabric(devices=devices, strategy=strategy, precision=precision)
        run(fabric)


    def run(fabric):
        fabric.launch()
        with fabric.init_module(empty_init=False):
            model = Net()
        model = fabric.setup(model)
        optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters()))
        with fabric.no_backward_sync(model, enabled=False):
            fabric.backward(model(torch.randn(4, 8)).sum())
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()


    main(int(os.environ["DEVICES"]), os.environ["PRECISION"])
    """
    text = new_text(tmp_path, body)
    assert "data_parallel_size=devices" in text
    assert "error_if_nonfinite=not isinstance(fabric.strategy, ModelParallelStrategy)" in text


def test_the_name_of_the_strategy(tmp_path: Path) -> None:
    fabric = 'fabric = L.Fabric(devices=4, strategy="fsdp")\n'
    text = new_text(tmp_path, f"{fabric}{SETUP}{TRAIN}")
    assert "strategy=ModelParallelStrategy(" in text
    assert text.startswith("def parallelize(model, mesh):")


def test_clipping(tmp_path: Path) -> None:
    clip = "fabric.clip_gradients(model, optimizer, max_norm=1.0)\n"
    more = TRAIN + clip + "norm = " + clip + "print(f'{norm:.3f}')\n"
    text = new_text(tmp_path, program("", more=more))
    assert text.count("error_if_nonfinite=False") == 2
    assert text.count(".full_tensor()") == 1


def test_a_fabric_under_another_name(tmp_path: Path) -> None:
    clip = "fabric.clip_gradients(model, optimizer, max_norm=1.0)\n"
    body = (
        program("", more=TRAIN + clip).replace("fabric.", "runner.").replace("fabric =", "runner =")
    )
    assert "runner.clip_gradients(model, optimizer, max_norm=1.0, error_if_nonfinite=False)" in (
        new_text(tmp_path, body)
    )


def test_clipping_by_value_stays(tmp_path: Path) -> None:
    clip = "fabric.clip_gradients(model, optimizer, clip_val=1.0)\n"
    assert clip in new_text(tmp_path, program("", more=TRAIN + clip))


EARLY = """\
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
fabric.launch()
model, optimizer = fabric.setup(model, optimizer)
fabric.backward(model(torch.randn(4, 8)).sum())
optimizer.step()
"""


def test_an_optimizer_that_is_set_up_with_the_model(tmp_path: Path) -> None:
    body = f"strategy = FSDPStrategy()\n{FABRIC}{EARLY}"
    lines = new_text(tmp_path, body).splitlines()
    order = [
        lines.index("model = fabric.setup(model)"),
        lines.index("optimizer = torch.optim.AdamW(model.parameters())"),
        lines.index("optimizer = fabric.setup_optimizers(optimizer)"),
    ]
    assert order == sorted(order)


def test_a_test_of_the_class(tmp_path: Path) -> None:
    more = TRAIN + "if isinstance(fabric.strategy, FSDPStrategy):\n    print('sharded')\n"
    text = new_text(tmp_path, program("", more=more))
    assert "if isinstance(fabric.strategy, ModelParallelStrategy):" in text


def test_states_of_the_model(tmp_path: Path) -> None:
    more = TRAIN + (
        "def save(model):\n    if isinstance(fabric.strategy, FSDPStrategy):\n"
        "        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
        "            state = model._forward_module.state_dict()\n"
        "    else:\n        state = model.state_dict()\n"
        "    torch.save(state, 'x')\n\n\nsave(model)\n"
    )
    names = "from torch.distributed.fsdp import StateDictType, FullyShardedDataParallel as FSDP\n"
    text = new_text(tmp_path, names + program("", more=more))
    assert "get_model_state_dict(\n            model._forward_module" in text
    assert "    else:\n        state = model.state_dict()\n" in text


def test_weights_of_a_model_on_the_meta_device(tmp_path: Path) -> None:
    setup = SETUP.replace("Net()", "model")
    body = (
        f"strategy = FSDPStrategy()\n{FABRIC}with fabric.init_module(empty_init=True):\n"
        f"    model = Net()\n{setup}{TRAIN}"
    )
    assert "ModelParallelStrategy" in new_text(tmp_path, body, safe=False)


def test_a_sharding_strategy_that_a_setting_chooses(tmp_path: Path) -> None:
    body = f"""\
strategy = "FULL_SHARD" if os.environ.get("FULL") else "SHARD_GRAD_OP"
{program("sharding_strategy=strategy")}"""
    assert "reshard_after_forward" in new_text(tmp_path, body)


def test_other_programs_may_switch_the_reduction_off(tmp_path: Path) -> None:
    from fsdplint.interpreter import load
    from fsdplint.migration.planner import plans_of

    switch = TRAIN.replace(
        "    fabric.backward(",
        "    with fabric.no_backward_sync(model, False):\n        fabric.backward(",
    )
    net, _, _ = HEAD.partition("\n\n\n")
    (tmp_path / "shared.py").write_text(HEAD + "def make():\n    return FSDPStrategy()\n")
    for name, more in (("one", TRAIN), ("other", switch)):
        body = f"from shared import *\n{program('', more=more)}"
        (tmp_path / f"{name}.py").write_text(f"{net}\n{body}")
    plans = plans_of(load([tmp_path / "one.py", tmp_path / "other.py", tmp_path / "shared.py"]))
    found = {one.code for plan in plans for one in plan.blockers}
    assert "FSDP223-backward-without-switch" not in found


LITERALS = {
    "args.devices": "parser.add_argument('--devices', type=int)",
    "settings.devices": "class Settings:\n    devices: int = 4\n\n\nsettings = Settings()",
}


@pytest.mark.parametrize("devices", LITERALS)
def test_devices_of_a_setting(tmp_path: Path, devices: str) -> None:
    made = "import argparse\nparser = argparse.ArgumentParser()\n"
    body = f"{made}{LITERALS[devices]}\nargs = parser.parse_args()\n"
    body += program("", FABRIC.replace("4", devices))
    assert f"data_parallel_size={devices}," in new_text(tmp_path, body)


def test_devices_of_a_variable_that_another_arm_sets(tmp_path: Path) -> None:
    body = """\
    def count(text) -> int:
        return int(text)


    devices = count(os.environ["DEVICES"])
    if devices == 1:
        devices = "auto"
        strategy = "auto"
    else:
        strategy = FSDPStrategy()
    """
    text = new_text(
        tmp_path, textwrap.dedent(body) + FABRIC.replace("4", "devices") + SETUP + TRAIN
    )
    assert "data_parallel_size=devices," in text


def test_devices_of_a_setting_that_may_be_a_text(tmp_path: Path) -> None:
    made = "import argparse\nparser = argparse.ArgumentParser()\n"
    body = f"{made}parser.add_argument('--devices')\nargs = parser.parse_args()\n"
    body += program("", FABRIC.replace("4", "args.devices"))
    assert codes(tmp_path, body) == {"FSDP223-devices-unknown"}


def test_a_variable_that_only_the_strategy_reads(tmp_path: Path) -> None:
    body = """\
    def main():
        layers = {Block}
        fabric = L.Fabric(devices=4, strategy=FSDPStrategy(
            auto_wrap_policy=layers, activation_checkpointing_policy=layers
        ))
        fabric.launch()
        model = fabric.setup(Net())
        optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters()))
        fabric.backward(model(torch.randn(4, 8)).sum())
        optimizer.step()


    main()
    """
    text = new_text(tmp_path, body)
    assert "layers" not in text and text.count("isinstance(") == 2


def test_a_fabric_with_another_strategy(tmp_path: Path) -> None:
    more = TRAIN + (
        "def evaluate():\n    fabric = L.Fabric(devices=1)\n"
        "    with fabric.init_module(empty_init=True):\n        other = Net()\n"
        "    other, optimizer = fabric.setup(other, torch.optim.AdamW(other.parameters()))\n"
        "    fabric.clip_gradients(other, optimizer, max_norm=1.0)\n\n\nevaluate()\n"
    )
    text = new_text(tmp_path, program("", more=more))
    assert "fabric.clip_gradients(other, optimizer, max_norm=1.0)\n" in text
    assert "other, optimizer = fabric.setup(" in text


BLOCKED = {
    "strategy-offloads": program("cpu_offload=True"),
    "strategy-replicates": program('sharding_strategy="NO_SHARD"'),
    "sharding-strategy": program("sharding_strategy=os.environ['S']"),
    "strategy-arguments": program("**options"),
    "strategy-argument": program("cluster_environment=environment"),
    "policy-or-set": program("auto_wrap_policy=zoo.policy(Net)"),
    "devices-unknown": program("", FABRIC.replace("4", "os.environ['N']")),
    "precision-unsupported": program("", FABRIC.replace("4", '4, precision="16-mixed"')),
    "fabric-unknown": program("", "import zoo\nfabric = zoo.Fabric(strategy)\n"),
    "strategy-used": "class Own(FSDPStrategy):\n    pass\n\n\n" + program(),
    "strategy-read": program("", more=TRAIN + "print(fabric.strategy.sharding_strategy)\n"),
    "backward-without-switch": program(
        "",
        more=TRAIN + "with fabric.no_backward_sync(model, enabled=False):\n"
        "    fabric.backward(model(torch.randn(4, 8)).sum())\n",
    ),
}


@pytest.mark.parametrize("code", BLOCKED)
def test_what_blocks(tmp_path: Path, code: str) -> None:
    assert f"FSDP223-{code}" in codes(tmp_path, BLOCKED[code])


def test_a_precision_that_is_not_known_where_the_strategy_is_made(tmp_path: Path) -> None:
    body = """\
    def make():
        return FSDPStrategy()


    def main(precision):
        fabric = L.Fabric(devices=4, strategy=make(), precision=precision)
        fabric.launch()
        model = fabric.setup(Net())
        optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters()))
        fabric.backward(model(torch.randn(4, 8)).sum())
        optimizer.step()


    main(os.environ["PRECISION"])
    """
    assert codes(tmp_path, body) == {"FSDP223-precision-unknown"}


@pytest.mark.parametrize("required", ["lightning==2.1.2", "lightning==2.1.2\nlightning[extra]"])
def test_a_lightning_that_is_too_old(tmp_path: Path, required: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"torch>=2.6\n{required}\n", encoding="utf-8")
    assert codes(tmp_path, program()) == {"FSDP223-lightning-too-old"}
