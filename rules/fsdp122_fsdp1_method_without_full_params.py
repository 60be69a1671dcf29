"""FSDP122: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, Called, Site, Trace, Wrapped
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.wrappers import outermost, shards, unit_of, uses_original_parameters

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

GENERATE = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.linear(x))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=16, width=8):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.block = Block(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.block(self.embedding(tokens)))

    @torch.no_grad()
    def generate(self, tokens, length):
        for _ in range(length):
            logits = self.head(self.block(self.embedding(tokens)))
            tokens = torch.cat([tokens, logits[:, -1:].argmax(dim=-1)], dim=1)
        return tokens


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(
    LanguageModel(),
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    use_orig_params=True,
    device_id=torch.device("cpu"),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tokens = torch.randint(0, 16, (4, 8))
for step in range(2):
    logits = model(tokens[:, :-1])
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
print(model.generate(tokens, length=4).shape)  # <- FSDP122
dist.destroy_process_group()
"""

INNER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.decoder = nn.Linear(4, 8)

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


def evaluate(model, data):
    model.eval()
    with torch.no_grad():
        return model.module(data).pow(2).mean().item()  # <- FSDP122


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = FullyShardedDataParallel(Net(), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(16, 8)
    for epoch in range(2):
        model.train()
        model(data).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"epoch {epoch} loss {evaluate(model, data):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

SUMMONED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.decoder = nn.Linear(4, 8)

    def encode(self, x):
        return torch.tanh(self.encoder(x))

    def forward(self, x):
        return self.decoder(self.encode(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
cpu = torch.device("cpu")
data = torch.randn(16, 8)
model = FSDP(AutoEncoder(), device_id=cpu)
model(data).pow(2).mean().backward()
with FSDP.summon_full_params(model, writeback=False):
    print(model.encode(data).shape)
whole = FSDP(AutoEncoder(), sharding_strategy=ShardingStrategy.NO_SHARD, device_id=cpu)
whole(data).pow(2).mean().backward()
print(whole.encode(data).shape, whole.module(data).shape)
dist.destroy_process_group()
"""

OWN_UNITS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.head = nn.Linear(4, 2)
        self.criterion = nn.MSELoss()

    def features(self, x):
        return torch.relu(self.encoder(x))

    def loss(self, output, target):
        return self.criterion(output, target)

    def forward(self, x):
        return self.head(self.features(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
data, target = torch.randn(16, 8), torch.randn(16, 2)
policy = ModuleWrapPolicy({nn.Linear})
model = FSDP(Net(), auto_wrap_policy=policy, device_id=torch.device("cpu"))
model.loss(model(data), target).backward()
print(model.features(data).shape)
dist.destroy_process_group()
"""

THROUGH_FORWARD = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.decoder = nn.Linear(4, 8)

    def encode(self, x):
        return torch.tanh(self.encoder(x))

    def forward(self, x, only_encode=False):
        codes = self.encode(x)
        return codes if only_encode else self.decoder(codes)


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Net()
data = torch.randn(16, 8)
print(net.encode(data).shape)
model = FSDP(net, device_id=torch.device("cpu"))
model.forward(data).pow(2).mean().backward()
print(model(data, only_encode=True).shape)
dist.destroy_process_group()
"""


class Fsdp1MethodWithoutFullParams(Rule):
    """A method of a model in an FSDP1 wrapper computes with parameters that are not gathered.

    ## What it does
    Finds calls such as `model.generate(x)` or `model.encode(x)` of a model that
    `FullyShardedDataParallel` wraps and shards, where the method enters submodules whose parameters
    belong to the wrapper's unit; and calls of the inner module, `model.module(x)`.

    It says nothing under `FSDP.summon_full_params`, where all that is entered is wrapped by itself, where
    the policy cannot be followed, and where a call of the wrapper has left the parameters gathered.

    ## Why is this bad?
    FSDP1 gathers the parameters in the wrapper's `forward`. The inner module by itself has this rank's
    part of them (with `use_orig_params=True`) or views of a storage that was freed:

        RuntimeError: mat2 must be a matrix, got 1-D tensor
        RuntimeError: 'weight' must be 2-D
        RuntimeError: setStorage: ... are out of bounds for storage of size 0

    ## Fix safety
    Safe for `model.module(x)`, which becomes `model(x)`. For a method there is no fix: where no gradient
    is wanted, call it under `FSDP.summon_full_params(model, writeback=False)` on all ranks, which needs
    the memory for the whole model; else reach it through `forward`.

    ## Since
    Always for FSDP1.

    ## References
    - torch docs, `FullyShardedDataParallel.summon_full_params`.
    - pytorch/pytorch#123962 and #100069; huggingface/transformers#30228.
    """

    code = "FSDP122"
    name = "fsdp1-method-without-full-params"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    bad = (
        Bad(GENERATE, symptom=Symptom(raises=r"'weight' must be 2-D|got 1-D tensor")),
        Bad(
            INNER,
            symptom=Symptom(raises="out of bounds for storage of size 0"),
            changes=(("model.module(data)", "model(data)"),),
            healthy=r"epoch 1 loss \d",
        ),
    )
    good = (
        Good(SUMMONED, why="the parameters are summoned, or nothing is sharded"),
        Good(OWN_UNITS, why="what the methods enter gathers itself, or has no parameters"),
        Good(THROUGH_FORWARD, why="through forward, and before the model was wrapped"),
    )

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for event in trace.of(Called):
            if event.inside is not None or event.summoned or event.site in seen:
                continue
            wrapper = _wrapper_passed_by(trace, event)
            entered = _entered(groups, event, wrapper) if wrapper is not None else None
            if wrapper is not None and entered is not None:
                seen.add(event.site)
                yield self._finding(groups, event, wrapper, entered)

    def _finding(self, groups: Groups, event: Called, by: Wrapped, entered: Called) -> Finding:
        name = groups.name(by.inner)
        if event.via == "call":
            what = f"the inner module of FSDP's wrapper, {name}, is called"
            help_text = "Call the wrapper."
        else:
            what = f"`{event.via}` of {name} enters {groups.name(entered.module)}"
            help_text = (
                "Call it under `FSDP.summon_full_params(model, writeback=False)` where no "
                "gradient is wanted, else through the wrapper's `forward`."
            )
        because = [(by, "sharded here")]
        return self.finding(
            event,
            f"{what}, but only a call of the wrapper gathers the parameters",
            help=help_text,
            because=[*because, *([(entered, "parameters used here")] if entered != event else [])],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.fixes.wrapper_options import rely_on_wrapping
        from fsdplint.interpreter.values import ModuleValue

        event, found = finding.events[0], call_at(finding.site)
        if not isinstance(event, Called) or event.via != "call" or found is None:
            return None
        source, call = found
        inner = call.func
        if not isinstance(inner, cst.Attribute):
            return None
        values = program.values(inner.value)
        if inner.attr.value not in ("module", "_fsdp_wrapped_module") or not values:
            return None
        if not all(isinstance(v, ModuleValue) and v.wrapper == "fsdp1" for v in values):
            return None
        rewrite = Rewrite()
        rewrite.replace(source, inner, source.code(inner.value))
        rely_on_wrapping(rewrite, finding.events)
        return rewrite.fix("Call the wrapper", Safety.SAFE)


def _wrapper_passed_by(trace: Trace, event: Called) -> Wrapped | None:
    """The outermost wrapper of what is entered in another way than by the wrapper's forward."""
    if event.via == "forward":
        return None
    made = list(trace.before(event, Wrapped))
    for wrapper in reversed(outermost(trace, made)):
        if event.module == wrapper.inner or (
            event.module == wrapper.module and event.via != "call"
        ):
            known = shards(wrapper) and wrapper.units is not None and "**" not in wrapper.options
            ignores = any(name.startswith("ignored_") for name in wrapper.options)
            return wrapper if known and not ignores else None
    return None


def _entered(groups: Groups, event: Called, wrapper: Wrapped) -> Called | None:
    """The first call that computes with parameters of the wrapper's unit, or None."""
    trace = groups.trace
    if trace.family_escaped(wrapper.module) or _still_gathered(trace, event, wrapper):
        return None
    unit = unit_of(groups, wrapper, event)
    inside = groups.within(event) if event.via != "call" else ()
    for inner in [*([event] if event.via == "call" else []), *inside]:
        if inner.module == wrapper.module and inner.via in ("call", "forward"):
            return None
        if inner.via != "call" or inner.module not in unit:
            continue
        parts = unit & set(trace.submodules(inner.module))
        if any(trace.modules[part].own_parameters for part in parts):
            return inner
    return None


def _still_gathered(trace: Trace, event: Called, wrapper: Wrapped) -> bool:
    """Whether a call of the wrapper without a backward after it has left the parameters whole.

    The outermost wrapper frees them after the backward only. With `use_orig_params=True` the
    parameters are this rank's parts again anyway.
    """
    if uses_original_parameters(wrapper):
        return False
    whole = False
    for other in trace.before(event, Called, BackwardRun):
        if isinstance(other, Called):
            whole = whole or (other.module == wrapper.module and other.via in ("call", "forward"))
        else:
            whole = False
    return whole
