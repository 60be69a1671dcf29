"""The language server, asked by a real client over its standard streams."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lsprotocol import types

pytest.importorskip("pygls")
sys.path.insert(0, str(Path(__file__).parent))

from client import Editor, edit_with, whole

BAD = """\
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Linear(4, 4)
fully_shard(model)
name = "\U0001f525ü"; model.forward(1)
"""
FIXED = BAD.replace(".forward", "")
FIX_ALL = "source.fixAll.fsdplint"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def test_findings_fixes_and_pages(folder: Path) -> None:
    """While typing; astral characters count twice; edits are for a version."""

    async def body(editor: Editor) -> None:
        uri = editor.open(folder / "train.py", BAD)
        (one,) = await editor.expect(uri, "FSDP101")
        # What stands before it has 13 characters, which are 14 units of UTF-16.
        assert one.range == types.Range(types.Position(7, 14), types.Position(7, 30))
        assert one.severity is types.DiagnosticSeverity.Error
        assert one.source == "fsdplint" and one.code_description is not None
        assert one.code_description.href.endswith("/rules/direct-forward-call")
        assert one.related_information

        # A text that is no Python keeps what was found where it is, and so does a comment above.
        editor.change(uri, "# über \U0001f525\n" + BAD + "half = (\n")
        editor.change(uri, "# über \U0001f525\n" + BAD)
        (one,) = await editor.expect(uri, "FSDP101")
        assert one.range.start == types.Position(8, 14)
        editor.change(uri, "# über \U0001f525\n" + FIXED)
        await editor.expect(uri)
        editor.change(uri, "# über \U0001f525\n" + BAD)
        (one,) = await editor.expect(uri, "FSDP101")

        # The quick fix of the finding at the cursor, and none elsewhere.
        only = [types.CodeActionKind.QuickFix]
        assert await editor.actions(uri, types.Range(one.range.start, one.range.start), only)
        nowhere = types.Range(types.Position(1, 0), types.Position(1, 0))
        assert await editor.actions(uri, nowhere, only) == []
        (action,) = await editor.actions(uri, one.range, only)
        assert action.is_preferred and list(action.diagnostics or []) == [one]
        assert action.edit is not None
        assert editor.apply(action.edit) == {uri}
        assert editor.texts[uri] == "# über \U0001f525\n" + FIXED

        # Fix all, as on save and from the menu.
        editor.change(uri, BAD)
        (action,) = await editor.actions(uri, nowhere, [FIX_ALL])
        assert action.kind == FIX_ALL and action.edit is not None
        found = await editor.actions(uri, whole(BAD), [types.CodeActionKind.SourceFixAll])
        assert [one.kind for one in found] == [FIX_ALL]
        menu = await editor.actions(uri, whole(BAD))
        (all_of_it,) = [one for one in menu if one.kind == FIX_ALL]
        assert all_of_it.edit is None  # worked out when it is chosen
        all_of_it = await editor.code_action_resolve_async(all_of_it)
        assert all_of_it.edit == action.edit
        editor.apply(action.edit)
        assert editor.texts[uri] == FIXED

        # The page of a code in a comment, and what a finding is about.
        comment = BAD.replace("(1)", "(1)  # fsdplint: ignore[FSDP101]")
        editor.change(uri, comment)
        await editor.expect(uri)
        line = comment.splitlines()[7]
        units = len(line[: line.index("FSDP101") + 3].encode("utf-16-le")) // 2
        hover = await editor.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(7, units))
        )
        assert hover is not None and isinstance(hover.contents, types.MarkupContent)
        assert hover.contents.value.startswith("# direct-forward-call (FSDP101)")
        assert "## Why is this bad?" in hover.contents.value
        editor.change(uri, BAD)
        (one,) = await editor.expect(uri, "FSDP101")
        hover = await editor.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(uri), one.range.start)
        )
        assert hover is not None and isinstance(hover.contents, types.MarkupContent)
        assert hover.contents.value.startswith("[FSDP101](https://")
        editor.close(uri)
        await editor.until(lambda: not editor.shown[uri].diagnostics)
        assert editor.messages == []

    edit_with(folder, body)


PARTS = """\
def run(model):
    return model(1)
"""
MAIN = BAD.replace('name = "\U0001f525ü"; model.forward(1)', "run(model)").replace(
    "import torch.", "from parts import run\nimport torch.", 1
)


def test_the_cause_lies_in_another_file(folder: Path) -> None:
    (folder / "parts.py").write_text(PARTS)
    (folder / "train.py").write_text(MAIN)

    async def body(editor: Editor) -> None:
        # Only the library is open; who calls it is on the disk.
        parts = editor.open(folder / "parts.py", PARTS)
        await editor.expect(parts)
        editor.change(parts, PARTS.replace("model(1)", "model.forward(1)"))
        (one,) = await editor.expect(parts, "FSDP101")
        assert one.range.start == types.Position(1, 11)
        # The caller is opened, and not saved: the model is not sharded any more, so nothing is wrong.
        train = editor.open(folder / "train.py", MAIN.replace("fully_shard(model)\n", "\n"))
        await editor.expect(parts)
        editor.change(train, MAIN)
        (one,) = await editor.expect(parts, "FSDP101")
        related = one.related_information or []
        assert train in [where.location.uri for where in related]
        # What was not saved is forgotten with the document.
        editor.change(train, MAIN.replace("fully_shard(model)\n", "\n"))
        await editor.expect(parts)
        editor.close(train)
        await editor.expect(parts, "FSDP101")
        # A file that changes on the disk.
        (folder / "train.py").write_text(MAIN.replace("fully_shard(model)\n", "\n"))
        event = types.FileEvent((folder / "train.py").as_uri(), types.FileChangeType.Changed)
        editor.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
        await editor.expect(parts)

    edit_with(folder, body)


SHARDING = """\
from torch.distributed.fsdp import fully_shard


