"""FSDP201: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.examples import FSDP2, OWN_CLASS, program
from fsdplint.migration.rule import MigrationRule
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.trace import Trace, Wrapped

SAME_NAME = program(
    """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
""",
    """\
model = Net()
model = FSDP(  # <- FSDP201
    model,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    device_id=torch.device("cpu"),
    use_orig_params=True,
)
print(type(model).__name__)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
""",
)

RETURNED = program(
    """\
from functools import partial

from torch.distributed.fsdp import (
    BackwardPrefetch,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
""",
    """\


def shard(net, device):
    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    # Parameters in bfloat16, gradients summed in float32.
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return FullyShardedDataParallel(  # <- FSDP201
        net,
        auto_wrap_policy=policy,
        mixed_precision=precision,
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        device_id=device,
        limit_all_gathers=True,
    )


model = shard(Net(), torch.device("cpu"))
print(type(model).__name__)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
)


class Fsdp1Constructor(MigrationRule):
    """A model is wrapped by FSDP1, `FullyShardedDataParallel`.

    ## What it does
    Finds calls of `FullyShardedDataParallel(...)`, and rewrites the whole program to FSDP2's `fully_shard`
    where every use of FSDP1 in it can be rewritten faithfully. Otherwise it names what stands in the way, by
    file and line, and leaves the program as it is.

    ## Why is this bad?
    FSDP1 is no longer developed: its maintainers answer reports with the migration guide. FSDP2 keeps each
    parameter's name, dtype and `requires_grad`, frees memory without `recordStream` stalls, and is what
    new features of torch are built on.

    ## Fix safety
    Safe: the migrated program trains the same model from the same weights, with the same units, the same
    precision and the same sharding. What changes in cost or in a detail is in the title of the fix. Blocks are
    sharded by a loop in FSDP1's order; inner modules don't cast their inputs where FSDP1 did not; `device_id`
    becomes the current device.

    ## Since
    torch 2.6, where `fully_shard` became public: the program that comes out needs it.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    - pytorch/torchtitan, `docs/fsdp.md`
    """

    code = "FSDP201"
    name = "fsdp1-constructor"
    severity = Severity.INFO
    fixable = Safety.SAFE
    bad = (
        Bad(
            SAME_NAME,
            symptom=Symptom(prints="^FullyShardedDataParallel$"),
            changes=(
                (
                    """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
""",
                    """\
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
""",
                ),
                (
                    """\
model = FSDP(
    model,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    device_id=torch.device("cpu"),
    use_orig_params=True,
)
""",
                    """\
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for module in reversed(list(model.modules())):
    if isinstance(module, Block):
        fully_shard(module, mesh=mesh)
fully_shard(model, mesh=mesh)
""",
                ),
            ),
            healthy=r"^FSDPNet\nloss \d",
        ),
        Bad(
            RETURNED,
            symptom=Symptom(prints="^FullyShardedDataParallel$"),
            changes=(
                (
                    """\
from functools import partial

from torch.distributed.fsdp import (
    BackwardPrefetch,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
""",
                    """\

from torch.distributed.fsdp import (
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.device_mesh import init_device_mesh
""",
                ),
                (
                    """\
    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
""",
                    "",
                ),
                ("precision = MixedPrecision(", "precision = MixedPrecisionPolicy("),
                (
                    """\
    return FullyShardedDataParallel(
        net,
        auto_wrap_policy=policy,
        mixed_precision=precision,
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        device_id=device,
        limit_all_gathers=True,
    )
""",
                    """\
    fsdp_kwargs = {
        "mesh": init_device_mesh("cpu", (dist.get_world_size(),)),
        "mp_policy": precision,
        "reshard_after_forward": False,
    }
    for module in reversed(list(net.modules())):
        if isinstance(module, Block):
            fully_shard(module, **fsdp_kwargs)
    return fully_shard(net, **fsdp_kwargs)
""",
                ),
            ),
            healthy=r"^FSDPNet\nloss \d",
        ),
    )
    good = (
        Good(OWN_CLASS, why="a class of the user's own that is called FSDP"),
        Good(FSDP2, why="FSDP2 already"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Wrapped):
            inner = trace.modules.get(event.inner)
            name = inner.class_name if inner is not None else "a model"
            yield self.finding(
                event,
                f"`{name}` is wrapped by FSDP1 (`FullyShardedDataParallel`)",
                help="Shard the blocks and then the model with `fully_shard`.",
            )
