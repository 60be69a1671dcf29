"""FSDP117: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Sharded, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

# FSDP1's keywords, and what FSDP2 has in their place.
FSDP1_KEYWORDS = {
    "process_group": "give a `mesh` (`DeviceMesh.from_group`)",
    "sharding_strategy": "it is said by `reshard_after_forward` and the dimensions of the mesh",
    "cpu_offload": "give `offload_policy=CPUOffloadPolicy()`",
    "auto_wrap_policy": "call `fully_shard` on each block before the root",
    "backward_prefetch": "leave it out: FSDP2 always prefetches",
    "mixed_precision": "give `mp_policy=MixedPrecisionPolicy(...)`",
    "ignored_modules": "give `ignored_params`, a set of parameters",
    "param_init_fn": "shard on the meta device, then `to_empty` and initialise",
    "device_id": "leave it out: the mesh says the device",
    "sync_module_states": "load rank 0's state with `broadcast_from_rank0=True`",
    "forward_prefetch": "call `set_modules_to_forward_prefetch`",
    "limit_all_gathers": "leave it out",
    "use_orig_params": "leave it out: FSDP2 always keeps the parameters apart",
    "ignored_states": "give `ignored_params`, a set of parameters",
    "device_mesh": "it is called `mesh`",
}

KEYWORDS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import ShardingStrategy, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
for layer in (model[0], model[2]):
    fully_shard(layer, device_mesh=mesh)  # <- FSDP117
fully_shard(  # <- FSDP117
    model,
    device_mesh=mesh,
    # as before
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    use_orig_params=True,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model(torch.randn(16, 4)).pow(2).mean().backward()
optimizer.step()
print("trained")
dist.destroy_process_group()
"""

NO_POLICY = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model):
        self.model = model
        for layer in self.model.children():
            fully_shard(layer, mp_policy=None, reshard_after_forward=True)  # <- FSDP117
        fully_shard(self.model, mp_policy=None)  # <- FSDP117
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x):
        self.model(x).pow(2).mean().backward()
        self.optimizer.step()


dist.init_process_group("gloo")
torch.manual_seed(0)
Trainer(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))).step(torch.randn(16, 4))
print("trained")
dist.destroy_process_group()
"""

MIXED_PRECISION = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecision, fully_shard


def shard(model):
    # bf16 for the layers, fp32 for the reduction
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mp_policy=precision)  # <- FSDP117
    return fully_shard(model, mp_policy=precision)  # <- FSDP117


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = shard(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(16, 4)).pow(2).mean().backward()
    optimizer.step()
    print("trained")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

CPU_OFFLOAD = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import CPUOffload, OffloadPolicy, fully_shard


def known(model):
    group = model._get_fsdp_state()._fsdp_param_group
    return isinstance(group.offload_policy, OffloadPolicy)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
fully_shard(model, offload_policy=CPUOffload(offload_params=True))  # <- FSDP117
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(16, 4)).pow(2).mean().backward()
optimizer.step()
print("a policy that FSDP2 knows:", known(model))
dist.destroy_process_group()
"""

OUT_OF_A_DICT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
options = {"mixed_precision": None, "reshard_after_forward": True}
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
for layer in model:
    fully_shard(layer, **options)  # <- FSDP117
fully_shard(model, mesh)  # <- FSDP117
dist.destroy_process_group()
"""

SAME_DEFAULTS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import CPUOffload, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
fully_shard(model[0], offload_policy=None, reshard_after_forward=None, mesh=None)
fully_shard(model[2], offload_policy=CPUOffload(offload_params=False))
fully_shard(model, shard_placement_fn=None, ignored_params=None)
model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
"""

POPPED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def shard(model, mp_policy=None, **options):
    options.pop("use_orig_params", None)
    if mp_policy is not None:
        options["mp_policy"] = mp_policy
    for layer in model.children():
        fully_shard(layer, **options)
    return fully_shard(model, **options)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = shard(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)), use_orig_params=True)