def shard(model):
    fully_shard(model)
"""
RUNNING = """\
import torch
import torch.distributed as dist
from sharding import shard

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
shard(model)
model.forward(torch.ones(1, 8))
"""


def test_what_was_not_saved_of_a_file_without_fsdp_is_forgotten(folder: Path) -> None:
    (folder / "sharding.py").write_text(SHARDING)
    (folder / "train.py").write_text(RUNNING)

    async def body(editor: Editor) -> None:
        train = editor.open(folder / "train.py", RUNNING)
        await editor.expect(train, "FSDP101")
        sharding = editor.open(folder / "sharding.py", "def shard(model):\n    pass\n")
        await editor.expect(train)
        editor.close(sharding)
        await editor.expect(train, "FSDP101")

    edit_with(folder, body)


WRAPPING = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(model):
    return FSDP(model)
"""
CALLING = """\
import torch
import torch.distributed as dist
from torch import nn

from wrapping import wrap

dist.init_process_group("gloo")
model = wrap(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(2, 4)).sum().backward()
model.clip_grad_norm_(1.0)
optimizer.step()
"""


def test_a_migration_changes_several_files_at_once(folder: Path) -> None:
    (folder / "wrapping.py").write_text(WRAPPING)
    (folder / "train.py").write_text("")

    async def body(editor: Editor) -> None:
        wrapping = (folder / "wrapping.py").as_uri()
        train = editor.open(folder / "train.py", CALLING)
        (one,) = await editor.expect(train, "FSDP204")
        actions = await editor.actions(train, one.range, [types.CodeActionKind.QuickFix])
        assert len(actions) == 1 and actions[0].edit is not None
        assert actions[0].title.endswith("(also in 1 other file)")
        assert editor.apply(actions[0].edit) == {train, wrapping}
        assert "fully_shard(model)" in editor.texts[wrapping]
        assert "clip_grad_norm_(model.parameters()" in editor.texts[train]
        # Fixing one file alone must not tear them apart; fixing the project may.
        assert await editor.actions(train, one.range, [FIX_ALL]) == []
        (action,) = await editor.actions(train, one.range, ["source.fixProject.fsdplint"])
        assert action.edit is not None
        changes = action.edit.document_changes or []
        assert [one.text_document.uri for one in changes] == [train, wrapping]
        assert (folder / "train.py").read_text() == ""

    edit_with(folder, body)


def test_settings(folder: Path) -> None:
    file = folder / "pyproject.toml"

    async def body(editor: Editor) -> None:
        uri = editor.open(folder / "train.py", BAD)
        await editor.expect(uri)
        configuration = types.DidChangeConfigurationParams({"fsdplint": {"select": ["FSDP1"]}})
        editor.workspace_did_change_configuration(configuration)
        await editor.expect(uri, "FSDP101")
        # Those of the project hold too, and a mistake in them is told.
        event = types.DidChangeWatchedFilesParams(
            [types.FileEvent(file.as_uri(), types.FileChangeType.Changed)]
        )
        file.write_text("[tool.fsdplint]\nexclude = ['train.py']\n")
        editor.workspace_did_change_watched_files(event)
        await editor.expect(uri)
        file.write_text("[tool.fsdplint]\nexklude = []\n")
        editor.workspace_did_change_watched_files(event)
        await editor.until(lambda: editor.messages)
        assert "did you mean 'exclude'?" in editor.messages[0]

    edit_with(folder, body, {"settings": {"ignore": ["FSDP101"]}})


def test_a_change_of_a_document_that_is_not_open_is_logged_and_ignored(folder: Path) -> None:
    async def body(editor: Editor) -> None:
        uri = (folder / "parts.py").as_uri()
        editor.versions[uri] = 1
        editor.change(uri, BAD)
        notebook = (folder / "train.ipynb").as_uri()
        editor.notebook_document_did_change(
            types.DidChangeNotebookDocumentParams(
                types.VersionedNotebookDocumentIdentifier(2, notebook),
                types.NotebookDocumentChangeEvent(),
            )
        )
        train = editor.open(folder / "train.py", BAD)
        await editor.expect(train, "FSDP101")
        assert editor.messages == [] and uri not in editor.shown
        assert editor.logs == [
            f"fsdplint: ignored textDocument/didChange: {uri} is not open",
            f"fsdplint: ignored notebookDocument/didChange: {notebook} is not open",
        ]
        # Afterwards the document can be opened, and changed.
        editor.open(folder / "parts.py", FIXED)
        await editor.expect(uri)
        editor.change(uri, BAD)
        await editor.expect(uri, "FSDP101")

    edit_with(folder, body)
