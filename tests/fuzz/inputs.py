"""Fuzzing of everything that the commands read, beside the Python files of `fuzz.py`.

    python tests/fuzz/inputs.py --minutes 10 --keep DIR     # DIR gets a folder for each defect
    python tests/fuzz/inputs.py --replay DIR/FOLDER         # one of them again

Each turn writes a small project, changes one of its inputs, and runs one command in a process of its
own. A command must end with one of its exit codes within `MAX_SECONDS` of one processor, and show no
traceback. Coverage is not measured. Runs on Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT), str(HERE), str(HERE.parent)]

MAX_SECONDS = 30
COMMAND = "command.json"  # in a kept folder: the arguments
FIXTURES = ROOT / "fixtures"

PROGRAM = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

torch.distributed.init_process_group("gloo")
model = FSDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.forward(torch.randn(2, 4)).sum().backward()
optimizer.step()
"""
ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:  # of all models
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: Block
  fsdp_backward_prefetch: BACKWARD_PRE  # early
  fsdp_sharding_strategy: HYBRID_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: &sync true
num_machines: 2
num_processes: 16
"""
PYPROJECT = """\
[project]
name = "example"
dependencies = ["torch>=2.4,<2.12", "accelerate==1.8"]

[tool.fsdplint]
select = ["FSDP1", "FSDP2"]
ignore = ["FSDP103"]
exclude = ["build/*", "**/old_*.py"]
target-torch = "2.9"
unsafe-fixes = true
baseline = "known.json"

[tool.fsdplint.per-file-ignores]
"train.py" = ["FSDP109"]
"""
FLAT = PYPROJECT.partition("[tool.fsdplint]\n")[2].replace("[tool.fsdplint.", "[")
IGNORED = "/data\n*.egg\n!keep.egg\n**/cache/**\n[a-z]?.py\n\\#x\n"

CHECK = ["check", "--no-cache", "."]
# The inputs by their files, each with the commands that read it.
INPUTS: dict[str, list[list[str]]] = {
    "train.py": [
        CHECK,
        ["check", "--no-cache", "--coverage", "."],
        ["check", "--no-cache", "--fix", "--unsafe-fixes", "."],
        ["check", "--no-cache", "--add-noqa", "."],
        ["check", "--no-cache", "--output-format", "json-full", "."],
        ["migrate", "--fix", "."],
        ["migrate", "--assist", "--fix", "."],
        ["migrate", "--annotate", "--report", "report.json", "."],
        ["plan", "."],
        ["plan", "--output-format", "json", "."],
        ["validate", "before.py", "train.py"],
        ["baseline", "-o", "new.json", "."],
    ],
    "train.ipynb": [CHECK, ["check", "--no-cache", "--fix", "."], ["migrate", "--fix", "."], ["plan", "."]],
    "accelerate.yaml": [CHECK, ["check", "--no-cache", "--fix", "."], ["migrate", "--fix", "."]],
    "accelerate.json": [CHECK, ["migrate", "--fix", "."]],
    "pyproject.toml": [CHECK, ["migrate", "--fix", "."], ["plan", "."]],
    "fsdplint.toml": [CHECK, ["migrate", "."]],
    "requirements.txt": [CHECK, ["migrate", "--fix", "."]],
    "setup.cfg": [["migrate", "--fix", "."]],
    ".gitignore": [CHECK],
    "known.json": [CHECK, ["baseline", "-o", "known.json", "."]],
    ".fsdplint_cache/entry": [["check", "."], ["clean", "."]],
    ".fsdplint-journal": [CHECK, ["check", "--no-cache", "--fix", "."], ["migrate", "--fix", "."]],
}  # fmt: skip
_TOKEN = re.compile(rb"\w+|[^\w\s]|\s+")
_PIECES = [
    *(b"", b"{", b"}", b"[", b"]", b'"', b"'", b":", b"- ", b"#", b"\n", b"\r\n", b"\t", b"  "),
    *(b"null", b"true", b"-1", b"1e999", b"9" * 400, b"&a", b"*a", b"!!python/object:os.system"),
    *(b"\xff", b"\xef\xbb\xbf", b"\x00", b"\\ud800", b"\xed\xa0\x80", "é".encode(), b"..", b"/", b"**"),
    *(b"<<: ", b"---\n", b"? ", b"| ", b"%", b">=", b"torch", b"fsdp_version: 2", b"[" * 3000),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz the inputs of the commands.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=ROOT / ".fuzz-inputs")
    parser.add_argument("--replay", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    os.environ["FSDPLINT_DEBUG"] = "1"
    if options.replay:
        sys.exit(replay(options.replay))
    sys.exit(fuzz(options.minutes * 60, options.seed, options.keep))


def fuzz(seconds: float, seed: int, keep: Path) -> int:
    """Change inputs until the time is over; 1 where a defect was found."""
    from mutations import Mutator

    import fsdplint.engine.fixer
    import fsdplint.migration.planner  # noqa: F401
    from fsdplint.registry.rules import all_rules

    all_rules()
    keep.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    texts = programs()
    mutator = Mutator([text.decode() for text in texts])
    runs, defects, begun = Counter[str](), Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        original = Path(scratch, "original")
        make_project(original)
        entry = next(path for path in (original / ".fsdplint_cache").glob("*.json"))
        while time.monotonic() - begun < seconds:
            name = chance.choice(list(INPUTS))
            arguments = chance.choice(INPUTS[name])
            folder = Path(scratch, "project")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(original, folder, symlinks=True)
            if name == "train.py":
                data = mutator.mutate(chance.choice(texts), chance.randrange(1 << 30))
                (folder / "before.py").write_bytes(chance.choice(texts))
                (folder / name).write_bytes(data)
            else:
                path = _input(folder, name, entry)
                path.write_bytes(mutated(path.read_bytes(), chance))
            runs[f"{name}: {arguments[0]}"] += 1
            defect = outcome(folder, arguments)
            if defect and not defects[defect]:
                place = keep / re.sub(r"\W+", "-", defect)[:80]
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(folder, place, symlinks=True)
                (place / COMMAND).write_text(json.dumps(arguments))
            defects[defect] += 1 if defect else 0
    found = {name: count for name, count in defects.items() if name}
    print(json.dumps({"runs": sum(runs.values()), "by input": runs, "defects": found}, indent=2))
    return 1 if found else 0


def programs() -> list[bytes]:
    """Programs that are small enough to be checked within a second."""
    paths = [*sorted(FIXTURES.rglob("*.py"))]
    return [path.read_bytes() for path in paths if path.stat().st_size < 4000]


def make_project(folder: Path) -> None:
    """A project with every kind of input."""
    from journals import leave_journal

    folder.mkdir()
    cell = {"cell_type": "code", "metadata": {}, "source": PROGRAM, "outputs": []}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    config = {"distributed_type": "FSDP", "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD"}}
    texts = {
        "train.py": PROGRAM,
        "train.ipynb": json.dumps(notebook, indent=1),
        "accelerate.yaml": ACCELERATE,
        "accelerate.json": json.dumps(config, indent=2),
        "pyproject.toml": PYPROJECT,
        "requirements.txt": "torch>=2.4,<2.12  # not newer\n-r other.txt\naccelerate==1.8\n",
        "setup.cfg": "[options]\ninstall_requires =\n    torch>=2.4\n",
        ".gitignore": IGNORED,
        "known.json": '{"version": 1, "findings": {}}',
        "sub/fsdplint.toml": FLAT,
        "sub/other.py": PROGRAM,
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (1, 1))
    defect = outcome(folder, ["check", "."])
    assert not defect, defect
    leave_journal(folder, (folder / "train.py", PROGRAM.encode(), PROGRAM.encode() + b"\n"))


def _input(folder: Path, name: str, entry: Path) -> Path:
    if name == ".fsdplint_cache/entry":
        return folder / ".fsdplint_cache" / entry.name
    if name == ".fsdplint-journal":
        return next(folder.glob(".fsdplint-journal*"))
    return folder / "sub" / name if name == "fsdplint.toml" else folder / name


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The data with some tokens deleted, repeated, moved, or replaced by pieces that mean much."""
    tokens = _TOKEN.findall(data)
    ways: list[Callable[[int], list[bytes]]] = [
        lambda at: [],
        lambda at: [tokens[at]] * chance.choice((2, 3, 50)),
        lambda at: [chance.choice(_PIECES)],
        lambda at: [tokens[at], chance.choice(_PIECES)],
        lambda at: [chance.choice(tokens)],
        lambda at: [bytes([chance.randrange(256)])],
        lambda at: [tokens[at][: chance.randrange(len(tokens[at]) + 1)]],
    ]
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        if not tokens:
            return chance.choice(_PIECES)
        at = chance.randrange(len(tokens))
        tokens[at : at + 1] = chance.choice(ways)(at)
    if chance.random() < 0.1:
        tokens = tokens[: chance.randrange(len(tokens) + 1)]
    return b"".join(tokens)


