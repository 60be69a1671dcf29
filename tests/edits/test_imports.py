"""How a library's name is written in a file, and where its import goes or is taken away."""

from __future__ import annotations

import pytest
from planned_imports import FSDP, SHARD, STATE, planned
from rewriting import edited, name, source_of

from fsdplint.diagnostics.finding import Import
from fsdplint.edits.imports.plan import plan
from fsdplint.edits.imports.spelling import name_for
from fsdplint.syntax.bindings import bindings_of

# file with HERE where the name is used; what is wanted; how it is written; whether imported anew
NAMES = {
    "nothing there": ("import torch\nHERE\n", SHARD, "fully_shard", True),
    "there": (f"from {FSDP} import fully_shard\nHERE\n", SHARD, "fully_shard", False),
    "there by another name": (f"from {FSDP} import fully_shard as fs\nHERE\n", SHARD, "fs", False),
    "there from where it used to be": (
        "from torch.distributed._composable.fsdp import fully_shard\nHERE\n",
        SHARD,
        "fully_shard",
        False,
    ),
    "there, in parentheses with comments": (
        f"from {FSDP} import (  # a\n    # b\n    fully_shard,  # c\n)\nHERE\n",
        SHARD,
        "fully_shard",
        False,
    ),
    "only after the use": (f"HERE\nfrom {FSDP} import fully_shard\n", SHARD, "fully_shard", True),
    "after the function that uses it": (
        f"def f(): HERE\nfrom {FSDP} import fully_shard\n",
        SHARD,
        "fully_shard",
        False,
    ),
    "one of two modules": (
        f"try:\n    from {FSDP} import fully_shard\nexcept ImportError:\n"
        "    from torch.distributed._composable.fsdp import fully_shard\nHERE\n",
        SHARD,
        "fully_shard",
        False,
    ),
    "or None": (
        f"try:\n    from {FSDP} import fully_shard\nexcept ImportError:\n    fully_shard = None\n"
        "HERE\n",
        SHARD,
        "fully_shard",
        False,
    ),
    "on both branches": (
        f"if new:\n    from {FSDP} import fully_shard\nelse:\n"
        "    from torch.distributed._composable.fsdp import fully_shard\nHERE\n",
        SHARD,
        "fully_shard",
        False,
    ),
    "on both branches, later on the one of the use": (
        f"if new:\n    from {FSDP} import fully_shard\nelse:\n    HERE\n"
        f"    from {FSDP} import fully_shard\n",
        SHARD,
        "fully_shard",
        True,
    ),
    "on one branch": (
        f"if new:\n    from {FSDP} import fully_shard\nHERE\n",
        SHARD,
        "fully_shard",
        True,
    ),
    "on the branch of the use": (
        f"if new:\n    from {FSDP} import fully_shard\n    HERE\n",
        SHARD,
        "fully_shard",
        False,
    ),
    "for type checking only": (
        f"if TYPE_CHECKING:\n    from {FSDP} import fully_shard\nHERE\n",
        SHARD,
        "fully_shard",
        True,
    ),
    "rebound": (
        f"from {FSDP} import fully_shard\nfully_shard = wrap(fully_shard)\nHERE\n",
        SHARD,
        "torch_fully_shard",
        True,
    ),
    "the user's function": ("def fully_shard(): 1\nHERE\n", SHARD, "torch_fully_shard", True),
    "the user's module": ("from my import fully_shard\nHERE\n", SHARD, "torch_fully_shard", True),
    "the user's class, later": (
        "def f(): HERE\nclass fully_shard: pass\n",
        SHARD,
        "torch_fully_shard",
        True,
    ),
    "both clash": (
        "fully_shard = torch_fully_shard = 1\nHERE\n",
        SHARD,
        "torch_fully_shard_2",
        True,
    ),
    "hidden by a parameter": (
        f"from {FSDP} import fully_shard\ndef f(fully_shard): HERE\n",
        SHARD,
        "torch_fully_shard",
        True,
    ),
    "hidden by a parameter, elsewhere": (
        f"from {FSDP} import fully_shard\ndef f(fully_shard): x\ndef g(): HERE\n",
        SHARD,
        "fully_shard",
        False,
    ),
    "hidden by a loop in a comprehension": (
        "[HERE for fully_shard in x]\n",
        SHARD,
        "torch_fully_shard",
        True,
    ),
    "a class body is not seen from its methods": (
        f"class A:\n    from {FSDP} import fully_shard\n    def f(self): HERE\n",
        SHARD,
        "fully_shard",
        True,
    ),
    "local": (
        f"def f():\n    from {FSDP} import fully_shard\n    def g(): HERE\n",
        SHARD,
        "fully_shard",
        False,
    ),
    "local, elsewhere": (
        f"def f():\n    from {FSDP} import fully_shard\ndef g(): HERE\n",
        SHARD,
        "fully_shard",
        True,
    ),
    "local, too late": (
        f"def f():\n    HERE\n    from {FSDP} import fully_shard\n",
        SHARD,
        "fully_shard",
        True,
    ),
    "local, too late, and something else": (
        f"def f():\n    HERE\n    from {FSDP} import fully_shard\n    fully_shard = 1\n",
        SHARD,
        "torch_fully_shard",
        True,
    ),
    "local, of something else": (
        "def f():\n    from my import fully_shard\n    HERE\n",
        SHARD,
        "torch_fully_shard",
        True,
    ),
    "a class of the user's": (
        "class MixedPrecisionPolicy: pass\nHERE\n",
        (FSDP, "MixedPrecisionPolicy"),
        "TorchMixedPrecisionPolicy",
        True,
    ),
    "a foreign star": ("from my import *\nfully_shard(HERE)\n", SHARD, "torch_fully_shard", True),
    "its own star": (f"from {FSDP} import *\nfully_shard(HERE)\n", SHARD, "fully_shard", True),
    "a star that does not matter": ("from my import *\nHERE\n", SHARD, "fully_shard", True),
    "through the module": (f"import {FSDP} as fs\nHERE\n", SHARD, "fs.fully_shard", False),
    "through the module, from": (
        "from torch.distributed import fsdp\nHERE\n",
        SHARD,
        "fsdp.fully_shard",
        False,
    ),
    "the name itself rather than through the module": (
        f"from {FSDP} import fully_shard\nimport {FSDP} as fs\nHERE\n",
        SHARD,
        "fully_shard",
        False,
    ),
    "a relative module of that name": (
        "from .torch import fully_shard as f\nHERE\n",
        ("torch", "fully_shard"),
        "fully_shard",
        True,
    ),
    "module": ("import torch\nHERE\n", ("torch", None), "torch", False),
    "module, by a submodule": ("import torch.nn\nHERE\n", ("torch", None), "torch", False),
    "module, by another name": ("import torch as th\nHERE\n", ("torch", None), "th", False),
    "module, not by a named submodule": (
        "import torch.nn as nn\nHERE\n",
        ("torch", None),
        "torch",
        True,
    ),
    "submodule": ("import torch\nHERE\n", ("torch.nn", None), "torch.nn", True),
    "submodule, by another name": (
        "import torch.distributed as dist\nHERE\n",
        ("torch.distributed", None),
        "dist",
        False,
    ),
    "module hidden": (
        "import itertools\ndef f(itertools): HERE\n",
        ("itertools", None),
        "itertools_module",
        True,
    ),
}


