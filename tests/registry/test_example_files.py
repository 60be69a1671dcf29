"""Examples in files beside a rule: their names, their headers, and what does not fit."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from fsdplint.registry.example_files import ExampleError, examples_of, read_file, read_folder
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule

RULE = """\
from fsdplint.registry.examples import Good
from fsdplint.registry.rule import Rule


class MeshNotGiven(Rule):
    code = "HOUSE101"
    good = (Good("mesh = None\\n", why="in the class"),)

    def check(self, trace):
        return ()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "examples" / "HOUSE101"
    folder.mkdir(parents=True)
    return folder


def rule_in(folder: Path) -> type[Rule]:
    """The class of a rule in a file of a plug-in."""
    file = folder / "house_rule.py"
    file.write_text(RULE)
    spec = importlib.util.spec_from_file_location("house_rule", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "house_rule", module)
        spec.loader.exec_module(module)
        found: type[Rule] = module.MeshNotGiven
        examples_of(found)
    return found


def test_the_examples_of_a_plug_in(folder: Path) -> None:
    (folder / "no_mesh.bad.py").write_text("# page: yes\n# hangs: yes\n\n\nx = 1  # <- HOUSE101\n")
    (folder / "no_mesh.fixed.py").write_text("# prints: ^1$\n\nx = 2\n")
    (folder / "also_bad.bad.py").write_text("# raises: Error:\n#     no mesh\n\ny = 1\n\n# end\n")
    (folder / "settings.good.yaml").write_text("# why: other\n# skip: no program\n\na: 1\n")
    examples = examples_of(rule_in(folder.parents[1]))
    assert examples.bad == (
        Bad(
            "x = 1  # <- HOUSE101\n",
            symptom=Symptom(hangs=True),
            fixed="x = 2\n",
            healthy="^1$",
            name="no_mesh",
        ),
        Bad("y = 1\n\n# end\n", symptom=Symptom(raises="Error: no mesh"), name="also_bad"),
    )
    assert examples.good == (
        Good("mesh = None\n", why="in the class"),
        Good("a: 1\n", why="other", skip="no program", suffix=".yaml", name="settings"),
    )


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("# why: for good programs only\n\n", "'why'"),
        ("# page: no\n\n", "`yes` or left out"),
        ("# prints: 1\n# prints: 2\n\n", "is given twice"),
        ("# prints:\n\n", "not a line of a header"),
        ("#     continued\n\n", "not a line of a header"),
        ("import torch\n\n", "not a line of a header"),
        ("# prints: 1\n", "no empty line"),
    ],
)
def test_a_wrong_header(folder: Path, head: str, words: str) -> None:
    path = folder / "no_mesh.bad.py"
    path.write_text(f"{head}x = 1\n")
    with pytest.raises(ExampleError, match=words):
        read_file(path)


@pytest.mark.parametrize("name", ["no_mesh.py", "no_mesh.other.py", ".bad.py", "no_mesh.bad.txt"])
def test_a_wrong_name(folder: Path, name: str) -> None:
    (folder / name).write_text("# prints: 1\n\nx = 1\n")
    with pytest.raises(ExampleError, match="not a name of an example"):
        read_folder(folder)


def test_files_that_do_not_fit_each_other(folder: Path) -> None:
    (folder / "no_mesh.fixed.py").write_text("# prints: 1\n\nx = 1\n")
    with pytest.raises(ExampleError, match="no bad program has this name"):
        rule_in(folder.parents[1])
    for name in ("one", "two"):
        (folder / f"{name}.bad.py").write_text("# page: yes\n\nx = 1\n")
    with pytest.raises(ExampleError, match="several bad examples"):
        read_folder(folder)
