"""FSDP133: see the class."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Fsdp1Used, MeshBuilt, PolicyCalled, Trace, Wrapped
from fsdplint.trace.queries.backends import BACKENDS
from fsdplint.trace.queries.wrappers import strategy

# The arguments of FSDP1's constructor in torch 2.0 to 2.13.
_ARGUMENTS = {
    "process_group", "sharding_strategy", "cpu_offload", "auto_wrap_policy", "backward_prefetch",
    "mixed_precision", "ignored_modules", "ignored_parameters", "param_init_fn", "device_id",
    "sync_module_states", "forward_prefetch", "limit_all_gathers", "use_orig_params",
    "ignored_states", "device_mesh", "**",
}  # fmt: skip
# What to do with arguments of other wrappers.
_ADVICE = {
    "device_ids": "pass `device_id=` with one device",
    "find_unused_parameters": "remove it; FSDP1 needs no search for unused parameters",
    "mesh": "pass `device_mesh=`",
    "mp_policy": "pass `mixed_precision=MixedPrecision(...)`",
    "offload_policy": "pass `cpu_offload=CPUOffload(offload_params=True)`",
    "reshard_after_forward": "pass `sharding_strategy=`: FULL_SHARD or SHARD_GRAD_OP",
    "ignored_params": "pass `ignored_states=`",
    "wrap_policy": "pass `auto_wrap_policy=`",
    "fsdp_auto_wrap_policy": "pass `auto_wrap_policy=`, its name since torch 1.12",
    "mixed_precision_policy": "pass `mixed_precision=MixedPrecision(...)`",
}

# Policies, with the argument of theirs that FSDP1 does not pass.
_UNBOUND = {
    "torch.distributed.fsdp.wrap.transformer_auto_wrap_policy": "transformer_layer_cls",
    "torch.distributed.fsdp.wrap.lambda_auto_wrap_policy": "lambda_fn",
}
# What a policy has where it needs a set of classes; see `Wrapped.not_classes`.
_INSTEAD_OF_CLASSES = {
    "names": "names",
    "instances": "modules",
    "one class": "one class and no set",
}

_ASKS_FOR_TEXT = re.compile(r"\b(isinstance|type)\(.*\bstr\b")


class WrongWrapperArgument(Rule):
    """FSDP1 gets an argument that it does not have, or an object of another kind.

    ## What it does
    Finds calls of `FullyShardedDataParallel` with arguments of `fully_shard` or of DDP
    (`reshard_after_forward`, `device_ids`, ...), with FSDP2's `MixedPrecisionPolicy` or a dtype as
    `mixed_precision`, with FSDP2's `CPUOffloadPolicy`, True or a flag of the command line as `cpu_offload`, with a string or number
    as `sharding_strategy`, with the name of a backend as `process_group`, and with a mesh of one
    dimension for `HYBRID_SHARD`. Also finds wrap policies
    that have names, modules or a bare class in place of a set of classes, that are called where they
    have to be bound:
    `auto_wrap_policy=transformer_auto_wrap_policy(transformer_layer_cls={Block})`, and those that are
    passed without their argument.

    Also finds `FSDP.optim_state_dict` and `FSDP.optim_state_dict_to_load` with an optimizer or a state in place
    of the model. `optim_state_dict_to_load` took the state first before torch 2.2.

    ## Why is this bad?
    The constructor fails:

    - An argument that it does not have: `TypeError: got an unexpected keyword argument 'device_ids'`.
    - A policy of FSDP2 or a dtype: `AttributeError: 'MixedPrecisionPolicy' object has no attribute
      'keep_low_precision_grads'`, `'CPUOffloadPolicy' object has no attribute 'offload_params'`.
    - A name as `sharding_strategy`: `KeyError: 'FULL_SHARD'`.
    - A mesh for a hybrid strategy: `ValueError: Expected device_mesh to have ndim=2 but got 1`.
    - A backend as `process_group`: `AttributeError: 'str' object has no attribute 'rank'`.
    - A policy that is called: `TypeError: transformer_auto_wrap_policy() missing 3 required positional
      arguments: 'module', 'recurse', and 'nonwrapped_numel'`. `functools.partial` binds the arguments.
    - Names or modules as classes: `TypeError: isinstance() arg 2 must be a type, a tuple of types, or a
      union`; one class and no set: `TypeError: 'type' object is not iterable`.
    - A policy without its argument: `TypeError: transformer_auto_wrap_policy() missing 1 required
      positional argument: 'transformer_layer_cls'`.
    - An optimizer or a state in place of the model: `AttributeError: 'AdamW' object has no attribute
      'children'`, `TypeError: unhashable type: 'dict'`.

    ## Since
    torch 2.0.

    ## References
    - torch docs, `FullyShardedDataParallel`.
    """

    code = "FSDP133"
    name = "wrong-wrapper-argument"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        meshes = {event.mesh: event for event in trace.of(MeshBuilt)}
        for event in trace.of(PolicyCalled, Wrapped, Fsdp1Used):
            if event.site in seen:
                continue
            if isinstance(event, Fsdp1Used) and _has_other_order(trace, event):
                seen.add(event.site)
                order = "model, optimizer" + ", state" * event.api.endswith("_to_load")
                yield self.finding(
                    event,
                    f"`{event.api.removeprefix('FSDP.')}` gets {event.instead_of_model} in place of the model",
                    help=f"Pass the arguments in the order `({order})`.",
                )
            if isinstance(event, PolicyCalled):
                seen.add(event.site)
                yield self.finding(
                    event,
                    f"`{event.api}` is called here, but FSDP1 calls its policy itself, with each module",
                    help=f"Bind the arguments: `functools.partial({event.api}, ...)`.",
                )
            elif isinstance(event, Wrapped) and (
                wrong := {
                    **dict(_wrong_arguments(trace, event)),
                    **dict(_wrong_mesh(event, meshes)),
                }
            ):
                seen.add(event.site)
                first, *others = wrong
                and_more = f" (and {len(others)} more)" if others else ""
                yield self.finding(
                    event,
                    f"`FullyShardedDataParallel` {first}{and_more}",
                    help="; ".join(wrong.values()) + ".",
                )


def _has_other_order(trace: Trace, event: Fsdp1Used) -> bool:
    """Whether the arguments of a method for optimizer states have an order that it does not take."""
    old = trace.target is not None and trace.target.may_be_older("2.2")
    if event.instead_of_model == "a state" and old:
        return False
    return event.instead_of_model != "" and "optim_state_dict" in event.api


def _wrong_mesh(event: Wrapped, meshes: Mapping[str, MeshBuilt]) -> Iterator[tuple[str, str]]:
    """What is wrong with the mesh for a hybrid strategy, and what to pass instead."""
    mesh = meshes.get(event.mesh or "")
    if mesh is not None and len(mesh.shape) == 1 and "HYBRID" in (strategy(event) or ""):
        yield (
            "gets a mesh of one dimension for a hybrid strategy",
            "Build the mesh with the shape (replicas, shards)",
        )


def _excludes_texts(trace: Trace) -> bool:
    """Whether this run has decided a test for a text as false: a constant may be no text there.

    `if isinstance(strategy, str): strategy = ShardingStrategy[strategy]`
    """
    tests = (test.text for key, test in trace.tests.items() if trace.decisions.get(key) is False)
    return any(_ASKS_FOR_TEXT.search(text) for text in tests)


def _wrong_arguments(trace: Trace, event: Wrapped) -> Iterator[tuple[str, str]]:
    """What is wrong with each wrong argument, and what to pass instead."""
    for name in event.options:
        if name not in _ARGUMENTS:
            advice = _ADVICE.get(name, "remove it")
            yield f"has no argument `{name}`", f"`{name}`: {advice}"
    given = {name: str(value).partition("(")[0] for name, value in event.options.items()}
    precision = given.get("mixed_precision", "")
    if precision.endswith(".fsdp.MixedPrecisionPolicy"):
        yield (
            "gets FSDP2's `MixedPrecisionPolicy` as `mixed_precision`",
            "Pass FSDP1's `MixedPrecision(...)`",
        )
    elif precision in ("torch.bfloat16", "torch.float16", "torch.float32", "True"):
        yield (
            f"gets {precision} as `mixed_precision`",
            "Pass `MixedPrecision(param_dtype=..., reduce_dtype=..., buffer_dtype=...)`",
        )
    offload = event.options.get("cpu_offload")
    if offload in (True, "bool") or given.get("cpu_offload", "").endswith(".fsdp.CPUOffloadPolicy"):
        what = {True: "True", "bool": "a flag"}.get(offload, "FSDP2's `CPUOffloadPolicy`")
        yield f"gets {what} as `cpu_offload`", "Pass `CPUOffload(offload_params=True)`"
    strategy = event.options.get("sharding_strategy")
    named = isinstance(strategy, str) and strategy.isidentifier() and not _excludes_texts(trace)
    if named or isinstance(strategy, int):
        yield (
            f"gets {strategy!r} as `sharding_strategy`",
            "Pass a member of the enumeration `ShardingStrategy`",
        )
    policy = str(event.options.get("auto_wrap_policy"))
    if policy in _UNBOUND:
        name = policy.rpartition(".")[2]
        yield (
            f"gets `{name}` as `auto_wrap_policy` without its argument `{_UNBOUND[policy]}`",
            f"Bind it: `functools.partial({name}, {_UNBOUND[policy]}=...)`",
        )
    if event.not_classes:
        yield (
            f"gets a policy with {_INSTEAD_OF_CLASSES[event.not_classes]} as classes",
            "Pass a set of classes: `{Block}`",
        )
    group = event.options.get("process_group")
    if isinstance(group, str) and group in BACKENDS:
        yield (
            f"gets {group!r} as `process_group`",
            "Remove it; the backend belongs to `init_process_group`",
        )
