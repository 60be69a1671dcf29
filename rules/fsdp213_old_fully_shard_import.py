"""FSDP213: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Imported, Trace
from fsdplint.trace.torch_versions import ALIASES, COMPOSABLE, FSDP, GONE, HOMES, OLD, PUBLIC

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

ALIAS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed._composable.fsdp import (  # <- FSDP213
    MixedPrecisionPolicy,
    fully_shard,  # FSDP2
)
from torch.distributed.device_mesh import init_device_mesh


def parallelize(model, mesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = parallelize(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)), mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.randn(4, 8)).pow(2).mean()
loss.backward()
optimizer.step()
print(f"loss {loss.item():.3f} by {fully_shard.__module__}")
dist.destroy_process_group()
"""

HANDLE = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.fsdp import FSDPModule, UnshardHandle, fully_shard  # <- FSDP213


def gather(module: FSDPModule) -> UnshardHandle:
    return module.unshard(async_op=True)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    gather(model[0])
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""

MODULE = """\
import torch
import torch.distributed as dist
import torch.distributed._composable.fsdp  # <- FSDP213
import torch.nn as nn


def shard(model):
    for layer in model:
        torch.distributed._composable.fsdp.fully_shard(layer)
    torch.distributed._composable.fsdp.fully_shard(model)
    # one stream of collectives for what runs one after the other
    torch.distributed._composable.fsdp.share_comm_ctx([model[0], model[1]])
    return model


dist.init_process_group("gloo")
torch.manual_seed(0)
model = shard(nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8)))
print(f"loss {model(torch.randn(4, 8)).pow(2).mean().item():.4f}")
dist.destroy_process_group()
"""

COMPOSED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed._composable import fully_shard  # <- FSDP213

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.randn(4, 8)).pow(2).mean()
loss.backward()
optimizer.step()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""

WITH_POLICY = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed._composable import fully_shard  # <- FSDP213
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
fully_shard(model, policy=ModuleWrapPolicy({nn.Linear}), device_id=torch.device("cpu"))
model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
"""

REST = """\

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
"""
TORCH = "import torch\nimport torch.distributed as dist\nimport torch.nn as nn\n"

FALLBACK = (
    TORCH
    + """
try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # torch 2.4, 2.5
    from torch.distributed._composable.fsdp import fully_shard
"""
    + REST
)

OLD_FIRST = (
    TORCH
    + """
try:
    from torch.distributed._composable.fsdp import fully_shard
except ImportError:
    from torch.distributed.fsdp import fully_shard
"""
    + REST
)

BY_VERSION = (
    TORCH
    + """
TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
version_ok = TORCH >= (2, 6)
if version_ok:
    from torch.distributed.fsdp import fully_shard
else:
    from torch.distributed._composable.fsdp import fully_shard
"""
    + REST
)

OTHERS = (
    TORCH
    + """\
