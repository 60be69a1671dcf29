"""Which files can matter."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fsdplint.discovery import module_resolver as of_imports
from fsdplint.discovery.module_resolver import imports
from fsdplint.discovery.prefilter import relevant, select
from fsdplint.discovery.relevance import MAX_DISTANCE
from fsdplint.discovery.walk import File, discover
from fsdplint.source.fsdp_words import mentions

FSDP = "from torch.distributed.fsdp import fully_shard\n"


def tree(root: Path, **files: str) -> None:
    for name, text in files.items():
        stem = name.replace("____init__", "/__init__")
        path = root / (re.sub(r"(?<=\w)__(?=[a-z])(?!init__)", "/", stem) + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def chosen(root: Path) -> set[str]:
    files, _ = discover([root])
    selection = select(files, searched=[root])
    assert not selection.problems
    return {path.relative_to(root).as_posix() for path in selection.paths}


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
        ("import a.b as c, d\n", [(0, ("a", "b"), "c"), (0, ("d",), None)]),
        ("from . import (x,  # of (these)\n    y as z,\n)\n", [(1, (), (("x", "x"), ("y", "z")))]),
        ("from ..a.b import c; import d", [(2, ("a", "b"), (("c", "c"),)), (0, ("d",), None)]),
        ("if x: import y\n", [(0, ("y",), None)]),
        ("from a import b, \\\n    c\n", [(0, ("a",), (("b", "b"), ("c", "c")))]),
        ("\tfrom .x import(y)\n", [(1, ("x",), (("y", "y"),))]),
        ("from.x import y # import z\n", [(1, ("x",), (("y", "y"),))]),
        ("import a # import a\nimport b", [(0, ("a",), None), (0, ("b",), None)]),
        ("import a\r\nimport b\r\n", [(0, ("a",), None), (0, ("b",), None)]),
        ("from é import ü\n", [(0, ("é",), (("ü", "ü"),))]),
        ("# import q\nimportant = 1\nx.import_(y)\n", []),
    ],
)
def test_imports(text: str, expected: list[object]) -> None:
    found = [(one.level, one.parts, one.names or one.alias) for one in imports(text.encode())]
    assert found == expected


def test_users_matter_however_indirect(tmp_path: Path) -> None:
    tree(
        tmp_path,
        train="import engine\nengine.run()\n",
        engine="from lib.shard import wrap\ndef run():\n    wrap()\n",
        lib__shard=FSDP + "def wrap(m):\n    fully_shard(m)\ndef count(m):\n    return 1\n",
        lib__other="import json\n",
        eval="import lib.other\n",
        report="from lib.shard import count\ncount(1)\n",
        idle="import engine\nprint(engine.__name__)\n",
    )
    assert chosen(tmp_path) == {"train.py", "engine.py", "lib/shard.py"}


CARRYING = '''
def wrap(
    model,
):
    """Shards."""
    return fully_shard(model)

class Trainer:
    def fit(self):
        if True:
            # it is
            wrap(self)

def make(): return Trainer()

STRATEGIES = {
"x": wrap,
}
if True:
    late = wrap
else:
    late = None
registry = {}
registry["a"] = late
first, second = wrap, 2
chosen: object = (late)
'''


@pytest.mark.parametrize(
    "use",
    [
        "from lib import wrap",
        "from lib import wrap as shard\nshard(m)",
        "from lib import *\nwrap(m)",
        "from lib import Trainer\nclass Mine(Trainer):\n    pass",
        "def main():\n    from lib import make\n    make().fit()",
        "import lib\nlib.wrap(m)",
        "import lib as helpers\nhelpers . wrap(m)",
        "import lib\ndef f():\n    return (lib\n        .wrap(m))",
        "from lib import STRATEGIES\nSTRATEGIES['x'](m)",
        "try:\n    from lib import late\nexcept ImportError:\n    late = None",
        "from lib import registry\nregistry['a']()",
        "from lib import first",
        "from lib import chosen",
        "import lib\nf = getattr(lib, name)",
        "import lib as helpers\nf = vars(helpers)[name]",
        "import lib\nf = lib.__dict__[name]",
        "import lib\nfor name, f in inspect.getmembers(lib):\n    f(m)",
    ],
)
def test_what_uses_a_name_behind_which_fsdp_lies_matters(tmp_path: Path, use: str) -> None:
    tree(tmp_path, lib=FSDP + CARRYING, user=use + "\n", setup="")
    assert chosen(tmp_path) == {"lib.py", "user.py"}


HARMLESS = '''
import os
import numpy as np
os.environ["FSDP_SYNC"] = "1"

def harmless():
    """Nothing of fsdp."""
    return np.zeros(2)  # fully_shard does not come here

def wrap(model):
    np.zeros(1)
    return fully_shard(model)
'''


@pytest.mark.parametrize(
    "use",
    [
        "from lib import harmless\nharmless()",
        "import lib\nlib.harmless()",
        "import lib",
        "import lib\nf = getattr(model, lib.name)",
        "from lib import np\nnp.zeros(1)",
        "from lib import os",
        "def wrap(): pass\nwrap()",
    ],
)
def test_what_uses_other_names_does_not(tmp_path: Path, use: str) -> None:
    tree(tmp_path, lib=FSDP + HARMLESS, user=use + "\n", setup="")
    assert chosen(tmp_path) == {"lib.py"}


@pytest.mark.parametrize(
    ("text", "matters"),
    [
        ("# fsdp is elsewhere\n", False),
        ("def f():\n    '''Not for fsdp.'''\n", False),
        ('"""About\nFSDP"""\nx = "#"\n', False),
        ("strategy = 'fsdp'\n", True),
        ("x = 1  # noqa: FSDP101\n", True),
        ("x = 1  # fsdplint: ignore[FSDP101]\n", True),
        ("url = 'a#b'; wrap = FSDP\n", True),
        ("fully_shard = (\n", True),
        ("use_fsdp = 1\n", False),
        ("if args.fsdp: fsdp_model.save()\n", False),
        ("import torch\ntorch.distributed.fsdp.MixedPrecision\n", True),
        ("log('This is not fsdp.')\n", False),
        ("log(f'This is {FSDP.state_dict(m)}')\n", True),
        ("Trainer(fsdp='full_shard')\n", True),
        ("Arguments(fsdp_config=x)\n", True),
        ("import jax\nmesh = make_mesh(fsdp=4)\n", False),
        ("from flax import nnx\nAXES = {'fsdp': 4}\n", False),
        ("import jax, torch\nAXES = {'fsdp': 4}\n", True),
    ],
)
def test_comments_and_docstrings_are_no_use(tmp_path: Path, text: str, matters: bool) -> None:
    tree(tmp_path, a=text, setup="")
    assert chosen(tmp_path) == ({"a.py"} if matters else set())


def test_names_come_through_packages(tmp_path: Path) -> None:
    tree(
        tmp_path,
        lib____init__="from .shard import wrap as wrapped\n",
        lib__shard=FSDP + "wrap = fully_shard\n",
        a="import lib\nlib.wrapped(m)\n",
        b="import lib.shard\nlib.shard.wrap(m)\n",
        c="import lib\nlib.shard.wrap(m)\n",
        d="from lib import shard\nshard.wrap(m)\n",
        e="import lib\nlib.other(m)\n",
        setup="",
    )
    package = {"lib/__init__.py", "lib/shard.py"}
    assert chosen(tmp_path) == {*package, "a.py", "b.py", "c.py", "d.py"}


def test_far_away_is_too_far(tmp_path: Path) -> None:
    tree(tmp_path, f0=FSDP + "def g0(): fully_shard(m)\n", setup="")
    for n in range(1, 8):
        text = f"from f{n - 1} import g{n - 1}\ndef g{n}(): g{n - 1}()\n"
        tree(tmp_path, **{f"f{n}": text})
    assert chosen(tmp_path) == {f"f{n}.py" for n in range(MAX_DISTANCE + 2)}


def test_what_belongs_together(tmp_path: Path) -> None:
    tree(
        tmp_path,
        one=FSDP + "import common\ndef f(): fully_shard(common.model)\n",
        two="from one import f\nf()\n",
        three=FSDP + "import common\n",
        four=FSDP + "from three import x\n",
        common="model = 1\n",
        setup="",
    )
    files, _ = discover([tmp_path])
    groups = select(files, searched=[tmp_path]).groups
    assert [[path.stem for path in group] for group in groups] == [
        ["four", "three"],
        ["one", "two"],
    ]


def test_files_belong_together_through_a_package_that_passes_on_all_names(tmp_path: Path) -> None:
    tree(
        tmp_path,
        policies____init__="from .precision import *\n",
        policies__precision="from torch.distributed.fsdp import MixedPrecision\nbf16 = 1\n",
        train=FSDP + "from policies import bf16\n",
        other=FSDP + "import os\n",
        setup="",
    )
    files, _ = discover([tmp_path])
    groups = select(files, searched=[tmp_path]).groups
    assert sorted(sorted(path.stem for path in group) for group in groups) == [
        ["other"],
        ["precision", "train"],
    ]


@pytest.mark.parametrize(
    "use",
    [
        'h = import_module("helpers")\nh.step(model)\n',
        'importlib.import_module( "helpers" ,).step(model)\n',
        "h = importlib.import_module(\n    '.helpers', package='parts')\nh.step(model)\n",
    ],
)
def test_what_is_imported_by_its_name_belongs_together(tmp_path: Path, use: str) -> None:
    helpers = FSDP + "def step(model): model.forward(1)\n"
    tree(tmp_path, main=FSDP + use, helpers=helpers, parts__helpers=helpers)
    files, _ = discover([tmp_path])
    (together,) = (group for group in select(files, searched=[tmp_path]).groups if len(group) > 1)
    folder = tmp_path / "parts" if "parts" in use else tmp_path
    assert set(together) == {folder / "helpers.py", tmp_path / "main.py"}


def test_relative_imports_src_and_packages(tmp_path: Path) -> None:
    tree(
        tmp_path,
        src__pkg____init__="",
        src__pkg__a="from .b import c\n",
        src__pkg__b="from .. import pkg\nfrom .sub import d\nc = d.wrap\n",
        src__pkg__sub____init__="",
        src__pkg__sub__d=FSDP + "wrap = fully_shard\n",
        src__pkg__e="from . import f\n",
        src__pkg__f="",
        scripts__run="from pkg.a import c\n",
        setup="",
    )
    wanted = {"src/pkg/a.py", "src/pkg/b.py", "src/pkg/sub/d.py", "scripts/run.py"}
    assert chosen(tmp_path) == wanted


def test_an_import_outside_of_the_arguments_counts(tmp_path: Path) -> None:
    tree(
        tmp_path,
        tools__train="from common import wrap\n",
        common=FSDP + "wrap = fully_shard\n",
        setup="",
    )
    assert relevant([tmp_path / "tools" / "train.py"]) == [tmp_path / "tools" / "train.py"]
    assert chosen(tmp_path / "tools") == {"train.py"}


def test_circular_imports_end(tmp_path: Path) -> None:
    tree(tmp_path, a="import b\n", b="import a\n", c="import c\n")
    assert relevant([tmp_path / "a.py", tmp_path / "b.py", tmp_path / "c.py"]) == []


def test_a_library_of_the_same_name_is_not_the_projects(tmp_path: Path) -> None:
    tree(tmp_path, train="from torch.distributed import fsdp\n", x="import torch\n")
    assert chosen(tmp_path) == {"train.py"}


def test_a_decorated_function_ends_where_the_next_statement_begins(tmp_path: Path) -> None:
    decorated = "@cache\n@wraps(\n    a,\n)\ndef setup():\n    return fully_shard\n"
    tree(
        tmp_path,
        lib=decorated + "def harmless(): ...\n",
        one="from lib import harmless\nharmless()\n",
        two="from lib import setup\nsetup()\n",
    )
    assert chosen(tmp_path) == {"lib.py", "two.py"}


def test_torch_is_a_library_to_its_own_files(tmp_path: Path) -> None:
    tree(
        tmp_path,
        torch____init__="",
        torch__fsdp="def fully_shard(model): ...\n",
        torch__other="from torch.fsdp import fully_shard as f\nf(model)\n",
        torch__near="from .fsdp import fully_shard as f\nf(model)\n",
        torch__use="import torch.other\ntorch.other.f(model)\n",
    )
    selection = select(discover([tmp_path])[0], searched=[tmp_path])
    groups = [sorted(path.name for path in group) for group in selection.groups]
    assert sorted(groups) == [["fsdp.py", "near.py"], ["other.py"]]


def test_what_is_installed_is_a_package_by_itself(tmp_path: Path) -> None:
    tree(
        tmp_path,
        setup="",
        lib=FSDP + "wrap = fully_shard\n",
        venv__one____init__="",
        venv__one__a="from lib import wrap\nwrap(m)\nfrom two import b\nb.wrap(m)\n",
        venv__two____init__="",
        venv__two__b=FSDP + "wrap = fully_shard\n",
    )
    (tmp_path / "venv").rename(tmp_path / "site-packages")
    found = [*tmp_path.rglob("*.py")]
    assert {path.name for path in relevant(found)} == {"lib.py", "b.py"}


def test_overrides_stand_for_the_file(tmp_path: Path) -> None:
    tree(tmp_path, a="x = 1\n")
    files = [File(tmp_path / "a.py")]
    assert select(files).paths == []
    assert select(files, overrides={tmp_path / "a.py": FSDP}).paths == [tmp_path / "a.py"]


def test_only_named_files_are_checked_for_being_python(tmp_path: Path) -> None:
    tree(tmp_path, broken="def f(:\n", fine="x = 1\n")
    path = tmp_path / "broken.py"
    assert select([File(path)]).problems == []
    selection = select([File(path, named=True)])
    assert selection.paths == []
    assert [problem.line for problem in selection.problems] == [1]


def test_unreadable_files_are_problems(tmp_path: Path) -> None:
    tree(tmp_path, a=FSDP)
    selection = select([File(tmp_path / "gone.py"), File(tmp_path / "a.py")])
    assert [path.name for path in selection.paths] == ["a.py"]
    assert [problem.message for problem in selection.problems] == ["no such file or folder"]


def test_a_whole_project_without_fsdp_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, a="import b\n", b="import os\n", setup="")
    reads: list[str] = []
    real = of_imports.read_bytes
    monkeypatch.setattr(
        of_imports, "read_bytes", lambda path: (reads.append(path.name), real(path))[1]
    )
    assert chosen(tmp_path) == set()
    assert sorted(reads) == ["a.py", "b.py", "setup.py"]


def test_a_clean_run_imports_neither_the_parser_nor_torch(tmp_path: Path) -> None:
    tree(tmp_path, a="import torch\n", b="import a\n")
    program = """
import sys
from fsdplint.cli.main import main
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


def test_settings_belong_to_what_may_be_launched_with_them(tmp_path: Path) -> None:
    tree(
        tmp_path,
        one=FSDP + "from accelerate import Accelerator\n",
        two=FSDP,
        three="from accelerate import FullyShardedDataParallelPlugin\n",
        setup="",
    )
    (tmp_path / "a.yaml").write_text("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n")
    files, _ = discover([tmp_path])
    groups = select(files, searched=[tmp_path]).groups
    assert [[path.name for path in group] for group in groups] == [
        ["two.py"],
        ["one.py", "three.py", "a.yaml"],
    ]
