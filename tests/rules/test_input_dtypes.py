"""FSDP711: layers whose unit computes in another dtype than their input has."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

MODEL = """
from dataclasses import dataclass
from torch.distributed.fsdp import MixedPrecisionPolicy


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        hidden = torch.nn.functional.gelu(self.up(self.norm(x)))
        return x + self.down(hidden)


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.head = nn.Linear(width, 20)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        {before}return self.head(x)


@dataclass
class Config:
    dtype: str = "bfloat16"


dist.init_process_group("nccl")
config = Config()
model = Model()
{setup}
policy = MixedPrecisionPolicy({policy})
for block in model.blocks:
    fully_shard(block, mp_policy=policy)
fully_shard(model{root})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    with {context}:
        loss = model(torch.randint(0, 20, (4, 6))).float().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
BFLOAT16 = "param_dtype=torch.bfloat16"


def of_model(
    folder: Path,
    policy: str = BFLOAT16,
    root: str = "",
    before: str = "",
    setup: str = "",
    context: str = "contextlib.nullcontext()",
) -> set[str]:
    code = "import contextlib\n" + MODEL.format(
        policy=policy, root=root, before=before, setup=setup, context=context
    )
    return {one.rule.code for one in findings(program(folder, code), "FSDP711")}


@pytest.mark.parametrize(
    "policy",
    [
        BFLOAT16,
        "torch.bfloat16, torch.float32",
        "param_dtype=getattr(torch, config.dtype)",
        "param_dtype=torch.float16, output_dtype=torch.bfloat16",
    ],
)
def test_a_head_without_the_policy_of_the_blocks(tmp_path: Path, policy: str) -> None:
    assert of_model(tmp_path, policy) == {"FSDP711"}


@pytest.mark.parametrize(
    "policy", [BFLOAT16 + ", output_dtype=torch.float32", "", "reduce_dtype=torch.float32"]
)
def test_blocks_that_return_float32(tmp_path: Path, policy: str) -> None:
    assert not of_model(tmp_path, policy)


@pytest.mark.parametrize(
    "change",
    [
        {"root": ", mp_policy=policy"},
        {"before": "x = x.float()\n        "},
        {"before": "x = x.to(self.head.weight.dtype)\n        "},
        {"before": "x = convert(x)\n        "},
        {"context": 'torch.autocast("cuda", dtype=torch.bfloat16)'},
        {"setup": "model.to(torch.bfloat16)"},
        {"setup": "model.head.to(torch.bfloat16)"},
        {"root": ", ignored_params={*model.head.parameters()}"},
        {"setup": "model.head.register_forward_pre_hook(cast_input)"},
        {"setup": "torch.set_default_dtype(torch.bfloat16)\nmodel = Model()"},
    ],
)
def test_a_program_that_casts(tmp_path: Path, change: dict[str, str]) -> None:
    assert not of_model(tmp_path, **change)


def test_one_cast_of_another_layer_changes_nothing(tmp_path: Path) -> None:
    setup = "state = torch.load('m.pt')\nmodel.load_state_dict(state)"
    assert of_model(tmp_path, setup=setup) == {"FSDP711"}