from torch.distributed._composable import checkpoint
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
for layer in model:
    checkpoint(layer)
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
"""
)

FOR_OLD_TORCH = TORCH + "from torch.distributed._composable.fsdp import fully_shard\n" + REST


class OldFullyShardImport(Rule):
    """`fully_shard`, or what goes with it, is imported from where it was before torch 2.6.

    ## What it does
    Finds imports of FSDP2 from `torch.distributed._composable.fsdp` and the modules in it, and of
    `fully_shard` from `torch.distributed._composable`.

    An import that the program can do without (in a `try` that catches its failure, or under a test of torch's
    version) is none of these, and a program that has to run on torch 2.4 or 2.5 (`target-torch`, or a lower
    bound or pin of torch in the project's requirements) has to import FSDP2 from there.

    ## Why is this bad?
    FSDP2 is `torch.distributed.fsdp` since torch 2.6. What is left at the old place, as torch 2.13 has it:

    - `torch.distributed._composable.fsdp` is a private module that is kept for old programs. It has six names,
      and no new ones: `AttributeError: module 'torch.distributed._composable.fsdp' has no attribute
      'share_comm_ctx'`, and `ImportError: cannot import name 'UnshardHandle'`.
    - The modules in it are gone, but for `fully_shard`:
      `ModuleNotFoundError: No module named 'torch.distributed._composable.fsdp._fsdp_api'`.
    - `fully_shard` of `torch.distributed._composable` itself was another function, FSDP1 without its wrapper, and
      is gone: `ImportError: cannot import name 'fully_shard' from 'torch.distributed._composable'`.

    ## Fix safety
    Safe where the public names are the same objects: the import names `torch.distributed.fsdp`. It needs torch
    2.6. Unsafe for FSDP1's `torch.distributed._composable.fully_shard`, and then only where it gets nothing but
    the module: its arguments (`policy`, `strategy`, `mixed_precision`) are others.

    ## Since
    torch 2.6, where FSDP2 became public.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    - https://github.com/pytorch/pytorch/pull/141875 (the move)
    - https://github.com/pytorch/torchtitan/issues/658
    """

    code = "FSDP213"
    name = "old-fully-shard-import"
    severity = Severity.WARNING
    fixable = Safety.SAFE
    fix_since = PUBLIC
    bad = (
        Bad(
            ALIAS,
            # The alias gives what the public module has: the program runs, on the torch of today.
            symptom=Symptom(prints=r"^loss \d\.\d+ by torch\.distributed\.fsdp$"),
            changes=(
                ("torch.distributed._composable.fsdp import (", "torch.distributed.fsdp import ("),
            ),
            healthy=r"^loss \d",
        ),
        Bad(
            HANDLE,
            symptom=Symptom(
                raises=r"ImportError: cannot import name 'UnshardHandle' from "
                r"'torch\.distributed\._composable\.fsdp'"
            ),
            changes=(
                (
                    "from torch.distributed._composable.fsdp import",
                    "from torch.distributed.fsdp import",
                ),
            ),
            healthy=r"^loss \d",
        ),
        Bad(
            MODULE,
            symptom=Symptom(
                raises=r"AttributeError: module 'torch\.distributed\._composable\.fsdp' has no "
                r"attribute 'share_comm_ctx'"
            ),
            fixed=MODULE.replace("torch.distributed._composable.fsdp", "torch.distributed.fsdp"),
            healthy=r"^loss \d",
        ),
        Bad(
            COMPOSED,
            symptom=Symptom(
                raises=r"ImportError: cannot import name 'fully_shard' from "
                r"'torch\.distributed\._composable'"
            ),
            changes=(("torch.distributed._composable import", "torch.distributed.fsdp import"),),
            healthy=r"^loss \d",
        ),
        Bad(
            WITH_POLICY,
            symptom=Symptom(
                raises=r"ImportError: cannot import name 'fully_shard' from "
                r"'torch\.distributed\._composable'"
            ),
        ),
    )
    good = (
        Good(FALLBACK, why="it is what an older torch gets"),
        Good(OLD_FIRST, why="its failure is caught"),
        Good(BY_VERSION, why="it is what an older torch gets"),
        Good(OTHERS, why="what else is there has no other home"),
        Good(FOR_OLD_TORCH, why="torch 2.5 has it nowhere else", target_torch="2.5"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        if trace.target is not None and trace.target.predates(PUBLIC):
            return
        for event in trace.of(Imported):
            message = None if event.optional else _wrong(event)
            if message is not None:
                finding = self.finding(
                    event,
                    message,
                    help=f"Import it from `{FSDP}`, which has it since torch {PUBLIC}."
                    if not _is_fsdp1(event)
                    else f"Use `fully_shard` of `{FSDP}`; its arguments are others.",
                )
                finding.configuration = ()  # the name is old, whatever the import waits for
                yield finding

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.fixes.old_import import rewrite_import

        event = finding.events[0]
        assert isinstance(event, Imported)
        return rewrite_import(finding.site, event, fsdp1=_is_fsdp1(event))


def _is_fsdp1(event: Imported) -> bool:
    """Whether it is the function that was FSDP1 without its wrapper."""
    return event.package == f"{COMPOSABLE}.fully_shard" or (
        event.package == COMPOSABLE and "fully_shard" in event.names
    )


def _wrong(event: Imported) -> str | None:
    """What is wrong with an import, in a sentence; None where nothing is."""
    package = event.package
    if _is_fsdp1(event):
        return f"`{COMPOSABLE}` has no `fully_shard` since torch {PUBLIC}; it was FSDP1 there"
    if package == COMPOSABLE:
        return _alias(OLD) if "fsdp" in event.names else None
    if package != OLD and not package.startswith(f"{OLD}."):
        return None
    if package not in ALIASES:
        return f"`{package}` is not there since torch {PUBLIC}"
    gone = [name for name in event.names if (package, name) in GONE]
    if gone:
        return f"`{package}` has no `{gone[0]}` since torch {PUBLIC}"
    known = not event.names or set(event.names) & {*HOMES[package], "*"}
    return _alias(package) if known else None


def _alias(package: str) -> str:
    return f"`{package}` is the private name that FSDP2 had before torch {PUBLIC}"
