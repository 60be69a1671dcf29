"""The package holds every folder of code, under the right name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "fixtures" / "rules"


def test_every_folder_is_installed() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^packages = \[(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    listed = re.findall(r'"([\w.]+)"', block.group(1))
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("fsdplint", "rules")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert listed == sorted(re.sub(r"^rules\b", "fsdplint.rules", name) for name in found)
    mapped = dict(re.findall(r'^"([\w.]+)" = "([\w/]+)"$', text, re.MULTILINE))
    for name in listed:
        if name.startswith("fsdplint.rules"):
            assert mapped[name] == name.removeprefix("fsdplint.").replace(".", "/")


def test_the_examples_of_the_rules_are_installed(tmp_path: Path) -> None:
    """`fsdplint rule` shows them without a checkout."""
    pytest.importorskip("setuptools", minversion="77")
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("fsdplint", "rules", "fixtures/rules"):
        shutil.copytree(ROOT / name, source / name, ignore=unwanted, symlinks=True)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", build, str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    examples = {path.relative_to(EXAMPLES) for path in EXAMPLES.glob("*/*")}
    installed = site / "fsdplint" / "rules" / "examples"
    assert {path.relative_to(installed) for path in installed.glob("*/*")} == examples
    done = subprocess.run(
        [sys.executable, "-m", "fsdplint", "rule", "FSDP103"],
        cwd=site,
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    for title in ("## Example", "## Fixed", "## Not reported"):
        assert title in done.stdout
    for data in ("cli/skill.md", "report/page.css", "runtime/proof/reports/page.html.jinja"):
        assert (site / "fsdplint" / data).is_file()


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="for the oldest Python that is supported")
def test_compiles_on_the_oldest_python() -> None:
    for top in ("fsdplint", "rules"):
        for path in (ROOT / top).rglob("*.py"):
            compile(path.read_text(encoding="utf-8"), str(path), "exec")
