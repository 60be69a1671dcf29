"""Notebooks are checked and fixed; nothing else in them changes by a byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import fsdplint
from fsdplint import api
from fsdplint.cli.main import main
from fsdplint.config.options import FORMATS
from fsdplint.source.notebooks import Notebook, NotebookError

SETUP = """\
%pip install torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

!nvidia-smi \\
    --list-gpus
text = '''
!not a command
'''
"""
MODEL = """\
%%time
dist.init_process_group("gloo")
model = nn.Linear(4, 4)
fully_shard(model)
found = !ls
(1
 % 2)
model?"""
BAD = 'name = "\U0001f525"\nmodel.forward(1)  # über\n'
FIXED = BAD.replace(".forward", "")


def cell(text: str, kind: str = "code", **more: Any) -> dict[str, Any]:
    lines = text.splitlines(keepends=True)
    found: dict[str, Any] = {"cell_type": kind, "metadata": {"z": 1, "a": [2.50]}, "source": lines}
    if kind == "code":
        found |= {
            "execution_count": 3,
            "outputs": [{"name": "stdout", "text": ["{model.forward}"]}],
        }
    return found | more


def notebook(*cells: dict[str, Any], language: str = "python", **options: Any) -> str:
    data = {"cells": list(cells), "metadata": {"language_info": {"name": language}}}
    data |= {"nbformat": 4, "nbformat_minor": 5}
    return json.dumps(data, **{"indent": 1, "ensure_ascii": False, **options}) + "\n"


CELLS = [
    cell("# Title\nmodel.forward(1)\n", "markdown"),
    cell(SETUP),
    cell("%%bash\nmodel.forward(\n"),
    cell(MODEL),
    cell(""),
    cell(BAD),
]


def run(*arguments: object, **options: Any) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], **options)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_findings_name_cell_and_line(folder: Path) -> None:
    (folder / "train.ipynb").write_text(notebook(*CELLS))
    first, *_ = run("--output-format=concise", ".").output.splitlines()
    assert first.startswith("train.ipynb:cell 6:2:1: FSDP101 [*] ")
    shown = run("train.ipynb").output
    assert "2 | model.forward(1)  # über" in shown
    assert "= note: sharded here (train.ipynb:cell 4:4)" in shown
    (found,) = json.loads(run("--output-format=json", "train.ipynb").output)
    assert (found["filename"], found["cell"]) == ("train.ipynb", 6)
    assert found["location"] == {"row": 2, "column": 1}
    (edit,) = found["fix"]["edits"]
    assert (edit["filename"], edit["cell"]) == ("train.ipynb", 6)
    assert (edit["location"], edit["content"]) == ({"row": 2, "column": 1}, "model")


def test_tools_get_the_lines_of_the_file(folder: Path) -> None:
    text = notebook(*CELLS)
    (folder / "train.ipynb").write_text(text)
    number, line = next(
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if "model.forward(1)  # über" in line
    )
    column = line.index("model") + 1
    annotation = run("--output-format=github", "train.ipynb").output
    assert f"line={number},col={column},endLine={number},endColumn={column + 16}" in annotation


STYLES: list[dict[str, Any]] = [
    {},
    {"indent": 4},
    {"indent": None},
    {"ensure_ascii": True},
    {"indent": "\t"},
    {"separators": (",", ":"), "indent": None},
    {"sort_keys": True},
]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("as_string", [False, True])
def test_a_fix_changes_one_line_of_the_file(
    folder: Path, style: dict[str, Any], as_string: bool
) -> None:
    cells = json.loads(json.dumps(CELLS))
    if as_string:
        for one in cells:
            one["source"] = "".join(one["source"])
    file = folder / "train.ipynb"
    for end in ("\n", "", "\r\n"):
        before = notebook(*cells, **style).replace("\n", "\r\n" if end == "\r\n" else "\n")
        before = before if end else before.rstrip("\n")
        file.write_bytes(before.encode())
        assert run("--fix", "train.ipynb").output == "Fixed 1 finding; none remains.\n"
        cells[-1]["source"] = FIXED if as_string else FIXED.splitlines(keepends=True)
        after = notebook(*cells, **style).replace("\n", "\r\n" if end == "\r\n" else "\n")
        assert file.read_bytes().decode() == (after if end else after.rstrip("\n"))
        assert run("--fix", "train.ipynb").output == "All checks passed.\n"
        cells[-1]["source"] = BAD if as_string else BAD.splitlines(keepends=True)


def test_a_migration_over_cells(folder: Path) -> None:
    """Statements are added in their cells, imports where the others are, magic stays."""
    wrapped = MODEL.replace("fully_shard(model)", "model = FSDP(model)")
    setup = SETUP.replace("import fully_shard", "import FullyShardedDataParallel as FSDP")
    clip = "loss.backward()\nmodel.clip_grad_norm_(1.0)"
    file = folder / "train.ipynb"
    file.write_text(notebook(cell(setup), cell(wrapped), cell("model(1)"), cell(clip)))
    result = run("--diff", "train.ipynb")
    assert result.exit_code == 1
    assert '-    "model = FSDP(model)\\n",' in result.stdout
    report = run("migrate", "train.ipynb").output
    assert "train.ipynb:cell 2:4: Shard the model with fully_shard\n" in report
    assert "torchrun cannot start a notebook" in report
    result = run("--fix", "train.ipynb")
    assert result.exit_code == 0, result.output
    new = [json.loads(file.read_text())["cells"][n]["source"] for n in range(4)]
    texts = ["".join(lines) for lines in new]
    assert texts[0].startswith("%pip install torch\nimport torch.distributed as dist\n")
    assert "from torch.distributed.fsdp import fully_shard\n" in texts[0]
    assert "!nvidia-smi \\\n    --list-gpus\n" in texts[0]
    assert texts[1] == MODEL
    assert texts[2] == "model(1)"
    assert "clip_grad_norm_(model.parameters(), 1.0)" in texts[3]
    assert all(not line.endswith("\n") for lines in new[1:] for line in lines[-1:])


def test_a_function_at_the_start_of_a_cell(folder: Path) -> None:
    setup = """\
