"""`fsdplint prove --simulate`: one rank of a large job, before and after the fixes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.launch.progress import Progress
from fsdplint.runtime.launch.records import Line
from fsdplint.runtime.launch.workplace import workplace
from fsdplint.runtime.proof.program_pair import (
    Options,
    Pair,
    fixes_of,
    pair_of_programs,
    pair_with_fixes,
    script_of,
)

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Finding

# The first step creates the optimizer's state; all further steps are like the second one.
STEPS = 2


@dataclass
class SimulationResult:
    """What one simulated rank holds and sends.

    after: None if there is nothing to fix.
    remaining: the findings without a fix.
    """

    script: Path
    world: int
    before: Run
    after: Run | None
    remaining: list[Finding]
    diff: str = ""

    @property
    def ok(self) -> bool:
        """Whether the runs succeeded and made a step."""
        return all(run.ok and steps_of(run) for run in self.runs.values())

    @property
    def runs(self) -> dict[str, Run]:
        return {
            name: run
            for name, run in (("before", self.before), ("after", self.after))
            if run is not None
        }


def steps_of(run: Run) -> list[Line]:
    """The account of each step; see `fsdplint.runtime.simulation.measure`."""
    return [line for record in run.records for line in record.accounts]


def simulate(options: Options, progress: Progress | None = None) -> SimulationResult:
    """Simulate one rank of the program before and after its fixes.

    Raises:
        ProveError: the program cannot be read, copied, fixed or started.
        WorkplaceError: there is no folder for the copies.
    """
    assert options.simulate is not None
    script = script_of(options.script)
    with workplace("prove", options.keep) as work:
        remaining: list[Finding] = []
        if options.against is not None:
            pair = pair_of_programs(options, work, script, script_of(options.against), progress)
            changed = True
        else:
            fixes = fixes_of(script, options.unsafe, target_torch=options.target_torch)
            remaining, changed = list(fixes.result.findings), bool(fixes.applied)
            pair = pair_with_fixes(options, work, script, fixes, progress)
        return _simulate_pair(pair, changed, remaining)


def simulate_as_it_is(options: Options, progress: Progress | None = None) -> Run:
    """Simulate one rank of the program without any change.

    Raises: see `simulate`.
    """
    script = script_of(options.script)
    with workplace("plan", options.keep) as work:
        pair = pair_of_programs(options, work, script, script, progress)
        pair.progress(f"simulating a rank of {options.simulate}: {script.name}")
        return pair.run("before")


def _simulate_pair(pair: Pair, changed: bool, remaining: list[Finding]) -> SimulationResult:
    world = pair.options.simulate or 1
    pair.progress(f"simulating a rank of {world}: {pair.script.name} as it is")
    before = pair.run("before")
    after = None
    if changed:
        pair.progress("simulating it after the change")
        after = pair.run("after")
    return SimulationResult(pair.script, world, before, after, remaining, pair.diff())
