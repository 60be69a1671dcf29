"""FSDP1 in code that no run comes to, in strings and in other files: it blocks where it would be left."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

from fsdplint.diagnostics.finding import Safety
from fsdplint.interpreter import load
from fsdplint.migration.planner import plans_of

FINETUNE = """\
import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main():
    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(torch.distributed.get_rank())
    model = FSDP(nn.Linear(4, 4), device_id=torch.cuda.current_device())
    torch.optim.AdamW(model.parameters())


if __name__ == "__main__":
    main()
"""
OTHERS = {
    "a patch": (
        "from unittest.mock import patch\nimport finetune\n\n\n@patch('finetune.FSDP')\n"
        "def test_main(wrapper):\n    finetune.main()\n",
        "`'finetune.FSDP'` patches a name of FSDP1 in `finetune`",
    ),
    "a patch of an object": (
        "from unittest import mock\nimport finetune\n\n\ndef test_main():\n"
        "    with mock.patch.object(finetune, 'FSDP'):\n        finetune.main()\n",
        "`'FSDP'` patches a name of FSDP1 in `finetune`",
    ),
    "a patch under names of its own": (
        "from unittest.mock import patch as replaced\nimport finetune\n\n\n"
        "@replaced('finetune.FSDP')\ndef test_main(wrapper):\n    finetune.main()\n",
        "`'finetune.FSDP'` patches a name of FSDP1 in `finetune`",
    ),
    "a patch of a module under a name of its own": (
        "from unittest import mock\nimport finetune as program\n\n\ndef test_main():\n"
        "    with mock.patch.object(program, 'FSDP'):\n        program.main()\n",
        "`'FSDP'` patches a name of FSDP1 in `finetune`",
    ),
    "a patch by a fixture": (
        "import finetune\n\n\ndef test_main(monkeypatch):\n"
        "    monkeypatch.setattr(finetune, 'FSDP', list)\n    finetune.main()\n",
        "`'FSDP'` patches a name of FSDP1 in `finetune`",
    ),
}


@pytest.mark.parametrize(("text", "reason"), list(OTHERS.values()), ids=list(OTHERS))
@pytest.mark.parametrize("given", [True, False])
def test_what_another_file_takes_blocks(
    text: str, reason: str, given: bool, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    paths = [tmp_path / "finetune.py", tmp_path / "test_finetune.py"]
    for path, content in zip(paths, (FINETUNE, text), strict=True):
        path.write_text(content, encoding="utf-8")
    if not given and "patch" not in text.lower():
        pytest.skip("who imports a file is read in any case")
    (found,) = plans_of(load(paths if given else paths[:1]))
    assert [blocked.reason for blocked in found.blockers if reason in blocked.reason]


def test_an_import_that_nothing_uses_and_other_patches_are_left_alone(tmp_path: Path) -> None:
    paths = [tmp_path / "finetune.py", tmp_path / "other.py"]
    paths[0].write_text(FINETUNE, encoding="utf-8")
    paths[1].write_text(
        "from unittest.mock import patch\nfrom finetune import FSDP, main\n\n\n"
        "@patch('finetune.main')\n@patch('elsewhere.FSDP')\ndef test_main(one, other):\n"
        "    main()\n    dispatch('finetune.FSDP')\n\n\n"
        "def dispatch(event):\n    print(event)\n",
        encoding="utf-8",
    )
    (found,) = plans_of(load(paths))
    assert not found.blockers, [blocked.reason for blocked in found.blockers]


CLIPS = """
def clip(trainer):
    trainer.net.{call}


