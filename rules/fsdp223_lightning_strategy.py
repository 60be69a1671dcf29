"""FSDP223: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good
from fsdplint.registry.rule import Rule
from fsdplint.trace import FrameworkConfigured, Trace

WHY_NOT = "Lightning is not installed for the tests"
MODULE = """\
import lightning as L
import torch
import torch.nn as nn
from lightning.pytorch.strategies import {strategy}


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def training_step(self, batch):
        for layer in self.layers:
            batch = torch.relu(layer(batch))
        return batch.pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


"""
STRATEGY = (
    MODULE.format(strategy="FSDPStrategy")
    + """\
strategy = FSDPStrategy(sharding_strategy="SHARD_GRAD_OP", state_dict_type="sharded")  # <- FSDP223
trainer = L.Trainer(devices=2, strategy=strategy, max_steps=4)
trainer.fit(Net(), torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=8))
"""
)
BY_NAME = (
    MODULE.format(strategy="DDPStrategy").replace(
        "from lightning.pytorch.strategies import DDPStrategy\n", ""
    )
    + """\
trainer = L.Trainer(devices=2, strategy="fsdp", max_steps=4)  # <- FSDP223
trainer.fit(Net(), torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=8))
"""
)
FABRIC = """\
import lightning as L
import torch
from lightning.fabric.strategies import FSDPStrategy

policy = {torch.nn.Linear}
fabric = L.Fabric(strategy=FSDPStrategy(auto_wrap_policy=policy, cpu_offload=True))  # <- FSDP223
fabric.launch()
model = fabric.setup(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)))
"""
FSDP2 = (
    MODULE.format(strategy="ModelParallelStrategy").replace(
        "    def training_step",
        """\
    def configure_model(self):
        for layer in self.layers:
            fully_shard(layer, mesh=self.device_mesh["data_parallel"])
        fully_shard(self, mesh=self.device_mesh["data_parallel"])

    def training_step""",
    )
    + """\
strategy = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
trainer = L.Trainer(devices=2, strategy=strategy, max_steps=4)
"""
).replace(
    "import lightning as L", "import lightning as L\nfrom torch.distributed.fsdp import fully_shard"
)
DDP = """\
import lightning as L

trainer = L.Trainer(devices=2, strategy="ddp", max_steps=4)  # not fsdp
"""
OWN = """\
class FSDPStrategy:
    def __init__(self, sharding_strategy):
        self.sharding_strategy = sharding_strategy


strategy = FSDPStrategy(sharding_strategy="FULL_SHARD")
"""


class LightningStrategy(Rule):
    """Lightning is told to train with FSDP1.

    ## What it does
    Finds `FSDPStrategy(...)` of Lightning (PyTorch and Fabric), and `Trainer` and `Fabric` with a strategy "fsdp" or
    "fsdp_cpu_offload".

    ## Why is this bad?
    It is FSDP1, which is no longer developed. Lightning's strategy for FSDP2 is `ModelParallelStrategy`, which shards
    nothing by itself: the sharding is the program's to write, so that there is no change of the strategy alone that
    keeps what the program does, and none is made.

    What a person has to write: `configure_model` in the LightningModule (with Fabric: `parallelize_fn`), which calls
    `fully_shard` for the layers that `auto_wrap_policy` names and then for the whole, with the mesh
    `self.device_mesh["data_parallel"]`, and the precision, offloading and `reshard_after_forward` that the strategy
    had; and `ModelParallelStrategy(data_parallel_size=<all devices>, tensor_parallel_size=1)`: by default it has
    tensor parallelism within each machine, and no sharding there. `save_distributed_checkpoint=True`, its default, is
    the format of `state_dict_type="sharded"`, and `FSDPStrategy`'s own default is "full".

    Read in Lightning 2.6.6; nothing of it is run in the tests of this rule.

    ## Since
    Lightning 2.3 and torch 2.4, where `ModelParallelStrategy` came.

    ## References
    - https://lightning.ai/docs/pytorch/stable/advanced/model_parallel/tp_fsdp.html
    """

    code = "FSDP223"
    name = "lightning-strategy"
    severity = Severity.INFO
    bad = (
        Bad(STRATEGY, runs=False, why_not=WHY_NOT),
        Bad(BY_NAME, runs=False, why_not=WHY_NOT),
        Bad(FABRIC, runs=False, why_not=WHY_NOT),
    )
    good = (
        Good(FSDP2, why="FSDP2", runs=False),
        Good(DDP, why="no FSDP", runs=False),
        Good(OWN, why="a class of the project"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(FrameworkConfigured):
            if event.framework != "lightning":
                continue
            strategy = event.options.get("strategy")
            if event.api == "FSDPStrategy":
                message = "`FSDPStrategy` of Lightning is FSDP1"
            elif isinstance(strategy, str) and strategy in ("fsdp", "fsdp_cpu_offload"):
                message = f'`strategy="{strategy}"` of Lightning is FSDP1'
            else:
                continue
            finding = self.finding(event, message)
            words = _decisions(event)
            finding.blocker = "`ModelParallelStrategy` shards only what the program shards"
            finding.help = (
                "Shard the model with `fully_shard` in `configure_model` (Fabric: in "
                "`parallelize_fn`), and use `ModelParallelStrategy(data_parallel_size=<all "
                f"devices>, tensor_parallel_size=1)`{words}."
            )
            yield finding


# What options of FSDPStrategy are for who writes the sharding.
_MEANS = {
    "auto_wrap_policy": "shard what `auto_wrap_policy` names before the whole",
    "mixed_precision": "give `fully_shard` a `MixedPrecisionPolicy`",
    "cpu_offload": "give `fully_shard` a `CPUOffloadPolicy`",
    "activation_checkpointing": "apply the activation checkpointing there, before sharding",
    "activation_checkpointing_policy": "apply the activation checkpointing there, before sharding",
    "device_mesh": "shard over a mesh of two dimensions, which it doesn't make",
}


def _decisions(event: FrameworkConfigured) -> str:
    """What the options given ask for, as the rest of a sentence."""
    options = event.options
    words = [text for key, text in _MEANS.items() if options.get(key) not in (None, False)]
    strategy = str(options.get("sharding_strategy", "")).rpartition(".")[2]
    if strategy == "SHARD_GRAD_OP":
        words.append("`reshard_after_forward=False`")
    elif strategy == "NO_SHARD":
        words.append("or rather `DDPStrategy`, as nothing is sharded")
    elif "HYBRID" in strategy:
        words.append("shard over a mesh of two dimensions, which it doesn't make")
    if event.api == "FSDPStrategy" and options.get("state_dict_type", "full") == "full":
        words.append("`save_distributed_checkpoint=False` keeps checkpoints whole")
    return "".join(f"; {word}" for word in dict.fromkeys(words))
