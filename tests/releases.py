"""Build the wheel and the sdist, and try them in fresh environments with each Python that is here.

    python tests/releases.py                      # the Pythons of pyenv, and this one
    python tests/releases.py PYTHON PYTHON ...    # these interpreters

This is no test of the suite: it installs packages. It ends with 1 if something fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ((3, 10), (3, 11), (3, 12), (3, 13))
PROGRAM = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

torch.distributed.init_process_group("gloo")
model = FSDP(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), use_orig_params=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
model.clip_grad_norm_(1.0)
optimizer.step()
"""


class ReleaseError(Exception):
    """A package does not do what it has to; the text says what."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pythons", nargs="*", help="interpreters; by default those of pyenv")
    options = parser.parse_args()
    pythons = options.pythons or list(_pythons())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packages = build(folder / "dist")
        failures = []
        for python in pythons:
            for package in packages:
                what = f"{python}: {package.name}"
                try:
                    try_package(python, package, folder)
                except (ReleaseError, OSError, subprocess.SubprocessError) as error:
                    failures.append(what)
                    print(f"FAILED {what}: {error}", flush=True)
                else:
                    print(f"ok     {what}", flush=True)
    return 1 if failures or not pythons else 0


def _pythons() -> Iterator[str]:
    """The newest interpreter of each supported version."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: dict[tuple[int, ...], Path] = {sys.version_info[:2]: Path(sys.executable)}
    folders = root.iterdir() if root.is_dir() else ()
    for folder in sorted(folders):
        parts = tuple(int(part) for part in folder.name.split(".")[:2] if part.isdecimal())
        if parts in VERSIONS:
            found[parts] = folder / "bin" / "python"
    yield from (str(found[version]) for version in VERSIONS if version in found)


def build(folder: Path) -> list[Path]:
    """The wheel and the sdist, built from the sdist's sources by `build`."""
    tools = folder.parent / "tools"
    venv.create(tools, with_pip=True)
    python = tools / "bin" / "python"
    run([python, "-m", "pip", "install", "--quiet", "build"])
    source = folder.parent / "source"  # a build leaves files in its sources
    unwanted = shutil.ignore_patterns(".git", "__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(ROOT, source, ignore=unwanted, symlinks=True)
    run([python, "-m", "build", "--outdir", folder, source])
    wheels, archives = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        raise ReleaseError(f"expected one wheel and one sdist, got {wheels} and {archives}")
    if not wheels[0].name.endswith("-py3-none-any.whl"):
        raise ReleaseError(f"{wheels[0].name} is not for every platform")
    _look_into(wheels[0], archives[0])
    return [wheels[0], archives[0]]


def _look_into(wheel: Path, archive: Path) -> None:
    """The wheel has what is installed and nothing else; the sdist has what a build needs."""
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    wanted = {"fsdplint/py.typed", "fsdplint/cli/skill.md", "fsdplint/rules/__init__.py"}
    others = {name.split("/")[0] for name in names if ".dist-info" not in name} - {"fsdplint"}
    if wanted - names or others:
        raise ReleaseError(f"the wheel lacks {wanted - names} and has {others}")
    with tarfile.open(archive) as unpacked:
        files = {name.partition("/")[2] for name in unpacked.getnames()}
    missing = {"pyproject.toml", "README.md", "LICENSE", "rules/__init__.py"} - files
    if missing:
        raise ReleaseError(f"the sdist lacks {missing}")


def try_package(python: str, package: Path, folder: Path) -> None:
    """Install a package into a fresh environment and use it.

    Raises:
        ReleaseError: a command does not do what it has to.
        SubprocessError: the environment or the installation fails.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        run([python, "-m", "venv", place / "env"])
        bin_folder = place / "env" / "bin"
        pip = [bin_folder / "python", "-m", "pip", "install", "--quiet"]
        # No dependency may need a compiler: only fsdplint itself is built, and it is plain Python.
        run([*pip, "--only-binary", ":all:", "--no-binary", "fsdplint", package])
        work = place / "work"
        work.mkdir()
        (work / "train.py").write_text(PROGRAM, encoding="utf-8")
        tool = bin_folder / "fsdplint"
        _expect([tool, "--version"], work, 0, "fsdplint ")
        _expect([tool, "rule", "FSDP103"], work, 0, "## Fixed")
        _expect([tool, "skill"], work, 0, "name: fsdplint")
        output = _expect([tool, "--output-format", "json-full", "train.py"], work, 1, "FSDP201")
        if json.loads(output)["schema_version"] != 1:
            raise ReleaseError("the JSON of a check has another version")
        _expect([tool, "plan", "train.py"], work, 0, "FSDP1")
        _expect([tool, "migrate", "--fix", "train.py"], work, 0, "migrated whole")
        _expect([tool, "train.py"], work, 0, "All checks passed")
        _expect([tool, "prove", "train.py"], work, 2, "pip install 'fsdplint[prove]'")
        _expect([bin_folder / "python", "-m", "fsdplint", "clean", "."], work, 0, "")


def _expect(command: Sequence[object], folder: Path, code: int, text: str) -> str:
    """Run a command; returns its output."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    output = done.stdout + done.stderr
    if done.returncode != code or text not in output:
        raise ReleaseError(f"{command[1:]}: exit code {done.returncode}\n{output}")
    return done.stdout


def _environment() -> dict[str, str]:
    """The environment without what leads to this checkout."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}


def run(command: Sequence[object]) -> None:
    """Run a command; its output is shown if it fails."""
    done = subprocess.run(
        list(map(str, command)), env=_environment(), capture_output=True, text=True, timeout=900
    )
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, list(map(str, command)))


if __name__ == "__main__":
    sys.exit(main())