model = FSDP(Net())
HOOKS = {{"clip": clip}}
"""


@pytest.mark.parametrize(
    "call", ["1.0", "max_param_norm", "trainer.hyperparameters.clip, 2.0", "max_norm=1.0"]
)
def test_a_method_of_the_wrapper_that_no_run_comes_to_blocks(call: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, CLIPS.format(call=f"clip_grad_norm_({call})"))
    assert ["no run reaches this code" in blocked.reason for blocked in found.blockers] == [True]


@pytest.mark.parametrize(
    "call",
    [
        "clip_grad_norm_(trainer.parameters(), 1.0)",
        "clip_grad_norm_(list(trainer.net.parameters()), 1.0)",
        "clip_grad_norm_((weights := trainer.weights), max_norm=1.0)",
        "clip_grad_norm_([p for p in trainer.weights])",
        "no_sync_later()",
    ],
)
def test_methods_of_others_are_left_alone(call: str, tmp_path: Path) -> None:
    assert call in migrated(tmp_path, CLIPS.format(call=call))


def test_functions_of_libraries_in_other_files_are_left_alone(tmp_path: Path) -> None:
    paths = [tmp_path / "finetune.py", tmp_path / "plain.py"]
    paths[0].write_text(FINETUNE.replace("def main", "from plain import Net\n\n\ndef main"))
    paths[1].write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    pass\n\n\n"
        "def clip(weights, limit):\n    raise NotImplementedError\n"
        "    torch.nn.utils.clip_grad_norm_(weights, limit)\n"
    )
    (found,) = plans_of(load(paths))
    assert not found.blockers, [blocked.reason for blocked in found.blockers]


MESH = """
from torch.distributed.device_mesh import init_device_mesh


def make_mesh(replicas, size):
    mesh = init_device_mesh("cuda", (replicas, size))
    return mesh


