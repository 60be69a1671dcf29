"""Coverage-guided fuzzing of checking and fixing.

    python tests/fuzz/fuzz.py --minutes 10 --corpus DIR      # go on from DIR, or begin there
    python tests/fuzz/fuzz.py --replay FILE                  # one input again, with what it shows
    python tests/fuzz/fuzz.py --minimise FILE                # the same, made as small as it goes

What is found goes to DIR/findings, each defect once and by its smallest input so far; the numbers to
DIR/summary.json. Needs atheris (the extra `fuzz`), on Linux.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT), str(HERE)]

MAX_SECONDS = 10.0  # of one processor, for one input
STARTING = 2.0  # seconds that a process needs before it comes to its input
MEASURING = 4.0  # times that it takes longer while coverage is measured
MAX_BYTES = 12_000
MAX_SEED = 5_000  # bytes: larger programs take a second each
WORKER_SECONDS = 5_400  # then a new process goes on: what is kept in memory cannot grow for ever
_STATE = struct.Struct("QQ")  # inputs that were begun, and those that broke a promise


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz checking and fixing.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--corpus", type=Path, default=ROOT / ".fuzz")
    parser.add_argument("--mode", help="how the file is given (for --replay and --minimise)")
    parser.add_argument("--replay", type=Path, metavar="FILE")
    parser.add_argument("--minimise", type=Path, metavar="FILE")
    parser.add_argument("--worker", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay or options.minimise:
        file = options.replay or options.minimise
        sys.exit(_again(file, options.mode or mode_in_name(file), bool(options.minimise)))
    if options.worker:
        work(options.corpus, options.worker)
    else:
        sys.exit(watch(options.corpus, options.minutes * 60))


# Watching -----------------------------------------------------------------------------------------


def watch(corpus: Path, seconds: float) -> int:
    """Keep a worker at work until the time is over; 1 where something was found."""
    for name in ("inputs", "findings"):
        (corpus / name).mkdir(parents=True, exist_ok=True)
    for name, text in seeds():
        if len(text) <= MAX_SEED:
            (corpus / "inputs" / name).write_bytes(text)
    summary = _read(corpus)
    before, begun = dict(summary), time.monotonic()
    while (left := seconds - (time.monotonic() - begun)) > 1:
        log = corpus / "worker.log"
        executions = _one_worker(corpus, min(left, WORKER_SECONDS), log)
        text = log.read_text(errors="replace")
        coverage = [int(one) for one in re.findall(r"\bcov: (\d+)", text)]
        summary["executions"] = summary.get("executions", 0) + executions
        summary["edges"] = max([summary.get("edges", 0), *coverage])
        summary["inputs"] = sum(1 for _ in (corpus / "inputs").iterdir())
        summary["minutes"] = before.get("minutes", 0) + (time.monotonic() - begun) / 60
        summary["findings"] = sorted(p.stem for p in (corpus / "findings").glob("*.txt"))
        (corpus / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        if not executions and "Traceback" in text:
            print(text[-3000:], file=sys.stderr)
            return 2
    print(json.dumps(summary, indent=2))
    return 1 if summary.get("findings") else 0


def _read(corpus: Path) -> dict:
    file = corpus / "summary.json"
    return json.loads(file.read_text()) if file.exists() else {}


def _one_worker(corpus: Path, seconds: float, log: Path) -> int:
    """Let a worker run, and end it where one input takes it too long; gives the executions."""
    state = corpus / "state"
    state.write_bytes(bytes(_STATE.size))
    command = [sys.executable, __file__, "--corpus", str(corpus), "--worker", str(seconds)]
    with log.open("wb") as output, state.open("r+b") as stream:
        shared = mmap.mmap(stream.fileno(), _STATE.size)
        process = subprocess.Popen(command, stdout=output, stderr=output)
        number, since, begun = 0, 0.0, time.monotonic()
        while process.poll() is None:
            time.sleep(0.5)
            now = _STATE.unpack(shared[:])[0]
            used = _processor_seconds(process.pid)
            if now != number:
                number, since = now, used
            elif number and used - since > MAX_SECONDS * MEASURING:
                process.kill()
                _look_at_hang(corpus)
            if time.monotonic() - begun > seconds + 120:
                process.kill()
        return _STATE.unpack(shared[:])[0]


def _processor_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _look_at_hang(corpus: Path) -> None:
    """Keep what took too long, where it does so as well while nothing is measured."""
    import resource

    from promises import Broken

    limit = int(MAX_SECONDS + STARTING)
    file = corpus / "current"
    mode = mode_of(file.read_bytes())
    done = subprocess.run(
        [sys.executable, __file__, "--replay", str(file), "--mode", mode],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
        stdout=subprocess.DEVNULL,
    )
    if done.returncode < 0:
        data = file.read_bytes()
        save(corpus / "findings", data, mode, Broken("hang", _digest(data)[:6], "too slow"))


# Working ------------------------------------------------------------------------------------------


def work(corpus: Path, seconds: float) -> None:
    """Fuzz in this process."""
    import atheris

    with atheris.instrument_imports(include=["fsdplint"]):
        import fsdplint.engine.fixer  # noqa: F401
        from fsdplint.registry.rules import all_rules

        all_rules()
        from promises import Keeper
    from mutations import Mutator

    mutator = Mutator([text.decode("utf-8", "replace") for _, text in seeds()])
    keeper = Keeper(Path(tempfile.mkdtemp(prefix="fsdplint-fuzz-")))
    with (corpus / "state").open("r+b") as stream:
        shared = mmap.mmap(stream.fileno(), _STATE.size)
    current = corpus / "current"

    def one(data: bytes) -> None:
        begun, broken = _STATE.unpack(shared[:])
        current.write_bytes(data)
        shared[:] = _STATE.pack(begun + 1, broken)
        mode = mode_of(data)
        found = keeper.broken(data, mode)
        if found is not None:
            shared[:] = _STATE.pack(begun + 1, broken + 1)
            save(corpus / "findings", data, mode, found)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        return mutator.mutate(data, seed)[:max_size]

    arguments = [
        sys.argv[0],
        f"-max_total_time={int(seconds)}",
        f"-max_len={MAX_BYTES}",
        "-timeout=3600",  # the other process watches that
        "-rss_limit_mb=6000",
        "-reload=0",
        "-len_control=0",
        str(corpus / "inputs"),
    ]
    atheris.Setup(arguments, one, custom_mutator=mutate)
    atheris.Fuzz()


def seeds() -> Iterator[tuple[str, bytes]]:
    """Programs to begin with: the fixtures, among them the examples of the rules."""
    for path in sorted((ROOT / "fixtures").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix().replace("/", "-"), path.read_bytes()


def mode_of(data: bytes) -> str:
    """How an input is given to the tool: drawn by what it holds."""
    from promises import MIXED, NOTEBOOK, SAFE, UNSAFE

    number = hashlib.blake2b(data, digest_size=1).digest()[0]
    return NOTEBOOK if number < 16 else MIXED if number < 48 else SAFE if number < 96 else UNSAFE


# Findings -----------------------------------------------------------------------------------------


def _digest(data: bytes | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:12]


def save(folder: Path, data: bytes, mode: str, found: object) -> None:
    """Keep an input, where none that is smaller shows the same."""
    signature = found.signature  # type: ignore[attr-defined]
    words = re.sub(r"\W+", "-", found.kind)  # type: ignore[attr-defined]
    stem = f"{words}-{_digest(signature)[:8]}"
    kept = next(iter(folder.glob(f"{stem}-*.py")), None)
    if kept is not None and kept.stat().st_size <= len(data):
        return
    if kept is not None:
        kept.unlink()
    (folder / f"{stem}-{mode}.py").write_bytes(data)
    text = f"{signature}\nmode: {mode}\n\n{found.details}"  # type: ignore[attr-defined]
    (folder / f"{stem}.txt").write_text(text, encoding="utf-8", errors="backslashreplace")


def mode_in_name(file: Path) -> str:
    """The mode that an input was found in."""
    from promises import MODES, UNSAFE

    last = file.stem.rpartition("-")[2]
    return last if last in MODES else UNSAFE


def _again(file: Path, mode: str, minimise: bool) -> int:
    from promises import Keeper

    with tempfile.TemporaryDirectory() as name:
        keeper = Keeper(Path(name))
        data = file.read_bytes()
        found = keeper.broken(data, mode)
        if found is None:
            print("nothing is wrong")
            return 0
        if minimise:
            data = smaller(data, lambda one: keeper.broken(one, mode), found.signature)
            found = keeper.broken(data, mode)
            file.write_bytes(data)
    assert found is not None
    print(data.decode("utf-8", "backslashreplace"))
    print("-" * 80 + f"\n{found.signature}\nmode: {mode}\n\n{found.details}")
    return 1


def smaller(data: bytes, look: Callable[[bytes], object], signature: str) -> bytes:
    """The input without the lines and characters that it does not need."""

    def shows(one: bytes) -> bool:
        found = look(one)
        return found is not None and found.signature == signature  # type: ignore[attr-defined]

    for parts in (_lines, _words):
        pieces = parts(data)
        size = max(len(pieces) // 2, 1)
        while size:
            at, less = 0, False
            while at < len(pieces):
                candidate = pieces[:at] + pieces[at + size :]
                if shows(b"".join(candidate)):
                    pieces, less = candidate, True
                else:
                    at += size
            size = size // 2 if size > 1 or not less else size
            if size == 1 and less is False:
                break
        data = b"".join(pieces)
    return data


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def _words(data: bytes) -> list[bytes]:
    return re.findall(rb"\w+|\s+|[^\w\s]", data)


if __name__ == "__main__":
    main()
