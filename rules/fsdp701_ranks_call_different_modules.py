"""FSDP701: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import ranks
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Trace
from fsdplint.trace.queries.rank_divergence import Parting, partings


class RanksCallDifferentModules(Rule):
    """The ranks enter different sharded modules in one forward, or a different number of them.

    ## What it does
    Finds forwards of a sharded model in which the ranks do not gather the same modules in the same
    order: a router that sends each rank's batch to another expert, an encoder that only runs where
    the batch has an image, a layer that is skipped at random.

    Calls that gather nothing (the module is unsharded already, or belongs to the group of its parent) and
    modules that are sharded over a part of the ranks are not reported.

    ## Why is this bad?
    Each rank waits for the all-gather of its own module while the others are in that of
    another one. Where the sizes differ, the program hangs or the transport breaks. Where they are the same,
    as with experts, it is worse: there is no error, and all ranks compute with a mixture,
    one half of the weights from one expert and one half from the other. The gradients go the same way.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - pytorch/pytorch#158719: FSDP2 assumes that all ranks run the same program.
    """

    code = "FSDP701"
    name = "ranks-call-different-modules"
    severity = Severity.ERROR
    runtime_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen: set[object] = set()
        for outer, calls in partings(trace):
            entered = [call for call in calls.values() if call is not None]
            if any(call.site in seen for call in entered):
                continue
            seen.update(call.site for call in entered)
            event = _strange(trace, outer, calls)
            yield self.finding(
                event,
                f"the ranks part here: {_who(trace, outer, calls)}; each waits for the others "
                "to gather the same",
                help="Have all ranks run the same sharded modules in the same order: run the others too "
                "and multiply what they give by 0, or decide on all ranks together. Modules that only "
                "some ranks use can stay in the group of their parent instead of being sharded "
                "themselves.",
                because=[
                    (outer, "within this forward"),
                    *((call, "instead of this") for call in entered if call.site != event.site),
                ],
            )

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Expert(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4, 4), value))

    def forward(self, x):
        values = sorted(set(self.weight.detach().flatten().tolist()))
        print(f"rank {dist.get_rank()} computes with {values}")
        return x @ self.weight


class MixtureOfExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(4, 2)
        self.experts = nn.ModuleList([Expert(1.0), Expert(2.0)])
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        choice = self.router(x).mean(0).argmax().item()
        return self.head(self.experts[choice](x))  # <- FSDP701


dist.init_process_group("gloo")
torch.manual_seed(0)
model = MixtureOfExperts()
for expert in model.experts:
    fully_shard(expert)
fully_shard(model)
# the two halves of the batch lie on different sides of the router
x = torch.randn(8, 4) + (3 if dist.get_rank() else -3)
model(x).sum().backward()
dist.destroy_process_group()
""",
            symptom=Symptom(prints=r"rank 0 computes with \[1.0, 2.0\]"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.text = nn.Embedding(16, 4)
        self.vision = nn.Linear(6, 4)
        self.decoder = nn.Linear(4, 16)

    def embed(self, tokens, image):
        hidden = self.text(tokens)
        if image is None:
            return hidden
        return hidden + self.vision(image)  # <- FSDP701

    def forward(self, tokens, image=None):
        return self.decoder(self.embed(tokens, image))


def build():
    torch.manual_seed(0)
    model = Captioner()
    for part in (model.vision, model.decoder):
        fully_shard(part)
    return fully_shard(model)


def train(model, samples):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for tokens, image in samples:
        loss = nn.functional.cross_entropy(model(tokens, image), tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


dist.init_process_group("gloo")
model = build()
samples = [(torch.randint(16, (8,)), torch.randn(8, 6) if i < 3 else None) for i in range(4)]
train(model, samples[dist.get_rank() :: dist.get_world_size()])
print("trained")
dist.destroy_process_group()
""",
            symptom=Symptom(hangs=True),
        ),
    )

    good = (
        Good(
            why="the ranks decide together which expert runs",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class MixtureOfExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(4, 2)
        self.experts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        scores = self.router(x).mean(0).detach()
        dist.all_reduce(scores)
        return self.experts[scores.argmax().item()](x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = MixtureOfExperts()
for expert in model.experts:
    fully_shard(expert)
fully_shard(model)
torch.manual_seed(dist.get_rank())
for step in range(3):
    model(torch.randn(8, 4)).sum().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="without an image the encoder runs all the same, and counts nothing",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.text = nn.Embedding(16, 4)
        self.vision = nn.Linear(6, 4)

    def forward(self, tokens, image=None):
        hidden = self.text(tokens)
        if image is None:
            return hidden + 0 * self.vision(torch.zeros(len(tokens), 6))
        return hidden + self.vision(image)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Captioner()
fully_shard(model.vision)
fully_shard(model)
tokens, image = torch.randint(16, (8,)), torch.randn(8, 6)
for step in range(2):
    model(tokens, image if dist.get_rank() == step else None).sum().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the ranks run different experts, which have been gathered on all of them before",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class MixtureOfExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.head = nn.Linear(4, 1)

    def forward(self, x, choice):
        return self.head(self.experts[choice](x))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = MixtureOfExperts()
for expert in model.experts:
    fully_shard(expert, reshard_after_forward=False)
fully_shard(model)
model.eval()
with torch.no_grad():
    for expert in model.experts:
        expert.unshard()
    for step in range(2):
        model(torch.randn(8, 4), dist.get_rank())
dist.barrier()
dist.destroy_process_group()
""",
        ),
        Good(
            why="what only some ranks run is no group of its own",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.text = nn.Embedding(16, 4)
        self.vision = nn.Linear(6, 4).requires_grad_(False)
        self.decoder = nn.Linear(4, 16)

    def forward(self, tokens, image=None):
        hidden = self.text(tokens)
        if image is not None:
            hidden = hidden + self.vision(image)
        return self.decoder(hidden)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Captioner()
fully_shard(model.decoder)
fully_shard(model)
tokens, image = torch.randint(16, (8,)), torch.randn(8, 6)
for step in range(2):
    model(tokens, image if dist.get_rank() == step else None).sum().backward()
dist.destroy_process_group()
""",
        ),
    )


def _strange(trace: Trace, outer: Called, calls: Parting) -> Called:
    """The call to point at: of a module that another rank leaves out, if there is one."""
    entered = [call for call in calls.values() if call is not None]
    for call in entered:
        ranks_of_module: set[int] = set()
        for other in trace.after(outer, Called):
            if other.module == call.module:
                ranks_of_module.update(other.took_part)
        if ranks_of_module != set(trace.ends):
            return call
    return entered[0]


def _who(trace: Trace, outer: Called, calls: Parting) -> str:
    """Such as "rank 0 calls `experts.0` (`Expert`), rank 1 calls no further module"."""
    by_module: dict[str | None, list[int]] = {}
    for rank, call in calls.items():
        by_module.setdefault(call.module if call is not None else None, []).append(rank)
    parts = []
    for module, numbers in by_module.items():
        verb = "calls" if len(numbers) == 1 else "call"
        if module is None:
            what = "no further sharded module"
        else:
            path = _path(trace, outer.module, module)
            kind = trace.module(trace.unwrapped(module)).class_name
            what = f"`{path}` (`{kind}`)" if path else f"`{kind}`"
        parts.append(f"{ranks(numbers)} {verb} {what}")
    return ", ".join(parts)


def _path(trace: Trace, root: str, module: str) -> str:
    """The module's dotted name in the root; empty where it is not under it."""
    todo = [(root, "")]
    seen = set()
    while todo:
        current, path = todo.pop()
        if current == module:
            return path
        if current in seen:
            continue
        seen.add(current)
        info = trace.module(current)
        below = [
            (child, f"{path}.{name}" if path else name) for name, child in info.children.items()
        ]
        if info.inner is not None:
            below.append((info.inner, path))
        todo.extend(below)
    return ""
