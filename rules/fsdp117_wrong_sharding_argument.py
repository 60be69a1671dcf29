"""FSDP117: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Sharded, Trace
from fsdplint.trace.queries.meshes import sizes_of
from fsdplint.trace.torch_versions import ROOT_RESHARDED_SINCE

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

# FSDP1's keywords, and what FSDP2 has in their place.
FSDP1_KEYWORDS = {
    "process_group": "pass a `mesh` instead (`DeviceMesh.from_group`)",
    "sharding_strategy": "use `reshard_after_forward` and the dimensions of the mesh instead",
    "cpu_offload": "pass `offload_policy=CPUOffloadPolicy()` instead",
    "auto_wrap_policy": "call `fully_shard` on each block before the root instead",
    "backward_prefetch": "remove it; FSDP2 always prefetches",
    "mixed_precision": "pass `mp_policy=MixedPrecisionPolicy(...)` instead",
    "ignored_modules": "pass `ignored_params`, a set of parameters, instead",
    "param_init_fn": "shard on the meta device, then call `to_empty` and initialise",
    "device_id": "remove it; the mesh has the device",
    "sync_module_states": "load rank 0's state with `broadcast_from_rank0=True` instead",
    "forward_prefetch": "call `set_modules_to_forward_prefetch` instead",
    "limit_all_gathers": "remove it; FSDP2 needs no limit",
    "use_orig_params": "remove it; FSDP2 always keeps the original parameters",
    "ignored_states": "pass `ignored_params`, a set of parameters, instead",
    "device_mesh": "pass `mesh` instead",
}


DTYPES = {
    "torch.bfloat16", "torch.float16", "torch.half", "torch.float32", "torch.float",
}  # fmt: skip


class WrongShardingArgument(Rule):
    """`fully_shard` gets an argument that it does not have, or an object of FSDP1.

    ## What it does
    Finds calls of `fully_shard` with keywords of FSDP1's constructor (`device_mesh`, `mixed_precision`,
    `sharding_strategy`, ...), with options by position, with None or a dtype as `mp_policy`, and with
    objects of FSDP1 as options: `MixedPrecision` as `mp_policy`, `CPUOffload` as `offload_policy`, a `ShardingStrategy`
    as `reshard_after_forward`, and a number as `reshard_after_forward` that does not divide the
    dimension of the mesh that shards.

    `offload_policy=None`, `mesh=None` and `reshard_after_forward=None` are fine, and
    `CPUOffload(offload_params=False)` has no effect anyway.

    ## Why is this bad?
    - A keyword of FSDP1: `TypeError: fully_shard() got an unexpected keyword argument 'device_mesh'`.
    - `mp_policy=None` is accepted, and the first forward ends with
      `AttributeError: 'NoneType' object has no attribute 'param_dtype'`. A dtype is accepted as well, with
      the same error.
    - `MixedPrecision` is accepted too, but inputs are not cast: `RuntimeError: mat1 and mat2 must have the same
      dtype, but got Float and BFloat16`, or `'MixedPrecision' object has no attribute 'output_dtype'`.
    - A number that does not divide the ranks: `ValueError: If passing reshard_after_forward as an int, it
      should be a factor of 4, not 3`.
    - `CPUOffload(offload_params=True)` and `True` as `offload_policy` are ignored without a warning:
      nothing is offloaded, and no memory is saved.

    ## Fix safety
    Safe: `device_mesh` becomes `mesh`, `SHARD_GRAD_OP` becomes `reshard_after_forward=False`, and arguments
    that match the default are removed (`mp_policy=None`, `FULL_SHARD`, `use_orig_params`). Unsafe:
    FSDP1's `MixedPrecision` and `CPUOffload` become FSDP2's policies, which cast and move more than
    before. There is no fix if an argument is a dtype, has no
    counterpart, or comes from a dict.

    ## Since
    torch 2.4, the first with FSDP2. Until 2.7, `reshard_after_forward=None` raises ValueError.

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
            wrong = _wrong_arguments(event) | _wrong_divisor(trace, event) | _too_new(trace, event)
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
        return rewrite.fix("Use the arguments of `fully_shard`", safety) if safety else None


def _wrong_arguments(event: Sharded) -> dict[str, tuple[str, str]]:
    """The arguments that are wrong, by name: what is wrong, and what to give instead."""
    found: dict[str, tuple[str, str]] = {}
    for name in event.options:
        if name in FSDP1_KEYWORDS:
            found[name] = (
                f"takes no argument `{name}`, which only FSDP1 has",
                f"`{name}`: {FSDP1_KEYWORDS[name]}",
            )
    if event.positional:
        found[""] = (
            "takes its options by keyword only",
            "Pass every argument after the module by keyword",
        )
    found.update(_wrong_policies(event))
    strategy = str(event.options.get("reshard_after_forward", ""))
    if strategy.startswith("torch.distributed.fsdp.ShardingStrategy"):
        found["reshard_after_forward"] = (
            "gets FSDP1's `ShardingStrategy` as `reshard_after_forward`",
            "Pass True or False, or remove the argument",
        )
    return found


def _wrong_divisor(trace: Trace, event: Sharded) -> dict[str, tuple[str, str]]:
    """A number of ranks to shard to after the forward that is no factor of the mesh."""
    ranks, sizes = event.options.get("reshard_after_forward"), sizes_of(trace, event)
    if not isinstance(ranks, int) or isinstance(ranks, bool):
        return {}
    size = sizes[-1] if sizes else None
    if ranks >= 1 and (size is None or size % ranks == 0):
        return {}
    of = f"the {size} ranks of its mesh" if size else "the number of ranks"
    advice = f"Pass a number that divides {of}, or True or False"
    what = f"gets `reshard_after_forward={ranks}`, which is no factor of {of}"
    return {"reshard_after_forward": (what, advice)}


def _wrong_policies(event: Sharded) -> Iterator[tuple[str, tuple[str, str]]]:
    if "mp_policy" in event.options:
        policy = event.options["mp_policy"]
        advice = "Pass a `MixedPrecisionPolicy`, or remove `mp_policy`"
        if policy is None:
            yield "mp_policy", ("gets None as `mp_policy`, which fails in the forward", advice)
        elif str(policy).partition("(")[0] == "torch.distributed.fsdp.MixedPrecision":
            yield "mp_policy", ("gets FSDP1's `MixedPrecision` as `mp_policy`", advice)
        elif policy in DTYPES:
            what = f"gets `{policy}` as `mp_policy`, which fails in the forward"
            yield "mp_policy", (what, "Pass `MixedPrecisionPolicy(param_dtype=...)`")
    offload = event.options.get("offload_policy")
    if offload is True or str(offload).endswith(".CPUOffload(offload_params=True)"):
        what = "True" if offload is True else "FSDP1's `CPUOffload`"
        yield (
            "offload_policy",
            (
                f"gets {what} as `offload_policy` and ignores it",
                "Pass a `CPUOffloadPolicy`",
            ),
        )


def _too_new(trace: Trace, event: Sharded) -> dict[str, tuple[str, str]]:
    """None as `reshard_after_forward`, which older versions of torch refuse."""
    given = event.options.get("reshard_after_forward", True)
    if given is not None or not trace.lacks(ROOT_RESHARDED_SINCE):
        return {}
    advice = "Remove `reshard_after_forward`: the root is kept without it, too"
    what = f"takes `reshard_after_forward=None` only since torch {ROOT_RESHARDED_SINCE}"
    return {"reshard_after_forward": (what, advice)}
