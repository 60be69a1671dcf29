"""Programs with their arguments of FSDP1 in dicts train the same after the migration."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """\
import functools
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


POLICY = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
MAKE
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(3):
    loss = model(torch.randn(3, 16, generator=generator)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.7f}")
print(sum(isinstance(module, FSDP) for module in model.modules()), "units")
dist.destroy_process_group()
"""


MAKE = {
    "branches": """
def wrap_model(model, how):
    options = dict(device_id=torch.device("cpu"), sync_module_states=True)
    if dist.get_world_size() == 2:
        options["sharding_strategy"] = ShardingStrategy.NO_SHARD
    if how == "whole":
        model = FSDP(model, **options)
    elif how == "blocks":
        options["auto_wrap_policy"] = POLICY
        model = FSDP(model, **options)
    else:
        for number, block in enumerate(model.blocks):
            model.blocks[number] = FSDP(block, **options)
        model = FSDP(model, **options)
    return model


model = wrap_model(Net(), os.environ["HOW"])
""",
    "keywords": """
class Trainer:
    def __init__(self, how):
        options = {"device_id": torch.device("cpu")}
        if how != "whole":
            options["auto_wrap_policy"] = POLICY
        if how == "grad_op":
            options.update(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        self.model = self.shard(Net(), options)
        self.copy = self.shard(Net(), {"device_id": torch.device("cpu")})

    def shard(self, model, options):
        return FSDP(model, use_orig_params=True, **options)


torch.manual_seed(0)
model = Trainer(os.environ["HOW"]).model
""",
    "returned": """
def options(how):
    if how == "whole":
        return dict(use_orig_params=True, device_id=torch.device("cpu"))
    found = {"device_id": torch.device("cpu"), "auto_wrap_policy": POLICY}
    if how == "no_shard":
        found["sharding_strategy"] = ShardingStrategy.NO_SHARD
    return found


torch.manual_seed(0)
arguments = options(os.environ["HOW"])
arguments["limit_all_gathers"] = True
model = FSDP(Net(), **arguments)
other = FSDP(Net(), **arguments)
""",
    "method": """
class Setup:
    def arguments(self):
        return {"device_id": torch.device("cpu"), "use_orig_params": True}

    def shard(self, model):
        return FSDP(model, **self.arguments())


class Units(Setup):
    def arguments(self):
        given = super().arguments()
        given |= {"auto_wrap_policy": POLICY}
        if os.environ["HOW"] == "grad_op":
            given["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
        return given


torch.manual_seed(0)
model = (Setup if os.environ["HOW"] == "whole" else Units)().shard(Net())
""",
    "attribute": """
class Engine:
    def __init__(self, **given):
        self.how = given.pop("how", "whole")
        self.options = {**given, "device_id": torch.device("cpu")}
        if self.how == "whole":
            self.options.pop("auto_wrap_policy")

    def shard(self, model):
        return FSDP(model, **self.options)


torch.manual_seed(0)
model = Engine(how=os.environ["HOW"], auto_wrap_policy=POLICY, sync_module_states=True).shard(Net())
""",
    "dtypes": """
class Scaled(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.linspace(0.1, 1.0, 16))

    def forward(self, x):
        return super().forward((x * self.scale).to(x.dtype))


names = {"whole": {}, "low": {"param": "bfloat16", "reduce": "float32"}}
names["buffers"] = {**names["low"], "buffer": "bfloat16"}
low = {f"{key}_dtype": getattr(torch, name) for key, name in names[os.environ["HOW"]].items()}
torch.manual_seed(0)
precision = MixedPrecision(**low) if low else None
model = FSDP(Scaled(), auto_wrap_policy=POLICY, mixed_precision=precision, device_id=torch.device("cpu"))
with torch.no_grad():
    model(torch.ones(1, 16))
print(model.scale.dtype)
""",
    "recursion": """
def shard_children(model, classes, **options):
    for name, child in model.named_children():
        shard_children(child, classes, **options)
        if isinstance(child, classes):
            setattr(model, name, FSDP(child, **options))
    return model


def shard(model, **options):
    return FSDP(shard_children(model, (Block,), **options), **options)


torch.manual_seed(0)
options = dict(device_id=torch.device("cpu"))
if os.environ["HOW"] == "grad_op":
    options["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
model = shard(Net(), **options)
""",
}


RUNS = [("branches", "whole"), ("branches", "blocks"), ("branches", "nested")]
RUNS += [("keywords", "whole"), ("keywords", "grad_op")]
RUNS += [("returned", "whole"), ("returned", "blocks"), ("returned", "no_shard")]
RUNS += [("method", "whole"), ("method", "blocks"), ("method", "grad_op")]
RUNS += [("attribute", "whole"), ("attribute", "blocks")]
RUNS += [("dtypes", "whole"), ("dtypes", "low"), ("dtypes", "buffers")]
RUNS += [("recursion", "whole"), ("recursion", "grad_op")]


@pytest.mark.sampled(1, by=lambda case: case["form"])
@pytest.mark.parametrize(("form", "how"), RUNS)
def test_the_same_losses(form: str, how: str, tmp_path: Path, two_ranks: TwoRanks) -> None:
    code = PROGRAM.replace("MAKE", MAKE[form])
    path = tmp_path / "train.py"
    path.write_text(code, encoding="utf-8")
    text = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FullyShardedDataParallel" not in text
    before, after = (two_ranks.run(x, env={"HOW": how}) for x in (code, text))
    assert before.status == after.status == "ok", f"{before}\n{after}"
    assert "units" in before.stdout
    assert after.stdout == before.stdout
