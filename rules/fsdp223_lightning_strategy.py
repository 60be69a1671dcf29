"""FSDP223: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import FrameworkConfigured, Trace


class LightningStrategy(Rule):
    """Lightning trains with FSDP1.

    ## What it does
    Finds `FSDPStrategy(...)` of Lightning (PyTorch and Fabric), and `Trainer` and `Fabric` with the strategy "fsdp" or
    "fsdp_cpu_offload".

    ## Why is this bad?
    `FSDPStrategy` uses FSDP1, which is no longer developed. Lightning's strategy for FSDP2 is
    `ModelParallelStrategy`, which shards nothing itself: the program has to shard the model. There is no fix, because
    a change of the strategy alone would change what the program does.

    A person has to write:

    - `configure_model` in the LightningModule (with Fabric: `parallelize_fn`). It applies `fully_shard` to the layers
      that `auto_wrap_policy` names and then to the model, with the mesh `self.device_mesh["data_parallel"]` and the
      precision, offloading and `reshard_after_forward` of the old strategy.
    - `ModelParallelStrategy(data_parallel_size=<all devices>, tensor_parallel_size=1)`. By default, it uses tensor
      parallelism within each machine, and does not shard there.
    - `save_distributed_checkpoint=False`, if the old strategy had `state_dict_type="full"`, which is its default.

    Checked against the sources of Lightning 2.6.6; the tests of this rule do not run Lightning.

    ## Since
    Lightning 2.3 and torch 2.4, where `ModelParallelStrategy` came.

    ## References
    - https://lightning.ai/docs/pytorch/stable/advanced/model_parallel/tp_fsdp.html
    """

    code = "FSDP223"
    name = "lightning-strategy"
    severity = Severity.INFO

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(FrameworkConfigured):
            if event.framework != "lightning":
                continue
            strategy = event.options.get("strategy")
            if event.api == "FSDPStrategy":
                message = "`FSDPStrategy` of Lightning uses FSDP1"
            elif isinstance(strategy, str) and strategy in ("fsdp", "fsdp_cpu_offload"):
                message = f'`strategy="{strategy}"` of Lightning uses FSDP1'
            else:
                continue
            finding = self.finding(event, message)
            words = _manual_steps(event)
            finding.blocker = "`ModelParallelStrategy` shards only what the program shards"
            finding.help = (
                "Shard the model with `fully_shard` in `configure_model` (Fabric: in "
                "`parallelize_fn`), and use `ModelParallelStrategy(data_parallel_size=<all "
                f"devices>, tensor_parallel_size=1)`{words}."
            )
            yield finding


# What a person has to do for each option of FSDPStrategy.
_MANUAL_STEPS = {
    "auto_wrap_policy": "shard what `auto_wrap_policy` names before the whole",
    "mixed_precision": "give `fully_shard` a `MixedPrecisionPolicy`",
    "cpu_offload": "give `fully_shard` a `CPUOffloadPolicy`",
    "activation_checkpointing": "apply the activation checkpointing there, before sharding",
    "activation_checkpointing_policy": "apply the activation checkpointing there, before sharding",
    "device_mesh": "shard over a mesh of two dimensions, which it doesn't make",
}


def _manual_steps(event: FrameworkConfigured) -> str:
    """What the options given ask for, as the rest of a sentence."""
    options = event.options
    words = [text for key, text in _MANUAL_STEPS.items() if options.get(key) not in (None, False)]
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