def outcome(folder: Path, arguments: list[str]) -> str:
    """The defect that a command shows in a folder; empty for none."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            _run(folder, arguments, output.fileno())
        status = os.waitpid(child, 0)[1]
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"{arguments[0]} ended by signal {-code}"
    if "Traceback (most recent call last)" in text or "internal error" in text:
        places = re.findall(r'File ".*?(fsdplint/[^"]*)", line (\d+)', text)
        error = (re.findall(r"^(\w[\w.]*(?:Error|Exception)\b.{,40})", text, re.M) or ["?"])[-1]
        return f"{arguments[0]}: {error} at {':'.join(places[-1]) if places else 'no place'}"
    return "" if code in (0, 1, 2) else f"{arguments[0]} ended with {code}"


def _run(folder: Path, arguments: list[str], output: int) -> None:
    """Run a command in this process, which ends."""
    code = 70
    try:
        os.chdir(folder)
        for stream in (1, 2):
            os.dup2(output, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS + 1))
        from fsdplint.cli.main import main as command

        command(arguments, standalone_mode=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def replay(place: Path) -> int:
    """Show what the command of a kept folder does."""
    arguments = json.loads((place / COMMAND).read_text())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "project")
        shutil.copytree(place, folder, symlinks=True)
        (folder / COMMAND).unlink()
        defect = outcome(folder, arguments)
    print(f"fsdplint {' '.join(arguments)}: {defect or 'no defect'}")
    return 1 if defect else 0


if __name__ == "__main__":
    main()
