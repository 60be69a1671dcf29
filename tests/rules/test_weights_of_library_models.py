"""FSDP422: models of libraries that a program casts, or loads in low precision."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import peft, torch, transformers
import torch.distributed as dist
from library import prepare
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("nccl")
config = transformers.LlamaConfig()
model = MODEL
fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for batch in batches:
    model(batch).logits.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LLAMA = "transformers.LlamaForCausalLM(config)"
AUTO = "transformers.AutoModelForCausalLM"
LOADED = f"{AUTO}.from_pretrained('x', torch_dtype=torch.bfloat16)"


@pytest.mark.parametrize(
    "model, count",
    [
        (f"{LLAMA}.to(dtype=torch.bfloat16)", 1),
        (f"{LLAMA}.bfloat16()", 1),
        (LOADED, 1),
        (f"{AUTO}.from_pretrained('x', dtype=torch.bfloat16)", 1),
        (f"{AUTO}.from_config(config, torch_dtype=torch.bfloat16)", 1),
        (LLAMA, 0),
        (f"{LLAMA}.to('cuda')", 0),
        (f"{LLAMA}.bfloat16().float()", 0),
        (f"{AUTO}.from_pretrained('x')", 0),
        (f"{AUTO}.from_pretrained('x', torch_dtype='auto')", 0),
        (f"{AUTO}.from_pretrained('x', torch_dtype=unknown)", 0),
        (f"{AUTO}.from_pretrained('x', **unknown)", 0),
        (f"{AUTO}.from_pretrained('x', dtype=torch.bfloat16, quantization_config=unknown)", 0),
        (f"{LOADED}.float()", 0),
        (f"peft.get_peft_model({LOADED}, unknown)", 0),
        (f"prepare({LOADED})", 0),
        (f"torch.nn.Sequential({LLAMA}).bfloat16()", 1),
        (f"torch.nn.Sequential({LLAMA}, *unknown).bfloat16()", 0),
        ("torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in sizes]).bfloat16()", 1),
        (f"{LOADED}\nprepare(model)", 0),
        (f"{LOADED}\nmodel.requires_grad_(False)", 0),
        (f"{LOADED}\nfor p in model.parameters():\n    p.data = p.data.float()", 0),
        (f"{LOADED}\nmodel.head = torch.nn.Linear(4, 4)", 0),
    ],
)
def test_the_dtype_of_the_weights(tmp_path: Path, model: str, count: int) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("MODEL", model))
    rule = rule_by_code("FSDP422")()
    assert sum(len(list(rule.check(trace))) for trace in load([path]).traces) == count


BLOCKS = """
for block in model.model.layers:
    fully_shard(block, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
"""
BY_CLASS = """
for module in reversed(list(model.modules())):
    if isinstance(module, type(model.model.layers[0])):
        fully_shard(module, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
"""
OWN = """\
class Net(transformers.PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])


"""


@pytest.mark.parametrize(
    "model, count",
    [
        (LOADED + BLOCKS, 1),
        (LOADED + BY_CLASS, 1),
        (f"{AUTO}.from_pretrained('x'){BLOCKS}", 0),
        ("Net._from_config(config, torch_dtype=torch.bfloat16)", 1),
        ("Net.from_pretrained('x', dtype=torch.bfloat16)", 1),
        ("Net._from_config(config)", 0),
    ],
)
def test_models_whose_parts_are_sharded_or_known(tmp_path: Path, model: str, count: int) -> None:
    """One finding for a model, not one for each of its blocks."""
    path = tmp_path / "program.py"
    text = PROGRAM.replace("model = MODEL", f"{OWN}model = {model}")
    path.write_text(text)
    rule = rule_by_code("FSDP422")()
    found = [len({f.message for f in rule.check(trace)}) for trace in load([path]).traces]
    assert sum(found) == count
