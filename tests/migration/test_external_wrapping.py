"""States of models that a framework wraps, out of sight: rewritten so that they hold with either version."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import plan
from two_ranks import TwoRanks

IMPORTS = """\
import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import (
    FullOptimStateDictConfig, FullStateDictConfig, FullyShardedDataParallel as FSDP,
    ShardedStateDictConfig, ShardingStrategy, StateDictType,
)
"""

FORMS = {
    "ranks that are chosen at run time": (
        """
        def save(trainer, folder, first_only=True):
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=first_only)
            with FSDP.state_dict_type(trainer.model, StateDictType.FULL_STATE_DICT, config):
                state = trainer.model.state_dict()
                if trainer.args.should_save:
                    trainer._save(folder, state_dict=state)
        """,
        """
        def save(trainer, folder, first_only=True):
            config = StateDictOptions(full_state_dict=True, cpu_offload=first_only)
            state = get_model_state_dict(trainer.model, options=config)
            if trainer.args.should_save:
                trainer._save(folder, state_dict=state)
        """,
    ),
    "model and optimizer": (
        """
        def save(accelerator, model, optimizer):
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                weights = model.state_dict()
                moments = FSDP.optim_state_dict(model, optimizer)
            accelerator.save([weights, moments], "x.pt")
        """,
        """
        def save(accelerator, model, optimizer):
            options = StateDictOptions(full_state_dict=True)
            weights = get_model_state_dict(model, options=options)
            moments = get_optimizer_state_dict(model, optimizer, options=options)
            accelerator.save([weights, moments], "x.pt")
        """,
    ),
    "inference mode, here and in a function that comes here": (
        """
        class Saver:
            def take(self):
                with torch.inference_mode(), FSDP.state_dict_type(
                    self.model, StateDictType.SHARDED_STATE_DICT
                ):
                    return self.model.state_dict()

            @torch.inference_mode()
            def save(self):
                torch.save(self.take(), f"{dist.get_rank()}.pt")
        """,
        """
        class Saver:
            def take(self):
                with torch.no_grad():
                    return get_model_state_dict(self.model)

            @torch.no_grad()
            def save(self):
                torch.save(self.take(), f"{dist.get_rank()}.pt")
        """,
    ),
    "an Accelerator that takes the state by itself": (
        """
        import accelerate


        def save(accelerator: accelerate.Accelerator, model):
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
                state = accelerator.get_state_dict(model)
            accelerator.save(state, "x.pt")
        """,
        """
        def save(accelerator: accelerate.Accelerator, model):
            state = accelerator.get_state_dict(model)
            accelerator.save(state, "x.pt")
        """,
    ),
    "a trainer that takes the state by itself": (
        """
        def save(trainer: transformers.Trainer):
            from torch.distributed.fsdp import FullStateDictConfig as Config

            config = Config(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(trainer.model, StateDictType.FULL_STATE_DICT, config):
                trainer.save_model()
        """,
        """
        def save(trainer: transformers.Trainer):
            trainer.save_model()
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    found, text = plan(tmp_path, before, IMPORTS)
    assert not found.blockers, [b.reason for b in found.blockers]
    after = textwrap.dedent(after).strip()
    assert text[text.index(after.split("\n")[0]) :].strip() == after
    notes = {note.text for note in found.notes}
    assert any("other code wraps the model" in note for note in notes)
    assert any("inference_mode" in note for note in notes) == ("inference_mode" in before)
    assert any("Trainer.save_model" in note for note in notes) == ("save_model" in before)
    assert any("Accelerator.get_state" in note for note in notes) == ("accelerator.get" in before)


SAVE = (
    "def save(trainer: transformers.Trainer):\n"
    "    with FSDP.state_dict_type(trainer.model, StateDictType.FULL_STATE_DICT):\n"
    "        trainer.save_model()\n"
)
BLOCKED = {
    "another object's method of that name": (
        "def save(keeper, model):\n"
        "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
        "        return keeper.get_state_dict(model)\n",
        "a function that this block calls takes the state",
    ),
    "what the version decides": (
        "def local(model):\n"
        "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
        "        torch.save(model.state_dict(), 'x.pt')\n"
        "    return model.sharding_strategy != ShardingStrategy.NO_SHARD\n",
        "the rewrite of `ShardingStrategy",
    ),
    "an optimizer's state, of a type that is set out of sight": (
        "def take(model, optimizer):\n    return FSDP.optim_state_dict(model, optimizer)\n",
        "the rewrite of `optim_state_dict`",
    ),
    "whole parameters, kept for later": (
        "def sample(model, x):\n    context = FSDP.summon_full_params(model)\n"
        "    with context:\n        return model.generate(x)\n",
        "the rewrite of `summon_full_params`",
    ),
    "a model that Accelerate prepares together with another": (
        "def sample(accelerator, model, reference_model, optimizer, x):\n"
        "    model, reference_model, optimizer = accelerator.prepare(\n"
        "        model, reference_model, optimizer\n    )\n"
        "    with FSDP.summon_full_params(model):\n        return model.generate(x)\n",
        "its FSDP2 takes one model and its optimizer, in one call of `prepare`, unlike train.py:9",
    ),
    "a strategy that something calls for": (
        "def strategy(name):\n    return getattr(ShardingStrategy, name)\n\n\n"
        "print(strategy('NO_SHARD'))\n",
        "the rewrite of `ShardingStrategy` depends on the code that wraps the model, which is not given",
    ),
    "a kind of state that nothing is taken by": (
        "KINDS = {'full': StateDictType.FULL_STATE_DICT}\n",
        "nothing shows what `StateDictType.FULL_STATE_DICT` is for",
    ),
    "a strategy in a constant": (
        "STRATEGY = ShardingStrategy.FULL_SHARD\n",
        "no file that imports this one wraps a model with FSDP1",
    ),
    "a trainer that saves in its own way": (
        "class Mine(transformers.Trainer):\n    def _save(self, *args):\n        pass\n\n\n" + SAVE,
        "a function that this block calls takes the state",
    ),
    "another trainer": (
        SAVE.replace("transformers.T", "mine.T"),
        "a function that this block calls",
    ),
    "a trainer's parts": (SAVE + "        trainer.push()\n", "a function that this block calls"),
    "inference mode or not": (
        "def take(model, fast):\n    with torch.inference_mode(fast):\n"
        "        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
        "            return model.state_dict()\n",
        "only known at run time",
    ),
}


@pytest.mark.parametrize(("body", "reason"), list(BLOCKED.values()), ids=list(BLOCKED))
def test_what_blocks(body: str, reason: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body, IMPORTS)
    assert [blocker.reason for blocker in found.blockers if reason in blocker.reason]


TESTED = """
def unwrap(model: FSDP):
    if isinstance(model, (FSDP, torch.nn.parallel.DistributedDataParallel)):
        return None
    return model
"""


def test_annotations_say_nothing_about_the_wrapping(tmp_path: Path) -> None:
    found, text = plan(tmp_path, "def total(model: FSDP) -> int:\n    return 1\n", IMPORTS)
    assert not found.blockers, [blocker.reason for blocker in found.blockers]
    assert "def total(model: FSDPModule) -> int:" in text
    assert not found.notes


def test_a_test_of_the_class_where_nothing_wraps_is_unsafe(tmp_path: Path) -> None:
    found, text = plan(tmp_path, TESTED, IMPORTS.replace("import transformers\n", ""))
    assert not found.blockers, [blocker.reason for blocker in found.blockers]
    assert "isinstance(model, (FSDPModule, torch.nn.parallel.DistributedDataParallel))" in text
    (note,) = [one for one in found.notes if one.unsafe]
    assert "no given file wraps a model" in note.text


GUARDED = """
try:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
except ImportError:
    FSDP = None
import torch


class Trainer:
    def save(self, path):
        if FSDP is not None and isinstance(self.model, FSDP):
            with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT):
                torch.save(self.model.state_dict(), path)
"""


def test_a_guarded_import_in_code_that_nothing_calls(tmp_path: Path) -> None:
    found, text = plan(tmp_path, GUARDED, "")
    assert not found.blockers, [blocker.reason for blocker in found.blockers]
    assert "if FSDPModule is not None and isinstance(self.model, FSDPModule):" in text
    assert "    FSDPModule = None\n" in text
    assert "get_model_state_dict(" in text


@pytest.mark.parametrize(
    "other",
    [
        "from accelerate import Accelerator\n\naccelerator = Accelerator()\n",
        "import transformers\n\ntransformers.Trainer(model).train()\n",
        "from transformers import Trainer, TrainingArguments\n\n"
        "Trainer(model, TrainingArguments()).train()\n",
        "from torch.distributed.fsdp import FullyShardedDataParallel\n"
        "from train import unwrap\n\nunwrap(FullyShardedDataParallel(net))\n",
    ],
    ids=["Accelerate", "a module of trainers", "a trainer", "a file that is not given"],
)
def test_a_test_of_the_class_of_what_other_files_wrap(other: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "other.py").write_text(other, encoding="utf-8")
    found, _ = plan(tmp_path, TESTED, IMPORTS.replace("import transformers\n", ""))
    assert [one.code for one in found.blockers] == ["FSDP201-wrapped-elsewhere"]


def test_a_trainer_of_older_releases_blocks(tmp_path: Path) -> None:
    """Before 4.36 it takes the state in the way that the block says."""
    (tmp_path / "requirements.txt").write_text("transformers>=4.28,<4.30\n", encoding="utf-8")
    (tmp_path / ".git").mkdir()
    found, _ = plan(tmp_path, SAVE, IMPORTS)
    (blocker,) = found.blockers
    assert "with the type that this block sets" in blocker.reason
    assert "4.36" in blocker.advice
    (tmp_path / "requirements.txt").write_text("transformers>=4.36\n", encoding="utf-8")
    assert not plan(tmp_path, SAVE, IMPORTS)[0].blockers


RUN = """
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    StateDictType,
    fully_shard,
)

dist.init_process_group("gloo")
torch.manual_seed(0)
WHOLE = StateDictOptions(full_state_dict=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Linear(8, 8, bias=False)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 8, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.norm(self.embedding(x)))


def train(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    model(torch.randn(4, 8, generator=generator)).sum().backward()
    optimizer.step()
    return optimizer


def in_block(model, optimizer):
    configs = (
        FullStateDictConfig(offload_to_cpu=False, rank0_only=False),
        FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=False),
    )
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, *configs):
        return model.state_dict(), FSDP.optim_state_dict(model, optimizer)


def with_getters(model, optimizer):
    return (
        get_model_state_dict(model, options=WHOLE),
        get_optimizer_state_dict(model, optimizer, options=WHOLE),
    )


def difference(one, other, path=""):
    if isinstance(one, dict):
        assert list(one) == list(other), (path, list(one), list(other))
        for key in one:
            difference(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for number, (left, right) in enumerate(zip(one, other)):
            difference(left, right, f"{path}.{number}")
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and torch.equal(one, other), (path, one, other)
    else:
        assert one == other, (path, one, other)


net = Net()
for own in (False, True):
    model = FSDP(copy.deepcopy(net), use_orig_params=own, device_id=torch.device("cpu"))
    optimizer = train(model)
    before = in_block(model, optimizer)
    difference(before, with_getters(model, optimizer))
mesh = init_device_mesh("cpu", (2,))
model = fully_shard(copy.deepcopy(net), mesh=mesh)
optimizer = train(model)
after = with_getters(model, optimizer)
assert set(before[0]) == set(after[0])
for name, value in before[0].items():
    torch.testing.assert_close(value, after[0][name])

# Inference mode: FSDP1's states can be taken under it, FSDP2's only under no_grad.
try:
    with torch.inference_mode():
        get_model_state_dict(model, options=WHOLE)
    raise SystemExit("FSDP2's states can be taken under inference mode")
except RuntimeError as error:
    assert "inference tensor" in str(error)
with torch.no_grad():
    first = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
assert bool(first) == (dist.get_rank() == 0)
dist.destroy_process_group()
"""


def test_the_getters_take_from_fsdp1_what_a_block_takes(two_ranks: TwoRanks) -> None:
    outcome = two_ranks.run(RUN)
    assert outcome.status == "ok", outcome.error
