"""FSDP102: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Sharded, Site, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.gathered import PerhapsGathered

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class UnregisteredMethod(Rule):
    """A method other than `forward` computes with the parameters of a sharded module.

    ## What it does
    Finds calls such as `model.encode(x)` or `model.generate(x)` of a module that `fully_shard` was
    applied to, where the method calls submodules whose parameters belong to the module's group, and
    nothing gathers them: the method was not registered, it does not go through `self(...)`, it does
    not run inside a call of the module, and there was no `unshard()`.

    Nothing is said of a method that runs after a forward has left the module's parameters gathered:
    by default those of the root stay so until the backward pass, `reshard()`, `state_dict()` or `to()`.

    A method that calls only other methods of submodules, which initialise parameters in place
    (`self.norm.reset_parameters()` after `to_empty`) or use none, is fine without.

    Also found: a method that enters sharded submodules only, and does so before the first call of the
    module itself.

    ## Why is this bad?
    FSDP2 gathers the parameters when the module is *called*. Another method computes with the sharded
    parameters: `RuntimeError: aten.addmm.default got mixed torch.Tensor and DTensor`. If only sharded
    submodules are entered, each becomes a root of its own, and the next `model(x)` ends with `FSDP
    state has already been lazily initialized for encoder`.

    ## Fix safety
    Safe: `register_fsdp_forward_method(model, "encode")` after the module's `fully_shard` gives the
    method the hooks of a call. It raises for a module without the method: where code that shards
    other models too has the `fully_shard`, it goes behind the call of that code, and where no place
    is this model's own for certain there is no fix.

    ## Since
    torch 2.4, the first with FSDP2 and `register_fsdp_forward_method`.

    ## References
    - torch docs, `torch.distributed.fsdp.register_fsdp_forward_method`.
    - pytorch/pytorch#123962 and #109385; the function came with pull request #125394.
    """

    code = "FSDP102"
    name = "unregistered-method"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    fix_since = "2.6"

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        gathered = PerhapsGathered(groups)
        seen: set[tuple[Site, str]] = set()
        for event in trace.of(Called):
            if event.via in ("call", "forward") or (event.site, event.via) in seen:
                continue
            entered = _entered_ungathered(groups, gathered, event)
            if entered is None:
                continue
            seen.add((event.site, event.via))
            name = groups.name(event.module)
            yield self.finding(
                event,
                f"`{event.via}` of {name} enters {groups.name(entered.module)}, but only calling "
                f"{name} gathers the parameters that `fully_shard` has sharded",
                help=f"Register the method after sharding: "
                f'`register_fsdp_forward_method(model, "{event.via}")`.',
                because=[
                    *((shard, "sharded here") for shard in groups.shards(event.module)[:1]),
                    (entered, "parameters used here"),
                ],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.forward_method import spot_for

        event = finding.events[0]
        shard = finding.events[1]
        if not isinstance(event, Called) or not isinstance(shard, Sharded):
            return None
        place = spot_for(program, event, shard)
        if place is None:
            return None
        rewrite = Rewrite()
        register = rewrite.need_import(
            place.source,
            "torch.distributed.fsdp",
            "register_fsdp_forward_method",
            at=place.statement,
        )
        rewrite.insert_after(
            place.source, place.statement, [f'{register}({place.module}, "{event.via}")']
        )
        return rewrite.fix(f"Register `{event.via}` as a forward method", Safety.SAFE)

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 2)
        self.decoder = nn.Linear(2, 8)

    def encode(self, x):
        return torch.tanh(self.encoder(x))

    def forward(self, x):
        return self.decoder(self.encode(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = AutoEncoder()
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = torch.randn(32, 8)
for step in range(3):
    loss = nn.functional.mse_loss(model(data), data)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
codes = model.encode(data)  # <- FSDP102
print("codes", tuple(codes.shape))
dist.destroy_process_group()
""",
            symptom=Symptom(raises=r"got mixed torch\.Tensor and DTensor"),
            changes=(
                ("import fully_shard\n", "import fully_shard, register_fsdp_forward_method\n"),
                (
                    "fully_shard(model)\n",
                    'fully_shard(model)\nregister_fsdp_forward_method(model, "encode")\n',
                ),
            ),
            healthy=r"codes \(32, 2\)",
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.distributed.fsdp as fsdp


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.linear(x))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=16, width=8, depth=2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    @torch.no_grad()
    def generate(self, tokens, length):
        for _ in range(length):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x)
            next_token = self.head(x[:, -1:]).argmax(dim=-1)
            tokens = torch.cat([tokens, next_token], dim=1)
        return tokens


