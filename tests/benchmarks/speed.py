"""How long fsdplint takes, as whole processes: `python tests/benchmarks/speed.py [RUNS]`.

Each figure is a median; ratios are against a peer measured in turn with it, so that they hold on a
busy machine too:

- one script of about 200 lines, against importing libcst and parsing the same file;
- a tree without FSDP code (Python's own library), against reading its files.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "fixtures" / "fsdp1" / "argparse_functions.py"
PARSE = "import sys, libcst; libcst.parse_module(open(sys.argv[1]).read())"
READ = (
    "import sys, pathlib\n"
    "for path in pathlib.Path(sys.argv[1]).rglob('*.py'):\n"
    "    if 'site-packages' not in path.parts:\n"
    "        path.read_bytes()"
)


def seconds(command: Sequence[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def measure(name: str, command: Sequence[str], peer: Sequence[str], runs: int) -> None:
    seconds(command), seconds(peer)  # the first run fills the caches of the machine
    pairs = [(seconds(command), seconds(peer)) for _ in range(runs)]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other in pairs)
    print(f"{name:32} {ours:6.2f} s   peer {theirs:6.2f} s   ratio {ratio:5.2f}")


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    python = [sys.executable, "-c"]
    check = [sys.executable, "-m", "fsdplint"]
    lines = len(SCRIPT.read_text().splitlines())
    measure(
        f"one script of {lines} lines",
        [*check, str(SCRIPT)],
        [*python, PARSE, str(SCRIPT)],
        runs,
    )
    library = sysconfig.get_path("stdlib")
    measure("a tree without FSDP code", [*check, library], [*python, READ, library], runs)


if __name__ == "__main__":
    main()
