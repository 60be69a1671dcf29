"""A notebook that is open in an editor: what is found stands in its cells, and so do the fixes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from lsprotocol import types

pytest.importorskip("pygls")
sys.path.insert(0, str(Path(__file__).parent))

from client import Editor, edit_with, whole

CELLS = (
    "# A notebook\n",
    "%pip install torch\nimport torch.distributed as dist\nfrom torch import nn",
    "from torch.distributed.fsdp import fully_shard\n\ndist.init_process_group('gloo')\nmodel = nn.Linear(4, 4)\nfully_shard(model)",
    'name = "\U0001f525"; model.forward(1)\n!nvidia-smi',
    "%%bash\nls\n",
)
QUICK = [types.CodeActionKind.QuickFix]
FIX_ALL = "source.fixAll.fsdplint"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def test_cells(folder: Path) -> None:
    path = folder / "train.ipynb"

    async def body(editor: Editor) -> None:
        (sync,) = editor.initialized.capabilities.notebook_document_sync.notebook_selector
        assert sync.notebook == "jupyter-notebook"
        uris = editor.open_notebook(path, *CELLS)
        three, four = uris[2:4]
        (one,) = await editor.expect(four, "FSDP101")
        await editor.expect(three)
        await editor.expect(uris[1])
        assert uris[0] not in editor.shown  # what is no code has no findings
        # What stands before it has 13 characters, which are 14 units of UTF-16.
        assert one.range == types.Range(types.Position(0, 13), types.Position(0, 29))
        related = one.related_information or []
        assert three in [where.location.uri for where in related]
        (sharded,) = [where for where in related if where.location.uri == three]
        assert sharded.location.range.start == types.Position(4, 0)

        # The quick fix is one of the cell, and only there.
        assert await editor.actions(three, whole(CELLS[2]), QUICK) == []
        (action,) = await editor.actions(four, one.range, QUICK)
        assert list(action.diagnostics or []) == [one]
        assert action.edit is not None and editor.apply(action.edit) == {four}
        fixed = CELLS[3].replace(".forward", "")
        assert editor.texts[four] == fixed
        editor.change_cell(path, four, fixed)
        await editor.expect(four)

        # The cause goes with its cell, and comes with another one.
        editor.change_cell(path, four, CELLS[3])
        await editor.expect(four, "FSDP101")
        editor.change_cells(path, 2, 1)
        await editor.expect(four)
        await editor.until(lambda: not editor.shown[three].diagnostics)
        (new,) = editor.change_cells(path, 2, 0, CELLS[2] + "\nmodel.forward(2)")
        await editor.expect(four, "FSDP101")
        await editor.expect(new, "FSDP101")

        # Fix all changes all cells; half a statement is told in its cell and keeps the others.
        (action,) = await editor.actions(new, whole(CELLS[2]), [FIX_ALL])
        assert action.edit is not None and editor.apply(action.edit) == {new, four}
        assert editor.texts[new].endswith("\nmodel(2)") and editor.texts[four] == fixed
        editor.change_cell(path, four, CELLS[3])
        editor.change_cell(path, new, CELLS[2])
        await editor.expect(four, "FSDP101")
        hover = await editor.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(four), types.Position(0, 15))
        )
        assert hover is not None and isinstance(hover.contents, types.MarkupContent)
        assert "FSDP101" in hover.contents.value
        editor.close_notebook(path)
        await editor.until(lambda: not editor.shown[four].diagnostics)
        assert editor.messages == []

    edit_with(folder, body)


def test_what_cannot_be_read_is_told_in_its_cell(folder: Path) -> None:
    path = folder / "train.ipynb"

    async def body(editor: Editor) -> None:
        broken = CELLS[3].replace("(1)", "(1")
        uris = editor.open_notebook(path, *CELLS[:3], "x = 1\n" + broken)
        (one,) = await editor.expect(uris[3], "FSDP901")
        assert one.range.start.line in (1, 2)
        await editor.expect(uris[2])

    edit_with(folder, body)


def test_an_import_that_a_fix_needs(folder: Path) -> None:
    """It goes to the first cell with imports, whatever cell the finding is in."""
    path = folder / "train.ipynb"
    cells = (
        "import torch\nfrom torch import nn\nimport torch.distributed as dist",
        "from torch.distributed.fsdp import fully_shard\ndist.init_process_group('gloo')\nmodel = nn.Linear(4, 4)\nfully_shard(model)",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nmodel(torch.ones(4)).sum().backward()\nmodel.clip_grad_norm_(1.0)\noptimizer.step()",
    )

    async def body(editor: Editor) -> None:
        uris = editor.open_notebook(path, *cells)
        (one,) = await editor.expect(uris[2], "FSDP402")
        (action,) = await editor.actions(uris[2], one.range, QUICK)
        assert action.edit is not None
        changed = editor.apply(action.edit)
        assert uris[2] in changed
        texts = [editor.texts[uri] for uri in uris]
        assert "clip_grad_norm_(model.parameters()" in texts[2]
        # Cells end as they did: a file made of them is what the command line would write.
        assert not any(text.endswith("\n") for text in texts)
        content = [{"cell_type": "code", "metadata": {}, "source": text} for text in cells]
        raw = {"cells": content, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        path.write_text(json.dumps(raw))
        from fsdplint.engine.operations import fix_files
        from fsdplint.engine.session import Session

        (fixed,) = fix_files(Session([path])).texts.values()
        assert [one["source"] for one in json.loads(fixed[1])["cells"]] == texts

    edit_with(folder, body)