model(torch.randn(16, 4)).pow(2).mean().backward()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
model = shard(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)), policy)
model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
"""

OTHER_FUNCTION = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed import fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy


def fully_shard(module, device_mesh, mp_policy=None):
    options = {} if mp_policy is None else {"mp_policy": mp_policy}
    return fsdp.fully_shard(module, mesh=device_mesh, **options)


dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = fully_shard(nn.Linear(4, 1), mesh, mp_policy=None)
model(torch.randn(16, 4)).pow(2).mean().backward()
old = FSDP(
    nn.Linear(4, 1),
    device_mesh=mesh,
    sharding_strategy=ShardingStrategy.FULL_SHARD,
    mixed_precision=MixedPrecision(),
    device_id=torch.device("cpu"),
)
old(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
"""


class WrongShardingArgument(Rule):
    """`fully_shard` is given an argument that it does not take, or an object of FSDP1's.

    ## What it does
    Finds calls of `fully_shard` with keywords of FSDP1's constructor (`device_mesh`, `mixed_precision`,
    `sharding_strategy`, ...), with options by position, with `mp_policy=None`, and with FSDP1's objects
    as options: `MixedPrecision` as `mp_policy`, `CPUOffload` as `offload_policy`, a `ShardingStrategy`
    as `reshard_after_forward`.

    `offload_policy=None`, `mesh=None` and `reshard_after_forward=None` are fine, and
    `CPUOffload(offload_params=False)` asks for what happens anyway.

    ## Why is this bad?
    - a keyword of FSDP1's: `TypeError: fully_shard() got an unexpected keyword argument 'device_mesh'`;
    - `mp_policy=None` passes, and the first forward ends with
      `AttributeError: 'NoneType' object has no attribute 'param_dtype'`;
    - `MixedPrecision` passes too; its inputs are not cast: `RuntimeError: mat1 and mat2 must have the same
      dtype, but got Float and BFloat16`, or `'MixedPrecision' object has no attribute 'output_dtype'`;
    - `CPUOffload(offload_params=True)` and `True` as `offload_policy` are ignored without a word: nothing
      is offloaded, and the memory that it was to save stays in use.

    ## Fix safety
    Safe: `device_mesh` becomes `mesh`, `SHARD_GRAD_OP` becomes `reshard_after_forward=False`, and what says
    no more than the default goes (`mp_policy=None`, `FULL_SHARD`, `use_orig_params`). Unsafe: FSDP1's
    `MixedPrecision` and `CPUOffload` become FSDP2's policies, which cast and move more than before.
    There is no fix where an argument has no counterpart, or comes out of a dict.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, and the tutorial's table from FSDP1 to FSDP2.
    - pytorch/torchtitan, `docs/fsdp.md`.
    """

    code = "FSDP117"
    name = "wrong-sharding-argument"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Sharded):
            wrong = _wrong(event)
            if not wrong or event.site in seen:
                continue
            seen.add(event.site)
            first, *others = wrong.values()
            and_more = f" (and {len(others)} more)" if others else ""
            yield self.finding(
                event,
                f"`fully_shard` {first[0]}{and_more}",
                help="; ".join(dict.fromkeys(advice for _, advice in wrong.values())) + ".",
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.sharding_arguments import mend_arguments
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        event = finding.events[0]
        if found is None or not isinstance(event, Sharded):
            return None
        rewrite = Rewrite()
        safety = mend_arguments(rewrite, program, *found, set(_wrong(event)))
        return rewrite.fix("Give `fully_shard` its own arguments", safety) if safety else None

    bad = (
        Bad(
            code=KEYWORDS,
            symptom=Symptom(raises="got an unexpected keyword argument 'device_mesh'"),
            changes=(
                ("import ShardingStrategy, fully_shard", "import fully_shard"),
                ("(layer, device_mesh=mesh)", "(layer, mesh=mesh)"),
                ("    device_mesh=mesh,\n", "    mesh=mesh,\n"),
                (
                    "sharding_strategy=ShardingStrategy.SHARD_GRAD_OP",
                    "reshard_after_forward=False",
                ),
                ("    use_orig_params=True,\n", ""),
            ),
            healthy="trained",
        ),
        Bad(
            code=NO_POLICY,
            symptom=Symptom(raises="'NoneType' object has no attribute 'param_dtype'"),
            changes=(
                ("(layer, mp_policy=None, reshard", "(layer, reshard"),
                ("(self.model, mp_policy=None)", "(self.model)"),
            ),
            healthy="trained",
        ),
        Bad(
            code=MIXED_PRECISION,
            symptom=Symptom(raises="mat1 and mat2 must have the same dtype"),
            changes=(
                ("import MixedPrecision, fully_shard", "import MixedPrecisionPolicy, fully_shard"),
                ("precision = MixedPrecision(", "precision = MixedPrecisionPolicy("),
            ),
            healthy="trained",
        ),
        Bad(
            code=CPU_OFFLOAD,
            symptom=Symptom(prints="a policy that FSDP2 knows: False"),
            changes=(
                ("import CPUOffload, OffloadPolicy,", "import CPUOffloadPolicy, OffloadPolicy,"),
                ("=CPUOffload(offload_params=True)", "=CPUOffloadPolicy()"),
            ),
            healthy="a policy that FSDP2 knows: True",
        ),
        Bad(
            code=OUT_OF_A_DICT,
            symptom=Symptom(raises="unexpected keyword argument 'mixed_precision'"),
        ),
    )

    good = (
        Good(why="None and FSDP1's objects where they change nothing", code=SAME_DEFAULTS),
        Good(why="options in a dict that never gets the wrong one", code=POPPED),
        Good(
            why="a function of the program's own that is called so, and FSDP1", code=OTHER_FUNCTION
        ),
    )


def _wrong(event: Sharded) -> dict[str, tuple[str, str]]:
    """The arguments that are wrong, by name: what is wrong, and what to give instead."""
    found: dict[str, tuple[str, str]] = {}
    for name in event.options:
        if name in FSDP1_KEYWORDS:
            found[name] = (
                f"takes no `{name}`, which is a keyword of FSDP1's",
                f"Of `{name}`: {FSDP1_KEYWORDS[name]}",
            )
    if event.positional:
        found[""] = ("takes its options by keyword only", "Name the options that follow the module")
    found.update(_wrong_policies(event))
    strategy = str(event.options.get("reshard_after_forward", ""))
    if strategy.startswith("torch.distributed.fsdp.ShardingStrategy"):
        found["reshard_after_forward"] = (
            "gets a `ShardingStrategy` of FSDP1's as `reshard_after_forward`",
            "Give True, False, or leave it out",
        )
    return found


def _wrong_policies(event: Sharded) -> Iterator[tuple[str, tuple[str, str]]]:
    if "mp_policy" in event.options:
        policy = event.options["mp_policy"]
        advice = "Give a `MixedPrecisionPolicy`, or leave `mp_policy` out"
        if policy is None:
            yield "mp_policy", ("gets None as `mp_policy`, which fails in the forward", advice)
        elif str(policy).partition("(")[0] == "torch.distributed.fsdp.MixedPrecision":
            yield "mp_policy", ("gets FSDP1's `MixedPrecision` as `mp_policy`", advice)
    offload = event.options.get("offload_policy")
    if offload is True or str(offload).endswith(".CPUOffload(offload_params=True)"):
        what = "True" if offload is True else "FSDP1's `CPUOffload`"
        yield (
            "offload_policy",
            (
                f"gets {what} as `offload_policy` and ignores it",
                "Give a `CPUOffloadPolicy`",
            ),
        )
