"""Models of libraries, whose parts are unknown: units by their classes, and several models."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import compare_sides, side

HEAD = """\
import functools

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Block, T5LayerFF

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
"""
POLICY = """\
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={T5Block})
"""
FSDP1 = f"""\
{POLICY}
model = T5ForConditionalGeneration.from_pretrained("t5-base")
model = FSDP(model, auto_wrap_policy=policy, device_id=torch.cuda.current_device())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
"""
LOOP = """\
for module in reversed(list(model.modules())):
    if isinstance(module, T5Block):
        fully_shard(module)
"""
FSDP2 = f"""\
model = T5ForConditionalGeneration.from_pretrained("t5-base")
{LOOP}fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
"""


def topics(folder: Path, before: str, after: str) -> set[str]:
    """What differs between two programs, as topics and subjects."""
    sides = []
    for name, text in (("before", before), ("after", after)):
        file = folder / f"{name}.py"
        file.write_text(HEAD + text, encoding="utf-8")
        sides.append(side(file))
    facts = compare_sides(*sides).facts
    found = {f"{x.topic} {x.subject}".strip() for x in facts if x.outcome is Outcome.DIFFERS}
    return {one for one in found if not one.startswith("FSDP1 is left")}


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        ("", "", set()),
        ("T5Block)", "T5LayerFF)", {"class of units T5Block", "class of units T5LayerFF"}),
        (LOOP, "", {"class of units T5Block"}),
        (
            "fully_shard(module)",
            "fully_shard(module, reshard_after_forward=False)",
            {"reshard_after_forward each T5Block"},
        ),
        ("fully_shard(model)\n", "", {"unit model"}),
        ("lr=0.002", "lr=0.02", {"optimizer lr"}),
    ],
)
def test_units_of_a_class(tmp_path: Path, old: str, new: str, differs: set[str]) -> None:
    assert topics(tmp_path, FSDP1, FSDP2.replace(old, new)) == differs


TEST = "isinstance(module, T5Block)"
SETTINGS = """\
from dataclasses import dataclass
from transformers import HfArgumentParser

@dataclass
class Settings:
    layer: type = T5Block

(settings,) = HfArgumentParser(Settings).parse_args_into_dataclasses()
"""
OTHERS = f"{TEST}:\n        continue\n    elif isinstance(module, T5LayerFF)"


@pytest.mark.parametrize(
    ("classes", "test", "differs"),
    [
        ("T5Block, T5LayerFF", "isinstance(module, (T5Block, T5LayerFF))", set()),
        ("T5Block, T5LayerFF", "isinstance(module, T5Block | T5LayerFF)", set()),
        ("T5Block, T5LayerFF", f"{TEST} or isinstance(module, T5LayerFF)", set()),
        ("T5Block", f"{TEST} and not isinstance(module, T5LayerFF)", set()),
        ("T5LayerFF", OTHERS, set()),
        ("T5Block", OTHERS, {"class of units T5Block", "class of units T5LayerFF"}),
        ("T5Block", "isinstance(module, classes)", set()),  # not followed
        ("T5Block", "isinstance(module, (*classes,))", set()),
        ("settings.layer", "isinstance(module, settings.layer)", set()),
    ],
)
def test_tests_of_several_classes(
    tmp_path: Path, classes: str, test: str, differs: set[str]
) -> None:
    before = SETTINGS + FSDP1.replace("{T5Block}", f"{{{classes}}}")
    after = SETTINGS + "classes = (T5Block,)\n" + FSDP2.replace(TEST, test)
    assert topics(tmp_path, before, after) == differs


def test_a_policy_that_the_program_reads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    before = FSDP1.replace(POLICY, "from policies import policy\n")
    assert topics(tmp_path, before, FSDP2) == set()


def test_two_models_of_a_class(tmp_path: Path) -> None:
    teacher = 'teacher = T5ForConditionalGeneration.from_pretrained("t5-large")\n'
    before = FSDP1 + teacher + "teacher = FSDP(teacher)\n"
    after = FSDP2 + teacher + "fully_shard(teacher)\n"
    clip = "torch.nn.utils.clip_grad_norm_({}.parameters(), 1.0)\n"
    clipped = before + "model.clip_grad_norm_(1.0)\n"
    assert topics(tmp_path, clipped, after + clip.format("model")) == set()
    other = topics(tmp_path, clipped, after + clip.format("teacher"))
    assert other == {"parameters that are clipped"}


GUARDED = """\
try:
    from transformers.models.t5.modeling_t5 import T5Block
except ImportError:
    T5Block = None

policy = None
if T5Block is not None:
    policy = """


def test_a_class_that_a_library_may_lack(tmp_path: Path) -> None:
    before = FSDP1.replace("policy = ", GUARDED, 1)
    loop = LOOP.replace("\n", "\n    ").strip().replace(TEST, "policy(module)")
    policy = f"{GUARDED}lambda module: {TEST}\nif policy is not None:\n    {loop}\n"
    after = FSDP2.replace(LOOP, "")
    first, rest = after.split("\n", 1)
    assert topics(tmp_path, before, f"{first}\n{policy}{rest}") == set()