import functools
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
"""
    wrapped = """\
def main(model):
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=100)
    return FSDP(model, auto_wrap_policy=policy, device_id=0)
"""
    file = folder / "train.ipynb"
    file.write_text(notebook(cell(setup), cell(wrapped), cell("main(nn.Linear(40, 40))")))
    assert run("--fix", "train.ipynb").exit_code == 0
    code = "".join(json.loads(file.read_text())["cells"][1]["source"])
    assert code.startswith("def shard_large_modules(model, min_num_params, **kwargs):\n")
    assert "    visit(model)\n\n\ndef main(model):\n" in code


def test_from_standard_input(folder: Path) -> None:
    text = notebook(*CELLS)
    result = run("--fix", "--stdin-filename", "train.ipynb", "-", input=text.encode())
    changed = notebook(*CELLS[:-1], cell(FIXED))
    assert result.stdout_bytes.decode() == changed


def test_from_python(folder: Path) -> None:
    (folder / "train.ipynb").write_text(notebook(*CELLS))
    (found,) = fsdplint.check("train.ipynb").findings
    assert (found.path, found.cell, found.line) == ("train.ipynb", 6, 2)
    assert found.fix is not None
    assert found.fix.edits == (api.Edit("train.ipynb", 2, 1, 2, 14, "model", 6),)
    assert [(one.cell, one.line) for one in found.related] == [(4, 4)]
    fixed = fsdplint.fix("train.ipynb")
    assert [(one.path, one.cell, one.line) for one in fixed.fixed] == [("train.ipynb", 6, 2)]
    assert fixed.changes[0].before == notebook(*CELLS)
    assert fixed.changes[0].after == notebook(*CELLS[:-1], cell(FIXED))


@pytest.mark.parametrize("output_format", FORMATS)
def test_every_format(folder: Path, output_format: str) -> None:
    (folder / "train.ipynb").write_text(notebook(*CELLS))
    result = run("--output-format", output_format, "train.ipynb")
    assert result.exit_code == 1, result.exception
    assert "train.ipynb" in result.output and "FSDP101" in result.output
    assert "__fsdplint_" not in result.output


def test_comments_turn_findings_off(folder: Path) -> None:
    off = cell(BAD.replace("# über", "# noqa: FSDP101"))
    (folder / "train.ipynb").write_text(notebook(*CELLS[:-1], off))
    assert run(".").output == "All checks passed.\n"


def test_what_cannot_be_read(folder: Path) -> None:
    """A mistake is named by its cell; other languages are nobody's business."""
    (folder / "a.ipynb").write_text(
        notebook(cell("import torch.distributed.fsdp"), cell("x = 1\nif x\n"))
    )
    (folder / "b.ipynb").write_text(notebook(cell("FSDP <- 1 +"), language="R"))
    (folder / "c.ipynb").write_text('{"fsdp": ')
    lines = run("--output-format=concise", ".").output.splitlines()
    assert lines[0].startswith("a.ipynb:cell 2:2: FSDP901 syntax error")
    assert lines[1].startswith("c.ipynb: FSDP901 not a valid Jupyter notebook")
    assert lines[2].startswith("2 problems")


def test_another_file_is_imported(folder: Path) -> None:
    (folder / "parts.py").write_text("def run(model):\n    return model.forward(1)\n")
    (folder / "train.ipynb").write_text(
        notebook(cell("from parts import run\n" + SETUP), cell(MODEL), cell("run(model)"))
    )
    first, *_ = run("--output-format=concise", ".").output.splitlines()
    assert first.startswith("parts.py:2:12: FSDP101 ")


def test_masks() -> None:
    found = Notebook(notebook(*CELLS))
    assert found.with_code(found.code) == found.raw
    masked = "".join(one.masked for one in found.cells)
    assert masked.count("\n") == "".join(one.text for one in found.cells).count("\n")
    compile(found.code, "notebook", "exec")
    kept = ("!not a command", "(1\n % 2)", "found = __fsdplint_line_")
    assert all(text in found.code for text in kept)
    # What would tear cells or lines of IPython apart is refused.
    lines = found.code.splitlines(keepends=True)
    for line in [one for one in lines if "__fsdplint_" in one]:
        with pytest.raises(NotebookError):
            found.with_code(found.code.replace(line, ""))
