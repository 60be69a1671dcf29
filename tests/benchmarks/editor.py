"""How long the language server takes to answer a key: `python tests/benchmarks/editor.py FILES`.

Each file is checked as it is, and then again with a line more, seven times. Told are the medians of
the time and of the processor time, and how many times longer than parsing the file the latter is,
which holds on a busy machine too. The pause before a check comes on top (`schedule.PAUSE`).
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

import libcst

from fsdplint.server.analysis import Workspace

RUNS = 7


def measure(file: str) -> None:
    path, text = os.path.realpath(file), Path(file).read_text(encoding="utf-8")
    workspace = Workspace()
    workspace.index.watched = True
    workspace.check(path, {path: text}, lambda: False)
    took, busy, parsed = [], [], []
    for number in range(RUNS):
        typed = f"{text}\nx{number} = 0\n"
        start, processor = time.perf_counter(), time.process_time()
        workspace.check(path, {path: typed}, lambda: False)
        took.append(time.perf_counter() - start)
        busy.append(time.process_time() - processor)
        processor = time.process_time()
        libcst.parse_module(typed)
        parsed.append(time.process_time() - processor)
    whole, ours, parse = (1000 * statistics.median(one) for one in (took, busy, parsed))
    lines = text.count("\n") + 1
    print(
        f"{Path(file).name:28} {lines:5} lines {whole:6.0f} ms {ours:6.0f} ms {ours / parse:5.1f}"
    )


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        measure(argument)
