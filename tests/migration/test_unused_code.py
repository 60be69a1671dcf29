"""Code with FSDP1 that nothing calls, and values that nothing reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan

PATCH = """
def patch():
    from torch.distributed.fsdp import _runtime_utils

    before = FSDP.forward

    def forward(self, *inputs):
        _runtime_utils._lazy_init(self, self)
        return before(self, *inputs)

    FSDP.forward = forward


def lazy_init(state, root):
    print(state._is_root, "of FSDP1")


def patch_initialization():
    from torch.distributed.fsdp import _runtime_utils

    _runtime_utils._lazy_init = lazy_init


{use}
model = FSDP(Net())
"""


def test_a_patch_that_nothing_calls_stays_as_it_is(tmp_path: Path) -> None:
    found, text = plan(tmp_path, PATCH.format(use=""))
    assert not found.blockers, [b.reason for b in found.blockers]
    kept = PATCH.format(use="").partition("model = ")[0].strip()
    assert kept in text and "model = fully_shard(Net())" in text


@pytest.mark.parametrize("use", ["patch()", "names = ['patch']"])
def test_a_patch_that_may_be_called_blocks(tmp_path: Path, use: str) -> None:
    found, _ = plan(tmp_path, PATCH.format(use=use))
    reasons = [b.reason for b in found.blockers]
    assert any("FullyShardedDataParallel.forward" in reason for reason in reasons), reasons


UNREAD = """
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    by_size = functools.partial(
        size_based_auto_wrap_policy, min_num_params=100,
    )
    bf16: MixedPrecision = MixedPrecision(param_dtype=torch.bfloat16)
    strategy = ShardingStrategy.FULL_SHARD
    model = DDP(Net().cuda())
    print(model)


main()
"""


def test_values_that_nothing_reads_go(tmp_path: Path) -> None:
    found, text = plan(tmp_path, UNREAD)
    assert not found.blockers, [blocked.reason for blocked in found.blockers]
    assert "fsdp" not in text
    assert "def main():\n    model = DDP(Net().cuda())\n" in text


def test_values_that_code_reads_block(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, "def main():\n    print(ShardingStrategy.FULL_SHARD)\n\n\nmain()\n")
    assert any("ShardingStrategy.FULL_SHARD" in blocked.reason for blocked in found.blockers)


UNCALLED = {
    "a function that keeps its model": (
        "model = Net()\n    model = FSDP(model)\n    model(1)",
        False,
    ),
    "a function that returns it": (
        "model = Net()\n    model = FSDP(model)\n    return model",
        True,
    ),
    "a function that gets it": ("model = FSDP(given)\n    model(1)", True),
    "a function that stores it": ("model = Net()\n    given.model = FSDP(model)", True),
}


@pytest.mark.parametrize(("body", "unsafe"), list(UNCALLED.values()), ids=list(UNCALLED))
def test_a_function_that_nothing_calls(tmp_path: Path, body: str, unsafe: bool) -> None:
    found, text = plan(tmp_path, f"def build(given):\n    {body}\n")
    assert not found.blockers, [blocked.reason for blocked in found.blockers]
    assert "fully_shard(" in text
    assert "FSDP(" not in text
    assert ["no given file calls `build`" in one.text for one in found.notes] == [True] * unsafe
    assert all(one.unsafe for one in found.notes)


def test_a_config_of_a_class_that_nothing_reads(tmp_path: Path) -> None:
    body = """
    class Settings:
        # for later
        save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        kind = StateDictType.FULL_STATE_DICT


    model = FSDP(Net())
    """
    text = migrated(tmp_path, body)
    assert "save_policy = StateDictOptions(full_state_dict=True, cpu_offload=True)" in text
    found, _ = plan(tmp_path, body + "\n    print(Settings.save_policy)\n")
    assert [one.blocker.code for one in found.blockers] == ["FSDP299-api-use"]


NORM = """
def total_norm(parameters):
    return torch.stack([torch.norm(p.grad.detach(), 2.0) for p in parameters]).norm()


def step(model, limit=None):
    model(torch.ones(2, 8)).sum().backward()
    if limit is not None:
        return model.clip_grad_norm_(limit)
    raise NotImplementedError("Set a limit.")
    return total_norm(model.parameters())


step(FSDP(Net(), device_id=local_rank), 1.0)
"""


def test_a_function_that_only_dead_code_calls_stays(tmp_path: Path) -> None:
    text = migrated(tmp_path, NORM)
    assert "torch.norm(p.grad.detach(), 2.0)" in text
    assert "FSDP(" not in text


def test_a_function_that_other_code_calls_too_blocks(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, NORM + "print(total_norm(Net().parameters()))\n")
    assert "reads this rank's part of the gradients" in found.blockers[0].reason


NOT_REACHED = """
def train(model):
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        model = nn.parallel.DistributedDataParallel(model)
    elif "SHARDED" in os.environ:
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))
    model(torch.ones(2, 8)).sum().backward()
    return model


"""


def test_a_call_that_no_run_reaches_is_rewritten(tmp_path: Path) -> None:
    assert "fully_shard(model)" in migrated(tmp_path, NOT_REACHED + "train(Net())\n")


def test_what_others_do_with_a_model_of_an_unreached_call_is_not_known(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, NOT_REACHED + "torch.save(train(Net()).state_dict(), 'model.pt')\n")
    assert [one.reason for one in found.blockers] == [
        "the given program does not reach this code with `FSDP`"
    ]
