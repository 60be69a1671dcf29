"""Which files can matter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fsdplint import prefilter
from fsdplint.files import File, discover
from fsdplint.prefilter import imports, mentions, relevant, select

FSDP = "from torch.distributed.fsdp import fully_shard\n"


def tree(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def chosen(root: Path) -> set[str]:
    files, _ = discover([root])
    selected, problems = select(files, searched=[root])
    assert not problems
    return {file.path.relative_to(root).as_posix() for file in selected}


@pytest.mark.parametrize(
    "text",
    [
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
        "from torch.distributed._composable.fsdp import fully_shard",
        "strategy = 'fsdp'",
        "FsdpConfig()",
        "import torch.distributed as d; d.fsdp",
    ],
)
def test_mentions(text: str) -> None:
    assert mentions(text.encode())


@pytest.mark.parametrize("text", ["import torch", "torch.distributed.checkpoint", "DTensor", ""])
def test_does_not_mention(text: str) -> None:
    assert not mentions(text.encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import a.b as c, d\n", [(0, ("a", "b"), ()), (0, ("d",), ())]),
        ("from . import (x,  # of (these)\n    y as z,\n)\n", [(1, (), ("x", "y"))]),
        ("from ..a.b import c; import d", [(2, ("a", "b"), ("c",)), (0, ("d",), ())]),
        ("if x: import y\n", [(0, ("y",), ())]),
        ("from a import b, \\\n    c\n", [(0, ("a",), ("b", "c"))]),
        ("\tfrom .x import(y)\n", [(1, ("x",), ("y",))]),
        ("from.x import y # import z\n", [(1, ("x",), ("y",))]),
        ("import a # import a\nimport b", [(0, ("a",), ()), (0, ("b",), ())]),
        ("import a\r\nimport b\r\n", [(0, ("a",), ()), (0, ("b",), ())]),
        ("from é import ü\n", [(0, ("é",), ("ü",))]),
        ("# import q\nimportant = 1\nx.import_(y)\n", []),
    ],
)
def test_imports(text: str, expected: list[object]) -> None:
    assert list(imports(text.encode())) == expected


def test_importers_matter_however_indirect(tmp_path: Path) -> None:
    tree(
        tmp_path,
        train="import engine\n",
        engine="from lib.shard import wrap\n",
        lib__shard=FSDP,
        lib__other="import json\n",
        eval="import lib.other\n",
    )
    assert chosen(tmp_path) == {"train.py", "engine.py", "lib/shard.py"}


def test_relative_imports_src_and_packages(tmp_path: Path) -> None:
    tree(
        tmp_path,
        src__pkg____init__="",
        src__pkg__a="from .b import c\n",
        src__pkg__b="from .. import pkg\nfrom .sub import d\n",
        src__pkg__sub____init__="",
        src__pkg__sub__d=FSDP,
        src__pkg__e="from . import f\n",
        src__pkg__f="",
        scripts__run="from pkg.a import c\n",
        setup="",
    )
    wanted = {"src/pkg/a.py", "src/pkg/b.py", "src/pkg/sub/d.py", "scripts/run.py"}
    assert chosen(tmp_path) == wanted


def test_an_import_outside_of_the_arguments_counts(tmp_path: Path) -> None:
    tree(tmp_path, tools__train="from common import wrap\n", common=FSDP, setup="")
    assert relevant([tmp_path / "tools" / "train.py"]) == [tmp_path / "tools" / "train.py"]
    assert chosen(tmp_path / "tools") == {"train.py"}


def test_circular_imports_end(tmp_path: Path) -> None:
    tree(tmp_path, a="import b\n", b="import a\n", c="import c\n")
    assert relevant([tmp_path / "a.py", tmp_path / "b.py", tmp_path / "c.py"]) == []


def test_a_library_of_the_same_name_is_not_the_projects(tmp_path: Path) -> None:
    tree(tmp_path, train="from torch.distributed import fsdp_utils\n", x="import torch\n")
    assert chosen(tmp_path) == {"train.py"}


def test_overrides_stand_for_the_file(tmp_path: Path) -> None:
    tree(tmp_path, a="x = 1\n")
    files = [File(tmp_path / "a.py")]
    assert select(files)[0] == []
    assert select(files, overrides={tmp_path / "a.py": FSDP})[0] == files


def test_only_named_files_are_checked_for_being_python(tmp_path: Path) -> None:
    tree(tmp_path, broken="def f(:\n", fine="x = 1\n")
    path = tmp_path / "broken.py"
    assert select([File(path)]) == ([], [])
    selected, problems = select([File(path, named=True)])
    assert selected == []
    assert [problem.line for problem in problems] == [1]


def test_unreadable_files_are_problems(tmp_path: Path) -> None:
    tree(tmp_path, a=FSDP)
    selected, problems = select([File(tmp_path / "gone.py"), File(tmp_path / "a.py")])
    assert [file.path.name for file in selected] == ["a.py"]
    assert [problem.message for problem in problems] == ["no such file or folder"]


def test_a_whole_project_without_fsdp_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, a="import b\n", b="import os\n", setup="")
    reads: list[str] = []
    real = prefilter.read_bytes
    monkeypatch.setattr(
        prefilter, "read_bytes", lambda path: (reads.append(path.name), real(path))[1]
    )
    assert chosen(tmp_path) == set()
    assert sorted(reads) == ["a.py", "b.py", "setup.py"]


def test_a_clean_run_imports_neither_the_parser_nor_torch(tmp_path: Path) -> None:
    tree(tmp_path, a="import torch\n", b="import a\n")
    program = """
import sys
from fsdplint.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    print(end.code, sorted({"libcst", "torch", "numpy"} & set(sys.modules)))
"""
    for arguments in (
        [str(tmp_path)],
        [str(tmp_path / "a.py"), str(tmp_path / "b.py")],
        ["--version"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True
        )
        assert done.stdout.splitlines()[-1] == "0 []", done.stderr
