"""What a migration says about behaviour and cost: each thing once, with its lines."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import plan

from fsdplint.diagnostics.finding import Safety
from fsdplint.interpreter import load
from fsdplint.migration.planner import plans_of

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import BackwardPrefetch, MixedPrecision
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
model = FSDP(model, device_id=torch.device("cpu"){arguments})
{before}
optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
model(torch.randn(2, 4)).sum().backward()
{after}
optimizer.step()
"""


def notes(
    folder: Path, arguments: str = "", before: str = "", after: str = ""
) -> dict[str, list[int]]:
    file = folder / "train.py"
    file.write_text(PROGRAM.format(arguments=arguments, before=before, after=after))
    (plan,) = plans_of(load([file]))
    assert not plan.blockers, [blocker.reason for blocker in plan.blockers]
    return {
        note.text: [source.location(node).line for source, node in note.places]
        for note in plan.notes
    }


def test_none_where_nothing_changes(tmp_path: Path) -> None:
    assert notes(tmp_path) == {}


@pytest.mark.parametrize(
    ("words", "lines", "arguments", "before", "after"),
    [
        (
            "always prefetches",
            [9],
            ", backward_prefetch=BackwardPrefetch.BACKWARD_POST",
            "",
            "",
        ),
        ("forward prefetching", [9], ", forward_prefetch=True", "", ""),
        (
            "clips by the norm over all ranks",
            [13, 14],
            "",
            "",
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)",
        ),
        (
            "counted whole",
            [10],
            "",
            "print(sum(p.numel() for p in model.parameters()))",
            "",
        ),
        (
            "their whole shape",
            [10],
            ", use_orig_params=True",
            "decay = [p for p in model.parameters() if p.dim() >= 2]",
            "",
        ),
        (
            "their own names",
            [10],
            "",
            "decay = [p for n, p in model.named_parameters() if 'bias' not in n]",
            "",
        ),
        (
            "begin with the attributes of the model",
            [10],
            ", use_orig_params=True",
            "decay = [p for n, p in model.named_parameters() if n.startswith('weight')]",
            "",
        ),
        (
            "accumulated in `reduce_dtype`",
            [13],
            ", mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
            "",
            "with model.no_sync():\n    model(torch.randn(2, 4)).sum().backward()",
        ),
        ("each rank keeps the model", [9], ", sync_module_states=True", "", ""),
    ],
)
def test_once_with_its_lines(
    words: str, lines: list[int], arguments: str, before: str, after: str, tmp_path: Path
) -> None:
    found = notes(tmp_path, arguments, before, after)
    (text,) = [text for text in found if words in text]
    assert found[text] == lines
    assert len(found) == 1, found


def test_what_is_no_parameter_makes_no_note(tmp_path: Path) -> None:
    assert notes(tmp_path, before="x = torch.randn(2)\nprint(x.numel(), x.dim() == 1)") == {}


HELPER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy

device = torch.device("cpu")


def wrap(model, sharding_strategy):
    {first}
    return FSDP(model, sharding_strategy=sharding_strategy, device_id=device)


