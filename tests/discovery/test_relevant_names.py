"""Which names of a file can have to do with FSDP."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from fsdplint import check
from fsdplint.discovery.relevance import RelevantCode
from fsdplint.interpreter import load, unreached_functions
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import uses, walk

IMPORT = "from torch.distributed.fsdp import fully_shard\n"


def concerned(root: Path, text: str, **others: str) -> frozenset[str]:
    for name, other in others.items():
        (root / f"{name}.py").write_text(other)
    path = root / "train.py"
    path.write_text(text)
    return RelevantCode.among([path], {}).names(Source(str(path), text)).bound


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def a(m): fully_shard(m)\ndef b(m): a(m)\ndef c(m): m.train()\n", {"a", "b"}),
        (
            "class A:\n    def f(self, m): fully_shard(m)\nclass B(A): ...\nclass C: ...\n",
            {"A", "B"},
        ),
        ("if x:\n    def a(m): fully_shard(m)\nelse:\n    def b(m): ...\n", {"a"}),
        ("@cache\ndef a(m): fully_shard(m)\ndef b(): ...\n", {"a"}),
        (
            "table = {}\ntable['f'] = fully_shard\ndef a(m): table['f'](m)\ndef b(): ...\n",
            {"a", "table"},
        ),
        ("def a(m): return isinstance(m, FSDPModule)\ndef b(m): a(m)\n", {"a"}),
        ("use_fsdp = True\ndef a(): return use_fsdp\n", set()),
    ],
)
def test_names(tmp_path: Path, text: str, names: set[str]) -> None:
    assert concerned(tmp_path, text) == names


def test_names_of_other_files(tmp_path: Path) -> None:
    found = concerned(
        tmp_path,
        "from lib import shard as s\nimport lib\ndef a(m): s(m)\ndef b(m): lib.shard(m)\n"
        "def c(m): lib.other(m)\n",
        lib=IMPORT + "def shard(m): fully_shard(m)\ndef other(m): ...\n",
    )
    assert found == {"a", "b", "s"}


@pytest.mark.parametrize(
    ("package", "names"),
    [
        ("from .shard import shard\n", {"a", "shard"}),
        ("from .shard import apply as shard\n", {"a", "shard"}),
        ("from . import shard\n", set()),
        ("", set()),
    ],
)
def test_a_function_with_the_name_of_its_module(
    tmp_path: Path, package: str, names: set[str]
) -> None:
    """`from package import name` imports what the package binds, and else the module."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text(package)
    (tmp_path / "package/shard.py").write_text(
        IMPORT + "def shard(m): fully_shard(m)\napply = shard\n"
    )
    assert concerned(tmp_path, "from package import shard\ndef a(m): shard(m)\n") == names


def test_a_text_that_changed_is_looked_at_anew(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(IMPORT + "def a(m): fully_shard(m)\n")
    relevant = RelevantCode.among([path], {})
    assert relevant.names(Source(str(path), "def b(m): fully_shard(m)\n")).bound == {"b"}


LIB = (
    "from torch.distributed.fsdp import fully_shard\n"
    "def prepare(model):\n    fully_shard(model)\n    return model\n"
)
UNREACHED = {
    "a function": "def run(model, x):\n    model = lib.prepare(model)\n    model.forward(x)\n",
    "a method": (
        "class Runner:\n    def __init__(self, model): self.model = model\n"
        "    def run(self, x):\n        model = lib.prepare(self.model)\n"
        "        model.forward(x)\n"
    ),
    "by the way of a name of the file's own": (
        "made = lib.prepare\nclass Runner:\n    def run(self, model, x):\n"
        "        made(model).forward(x)\n"
    ),
}


@pytest.mark.parametrize("text", UNREACHED.values(), ids=UNREACHED)
def test_what_nobody_calls_is_looked_at_where_it_uses_what_has_to_do_with_fsdp(
    tmp_path: Path, text: str
) -> None:
    """Whatever the words in it."""
    (tmp_path / "lib.py").write_text(LIB)
    path = tmp_path / "use.py"
    path.write_text("import lib\n" + text)
    found = {finding.code for finding in check([path]).findings}
    assert "FSDP101" in found


def test_a_method_of_the_same_name_is_no_use(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text(LIB)
    names = RelevantCode.among([tmp_path / "lib.py"], {})
    source = Source(str(tmp_path / "lib.py"), LIB + "class A:\n    def prepare(self): ...\n")
    carriers = names.names(source).tainted
    (method,) = [node for node in walk(source) if isinstance(node, cst.FunctionDef)][1:]
    assert "prepare" in carriers
    assert not uses(method, carriers)


def test_what_nobody_calls_and_speaks_of_fsdp_has_a_bound_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreached_functions, "MAX_OTHERS_STEPS", 0)
    path = tmp_path / "lib.py"
    path.write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nimport torch\n"
        "def plain(model): return torch.optim.AdamW(model.parameters())\n"
        "def wrapped(model): return FSDP(model)\n"
    )
    program = load([path])
    events = [type(event).__name__ for trace in program.traces for event in trace.events]
    assert "Wrapped" in events
    assert "OptimizerBuilt" not in events
    (cut,) = program.cuts.values()
    assert "`plain` and others" in cut.reason


def test_what_is_not_on_disk_leads_on_as_well(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text(IMPORT + "def shard(m): fully_shard(m)\n")
    path = tmp_path / "unsaved.py"
    text = IMPORT + "from lib import shard\n"
    program = load([path], {path: text})
    assert str(tmp_path / "lib.py") in program.sources


def test_what_is_read_for_code_that_nothing_reaches(tmp_path: Path) -> None:
    """What may get a model by its name, but not what only that imports."""
    (tmp_path / "parts").mkdir()
    for name, text in {
        "train": IMPORT + "def main(m):\n    fully_shard(m)\n    import parts, other\n"
        "    from parts import set_up_fsdp\n",
        "parts/__init__": "from .recompute import set_up_fsdp\n",
        "parts/recompute": "from more import a\ndef set_up_fsdp(m): return m\n",
        "more": "# for fsdp\ndef a(m): return m\n",
        "other": "def b(m): return m\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    read = load([tmp_path / "train.py"]).sources
    assert {Path(path).stem for path in read} == {"train", "__init__", "recompute"}
