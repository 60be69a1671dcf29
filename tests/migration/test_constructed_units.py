"""Units that `wrap` makes in the constructor of a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import HEAD, migrated, plan

DEEP = """
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([wrap(Block()) for _ in range(2)])
        self.head = wrap(nn.Linear(8, 8))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build(strategy, device):
    with enable_wrap(wrapper_cls=FSDP, device_id=device, sharding_strategy=STRATEGY):
        return wrap(Deep())


model = build(ShardingStrategy.SHARD_GRAD_OP, local_rank)
"""


WRAPPED = """\
    model = Deep()
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=False)
    fully_shard(model.head, reshard_after_forward=False)
    return fully_shard(model, reshard_after_forward=False)
"""


def test_units_of_a_constructor_are_sharded_after_it(tmp_path: Path) -> None:
    text = migrated(tmp_path, DEEP.replace("STRATEGY", "ShardingStrategy.SHARD_GRAD_OP"))
    assert "self.blocks = nn.ModuleList([Block() for _ in range(2)])" in text
    assert "self.head = nn.Linear(8, 8)\n" in text
    assert WRAPPED.replace("model", "sharded_model") in text and "wrap" not in text


def test_units_of_a_constructor_use_variables_of_the_block(tmp_path: Path) -> None:
    text = migrated(tmp_path, DEEP.replace("STRATEGY", "strategy"))
    assert "for block in sharded_model.blocks:\n        fully_shard(block, **fsdp_kwargs)" in text


def test_units_of_a_constructor_under_two_blocks(tmp_path: Path) -> None:
    body = DEEP.replace("STRATEGY", "ShardingStrategy.FULL_SHARD") + (
        "with enable_wrap(wrapper_cls=FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP):\n"
        "    other = wrap(Deep())\n"
        "plain = Deep()\n"
    )
    text = migrated(tmp_path, body)
    assert (
        WRAPPED.replace("model", "sharded_model").replace(", reshard_after_forward=False", "")
        in text
    )
    assert text.endswith(
        "fully_shard(other.head, reshard_after_forward=False)\n"
        "fully_shard(other, reshard_after_forward=False)\nplain = Deep()\n"
    )


NESTED = """
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = wrap(nn.Linear(8, 8))
        self.second = nn.Linear(8, 8)

    def forward(self, x):
        return self.second(self.first(x))


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleDict({str(i): wrap(Inner()) for i in range(2)})

    def forward(self, x):
        for stage in self.stages.values():
            x = stage(x)
        return x


with enable_wrap(wrapper_cls=FSDP):
    net = Outer()
    net = wrap(net)
"""


def test_units_of_constructors_of_units(tmp_path: Path) -> None:
    text = migrated(tmp_path, NESTED)
    assert text.endswith(
        "net = Outer()\nfor module in net.stages.values():\n    fully_shard(module.first)\n"
        "    fully_shard(module)\nfully_shard(net)\n"
    )


UNCERTAIN = {
    "some of the elements": (
        "self.blocks = nn.ModuleList([wrap(Block()), Block()])",
        "fully_shard(sharded_model.blocks[0])",
    ),
    "under a condition": (
        "self.blocks = [Block()]\n        if os.environ.get('WRAPPED'):\n"
        "            self.blocks = nn.ModuleList([wrap(Block())])",
        "",
    ),
    "with arguments of its own": (
        "self.blocks = nn.ModuleList([wrap(Block(), use_orig_params=True)])",
        "",
    ),
    "in a class of its own": ("self.blocks = Blocks([wrap(Block())])", ""),
}


@pytest.mark.parametrize(("statement", "expected"), list(UNCERTAIN.values()), ids=list(UNCERTAIN))
def test_units_of_a_constructor_are_certain(statement: str, expected: str, tmp_path: Path) -> None:
    body = "class Blocks(nn.ModuleList):\n    pass\n\n" + DEEP.replace(
        "STRATEGY", "ShardingStrategy.FULL_SHARD"
    )
    body = body.replace("self.blocks = nn.ModuleList([wrap(Block()) for _ in range(2)])", statement)
    found, text = plan(tmp_path, body)
    if expected:
        assert expected in text
    else:
        assert any("which `enable_wrap` block" in one.reason for one in found.blockers)


def test_units_need_the_model_in_the_block(tmp_path: Path) -> None:
    body = (
        DEEP.partition("def build")[0] + "with enable_wrap(wrapper_cls=FSDP):\n    net = Deep()\n"
    )
    found, _ = plan(tmp_path, body + "model = FSDP(Net())\n")
    assert any("which `enable_wrap` block" in one.reason for one in found.blockers)


# The program sets no current device.
UNSET = HEAD.replace("torch.cuda.set_device(local_rank)\n", "")


def test_the_device_of_the_block_is_the_device_of_its_units(tmp_path: Path) -> None:
    body = DEEP.replace("STRATEGY", "ShardingStrategy.FULL_SHARD")
    found, text = plan(tmp_path, body, head=UNSET)
    assert not found.blockers and "    torch.cuda.set_device(device)\n" in text


def test_units_without_any_device(tmp_path: Path) -> None:
    body = DEEP.replace("STRATEGY", "ShardingStrategy.FULL_SHARD").replace("device_id=device, ", "")
    found, _ = plan(tmp_path, body, head=UNSET)
    assert {one.reason.partition(" says")[0] for one in found.blockers} == {
        "neither `device_id` nor `torch.cuda.set_device` nor a mesh"
    }