dist.init_process_group("gloo")
model = wrap(nn.Linear(4, 4), ShardingStrategy.{one})
other = wrap(nn.Linear(4, 4), sharding_strategy=ShardingStrategy.{two})
"""


@pytest.mark.parametrize(
    ("one", "two", "first", "unread", "switch"),
    [
        ("FULL_SHARD", "FULL_SHARD", "pass", True, False),
        ("FULL_SHARD", "FULL_SHARD", "print(sharding_strategy)", False, False),
        ("FULL_SHARD", "SHARD_GRAD_OP", "pass", False, True),
        ("SHARD_GRAD_OP", "SHARD_GRAD_OP", "pass", False, True),
    ],
)
def test_a_parameter_that_nothing_reads_any_more(
    one: str, two: str, first: str, unread: bool, switch: bool, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(HELPER.format(one=one, two=two, first=first))
    (plan,) = plans_of(load([file]))
    assert not plan.blockers, [blocker.reason for blocker in plan.blockers]
    text = "`wrap` no longer reads its parameter `sharding_strategy`"
    found = {
        note.text: [source.location(node).line for source, node in note.places]
        for note in plan.notes
    }
    assert found == ({text: [9]} if unread else {})
    test = 'if sharding_strategy == "SHARD_GRAD_OP":'
    assert any(test in edit.text for edit in plan.edits) is switch


def test_the_object_of_a_method_is_not_named_as_unread(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import torch\nimport torch.distributed as dist\nimport torch.nn as nn\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "class Trainer:\n    def __init__(self, device):\n        self.device = device\n"
        "        self.net = self.wrap(nn.Linear(4, 4), device)\n\n"
        "    def wrap(self, net, device):\n        return FSDP(net, device_id=self.device)\n\n\n"
        'dist.init_process_group("nccl")\nTrainer(torch.cuda.current_device())\n'
    )
    (plan,) = plans_of(load([file]))
    assert not plan.blockers, [blocker.reason for blocker in plan.blockers]
    assert not [note for note in plan.notes if "`self`" in note.text]


NAMED = {
    "groups": """
        groups = [
            {"params": [p for n, p in model.named_parameters() if "bias" not in n], "weight_decay": 0.1},
            {"params": [p for n, p in model.named_parameters() if n.endswith("bias")]},
        ]
        optimizer = torch.optim.AdamW(groups)
    """,
    "frozen parameters": """
        for name, parameter in model.named_parameters():
            if "bias" in name:
                parameter.requires_grad = False
        optimizer = torch.optim.AdamW(model.parameters())
    """,
}
TESTED = "parameters have their own names: tests of them may choose others"


@pytest.mark.parametrize("body", list(NAMED.values()), ids=list(NAMED))
def test_tests_of_names_of_flat_parameters(body: str, tmp_path: Path) -> None:
    wrapped = "model = FSDP(Net())\n" + textwrap.dedent(body)
    found, _ = plan(tmp_path, wrapped)
    assert [note.unsafe for note in found.notes if note.text == TESTED] == [True]
    wrapped = wrapped.replace("FSDP(Net())", "FSDP(Net(), use_orig_params=True)")
    found, _ = plan(tmp_path, wrapped)
    assert TESTED not in [note.text for note in found.notes]


def test_names_that_are_only_printed(tmp_path: Path) -> None:
    body = """
        model = FSDP(Net())
        for name, parameter in model.named_parameters():
            if "bias" in name:
                print(name, parameter.shape)
    """
    found, _ = plan(tmp_path, body)
    assert [note.unsafe for note in found.notes if note.text == TESTED] == [False]


POSITIONS = {
    "a part of the list": """
        params = list(model.parameters())
        optimizer = torch.optim.AdamW([{"params": params[1:], "lr": 0.1}, {"params": params[:1]}])
    """,
    "a variable with a part": """
        params = list(model.parameters())
        rest = params[1:]
        optimizer = torch.optim.AdamW(rest)
    """,
    "unpacked": """
        first, *rest = list(model.parameters())
        optimizer = torch.optim.AdamW([{"params": rest, "lr": 0.1}, {"params": [first]}])
    """,
    "counted": """
        optimizer = torch.optim.AdamW(
            [{"params": [p], "lr": 0.1 * 0.5**i} for i, p in enumerate(model.parameters())]
        )
    """,
    "counted by hand": """
        groups, depth = [], 0
        for p in model.parameters():
            groups.append({"params": [p], "lr": 0.1 * 0.5**depth})
            depth += 1
        optimizer = torch.optim.AdamW(groups)
    """,
}
BY_POSITION = (
    "parameters are chosen by position: FSDP2 has the parameters of the model in its order"
)


@pytest.mark.parametrize("body", list(POSITIONS.values()), ids=list(POSITIONS))
def test_flat_parameters_that_are_chosen_by_position(body: str, tmp_path: Path) -> None:
    wrapped = "model = FSDP(Net())\n" + textwrap.dedent(body)
    found, _ = plan(tmp_path, wrapped)
    assert [note.unsafe for note in found.notes if note.text == BY_POSITION] == [True]
    wrapped = wrapped.replace("FSDP(Net())", "FSDP(Net(), use_orig_params=True)")
    found, _ = plan(tmp_path, wrapped)
    assert BY_POSITION not in [note.text for note in found.notes]


def test_positions_that_do_not_decide_training(tmp_path: Path) -> None:
    body = """
        model = FSDP(Net())
        params = list(model.parameters())
        print(params[0].device)
        optimizer = torch.optim.AdamW(params)
        groups = [{"params": [p]} for i, p in enumerate(model.parameters())]
        for i, p in enumerate(model.parameters()):
            print(i, p.shape)
    """
    found, _ = plan(tmp_path, body)
    assert BY_POSITION not in [note.text for note in found.notes]


def test_parameters_that_a_library_gets(tmp_path: Path) -> None:
    body = """
        import hivemind
        from ranger import Ranger

        model = FSDP(Net())
        hivemind.Optimizer(params=model.parameters(), optimizer=torch.optim.AdamW)
        Ranger(model.parameters())
        Ranger([torch.zeros(3)])
    """
    found, _ = plan(tmp_path, body)
    given = [note.text for note in found.notes if note.text.endswith("are DTensors")]
    assert given == [
        "`hivemind.Optimizer` gets parameters that are DTensors",
        "`ranger.Ranger` gets parameters that are DTensors",
    ]


SAVED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from transformers import AutoModelForCausalLM, AutoTokenizer

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = {model}
tokenizer = AutoTokenizer.from_pretrained("gpt2")
model = FSDP(model, device_id=torch.cuda.current_device())
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):
    state = model.state_dict()
if dist.get_rank() == 0:
    tokenizer.save_pretrained("out")
    model.save_pretrained("out", state_dict=state)
"""


