"""What a command imports: nothing that it does not need, which is most of its time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHOW = """\
import json, sys
try:
    from fsdplint.cli.main import main
    main(prog_name="fsdplint")
finally:
    print("\\n" + json.dumps(sorted(sys.modules)))
"""
FSDP1 = """\
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

model = FullyShardedDataParallel(nn.Linear(4, 4))
"""
FSDP2 = """\
from torch import nn
from torch.distributed.fsdp import fully_shard

model = nn.Linear(4, 4)
fully_shard(model)
model.forward(1)
"""
# What no check needs: other commands' parts, and slow libraries.
NEVER = (
    "asyncio", "jinja2", "lsprotocol", "matplotlib", "multiprocessing", "numpy", "pygls",
    "ruamel.yaml", "torch", "xml.etree.ElementTree", "fsdplint.api", "fsdplint.migration.report",
    "fsdplint.source.notebooks", "fsdplint.server", "fsdplint.runtime", "fsdplint.cli.watch",
    "fsdplint.report.formats.sarif", "fsdplint.report.formats.junit",
)  # fmt: skip
# What a tree without FSDP does not need.
PARSING = (
    "libcst", "packaging", "fsdplint.engine.checker", "fsdplint.engine.check", "fsdplint.interpreter", "fsdplint.diagnostics.plugins",
    "fsdplint.rules", "fsdplint.config.target_torch", "fsdplint.edits.apply", "importlib.metadata",
)  # fmt: skip


def imported(folder: Path, *arguments: str) -> set[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.run(
        [sys.executable, "-c", SHOW, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "FSDPLINT_DEBUG": ""},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert process.returncode in (0, 1), process.stderr
    return set(json.loads(process.stdout.splitlines()[-1]))


def of(found: set[str], names: tuple[str, ...]) -> list[str]:
    """Those of the modules that are one of the named ones or in one."""
    return sorted(
        one for one in found if one.startswith(tuple(f"{n}." for n in names)) or one in names
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def test_the_version(folder: Path) -> None:
    found = imported(folder, "--version")
    ours = {one for one in found if one.startswith("fsdplint")}
    names = (
        "",
        ".cli",
        ".cli.main",
        ".cli.options",
        ".cli.streams",
        ".config",
        ".config.options",
        ".version",
    )
    assert ours == {f"fsdplint{name}" for name in names}
    assert not of(found, (*NEVER, *PARSING, "hashlib", "difflib", "pathspec"))


def test_a_check_of_a_tree_without_fsdp(folder: Path) -> None:
    (folder / "one.py").write_text("import torch\n")
    (folder / "two.yaml").write_text("a: 1\n")
    assert not of(imported(folder, "."), (*NEVER, *PARSING))


def test_a_check_with_findings(folder: Path) -> None:
    """The migration is for programs that use FSDP1."""
    (folder / "train.py").write_text(FSDP2)
    found = imported(folder, ".")
    assert "fsdplint.rules.fsdp101_direct_forward_call" in found
    assert not of(found, (*NEVER, "fsdplint.migration.planner"))


def test_a_check_that_is_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding's own rule is all that is needed of the rules."""
    (folder / "train.py").write_text(FSDP2)
    monkeypatch.delenv("FSDPLINT_NO_CACHE", raising=False)
    os.utime(folder / "train.py", (1e9, 1e9))  # what was just written is not remembered
    imported(folder, ".")
    found = imported(folder, ".")
    rules = [one for one in found if one.startswith("fsdplint.rules.fsdp")]
    assert rules == ["fsdplint.rules.fsdp101_direct_forward_call"]


def test_a_fix_of_fsdp1(folder: Path) -> None:
    (folder / "train.py").write_text(FSDP1)
    found = imported(folder, "--fix", ".")
    assert "fsdplint.migration.planner" in found
    assert not of(found - {"fsdplint.source.notebooks"}, NEVER)  # a fix asks whether a file is one


NODES = """\
import dataclasses, sys
if sys.argv[1] == "quick":
    import fsdplint.interpreter
import libcst as cst
kinds = [one for one in vars(cst).values() if isinstance(one, type) and issubclass(one, cst.CSTNode)]
for one in sorted(kinds, key=lambda one: one.__name__):
    if not dataclasses.is_dataclass(one):
        continue
    shown = [(f.name, repr(f.default)[:40], f.init) for f in dataclasses.fields(one)]
    bases = [base.__name__ for base in one.__mro__ if base.__name__ != "ABC"]
    print(one.__name__, one.__slots__, bases, shown)
tree = cst.parse_module(open(sys.argv[2]).read())
print(tree, len({tree, tree, tree.body[0]}), tree == tree.deep_clone(), tree.deep_equals(tree.deep_clone()))
print(tree.with_changes(body=tree.body[:2]).code)
print(cst.Name.__dataclass_params__.frozen)
try:
    print(repr(cst.Name("").value))
except cst.CSTValidationError:
    print("refused")
"""


def test_nodes_are_the_same_when_they_are_imported_quickly() -> None:
    """But that neither an assignment to a field nor a wrong value is refused, and that no kind is
    abstract."""
    outputs = []
    for mode in ("quick", "plain"):
        process = subprocess.run(
            [sys.executable, "-c", NODES, mode, __file__],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(process.stdout.splitlines())
    assert outputs[0][:-2] == outputs[1][:-2] and len(outputs[0]) > 200
    assert (outputs[0][-2:], outputs[1][-2:]) == (["False", "''"], ["True", "refused"])


COMMANDS = {
    "check": ["check", "."],
    "fix": ["check", "--fix", "."],
    "migrate": ["migrate", "."],
    "plan": ["plan", "."],
    "validate": ["validate", "train.py", "train.py"],
}
SHOW_NODES = """\
import sys
try:
    from fsdplint.cli.main import main
    main(prog_name="fsdplint")
finally:
    print("quick" if sys.modules["libcst"].CSTNode.__hash__ is object.__hash__ else "slow")
"""


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_commands_import_the_quick_nodes(folder: Path, arguments: list[str]) -> None:
    (folder / "train.py").write_text(FSDP1)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.run(
        [sys.executable, "-c", SHOW_NODES, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "FSDPLINT_NO_CACHE": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert process.stdout.splitlines()[-1] == "quick", process.stderr