@pytest.mark.parametrize(("text", "wanted", "written", "new"), NAMES.values(), ids=list(NAMES))
def test_names(text: str, wanted: tuple[str, str | None], written: str, new: bool) -> None:
    source = source_of(text)
    result, needed = name_for(source, *wanted, name(source, "HERE"))
    assert (result, needed is not None) == (written, new)
    if needed is not None:
        assert (needed.module, needed.name) == wanted
        assert needed.alias == (None if written in (wanted[1], wanted[0]) else written)


def test_two_imports_of_one_name_do_not_clash() -> None:
    source = source_of("HERE\n")
    planned = [Import("a.b", "thing")]
    assert name_for(source, "c.d", "thing", None, planned)[0] == "c_thing"
    assert name_for(source, "a.b", "thing", None, planned)[0] == "thing"
    planned += [Import("torch.nn")]
    assert name_for(source, "torch", None, None, planned)[0] == "torch"


def test_an_existing_statement_is_extended_in_order() -> None:
    text = f"import torch\nfrom {FSDP} import CPUOffload, MixedPrecision, wrap  # c\nHERE\n"
    assert planned(text, SHARD) == text.replace(", wrap", ", fully_shard, wrap")


def test_an_unsorted_statement_is_extended_at_its_end() -> None:
    text = f"from {FSDP} import wrap, MixedPrecision, CPUOffload\nHERE\n"
    assert planned(text, SHARD) == text.replace("CPUOffload", "CPUOffload, fully_shard")


