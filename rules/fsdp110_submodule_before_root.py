"""FSDP110: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Site, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.early_calls import early_calls


class SubmoduleBeforeRoot(Rule):
    """A sharded part of a model is called before the sharded model itself.

    ## What it does
    Finds programs in which the first call of a sharded model goes to one of its sharded submodules,
    from outside (to compute features once, say), and which call the model afterwards.

    After the first call of the model, calls of its parts are fine. So they are where the model is never
    called, or where it is not sharded itself, and with FSDP1 after its state was taken or loaded.

    ## Why is this bad?
    The first sharded module that is called becomes the root. The call of the real root then ends with
    `RuntimeError: FSDP state has already been lazily initialized for encoder. FSDP requires running
    forward through the root module first`. FSDP1 ends with ``AssertionError: Non-root FSDP
    instance's `_is_root` should not have been set yet``.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - pytorch/pytorch PR #117881 and #86343.
    """

    code = "FSDP110"
    name = "submodule-before-root"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for early in early_calls(groups):
            if early.call.site not in seen:
                seen.add(early.call.site)
                yield self._finding(groups, early.part, early.whole, early.call, early.later)

    def _finding(
        self, groups: Groups, part: str, root: str, call: Called, later: Called
    ) -> Finding:
        trace = groups.trace
        name, whole = groups.name(trace.unwrapped(part)), groups.name(trace.unwrapped(root))
        return self.finding(
            call,
            f"{name} is called before {whole}, which contains it and is sharded too: the call of "
            f"{whole} will fail",
            help=f"Call {whole} first, or run this in a method of it that is registered with "
            f"`register_fsdp_forward_method`.",
            because=[(later, "the whole model is called here")],
        )

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.encoder(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
fully_shard(model.encoder)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(16, 4)
with torch.no_grad():
    print("features", model.encoder(inputs).mean().item())  # <- FSDP110
model(inputs).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
""",
            symptom=Symptom(raises="FSDP state has already been lazily initialized for encoder"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Captioner(nn.Module):
    def __init__(self, vision):
        super().__init__()
        self.vision = vision
        self.text = nn.Linear(8, 4)

    def forward(self, images):
        return self.text(self.vision(images))


class Trainer:
    def __init__(self):
        vision = FSDP(nn.Linear(4, 8), device_id=torch.device("cpu"))
        self.model = FSDP(Captioner(vision), device_id=torch.device("cpu"))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def check_vision(self, images):
        return self.model.module.vision(images).shape  # <- FSDP110

    def train(self, images):
        print("vision gives", self.check_vision(images))
        self.model(images).pow(2).mean().backward()
        self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer().train(torch.randn(16, 4))
    dist.destroy_process_group()
""",
            symptom=Symptom(raises="`_is_root` should not have been set yet"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def warm_up(layers, x):
    for layer in layers:
        x = layer(x)  # <- FSDP110
    return x


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))
for layer in model:
    fully_shard(layer)
warm_up(model, torch.randn(2, 4))
fully_shard(model)
model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
""",
            symptom=Symptom(raises="FSDP state has already been lazily initialized"),
        ),
    )

    good = (
        Good(
            why="the model was called before its part",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.encoder(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
fully_shard(model.encoder)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(16, 4)
for _ in range(2):
    model(inputs).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        print("features", model.encoder(inputs).mean().item())
dist.destroy_process_group()
""",
        ),
        Good(
            why="the parts are all that is sharded and called: two roots",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Linear(4, 2)
        self.critic = nn.Linear(4, 1)


dist.init_process_group("gloo")
torch.manual_seed(0)
pair = Pair()
fully_shard(pair.actor)
fully_shard(pair.critic)
optimizer = torch.optim.SGD(pair.parameters(), lr=0.1)
inputs = torch.randn(16, 4)
(pair.actor(inputs).mean() + pair.critic(inputs).mean()).backward()
optimizer.step()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the state of FSDP1's model was loaded before, which makes it the root",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
start = {name: value * 2 for name, value in model.state_dict().items()}
model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=torch.device("cpu"))
model.load_state_dict(start)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(16, 4)
print("features", model[0](inputs).shape)
model(inputs).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the part was called before anything was sharded",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
inputs = torch.randn(16, 4)
print("features", model[0](inputs).shape)
fully_shard(model[0])
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(inputs).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
""",
        ),
        Good(
            why="only the part is ever called; the whole is sharded for its state dict",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
fully_shard(model[0])
fully_shard(model)
with torch.no_grad():
    print("features", model[0](torch.randn(16, 4)).shape)
print(len(model.state_dict()), "tensors")
dist.destroy_process_group()
""",
        ),
    )