@pytest.mark.parametrize(
    ("model", "lines"),
    [
        ("AutoModelForCausalLM.from_pretrained('gpt2')", [17]),
        ("unknown.make_model()", None),
    ],
)
def test_the_name_of_a_class_in_a_saved_configuration(
    tmp_path: Path, model: str, lines: list[int] | None
) -> None:
    file = tmp_path / "train.py"
    file.write_text(SAVED.format(model=model))
    (plan,) = plans_of(load([file]))
    assert not plan.blockers, [blocker.reason for blocker in plan.blockers]
    found = {
        note.text: [source.location(node).line for source, node in note.places]
        for note in plan.notes
    }
    (text,) = [one for one in found if "config.json" in one] or [""]
    assert found.get(text) == lines


HYBRID = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy

dist.init_process_group("gloo")
world, size = dist.get_world_size(), {size}
mesh = init_device_mesh("cpu", (world // size, size), mesh_dim_names=("replicate", "shard"))
model = FSDP(
    nn.Linear(4, 4),
    device_mesh=mesh,
    sharding_strategy=ShardingStrategy.{strategy},
    device_id=torch.device("cpu"),
)
model(torch.randn(2, 4)).sum().backward()
"""


@pytest.mark.parametrize(
    ("size", "strategy", "words", "unsafe"),
    [
        ("1", "HYBRID_SHARD", "gradients are averaged over all ranks", True),
        ("1", "_HYBRID_SHARD_ZERO2", "gradients are averaged over all ranks", True),
        ("int(input())", "HYBRID_SHARD", "if a shard group has one rank", False),
        ("2", "HYBRID_SHARD", "", False),
    ],
)
def test_shard_groups_of_one_rank(
    size: str, strategy: str, words: str, unsafe: bool, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(HYBRID.format(size=size, strategy=strategy))
    (plan,) = plans_of(load([file]))
    assert not plan.blockers
    found = [note.text for note in plan.notes]
    assert any(words in text for text in found) if words else not found
    assert (plan.safety is Safety.UNSAFE) is unsafe
