"""What only looks at files writes nothing but its cache: all commands, formats, and interfaces.

Watched by a hook for audit events, which sees what is opened for writing, renamed, removed or started.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from audit_hook import Audit
from command import BAD
from journals import leave_journal

from fsdplint.config.options import FORMATS
from fsdplint.engine.cache import FOLDER

sys.path.insert(0, str(Path(__file__).parent / "server"))

OLD = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = FSDP(nn.Linear(4, 4))
model(torch.ones(1, 4)).sum().backward()
"""
CONFIG = "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
CELL = {"cell_type": "code", "metadata": {}, "source": BAD, "outputs": [], "execution_count": None}
COMMANDS = [
    *(["--output-format", name, "."] for name in FORMATS),
    *([*more, "."] for more in (["--no-cache", "--color=always"], ["--statistics"])),
    *([*more, "."] for more in (["--diff"], ["--diff", "--fix", "--unsafe-fixes", "--project"])),
    *([*more, "."] for more in (["--show-files"], ["--show-settings"], ["--show-fixes"])),
    *([*more, "-"] for more in ([], ["--fix"], ["--diff"], ["--stdin-filename", "train.py"])),
    *(["migrate", *more, "."] for more in ([], ["--unsafe-fixes", "--project"])),
    *(["rule", *more] for more in (["FSDP103"], ["--all"], ["--all", "--output-format=json"])),
    *([*more, "--help"] for more in ([], ["server"])),
    ["generate-shell-completion", "fish"],
    *([name, *more] for name, more in (("plan", ["."]), ("skill", []))),
    ["prove", "clean.py"],
    ["run", "missing.py"],
]
# Each command line, on standard input, in a process of its own that has imported all of it.
RUNNER = """\
import contextlib, io, json, os, sys
from fsdplint.cli.main import main
import fsdplint, fsdplint.cli.check, fsdplint.engine.fixer, fsdplint.registry.rules, fsdplint.engine.migration

fsdplint.registry.rules.all_rules()


def api():
    fsdplint.check(".").findings
    fsdplint.fix(".", unsafe_fixes=True, project=True).changes


for line in sys.stdin:
    command = json.loads(line)
    child = os.fork()
    if not child:
        code = 0
        text = io.TextIOWrapper(io.BytesIO())
        sys.stdin = io.TextIOWrapper(io.BytesIO(b"from torch.distributed.fsdp import FSDP\\n"))
        try:
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                main(command) if command else api()
        except SystemExit as end:
            code = end.code
        except fsdplint.api.FsdplintError:
            code = 2
        except BaseException:
            code = 99
        os._exit(code or 0)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FSDPLINT_NO_CACHE")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    (folder / "train.py").write_text(BAD)
    (folder / "clean.py").write_text("x = 1\n")
    (folder / "wrong.py").write_text("from torch.distributed.fsdp import fully_shard\n(")
    (folder / "old.py").write_text(OLD)
    (folder / "config.yaml").write_text(CONFIG)
    notebook = {"cells": [CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "train.ipynb").write_text(json.dumps(notebook))
    return folder


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    return Audit(tmp_path / "audit")


def snapshot(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and FOLDER not in path.parts)
    return {str(path): path.read_bytes() for path in files}


def run_all(project: Path, audit: Audit, commands: list[list[str]]) -> dict[str, int]:
    """The exit codes of command lines, none of which wrote anything but the cache. An empty one
    stands for the interface for Python."""
    before, codes = snapshot(project), {}
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER],
        cwd=project,
        env={**os.environ, **audit.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as runner:
        assert runner.stdin is not None and runner.stdout is not None
        for command in commands:
            runner.stdin.write(json.dumps(command) + "\n")
            runner.stdin.flush()
            codes[" ".join(command)] = int(runner.stdout.readline())
            assert audit.seen(project / FOLDER) == [], command
        runner.stdin.close()
    assert runner.returncode == 0
    assert snapshot(project) == before
    return codes


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@needs_fork
def test_commands(project: Path, audit: Audit) -> None:
    """With a journal lying there that came from elsewhere."""
    copy = project.with_name("copy")
    leave_journal(project, (project / "clean.py", b"x = 1\n", b"x = 2\n"))
    shutil.copytree(project, copy)
    proving = importlib.util.find_spec("torch") is not None
    commands = [one for one in COMMANDS if proving or one[0] not in ("prove", "run")]
    codes = run_all(copy, audit, [*commands, []])
    assert codes.pop("run missing.py", 2) == 2
    assert all(code in (0, 1, 2) for code in codes.values()), codes
    assert codes["migrate ."] == codes["--diff ."] == 2  # wrong.py
    assert codes["prove clean.py"] == codes[""] == codes["rule FSDP103"] == 0


@needs_fork
def test_commands_where_a_write_waits(project: Path, audit: Audit) -> None:
    leave_journal(project, (project / "clean.py", b"x = 1\n", b"x = 2\n"))
    reading = [one for one in COMMANDS if one[-1] in (".", "clean.py")]
    codes = run_all(project, audit, [*reading, [], ["baseline", "."]])
    assert set(codes.values()) == {2}, codes


@needs_fork
def test_the_hook_sees_what_writes(project: Path, audit: Audit) -> None:
    """What is allowed in the tests above, it is not because nothing is seen."""
    for command in (["--fix", "train.py"], ["baseline", "clean.py"], ["--fix", "config.yaml"]):
        with pytest.raises(AssertionError, match=r"tempfile\.mkstemp"):
            run_all(project, audit, [command])


def test_the_language_server(project: Path, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygls")
    from client import Editor, edit_with, whole

    before = snapshot(project)
    for name, value in audit.environment.items():
        monkeypatch.setenv(name, value)
    copy = project.with_name("copy")
    left = leave_journal(project, (project / "clean.py", b"x = 1\n", b"x = 2\n"))
    shutil.copytree(project, copy)

    async def look(editor: Editor) -> None:
        uri = editor.open(copy / "train.py")
        await editor.expect(uri, "FSDP101")
        found = await editor.actions(uri, whole(BAD))
        for one in found:
            await editor.code_action_resolve_async(one)
        assert editor.messages == []

    async def wait(editor: Editor) -> None:
        editor.open(project / "train.py")
        await editor.until(lambda: editor.messages)
        assert f"has to be completed ({left})" in editor.messages[0]
        assert "internal error" not in editor.messages[0]

    edit_with(copy, look)
    edit_with(project, wait)
    assert audit.seen() == []
    left.unlink()
    assert snapshot(project) == before


def _take_interrupts() -> None:
    """A shell that starts the tests in the background lets its children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_watching(project: Path, audit: Audit) -> None:
    before = snapshot(project)
    with subprocess.Popen(
        [sys.executable, "-m", "fsdplint", "--watch", "."],
        cwd=project,
        env={**os.environ, **audit.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_take_interrupts,
    ) as process:
        assert process.stderr is not None
        for number in range(2):
            assert any("Watching for changes" in line for line in process.stderr)
            if number == 0:
                (project / "clean.py").write_text("x = 2\n")
        process.send_signal(signal.SIGINT)
        process.stderr.read()
    before[str(project / "clean.py")] = b"x = 2\n"
    assert audit.seen(project / FOLDER) == []
    assert snapshot(project) == before


TRAINED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
fully_shard(model)
for _ in range(2):
    model.forward(torch.ones(2, 4)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
OF_FSDP1 = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
# What makes or changes a file. What is removed, the snapshots show.
CHANGES = ("open", "os.rename", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")


@pytest.mark.parametrize(
    ("command", "text", "code", "said"),
    [("run", TRAINED, 1, "train.py:12:5: FSDP101"), ("prove", OF_FSDP1, 0, "1 proven (2 ranks")],
    ids=["run", "prove"],
)
def test_programs_that_are_started(
    command: str,
    text: str,
    code: int,
    said: str,
    tmp_path: Path,
    audit: Audit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They write to a folder for temporary files, which is gone in the end."""
    pytest.importorskip("torch")
    folder, temporary, home = (tmp_path / name for name in ("project", "temporary", "home"))
    for made in (folder, temporary, home):
        made.mkdir()
    (folder / "train.py").write_text(text)
    before = snapshot(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "fsdplint", command, "train.py", "--nproc-per-node", "2"],
        cwd=folder,
        env={**os.environ, **audit.environment, "TMPDIR": str(temporary), "HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
    seen = audit.seen(temporary, Path("/proc"))
    assert [event for event in seen if event[0] in CHANGES] == []
    assert list(temporary.glob("*fsdplint*")) == []  # torch leaves a folder of its own
    audit.log.unlink()
    assert snapshot(tmp_path) == before
