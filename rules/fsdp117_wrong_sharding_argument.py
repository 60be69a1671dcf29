"""FSDP117: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
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
            wrong = _wrong_arguments(event)
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
        safety = mend_arguments(rewrite, program, *found, set(_wrong_arguments(event)))
        return rewrite.fix("Give `fully_shard` its own arguments", safety) if safety else None


def _wrong_arguments(event: Sharded) -> dict[str, tuple[str, str]]:
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
