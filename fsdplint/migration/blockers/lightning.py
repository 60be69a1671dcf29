"""Blockers about Lightning's strategies for FSDP1, which become its strategies for FSDP2."""

from fsdplint.migration.blockers import Blocker, advice

STRATEGY_LEFT = Blocker(
    "FSDP223-strategy-left",
    "`ModelParallelStrategy` shards only what the program shards",
    advice.WRITE_PARALLELIZE,
)
FABRIC_UNKNOWN = Blocker(
    "FSDP223-fabric-unknown",
    "the `{api}` that gets this strategy is not known, and with it the precision and the number "
    "of devices",
    advice.WRITE_PARALLELIZE,
)
STRATEGY_ARGUMENTS = Blocker(
    "FSDP223-strategy-arguments",
    "the arguments of `{name}` cannot be read here",
    "Write the arguments out, each by its name; then run this again.",
)
STRATEGY_ARGUMENT = Blocker(
    "FSDP223-strategy-argument",
    "`ModelParallelStrategy` has no `{name}`",
    "Leave the argument out if Fabric chooses the same by itself; then run this again.",
)
STRATEGY_OFFLOADS = Blocker(
    "FSDP223-strategy-offloads",
    "Fabric's process group has no backend for the gradients on the CPU, which FSDP2 clips there",
    "Leave `cpu_offload` out, or give `fully_shard` a `CPUOffloadPolicy` and the strategy "
    '`process_group_backend="cpu:gloo,cuda:nccl"`.',
)
STRATEGY_REPLICATES = Blocker(
    "FSDP223-strategy-replicates",
    "with `NO_SHARD`, nothing is sharded",
    "Use `DDPStrategy`.",
)
STRATEGY_OF_SHARDING = Blocker(
    "FSDP223-sharding-strategy",
    "it is not known which sharding strategy this is",
    "Write the name of the strategy here; then run this again.",
)
STRATEGY_POLICY = Blocker(
    "FSDP223-policy-or-set",
    "it is not known whether this is a policy or a set of classes",
    "Write the set or the policy here; then run this again.",
)
STRATEGY_VALUE = Blocker(
    "FSDP223-strategy-value",
    "it is not known what `{name}` is",
    "Write the value here; then run this again.",
)
DEVICES_UNKNOWN = Blocker(
    "FSDP223-devices-unknown",
    "the number of processes, which `ModelParallelStrategy` needs, is not known here: `{code}`",
    "Give Fabric the number of devices and of nodes as integers that are known where the strategy "
    "is made; then run this again.",
)
PRECISION_UNKNOWN = Blocker(
    "FSDP223-precision-unknown",
    "the precision of Fabric is not known here: `{code}`",
    "Give Fabric a precision that is known where the strategy is made; then run this again.",
)
PRECISION_UNSUPPORTED = Blocker(
    "FSDP223-precision-unsupported",
    "`ModelParallelStrategy` does not support the precision {precision!r}",
    'Choose "bf16-mixed", "bf16-true", "16-true" or "32-true".',
)
STRATEGY_USED = Blocker(
    "FSDP223-strategy-used",
    "`{code}` uses the class of the strategy in another way than to make or test one",
    advice.WRITE_PARALLELIZE,
)
STRATEGY_READ = Blocker(
    "FSDP223-strategy-read",
    "`{name}` is an attribute that only the strategy for FSDP1 has",
    "Read the setting where the strategy is made; then run this again.",
)
BACKWARD_WITHOUT_SWITCH = Blocker(
    "FSDP223-backward-without-switch",
    "after a `no_backward_sync` block with `enabled=False`, Lightning leaves the reduction of "
    "gradients of FSDP2 off, and this backward pass stands in no such block",
    "Put the backward pass into a `no_backward_sync` block, too; then run this again.",
)
MODULE_OF_TRAINER = Blocker(
    "FSDP223-module-unknown",
    "the LightningModule that this Trainer gets is not known",
    advice.WRITE_CONFIGURE_MODEL,
)
MODULE_CONFIGURED = Blocker(
    "FSDP223-module-configured",
    "the LightningModule `{name}` has `{method}` already",
    advice.WRITE_CONFIGURE_MODEL,
)
SEVERAL_STRATEGIES = Blocker(
    "FSDP223-several-strategies",
    "the LightningModule `{name}` gets several strategies, which shard it differently",
    advice.WRITE_CONFIGURE_MODEL,
)
MODULE_ELSEWHERE = Blocker(
    "FSDP223-module-elsewhere",
    "`configure_model` of `{name}` cannot read `{code}`",
    "Write the policy with classes that the file of the LightningModule knows; then run this again.",
)
LAYERS_SYNCHRONISED = Blocker(
    "FSDP223-layers-synchronised",
    "`ModelParallelStrategy` ignores `sync_batchnorm`",
    "Convert the batch norms in the LightningModule; then run this again.",
)
LIGHTNING_TOO_OLD = Blocker(
    "FSDP223-lightning-too-old",
    "`ModelParallelStrategy` came with Lightning {since}, and the project requires less ({old})",
    "Raise the requirement; then run this again.",
)