class Trainer:
    def __init__(self, mesh):
        torch.manual_seed(0)
        self.model = LanguageModel()
        for block in self.model.blocks:
            fsdp.fully_shard(block, mesh=mesh)
        self.model = fsdp.fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def train(self, tokens):
        logits = self.model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def sample(self, tokens):
        return self.model.generate(tokens, length=4)  # <- FSDP102


def main():
    dist.init_process_group("gloo")
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    trainer = Trainer(mesh)
    tokens = torch.randint(0, 16, (4, 8))
    trainer.train(tokens)
    print("sampled", tuple(trainer.sample(tokens).shape))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
            symptom=Symptom(raises=r"got mixed torch\.Tensor and DTensor"),
            changes=(
                (
                    "        self.model = fsdp.fully_shard(self.model, mesh=mesh)\n",
                    "        self.model = fsdp.fully_shard(self.model, mesh=mesh)\n"
                    '        fsdp.register_fsdp_forward_method(self.model, "generate")\n',
                ),
            ),
            healthy=r"sampled \(4, 12\)",
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.head = nn.Linear(4, 1)

    def features(self, x):
        return self.encoder(x).relu()

    def forward(self, x):
        return self.head(self.features(x))


def shard(model):
    fully_shard(model.encoder)
    fully_shard(model)
    return model


dist.init_process_group("gloo")
torch.manual_seed(0)
model = shard(Net())
data = torch.randn(16, 8)
with torch.no_grad():
    mean = model.features(data).mean()  # <- FSDP102
loss = (model(data) - mean).pow(2).mean()
loss.backward()
print("loss", loss.item())
dist.destroy_process_group()
""",
            symptom=Symptom(raises="already been lazily initialized for encoder"),
            changes=(
                ("import fully_shard\n", "import fully_shard, register_fsdp_forward_method\n"),
                (
                    "    fully_shard(model)\n",
                    '    fully_shard(model)\n    register_fsdp_forward_method(model, "features")\n',
                ),
            ),
            healthy=r"loss \d",
        ),
    )

    good = (
        Good(
            why="the forward has left the root's parameters gathered, which is all that the method uses",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.block = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def score(self, x):
        return self.head(self.encoder(x))

    def forward(self, x):
        return self.head(self.block(self.encoder(x)))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
fully_shard(model.block)
fully_shard(model)
data = torch.randn(16, 8)
loss = model(data).mean() + model.score(data).mean()
loss.backward()
with torch.no_grad():
    model(data)
    print("score", model.score(data).mean().item())
dist.destroy_process_group()
""",
        ),
        Good(
            why="the method goes through self(...), as generate of many libraries does",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=16, width=8):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))

    def step(self, tokens):
        return self(tokens[:, -1:]).argmax(dim=-1)

    @torch.no_grad()
    def generate(self, tokens, length=3):
        for _ in range(length):
            tokens = torch.cat([tokens, self.step(tokens)], dim=1)
        return tokens