def test_a_long_line_becomes_several() -> None:
    names = [f"{letter}{'x' * 20}" for letter in "ABC"]
    text = f"from {FSDP} import {', '.join(names)}  # c\nHERE\n"
    expected = f"from {FSDP} import (\n    " + ",\n    ".join([*names, "fully_shard"])
    assert planned(text, SHARD) == expected + ",\n)  # c\nHERE\n"


def test_names_on_lines_of_their_own() -> None:
    text = (
        f"from {FSDP} import (  # here\r\n\tCPUOffload,  # one\r\n\t# below\r\n\twrap,  # two\r\n)"
        "\r\nHERE\r\n"
    )
    expected = text.replace("\t# below", "\tfully_shard,\r\n\t# below")
    assert planned(text, SHARD) == expected
    # The comment above the name that goes is not the name's alone.
    assert planned(text, SHARD, without="wrap") == expected.replace("\twrap,  # two\r\n", "")


def test_no_trailing_comma_stays_none() -> None:
    text = f"from {FSDP} import (\n    CPUOffload,\n    MixedPrecision  # c\n)\nHERE\n"
    expected = text.replace("MixedPrecision  # c", "MixedPrecision,  # c\n    fully_shard")
    assert planned(text, SHARD) == expected


def test_names_that_fill_lines() -> None:
    text = f"from {FSDP} import (CPUOffload, FSDP,\n    MixedPrecision, wrap)\nHERE\n"
    expected = text.replace(", wrap", ", fully_shard, wrap")
    assert planned(text, SHARD) == expected
    assert planned(text, without="FSDP MixedPrecision") == (
        f"from {FSDP} import (CPUOffload,\n    wrap)\nHERE\n"
    )


def test_backslash_lines() -> None:
    text = f"from {FSDP} import CPUOffload, \\\n    FSDP\nHERE\n"
    assert planned(text, SHARD, without="FSDP") == text.replace("FSDP\nHERE", "fully_shard\nHERE")


@pytest.mark.parametrize(
    ("names", "without", "left"),
    [
        ("a", "a", ""),
        ("a, b", "a", "b"),
        ("a, b", "b", "a"),
        ("a as x, b,c", "x", "b,c"),
        ("a,b , c", "b", "a, c"),
        ("(a, b)", "b", "a"),
        ("(a, b,)", "b", "a"),
    ],
)
def test_names_taken_away(names: str, without: str, left: str) -> None:
    text = f"x\nfrom m import {names}\ny\n"
    expected = f"x\nfrom m import {left}\ny\n" if left else "x\ny\n"
    assert planned(text, without=without) == expected


def test_modules_taken_away() -> None:
    assert planned("import a, b as c, d\n", without="c") == "import a, d\n"
    assert planned("import a; import b\n", without="a") == "import b\n"
    assert planned("import a.b, c\n", without="a.b") == "import c\n"


