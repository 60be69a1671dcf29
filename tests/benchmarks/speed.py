"""How long fsdplint takes beside TorchFix, ruff and grep, as whole processes.

    python tests/benchmarks/speed.py --torchfix /path/to/torchfix [--runs 5] [--only script]

TorchFix wants a libcst of its own: install it into another environment. Every figure is the median
of `--runs` processes (of `--slow-runs` where one takes minutes), those of the tools in turn, so that
ratios hold on a busy machine, too. What is measured:

- script: one training script of about 200 lines;
- torch: a copy of torch's own installed package;
- tree: 20,000 files of which one in a hundred uses FSDP;
- shared: one, four and eight programs that share a library; the ratio is that to one program.

"cold" is without a cache, "warm" with one of the same files, "changed" the same after one file with
FSDP in it was changed. The memory is that of the largest process.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

FIXTURES = Path(__file__).parents[2] / "fixtures"
SCRIPT = FIXTURES / "fsdp1" / "argparse_functions.py"
FILES, EVERY = 20_000, 100
CASES = ("script", "torch", "tree", "shared")
PARSE = """\
import subprocess, sys, libcst
found = subprocess.run(["grep", "-rlE", "--include=*.py", WORDS, sys.argv[1]],
                       capture_output=True, text=True).stdout.split()
for path in found:
    libcst.parse_module(open(path).read())
""".replace("WORDS", repr("fsdp|FSDP|Fsdp|fully_shard|FullyShard|fullyShard"))
PLAIN = '''\
"""Reads what number {n} is about."""

import json
from pathlib import Path

from {package} import module{other}


class Reader{n}:
    """Reads a file."""

    def __init__(self, path: Path, limit: int = {n}) -> None:
        self.path = path
        self.limit = limit
        self.seen: dict[str, int] = {{}}

    def read(self) -> list[dict[str, int]]:
        result = []
        for line in self.path.read_text().splitlines()[: self.limit]:
            item = json.loads(line)
            if item["name"] in self.seen:
                continue
            self.seen[item["name"]] = item["value"]
            result.append(item)
        return result


def total{n}(path: Path) -> int:
    items = Reader{n}(path).read()
    return sum(item["value"] for item in items) + module{other}.OFFSET


OFFSET = {n}
'''

PROGRAM = """\
from library.training import main

NAME = "program {n}"

if __name__ == "__main__":
    print(NAME)
    main()
