"""The launcher of proofs with the forked ranks of `two_ranks` in place of torchrun: much faster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from two_ranks import TwoRanks

from fsdplint.runtime.launch import line_coverage
from fsdplint.runtime.launch.endings import ends_of
from fsdplint.runtime.launch.launcher import Launch, Run, Tick, check_record_written
from fsdplint.runtime.launch.records import read_records

# What torchrun would write; without it the first rank that failed is not known.
_NOTHING = Path(os.devnull)


def launcher(two_ranks: TwoRanks) -> Callable[..., Run]:
    """`fsdplint.runtime.launch.launcher.launch`, but for how the ranks are started and watched."""

    def launch(what: Launch, tick: Tick = lambda seconds: None) -> Run:
        started = time.monotonic()
        what.record.mkdir(parents=True, exist_ok=True)
        asked = os.environ.get(line_coverage.VARIABLE)
        answer = two_ranks.ask(
            {
                "script": what.target,
                "args": list(what.args),
                "work": str(what.folder),
                "record": str(what.record),
                "world": 1 if what.simulate else what.ranks,
                "simulate": what.simulate,
                "timeout": what.timeout,
                "device": what.device,
                "steps": what.steps,
                "seed": what.seed,
                "oracle": what.oracle,
                "parameters": what.parameters,
                "env": {} if asked is None else {line_coverage.VARIABLE: asked},
            }
        )
        check_record_written(what.record)
        tick(time.monotonic() - started)
        hung = any(rank["status"] == "hung" for rank in answer)
        records = read_records(what.record)
        output = {
            int(rank["rank"]): "".join(
                (what.record / f"{stream}{rank['rank']}.txt").read_text(errors="replace")
                for stream in ("stdout", "stderr")
            )
            for rank in answer
        }
        ends = ends_of(records, what.record, hung, _NOTHING)
        for end in ends:
            if end.status == "exit" and not end.error:
                end.error = (what.record / f"stderr{end.rank}.txt").read_text(errors="replace")
        return Run(
            launch=what,
            ends=ends,
            records=records,
            seconds=time.monotonic() - started,
            code=0 if all(rank["status"] == "ok" for rank in answer) else 1,
            problem="no rank has done anything for a while" if hung else "",
            output=output,
        )

    return launch