def test_a_comment_goes_with_its_import_only() -> None:
    text = "# of all\nimport a  # of a\nimport b  # of b\n"
    assert planned(text, without="a") == "# of all\nimport b  # of b\n"


HEADINGS = {
    "its own": ("import os\n\n# a\n# b\nimport x\n\nimport y\n", "import os\n\nimport y\n"),
    "of two": ("import os\n\n\n# a\nimport x\nimport z\n\nuse()\n", "import os\n\nuse()\n"),
    "of more": ("import os\n\n# a\nimport x\nimport y\n", "import os\n\n# a\nimport y\n"),
    "of the file": ("# a\nimport x\n\nimport y\n", "# a\n\nimport y\n"),
    "for tools": (
        "import os\n\n# isort: off\nimport x\n\nimport y\n",
        "import os\n\n# isort: off\n\nimport y\n",
    ),
}


@pytest.mark.parametrize(("text", "left"), HEADINGS.values(), ids=HEADINGS)
def test_a_heading_goes_with_its_imports(text: str, left: str) -> None:
    source = source_of(text)
    removed = [one for one in bindings_of(source).module.imports if one.local in ("x", "z")]
    assert edited(text, plan(source, [], removed)) == left


def test_replaced_name_by_name() -> None:
    text = f"import torch\nfrom {FSDP} import FullyShardedDataParallel as FSDP  # c\nHERE\n"
    expected = f"import torch\nfrom {FSDP} import fully_shard  # c\nHERE\n"
    assert planned(text, SHARD, without="FSDP") == expected


def test_one_statement_a_name() -> None:
    text = f"from {FSDP} import CPUOffload\nfrom {FSDP} import wrap\nHERE\n"
    lines = f"from {FSDP} import MixedPrecision\nfrom {FSDP} import fully_shard\n"
    result = planned(text, SHARD, (FSDP, "MixedPrecision"))
    assert result == text.replace("HERE", lines + "HERE")


def test_a_renaming_statement_is_joined_last() -> None:
    text = f"from {FSDP} import CPUOffload\nfrom {FSDP} import X as Y\nHERE\n"
    assert planned(text, SHARD) == text.replace("CPUOffload", "CPUOffload, fully_shard")
    text = f"from {FSDP} import X as Y\nHERE\n"
    assert planned(text, SHARD) == text.replace("X as Y", "X as Y, fully_shard")


def test_a_line_that_names_fill_is_filled_up() -> None:
    text = f"from {FSDP} import A, B, \\\n    C\nHERE\n"
    assert planned(text, SHARD) == text.replace("C\n", "C, fully_shard\n")
    text = text.replace("C", "C" * 80)
    expected = text.replace("C\n", "C, \\\n    fully_shard\n")
    assert planned(text, SHARD) == expected


def test_an_import_in_a_one_line_suite() -> None:
    text = f"if torch: from {FSDP} import FSDP\ndef f(): FSDP(HERE)\n"
    assert planned(text, SHARD) == text.replace("import FSDP", "import FSDP, fully_shard")
    line = f"\n    from {STATE[0]} import {STATE[1]}\n"
    expected = text.replace("torch: ", "torch:\n    ").replace("FSDP\ndef", f"FSDP{line}def")
    assert planned(text, STATE) == expected
    text = text.replace("    ", "")
    assert planned(text, without="FSDP") == text.replace(f"from {FSDP} import FSDP", "pass")


def test_one_name_that_is_left_needs_no_brackets() -> None:
    text = "from torch.distributed.fsdp import (\n    FSDP,\n    fully_shard,\n)\n"
    assert planned(text, without="FSDP") == "from torch.distributed.fsdp import fully_shard\n"


def test_the_brackets_stay_around_a_comment() -> None:
    text = "from torch.distributed.fsdp import (\n    FSDP,\n    fully_shard,  # the new one\n)\n"
    assert "(\n    fully_shard,  # the new one\n)" in planned(text, without="FSDP")