"""


@dataclass
class Measured:
    """One command. seconds: of each run. memory: the most of any run, in MB."""

    seconds: list[float] = field(default_factory=list)
    memory: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass
class Contender:
    """A command that is measured. `before` is done before each run; not measured."""

    name: str
    command: Sequence[str]
    before: Callable[[], object] = lambda: None
    runs: int | None = None
    measured: Measured = field(default_factory=Measured)

    def run(self) -> None:
        self.before()
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        start = time.perf_counter()
        process = subprocess.Popen(
            self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        )
        _, status, usage = os.wait4(process.pid, 0)
        self.measured.seconds.append(time.perf_counter() - start)
        self.measured.memory = max(self.measured.memory, usage.ru_maxrss / 1024)
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            raise SystemExit(f"{' '.join(self.command)} failed")


def measure(contenders: Sequence[Contender], runs: int) -> None:
    """Run them in turn, so that what else the machine does falls on all of them."""
    for number in range(runs):
        for one in contenders:
            if one.runs is None or number < one.runs:
                one.run()


def report(case: str, contenders: Sequence[Contender], base: str) -> None:
    by_name = {one.name: one.measured for one in contenders}
    for one in contenders:
        ratio = one.measured.median / by_name[base].median
        spread = f"{min(one.measured.seconds):.2f}-{max(one.measured.seconds):.2f}"
        runs = len(one.measured.seconds)
        print(
            f"| {case} | {one.name} | {one.measured.median:.2f} s | {spread} | {runs} "
            f"| {ratio:.2f} | {one.measured.memory:.0f} MB |",
            flush=True,
        )


@dataclass
class Bench:
    """What a case needs."""

    folder: Path
    torchfix: str | None
    runs: int
    slow_runs: int

    def ours(self, target: Path, changed: Path | None) -> list[Contender]:
        check = [sys.executable, "-m", "fsdplint", "--exit-zero"]
        cache = ["--cache-dir", str(self.folder / f"cache-{target.name}"), str(target)]
        filled: list[int] = []

        def fill() -> None:
            if not filled:
                subprocess.run([*check, *cache], stdout=subprocess.DEVNULL, check=False)
                filled.append(1)

        def change() -> None:
            assert changed is not None
            fill()
            changed.write_text(changed.read_text() + "\n# changed\n")
            past = time.time() - 10
            os.utime(changed, (past, past))

        found = [
            Contender("fsdplint, cold", [*check, "--no-cache", str(target)]),
            Contender("fsdplint, warm", [*check, *cache], fill),
        ]
        if changed is not None:
            found.append(Contender("fsdplint, changed", [*check, *cache], change))
        return found

    def peers(self, target: Path, *, slow: bool = False) -> list[Contender]:
        ruff = shutil.which("ruff", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert ruff is not None
        found = [Contender("ruff", [ruff, "check", "--no-cache", "--isolated", str(target)])]
        if self.torchfix is not None:
            command = [self.torchfix, "--select", "ALL", str(target)]
            found.append(Contender("TorchFix", command, runs=self.slow_runs if slow else None))
        return found

    def script(self) -> None:
        target = self.folder / "train.py"
        shutil.copy(SCRIPT, target)
        contenders = [*self.ours(target, None), *self.peers(target)]
        measure(contenders, self.runs)
        report("script", contenders, "fsdplint, cold")

    def torch(self) -> None:
        spec = importlib.util.find_spec("torch")
        assert spec is not None and spec.origin is not None
        target = self.folder / "torch"
        shutil.copytree(
            Path(spec.origin).parent,
            target,
            ignore=lambda folder, names: [
                name
                for name in names
                if not name.endswith(".py") and not (Path(folder) / name).is_dir()
            ],
        )
        changed = target / "distributed" / "fsdp" / "wrap.py"
        contenders = [*self.ours(target, changed), *self.peers(target, slow=True)]
        measure(contenders, self.runs)
        report("torch", contenders, "fsdplint, cold")

    def tree(self) -> None:
        target = self.folder / "tree"
        for n in range(FILES):
            package = target / f"package{n // EVERY}"
            if n % EVERY == 0:
                package.mkdir(parents=True)
                (package / "__init__.py").touch()
                shutil.copy(SCRIPT, package / "train.py")
                continue
            other = n - 1 if (n - 1) % EVERY else n
            text = PLAIN.format(n=n, other=other, package=package.name)
            (package / f"module{n}.py").write_text(text)
        parse = Contender("grep, and libcst's parse", [sys.executable, "-c", PARSE, str(target)])
        changed = target / "package7" / "train.py"
        contenders = [*self.ours(target, changed), parse, *self.peers(target)[:1]]
        measure(contenders, self.runs)
        report("tree", contenders, parse.name)

    def shared(self) -> None:
        contenders = []
        for count in (1, 4, 8):
            target = self.folder / f"shared{count}"
            (target / "library").mkdir(parents=True)
            (target / "library" / "__init__.py").touch()
            shutil.copy(SCRIPT, target / "library" / "training.py")
            for n in range(count):
                (target / f"train{n}.py").write_text(PROGRAM.format(n=n))
            command = [sys.executable, "-m", "fsdplint", "--exit-zero", "--no-cache", str(target)]
            contenders.append(Contender(f"fsdplint, {count} programs", command))
        measure(contenders, self.runs)
        report("shared", contenders, contenders[0].name)


@click.command()
@click.option("--torchfix", type=click.Path(exists=True), help="The command of TorchFix.")
@click.option("--runs", default=5, show_default=True)
@click.option("--slow-runs", default=5, show_default=True, help="Of what takes minutes.")
@click.option("--only", type=click.Choice(CASES), multiple=True)
def main(torchfix: str | None, runs: int, slow_runs: int, only: tuple[str, ...]) -> None:
    """Measure, and print a table."""
    print(f"{os.cpu_count()} processors, Python {sys.version.split()[0]}")
    print("| case | tool | median | range | runs | ratio | memory |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in only or CASES:
        with tempfile.TemporaryDirectory() as folder:
            getattr(Bench(Path(folder), torchfix, runs, slow_runs), name)()


if __name__ == "__main__":
    main()
