"""How long the language server takes to answer a key: `python tests/benchmarks/editor.py FILES`.

Each file is checked as it is, and then again with a line more, seven times: at its end, and in the
middle of its longest function, of which more has to be read anew. Told are the medians of the time
and of the processor time, and how many times longer than parsing the file the latter is, which
holds on a busy machine too. The pause before a check comes on top (`schedule.PAUSE`).
"""

from __future__ import annotations

import ast
import os
import statistics
import sys
import time
from pathlib import Path

import libcst

from fsdplint.server.analysis import RootChecker

RUNS = 7


def measure(file: str) -> None:
    path, text = os.path.realpath(file), Path(file).read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    for where, (line, indent) in (("end", (len(lines), "")), ("middle", middle(text))):
        checker = RootChecker()
        checker.index.files_are_watched = True
        checker.check(path, {path: text}, lambda: False)
        took, busy, parsed = [], [], []
        for number in range(RUNS):
            typed = "".join([*lines[:line], f"{indent}x{number} = 0\n", *lines[line:]])
            start, processor = time.perf_counter(), time.process_time()
            checker.check(path, {path: typed}, lambda: False)
            took.append(time.perf_counter() - start)
            busy.append(time.process_time() - processor)
            processor = time.process_time()
            libcst.parse_module(typed)
            parsed.append(time.process_time() - processor)
        whole, ours, parse = (1000 * statistics.median(one) for one in (took, busy, parsed))
        print(
            f"{Path(file).name:28} {len(lines):5} lines {where:6} {whole:6.0f} ms {ours:6.0f} ms"
            f" {ours / parse:5.1f}"
        )


def middle(text: str) -> tuple[int, str]:
    """The number of lines before the middle of the longest function, and the indentation there."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    if not nodes:
        return 0, ""
    longest = max(nodes, key=lambda node: (node.end_lineno or 0) - node.lineno)
    statement = longest.body[len(longest.body) // 2]
    return statement.lineno - 1, " " * statement.col_offset


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        measure(argument)
