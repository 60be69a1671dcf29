"""FSDP135: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Event, ModuleMoved, Sharded, Trace, Wrapped
from fsdplint.trace.groups import sharded_by
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.wrappers import shards

_ACCELERATORS = ("cuda", "xpu", "npu", "hpu", "mtia")


class OffloadedParametersMoved(Rule):
    """Parameters that FSDP keeps on the CPU are moved to an accelerator.

    ## What it does
    Finds `.to("cuda")`, `.cuda()` and `to_empty(device="cuda")` of a model after `fully_shard` with
    `offload_policy=CPUOffloadPolicy()`, and before its first call. Also finds them after FSDP1's
    constructor with `cpu_offload=CPUOffload(offload_params=True)`.

    A move before the sharding is fine: FSDP moves the parameters back to the CPU.

    ## Why is this bad?
    With this policy, FSDP copies the parameters to the accelerator itself, for each forward and backward.
    The first forward checks where they are:

        RuntimeError: FSDP parameters should be materialized on CPU when enabling CPU offloading. For
        example, load a CPU state dict or call module.to_empty(device="cpu"). Found following parameters
        on non-CPU device: ...

    FSDP1 has such a check, too:

        RuntimeError: An FSDP-managed module with parameter CPU offloading enabled has parameters on
        cuda:0. Make sure to not move the module from CPU when offloading parameters.

    These checks and their texts are from torch's source. The examples need a GPU and have not been run.

    Call `to_empty(device="cpu")` for a model on the meta device, and do not move other models. Buffers
    stay where the computation is: move only them.

    ## Since
    torch 2.4, the first with FSDP2; always for FSDP1.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`CPUOffloadPolicy`)
    """

    code = "FSDP135"
    name = "offloaded-parameters-moved"
    severity = Severity.ERROR
    # The policy may be an option under a test, which the event of the sharding does not name.
    all_configurations = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for move in trace.of(ModuleMoved):
            if not _to_accelerator(move) or move.site in seen:
                continue
            shard = _offloading_call(trace, move) or _offloaded_by_fsdp1(trace, move)
            if shard is None or not _is_called_next(trace, move):
                continue
            seen.add(move.site)
            because: list[tuple[Event, str]] = [(shard, "sharded with CPU offloading here")]
            yield self.finding(
                move,
                f"parameters of `{class_name(trace, move.module)}` are moved to `{move.device}`, but "
                f"`{_option_of(shard)}` needs them on the CPU: the first forward fails",
                help='Call `to_empty(device="cpu")` for a model on the meta device, and do not move other '
                "models.",
                because=because,
            )

    def concerns(self, trace: Trace, finding: Finding) -> bool:
        """Whether a trace with a sharded model moves it; other models may move."""
        return bool(trace.shardings()) and super().concerns(trace, finding)


def _to_accelerator(move: ModuleMoved) -> bool:
    named = move.device or ("cuda" if move.method == "cuda" else "")
    return move.method in ("to", "cuda", "to_empty") and named.startswith(_ACCELERATORS)


def _offloading_call(trace: Trace, move: ModuleMoved) -> Sharded | None:
    """The call that has sharded a part of the moved module with CPU offloading."""
    for shard in trace.before(move, Sharded):
        policy = str(shard.options.get("offload_policy"))
        if policy.partition("(")[0] == "torch.distributed.fsdp.CPUOffloadPolicy":
            if any(_moves(trace, move, module) for module in sharded_by(shard)):
                return shard
    return None


def _offloaded_by_fsdp1(trace: Trace, move: ModuleMoved) -> Wrapped | None:
    """The wrapper in the moved module that certainly offloads its parameters."""
    for wrapper in trace.before(move, Wrapped):
        offload = str(wrapper.options.get("cpu_offload"))
        if offload.endswith("fsdp.CPUOffload(offload_params=True)") and shards(wrapper):
            if _moves(trace, move, wrapper.module):
                return wrapper
    return None


def _moves(trace: Trace, move: ModuleMoved, module: str) -> bool:
    """Whether a move may move parameters of a sharded module."""
    return trace.contains(move.module, module) if move.recurse else move.module == module


def _option_of(shard: Sharded | Wrapped) -> str:
    """The object that says that parameters are offloaded, as the program writes it."""
    return "CPUOffloadPolicy" if isinstance(shard, Sharded) else "CPUOffload(offload_params=True)"


def _is_called_next(trace: Trace, move: ModuleMoved) -> bool:
    """Whether the module is called for the first time, before it is moved again."""
    if any(trace.related(one.module, move.module) for one in trace.before(move, Called)):
        return False
    for event in trace.after(move, Called, ModuleMoved):
        if isinstance(event, Called) and trace.related(event.module, move.module):
            return True
        if isinstance(event, ModuleMoved) and trace.related(event.module, move.module):
            if event.device is not None or event.method in ("cpu", "to_empty"):
                return False
    return False
