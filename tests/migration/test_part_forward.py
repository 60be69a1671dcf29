"""An embedding whose `forward` is called before the model: noise on embeddings."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

MODEL = """\
from transformers import AutoModelForCausalLM

policy = functools.partial(
    transformer_auto_wrap_policy, transformer_layer_cls={Block, nn.Embedding}
)
model = FSDP(AutoModelForCausalLM.from_pretrained("x"), auto_wrap_policy=policy)
"""
LOOP = """\
for ids in torch.ones(4, 2, 3, dtype=torch.long):
    noise = 0.1
    if noise:
        # of the embeddings
        embeds = model._fsdp_wrapped_module.model.embed_tokens.forward(ids)
        embeds = embeds + noise
    out = model(inputs_embeds=embeds)
    out.loss.backward()
"""


def test_the_embedding_is_gathered_before(tmp_path: Path) -> None:
    text = migrated(tmp_path, MODEL + LOOP)
    assert (
        """
    if noise:
        # of the embeddings
        model.model.embed_tokens.unshard()
        embeds = model.model.embed_tokens.forward(ids)
        embeds = embeds + noise
    out = model(inputs_embeds=embeds)
"""
        in text
    )
    found, _ = plan(tmp_path, MODEL + LOOP)
    assert any("stays gathered until the backward pass" in note.text for note in found.notes)


BLOCKED = {
    "a part that may not be a unit": LOOP.replace("embed_tokens", "embedder"),
    "an element of several parts": LOOP.replace("embed_tokens", "tables[0].wte"),
    "no backward pass": LOOP.replace("out.loss.backward()", "print(out)"),
    "perhaps no backward pass": LOOP.replace("    out.loss", "    if out.loss:\n        out.loss"),
    "a pass that ends before": LOOP.replace(
        "    out =", "    if ids.sum():\n        break\n    out ="
    ),
    "a backward pass after several": LOOP.replace("    out.loss", "out.loss"),
    "a loss that is not the model's": LOOP.replace("model(inputs", "other(inputs"),
    "a function for later": LOOP.replace("= model._fsdp", "= lambda ids: model._fsdp"),
    "a policy without embeddings": (LOOP, "{Block, nn.Embedding}", "{Block}"),
    "a policy by size": (
        LOOP,
        "transformer_auto_wrap_policy, transformer_layer_cls={Block, nn.Embedding}",
        "size_based_auto_wrap_policy, min_num_params=100",
    ),
    "no policy": (LOOP, ", auto_wrap_policy=policy", ""),
}


@pytest.mark.parametrize("case", list(BLOCKED.values()), ids=list(BLOCKED))
def test_other_parts_block(case: str | tuple[str, str, str], tmp_path: Path) -> None:
    loop, old, new = case if isinstance(case, tuple) else (case, "", "")
    found, _ = plan(tmp_path, MODEL.replace(old, new) + loop)
    assert any("`.forward` of a part" in blocker.reason for blocker in found.blockers)


BEFORE, IN_SIGHT = "before, in the model's part", "before, of a class in sight"
CALLED = {
    BEFORE: LOOP.replace(".forward(", "("),
    "before, by the model's method": LOOP.replace(
        "._fsdp_wrapped_module.model.embed_tokens.forward(", ".get_input_embeddings()("
    ),
    IN_SIGHT: """\
model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
model.load_state_dict(torch.load("x.pt"))
for x in torch.ones(4, 2, 8):
    model(model.blocks[0](x)).sum().backward()
""",
}


@pytest.mark.parametrize("loop", list(CALLED.values()), ids=list(CALLED))
def test_a_part_that_is_called_first_blocks(loop: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, MODEL + loop)
    assert any("called before the model itself" in blocker.reason for blocker in found.blockers)


def test_a_part_that_is_called_afterwards_does_not_block(tmp_path: Path) -> None:
    first = "model(input_ids=torch.ones(2, 3, dtype=torch.long))\n"
    assert "embed_tokens(ids)" in migrated(tmp_path, MODEL + first + CALLED[BEFORE])
    inside = CALLED[IN_SIGHT].replace("model(model.blocks[0](x))", "model(x)")
    migrated(tmp_path, inside)


PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(32, 16)
        self.blocks = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])
        self.head = nn.Linear(16, 32)

    def forward(self, ids=None, embeds=None):
        x = self.embed_tokens(ids) if embeds is None else embeds
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return self.head(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(
    Net(),
    auto_wrap_policy=ModuleWrapPolicy({nn.Linear, nn.Embedding}),
    mixed_precision=MixedPrecision(
        param_dtype=torch.PRECISION, reduce_dtype=torch.PRECISION, buffer_dtype=torch.PRECISION
    ),
    device_id=torch.device("cpu"),
)
with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    model.load_state_dict(model.state_dict())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(4):
    for _ in range(2):
        ids = torch.randint(0, 32, (2, 5), generator=generator)
        if step != 2:
            embeds = model.embed_tokens.forward(ids)
            logits = model(embeds=embeds + 0.1).float() + model(ids).float() * (step == 3)
        else:
            logits = model(ids).float()
        loss = logits.pow(2).mean()
        loss.backward()
        print(f"loss {loss.item():.9g}")
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_losses_are_the_same(precision: str, tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    code = PROGRAM.replace("PRECISION", precision)
    path.write_text(code, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FullyShardedDataParallel" not in after and "embed_tokens.unshard()" in after
    old, new = two_ranks.run(code), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert "loss" in old.stdout
    assert new.stdout == old.stdout


INSPECTED = """\
model = FSDP(Net())
if os.environ.get("WORLD_SIZE"):
    forward = model.module.forward
else:
    forward = Net().forward
{use}
"""


@pytest.mark.parametrize(
    "use",
    [
        "print(inspect.signature(forward).parameters)",
        "if inspect.ismethod(forward):\n    print(inspect.getfullargspec(forward).args)",
    ],
)
def test_a_forward_of_which_only_the_signature_is_read(use: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, f"import inspect\n\n{INSPECTED.format(use=use)}")
    assert "    forward = model.forward\n" in text


def test_a_signature_that_is_read_in_place(tmp_path: Path) -> None:
    body = "import inspect\n\nmodel = FSDP(Net())\nprint(inspect.signature(model.module.forward))"
    assert "inspect.signature(model.forward)" in migrated(tmp_path, body)


def test_a_forward_that_is_also_called_blocks(tmp_path: Path) -> None:
    use = "print(inspect.signature(forward).parameters)\nforward(torch.ones(2, 8))"
    found, _ = plan(tmp_path, f"import inspect\n\n{INSPECTED.format(use=use)}")
    assert any("`.forward` of a part" in one.reason for one in found.blockers)
