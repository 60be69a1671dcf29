"""Rules of other packages, as an installer leaves them: a `.dist-info` on the path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fsdplint.diagnostics.plugins import Plugins, plugins
from fsdplint.engine.cache import Cache
from fsdplint.engine.operations import check_files, fix_files
from fsdplint.engine.session import Session
from fsdplint.registry.example_files import read_file, read_folder
from fsdplint.registry.examples import markers, without_markers
from fsdplint.source.files import Problem

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "fixtures" / "plugin"
PROGRAM = """\
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = nn.Linear(4, 4)
fully_shard(model)
"""


def install(folder: Path, name: str, value: str, **modules: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[fsdplint.rules]\n{name} = {value}\n")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


def fsdplint(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(folder / "site"), str(EXAMPLE)])
    return subprocess.run(
        [sys.executable, "-m", "fsdplint", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "FSDPLINT_DEBUG": ""},
        capture_output=True,
        text=True,
    )


@pytest.fixture(autouse=True)
def real_plugins() -> None:
    """The plug-ins of this environment are loaded before a test changes the search path."""
    plugins()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def test_the_example_is_checked_fixed_and_explained(folder: Path) -> None:
    install(folder / "site", "house", "house_rules:RULES")
    found = json.loads(fsdplint(folder, "--output-format=json", "train.py").stdout)
    (one,) = [f for f in found if f["code"].startswith("HOUSE")]
    assert (one["code"], one["name"], one["location"]["row"]) == ("HOUSE101", "mesh-not-given", 9)
    assert one["fix"]["safety"] == "unsafe"
    # Selected and ignored like any other rule.
    assert fsdplint(folder, "--ignore=mesh-not-given", "train.py").stdout == "All checks passed.\n"
    page = fsdplint(folder, "rule", "HOUSE101").stdout
    assert page.startswith("# mesh-not-given (HOUSE101)")
    assert "https://handbook.example.org/fsdp#mesh" in page
    for title in ("## Example", "## Fixed", "## Not reported\nthe options hold the mesh"):
        assert title in page
    fixed = fsdplint(folder, "--fix", "--unsafe-fixes", "--select=HOUSE", "train.py")
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert (folder / "train.py").read_text() == PROGRAM.replace("(model)", "(model, mesh=mesh)")


def test_the_examples_of_the_example(folder: Path) -> None:
    install(folder / "site", "house", "house_rules:RULES")
    for file in read_folder(EXAMPLE / "house_rules" / "examples" / "HOUSE101"):
        (folder / "train.py").write_text(file.program)
        done = fsdplint(folder, "--select=HOUSE", "--output-format=json", "train.py")
        found = {(one["location"]["row"], one["code"]) for one in json.loads(done.stdout)}
        assert found == (markers(file.program) if file.kind == "bad" else set())
        if file.kind == "bad":
            fsdplint(folder, "--fix", "--unsafe-fixes", "--select=HOUSE", "train.py")
            fixed = file.path.with_name(f"{file.name}.fixed.py")
            assert without_markers((folder / "train.py").read_text()) == read_file(fixed).program


BROKEN = """\
from fsdplint.rule import Rule, Severity

class Broken(Rule):
    code, name, severity = "ODD1", "odd-rule", Severity.ERROR

    def check(self, trace):
        yield from ()
        raise LookupError("no such thing")
"""


def test_a_rule_that_raises_is_reported(folder: Path) -> None:
    install(folder / "site", "house", "house_rules:RULES")
    install(folder / "site", "odd", "odd_rules", odd_rules=BROKEN)
    run = fsdplint(folder, "--output-format=concise", "train.py")
    assert run.returncode == 2
    first, second, *_ = run.stdout.splitlines()
    assert first == (
        "odd = odd_rules (ODD1): FSDP902 this plug-in raised: LookupError: no such thing "
        "(a defect of the plug-in; FSDPLINT_DEBUG=1 shows where)"
    )
    assert second.startswith("train.py:9:1: HOUSE101 ")


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("import no_such_module\n", "No module named 'no_such_module'"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        (BROKEN.replace("ODD1", "FSDP101"), "codes that begin with FSDP belong to fsdplint"),
        (BROKEN.replace("check", "czech"), "Broken lacks check"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, reason: str
) -> None:
    install(tmp_path, "odd", "odd_rules", odd_rules=module)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "odd_rules", raising=False)
    loaded = plugins.__wrapped__()
    assert loaded.rules == ()
    (problem,) = loaded.problems
    assert (problem.code, problem.path) == ("FSDP902", "odd = odd_rules")
    assert problem.message.startswith("this plug-in cannot be loaded: ")
    assert reason in problem.message
    # And a run says so.
    monkeypatch.setattr("fsdplint.diagnostics.plugins.plugins", lambda: loaded)
    (tmp_path / "train.py").write_text(PROGRAM)
    assert check_files(Session([tmp_path / "train.py"])).problems == [problem]


def test_a_plugin_that_cannot_be_loaded_is_reported_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, cache = tmp_path / "train.py", Cache(tmp_path / "cache")
    train.write_text(PROGRAM)
    os.utime(train, (1e9, 1e9))
    good = check_files(Session([train]), cache=cache)
    assert good.problems == [] and list(cache.folder.glob("*.json"))  # not to be taken below
    problem = Problem("odd = odd_rules", None, "this plug-in cannot be loaded", code="FSDP902")
    monkeypatch.setattr(
        "fsdplint.diagnostics.plugins.plugins", lambda: Plugins(problems=(problem,))
    )
    for folder in (cache, Cache(tmp_path / "other")):
        for _ in range(2):
            assert check_files(Session([train]), cache=folder).problems == [problem]
            assert fix_files(Session([train]), cache=folder).result.problems == [problem]
    assert not (tmp_path / "other").exists()
