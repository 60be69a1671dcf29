"""The JSON of a proof and of a simulation: the types that their writers fill. `docs/schemas/` is
made from them.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

VerdictName = Literal["proven", "refuted", "other layout", "not reached", "not comparable"]


class RankEnd(TypedDict):
    """How the program ended on one rank.

    Attributes:
        rank: the number of the rank.
        status: "hung" for a rank that still ran when the run was ended, "died" for one that a
            signal killed, "stopped" for one that ended because another rank failed.
        where: the line of the exception, or the current line of a hung rank; may be empty.
        last: the last event, as text; may be empty.
        error: the traceback, the signal, or the output before the end; may be empty.
        collective: the last collective that began, with its number; may be empty.
        said: the exception in one line, or the exit code; may be empty.
    """

    rank: int
    status: str
    where: str
    last: str
    error: str
    collective: str
    said: str


class _AnyRun(TypedDict):
    """A run of the program.

    Attributes:
        status: the worst status of a rank.
        problem: why the run failed as a whole; may be empty.
        seconds: how long it took.
        ranks: how each rank ended.
        output: the last output of each rank, by its number.
    """

    status: str
    problem: str
    seconds: float
    ranks: list[RankEnd]
    output: dict[str, str]


class Run(_AnyRun):
    """A run of the program on all ranks.

    Attributes:
        code: the exit code of the launcher, or null.
        steps: for each rank, the measures of each optimizer step. Their keys may change.
        notes: remarks of the recorder.
    """

    code: int | None
    steps: list[list[dict[str, Any]]]
    notes: list[str]


class Fix(TypedDict):
    """A fix, and what the runs say about it.

    Attributes:
        verdict: what the runs say.
        code: the rule of the fix.
        title: what the fix does.
        message: what is wrong without it.
        filename: the file of the finding, or null.
        line: its line, or null.
        reasons: the evidence.
        before: what happened at the lines of the fix in the run before.
        after: what happened there in the run after.
        checks: the names of the comparisons that are about the fix.
    """

    verdict: VerdictName
    code: str
    title: str
    message: str
    filename: str | None
    line: int | None
    reasons: list[str]
    before: str
    after: str
    checks: list[str]


class Finding(TypedDict):
    """A finding that no fix removes.

    Attributes:
        code: the code of the rule.
        message: what is wrong.
        blocker: why the migration cannot be made here, or null.
        filename: the file.
        line: the line.
    """

    code: str
    message: str
    blocker: str | None
    filename: str
    line: int


class Check(TypedDict):
    """The comparison of one property of the runs.

    Attributes:
        name: the property.
        holds: whether it is the same; null if it could not be compared.
        detail: what was compared, or how it differs.
        tolerance: the tolerance; may be empty.
        binding: whether the verdict depends on it.
        layout: whether a difference is only about what the ranks hold and send.
    """

    name: str
    holds: bool | None
    detail: str
    tolerance: str
    binding: bool
    layout: bool


class HeldByRun(TypedDict):
    """The units with one path in a run.

    Attributes:
        units: their number.
        placement: which ranks hold which part, in words.
        collectives: the calls of each collective in a forward and a backward of one unit; null if
            they are not known.
        bytes: the bytes of their parameters, gradients and optimizer state, each the most of any
            rank at the last step.
    """

    units: int
    placement: str
    collectives: dict[str, int] | None
    bytes: dict[str, int]


class HeldUnit(TypedDict):
    """Units whose parameters are gathered together.

    Attributes:
        path: their path, with "*" for an index in which they differ; "" is the root, and null
            stands for parameters without FSDP.
        before: the units in the run before the fixes, or null.
        after: the units in the run after them, or null.
    """

    path: str | None
    before: HeldByRun | None
    after: HeldByRun | None


class Proof(TypedDict):
    """The data that `fsdplint prove --json FILE` writes.

    Attributes:
        schema_version: the version of this schema.
        version: the version of fsdplint.
        script: the program.
        proven: whether every fix is proven.
        deterministic: whether two runs of the same program agree; null if that was not tried.
        fixes: the fixes with their verdicts.
        outside: what is at absolute paths that the program writes.
        remaining: the findings without a fix.
        found_after: the findings of the run after the fixes that a check does not have.
        checks: the comparisons.
        units: what a rank holds of each unit.
        diff: the change, as a unified diff.
        before: the run before the fixes, or null.
        after: the run after them, or null.
        without_sharding: the run with data parallelism instead of sharding, or null.
    """

    schema_version: Literal[1]
    version: str
    script: str
    proven: bool
    deterministic: bool | None
    fixes: list[Fix]
    outside: list[str]
    remaining: list[Finding]
    found_after: list[Finding]
    checks: list[Check]
    units: list[HeldUnit]
    diff: str
    before: Run | None
    after: Run | None
    without_sharding: Run | None


class SimulatedStep(TypedDict):
    """What the rank holds after a step, and sends in it.

    Attributes:
        step: the number of the step.
        parameters: the bytes of parameters.
        gradients: the bytes of gradients.
        optimizer: the bytes of the optimizer's state.
        peak: the most bytes of all live tensors during the step.
        calls: the number of calls of each collective.
        sent: the bytes of each collective.
    """

    step: int
    parameters: int
    gradients: int
    optimizer: int
    peak: int
    calls: dict[str, int]
    sent: dict[str, int]


class SimulatedRun(_AnyRun):
    """A simulated run of one rank.

    Attributes:
        steps: the account of each step.
    """

    steps: list[SimulatedStep]


class _After(TypedDict, total=False):
    """The second run.

    Attributes:
        after: the run after the fixes; absent without fixes.
    """

    after: SimulatedRun


class Simulation(_After):
    """The data that `fsdplint prove --simulate --json FILE` writes.

    Attributes:
        schema_version: the version of this schema.
        version: the version of fsdplint.
        script: the program.
        simulated: always true.
        world_size: the number of ranks.
        ok: whether the runs succeeded and made a step.
        diff: the change, as a unified diff.
        before: the run of the program as it is.
    """

    schema_version: Literal[1]
    version: str
    script: str
    simulated: Literal[True]
    world_size: int
    ok: bool
    diff: str
    before: SimulatedRun