dist.init_process_group("gloo")
torch.manual_seed(0)
model = LanguageModel()
print("unsharded", model.generate(torch.zeros(2, 1, dtype=torch.long)).shape)
fully_shard(model)
print("sharded", model.generate(torch.zeros(2, 1, dtype=torch.long)).shape)
dist.destroy_process_group()
""",
        ),
        Good(
            why="registered; and called within a call of the module",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 2)
        self.decoder = nn.Linear(2, 8)

    def encode(self, x):
        return torch.tanh(self.encoder(x))

    def decode(self, codes):
        return self.decoder(codes)

    def forward(self, x):
        return self.decode(self.encode(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = AutoEncoder()
fully_shard(model)
for method in ("encode", "decode"):
    register_fsdp_forward_method(model, method)
data = torch.randn(16, 8)
model(data).pow(2).mean().backward()
codes = model.encode(data)
print("decoded", model.decode(codes).shape)
dist.destroy_process_group()
""",
        ),
        Good(
            why="the method uses no parameter, or they were gathered by hand",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.criterion = nn.MSELoss()

    def forward(self, x):
        return self.linear(x)

    def loss(self, prediction, target):
        return self.criterion(prediction, target)

    def predict(self, x):
        return self.linear(x).squeeze(-1)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Regressor()
fully_shard(model)
x, y = torch.randn(8, 4), torch.randn(8, 1)
model.loss(model(x), y).backward()
model.unshard()
print("predicted", model.predict(x).shape)
model.reshard()
dist.destroy_process_group()
""",
        ),
        Good(
            why="parameters are initialised in place after to_empty; the other methods use none",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.active = True

    def forward(self, x):
        return x * self.weight if self.active else x

    def reset_parameters(self):
        nn.init.ones_(self.weight)

    def switch(self, active):
        self.active = active

    def flops(self):
        return 2 * self.weight.numel()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = Scale(4)

    def forward(self, x):
        return self.scale(self.linear(x))

    def init_weights(self):
        self.scale.reset_parameters()
        nn.init.trunc_normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def switch(self, active):
        self.scale.switch(active)

    def flops(self):
        return self.scale.flops()


dist.init_process_group("gloo")
torch.manual_seed(0)
with torch.device("meta"):
    model = Net()
fully_shard(model.linear)
fully_shard(model)
model.to_empty(device="cpu")
model.init_weights()
assert model.scale.weight.full_tensor().tolist() == [1.0] * 4
model.switch(True)
model(torch.randn(8, 4)).mean().backward()
print("flops", model.flops())
dist.destroy_process_group()
""",
        ),
        Good(
            why="every submodule that the method enters gathers itself, and the module was called before",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.head = nn.Linear(4, 1)

    def features(self, x):
        return self.encoder(x).relu()

    def forward(self, x):
        return self.head(self.features(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
fully_shard(model.encoder)
fully_shard(model)
data = torch.randn(16, 8)
model(data).mean().backward()
print("features", model.features(data).shape)
dist.destroy_process_group()
""",
        ),
    )


def _entered_ungathered(groups: Groups, gathered: PerhapsGathered, event: Called) -> Called | None:
    """The first submodule that the method enters without its parameters being gathered, or None."""
    module = event.module
    if groups.owner(module, before=event) != module or groups.gathers(event):
        return None
    if any(groups.enters(outer, module) for outer in groups.around(event)):
        return None  # part of a call, or of a method that is reported itself
    for inner in groups.within(event):
        between = _until(groups, inner, event)
        if any(b.module == module and b.via == "forward" for b in between):
            continue  # a direct call of forward: that is another rule's
        if any(groups.gathers(b, module) for b in between):
            continue
        if inner.module == module or groups.gathered(module, inner) or gathered.at(module, inner):
            continue
        owner = groups.owner(inner.module, before=event)
        if owner == module and _computes(groups, inner):
            return inner
        if owner == inner.module and _takes_the_root(groups, inner, module):
            return inner
    return None


def _computes(groups: Groups, event: Called) -> bool:
    """Whether a call surely computes with parameters of the module. A method other than `forward`
    may use none, or initialise them in place, which works on sharded parameters; what it calls in
    turn is looked at by itself.
    """
    return event.via in ("call", "forward") and not groups.without_parameters(event.module, event)


def _until(groups: Groups, inner: Called, outer: Called) -> list[Called]:
    """The calls between the two, and `inner` itself."""
    result = [inner]
    for event in groups.around(inner):
        if event is outer:
            break
        result.append(event)
    return result


def _takes_the_root(groups: Groups, inner: Called, module: str) -> bool:
    """Whether entering a sharded submodule makes it a root, so that the next call of `module` fails."""
    trace = groups.trace
    if not groups.gathers(inner) or any(
        groups.gathers(e, module) for e in trace.before(inner, Called)
    ):
        return False
    return any(groups.gathers(e, module) for e in trace.after(inner, Called))