hybrid = {hybrid}
mesh = make_mesh(2, 4) if hybrid else None
model = FSDP(Net(), device_mesh=mesh)
"""


@pytest.mark.parametrize("hybrid", ["False", "'HYBRID' in os.environ"])
def test_a_mesh_for_hybrid_sharding_gets_names(hybrid: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, MESH.format(hybrid=hybrid))
    assert 'mesh_dim_names=("replicate", "shard")' in " ".join(text.split())


HELD = """
net = Net()
names = {kept}
model = FSDP(net)
after = list(model.parameters())
"""


@pytest.mark.parametrize(
    ("kept", "noted"),
    [
        ("dict(net.named_parameters())", True),
        ("{n: p for n, p in net.named_parameters()}", True),
        ("[n for n, _ in net.named_children()]", False),
        ("sum(p.numel() for p in net.parameters())", False),
    ],
)
def test_parameters_that_are_held_whole_are_noted(kept: str, noted: bool, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, HELD.format(kept=kept))
    assert any("stay whole" in note.text for note in found.notes) is noted


DECAY = """
model = FSDP(Net(), use_orig_params=True)
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
torch.optim.AdamW([group for group in groups if group["params"]])
"""


@pytest.mark.parametrize(
    ("text", "safety"),
    [(DECAY, Safety.UNSAFE), (DECAY.replace("p.dim() ", "p.element_size() "), Safety.SAFE)],
)
def test_other_groups_make_the_fix_unsafe(text: str, safety: Safety, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, text)
    assert not found.blockers
    assert found.safety is safety


# Each test of a shape runs where FSDP1 has gathered the parameters.
GATHERED_TESTS = {
    "in the block": """
        {wrapped}
        with FSDP.summon_full_params(model, writeback=False):
            names = {{n for n, p in model.named_parameters() if p.ndim < 2}}
        """,
    "by a lambda": """
        {wrapped}
        is_plain = lambda name, p: p.ndim < 2 or "bias" in name
        with FSDP.summon_full_params(model, writeback=False):
            names = {{n for n, p in model.named_parameters() if is_plain(n, p)}}
        """,
    "by a function": """
        def is_plain(p):
            return len(p.shape) < 2
        {wrapped}
        names = set()
        with FSDP.summon_full_params(model, writeback=False):
            for name, parameter in model.named_parameters():
                if is_plain(parameter):
                    names.add(name)
        """,
}
CHOSEN = """
plain = [p for n, p in model.named_parameters() if n in names]
rest = [p for n, p in model.named_parameters() if n not in names]
groups = [{"params": rest, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
torch.optim.AdamW([group for group in groups if group["params"]])
"""


@pytest.mark.parametrize("form", list(GATHERED_TESTS))
def test_groups_by_shapes_of_gathered_parameters(form: str, tmp_path: Path) -> None:
    assert not _notes_shapes(tmp_path, form, "use_orig_params=True")


@pytest.mark.parametrize("form", list(GATHERED_TESTS))
def test_groups_by_shapes_of_flat_parameters(form: str, tmp_path: Path) -> None:
    assert _notes_shapes(tmp_path, form, "use_orig_params=False")


@pytest.mark.parametrize("form", ["by a lambda", "by a function"])
def test_groups_by_shapes_that_other_code_may_test(form: str, tmp_path: Path) -> None:
    assert _notes_shapes(tmp_path, form, "use_orig_params=True", "print(is_plain)\n")


def _notes_shapes(tmp_path: Path, form: str, argument: str, after: str = "") -> bool:
    """Whether the migration notes that groups may change."""
    text = textwrap.dedent(GATHERED_TESTS[form]).format(wrapped=f"model = FSDP(Net(), {argument})")
    found, _ = plan(tmp_path, text + after + CHOSEN)
    assert not found.blockers
    return any("their whole shape" in note.text for note in found.notes)


# Names in FSDP1's `named_parameters()` outside of the block have `_fsdp_wrapped_module.`.
COLLECTED = {
    "in a block": (
        """
        {wrapped}
        with FSDP.summon_full_params(model):
            names = [n for n, p in model.named_parameters() if p.ndim < 2]
        """,
        True,
    ),
    "by a loop in a block": (
        """
        {wrapped}
        names = set()
        with FSDP.summon_full_params(model):
            for n, p in model.named_parameters():
                if "bias" in n:
                    names.add(n)
        """,
        True,
    ),
    "before the wrapping": (
        """
        net = Net()
        names = {{n for n, p in net.named_parameters() if "bias" in n}}
        {wrapped}
        """,
        True,
    ),
    "with the prefix": (
        """
        {wrapped}
        names = {{n for n, p in model.named_parameters() if "bias" in n}}
        """,
        False,
    ),
    "without a certain prefix": (
        """
        {wrapped}
        names = {{n.replace("_fsdp_wrapped_module.", "") for n, p in model.named_parameters()}}
        """,
        False,
    ),
}


@pytest.mark.parametrize(("text", "noted"), list(COLLECTED.values()), ids=list(COLLECTED))
def test_names_that_are_collected_elsewhere(text: str, noted: bool, tmp_path: Path) -> None:
    net = "net" if "net = Net()" in text else "Net()"
    wrapped = f"model = FSDP({net}, use_orig_params=True)"
    found, _ = plan(tmp_path, textwrap.dedent(text).format(wrapped=wrapped) + CHOSEN)
    assert not found.blockers
    assert any("are found among them" in note.text for note in found.notes) is noted
    assert (found.safety is Safety.UNSAFE) is noted


def test_names_that_are_tested_in_a_list_of_pairs(tmp_path: Path) -> None:
    text = textwrap.dedent(COLLECTED["in a block"][0]).format(
        wrapped="model = FSDP(Net(), use_orig_params=True)\n"
        "named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]"
    )
    tests = CHOSEN.replace("model.named_parameters()", "named")
    found, _ = plan(tmp_path, text + tests)
    assert not found.blockers and found.safety is Safety.UNSAFE


@pytest.mark.parametrize("form", ["the other model is of DDP", "a lambda"])
def test_groups_by_shapes_of_a_chosen_wrapper(form: str, tmp_path: Path) -> None:
    body = """
def build(fsdp):
    net = Net()
    if fsdp:
        return FSDP(net, use_orig_params=True)
    return torch.nn.parallel.DistributedDataParallel(net)


model = build(os.environ.get("FSDP"))
"""
    if form == "a lambda":
        body += """
is_plain = lambda n, p: p.ndim < 2 or "bias" in n
named = list(model.named_parameters())
plain = [p for n, p in named if is_plain(n, p)]
rest = [p for n, p in named if not is_plain(n, p)]
"""
    else:
        body += """
plain = [p for p in model.parameters() if p.ndim < 2]
rest = [p for p in model.parameters() if p.ndim >= 2]
"""
    found, _ = plan(tmp_path, body + "\n".join(CHOSEN.splitlines()[3:]))
    assert not found.blockers and found.safety is Safety.UNSAFE


def test_the_titles_of_an_unsafe_fix_say_why(tmp_path: Path) -> None:
    wrapped = "model = FSDP(Net(), use_orig_params=True, sync_module_states=True)"
    text = DECAY.replace("model = FSDP(Net(), use_orig_params=True)", wrapped)
    found, _ = plan(tmp_path, f"{text}model.clip_grad_norm_(1.0)\n")
    titles = {found.fix(step.source, step.node).title for step in found.steps}
    assert len(titles) > 1
    assert all("(parameters have their whole shape" in title for title in titles)


STRATEGY = """
def shard(net, strategy=ShardingStrategy.SHARD_GRAD_OP):
    print(strategy.{name})
    return FSDP(net, sharding_strategy=strategy)


model = shard(Net())
"""


def test_the_name_of_a_strategy_is_the_string(tmp_path: Path) -> None:
    assert "    print(strategy)\n" in migrated(tmp_path, STRATEGY.format(name="name"))


def test_another_attribute_of_a_strategy_blocks(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, STRATEGY.format(name="value"))
    assert "`strategy.value` reads a member" in found.blockers[0].reason


def test_a_table_of_removed_values_goes(tmp_path: Path) -> None:
    text = migrated(
        tmp_path,
        """
        name = os.environ.get("PREFETCH")
        # The names of settings
        prefetches = {"pre": BackwardPrefetch.BACKWARD_PRE, "post": BackwardPrefetch.BACKWARD_POST}
        prefetch = prefetches[name]
        model = FSDP(Net(), backward_prefetch=prefetch)
        """,
    )
    assert "prefetches" not in text
    assert "BACKWARD" not in text
    assert "model = fully_shard(Net())" in text


def test_a_table_in_which_a_removed_argument_looks_up_its_value_goes(tmp_path: Path) -> None:
    text = migrated(
        tmp_path,
        """
        name = os.environ["PREFETCH"]
        prefetches = {"pre": BackwardPrefetch.BACKWARD_PRE, "none": None}
        model = FSDP(Net(), backward_prefetch=prefetches[name])
        """,
    )
    assert "prefetches" not in text and "model = fully_shard(Net())" in text


def test_a_table_that_other_code_reads_stays(tmp_path: Path) -> None:
    text = migrated(
        tmp_path,
        """
        name = os.environ.get("PREFETCH")
        sizes = {"pre": 1, "post": 2}
        size = sizes[name]
        model = FSDP(Net(), limit_all_gathers=size)
        print(sizes)
        """,
    )
    assert 'sizes = {"pre": 1, "post": 2}\nmodel = fully_shard(Net())' in text


def test_choices_between_equal_values(tmp_path: Path) -> None:
    text = migrated(
        tmp_path,
        """
        offload = bool(os.environ.get("OFFLOAD"))
        policy = CPUOffload(offload_params=offload) if offload else None
        model = FSDP(Net(), cpu_offload=policy)
        raw = model.module if dist.is_initialized() else model
        """,
    )
    assert "policy = CPUOffloadPolicy() if offload else None" in text
    assert "raw = model\n" in text
