"""How a library's name is written in a file, and where its import goes or is taken away."""

from __future__ import annotations

import pytest
from rewriting import edited, name, source_of

from fsdplint.diagnostics.finding import Import
from fsdplint.edits.imports.plan import plan
from fsdplint.edits.imports.spelling import name_for
from fsdplint.edits.rewrite import in_order
from fsdplint.syntax.bindings import bindings_of

FSDP = "torch.distributed.fsdp"
SHARD = (FSDP, "fully_shard")
STATE = ("torch.distributed.checkpoint.state_dict", "get_model_state_dict")

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


def planned(text: str, *wants: tuple[str, str | None], without: str = "") -> str:
    """The file after it has got the imports, at each HERE, and lost others."""
    source = source_of(text)
    needed: list[Import] = []
    for module, wanted in wants:
        at = name(source, "HERE") if "HERE" in text else None
        _, one = name_for(source, module, wanted, at, needed)
        needed += [one] if one is not None else []
    gone = [x for x in bindings_of(source).imports() if x.spelling in without.split()]
    return edited(text, in_order(plan(source, needed, gone)))


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


def test_a_new_line_is_sorted_in() -> None:
    text = (
        "import os\n\nimport torch\nimport torch.nn as nn\n"
        "from torch.distributed.device_mesh import x\nfrom torch.utils.data import y\n\n"
        "from my import z\n\nHERE\n"
    )
    line = "from torch.distributed.fsdp import fully_shard\n"
    assert planned(text, SHARD) == text.replace("from torch.utils", line + "from torch.utils")


def test_a_new_line_comes_after_its_package() -> None:
    text = "import os\nimport torch\nimport numpy\n\nHERE\n"
    line = "from torch.distributed.fsdp import fully_shard\n"
    assert planned(text, SHARD) == text.replace("import numpy", line + "import numpy")


def test_the_standard_library_has_its_group() -> None:
    text = "import os\nimport sys\n\nimport torch\n\nHERE\n"
    expected = text.replace("import os\n", "import itertools\nimport os\n")
    assert planned(text, ("itertools", None)) == expected
    text = "import torch\n\nHERE\n"
    assert planned(text, ("itertools", None)) == "import itertools\n\n" + text


def test_lines_for_several_modules() -> None:
    text = "import torch\n\nHERE\n"
    lines = f"from {STATE[0]} import {STATE[1]}\nfrom {FSDP} import fully_shard\n"
    assert planned(text, SHARD, STATE) == text.replace("torch\n", "torch\n" + lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""Doc."""\n\nHERE\n', '"""Doc."""\n\nLINE\n\nHERE\n'),
        ('"""Doc."""\nHERE\n', '"""Doc."""\n\nLINE\n\nHERE\n'),
        ("#!/bin/x\n# licence\n\nHERE", "#!/bin/x\n# licence\n\nLINE\n\nHERE"),
        (
            '"""Doc."""\nfrom __future__ import annotations\n\nHERE\n',
            '"""Doc."""\nfrom __future__ import annotations\n\nLINE\n\nHERE\n',
        ),
        ("from .my import x\nHERE\n", "from .my import x\n\nLINE\n\nHERE\n"),
        ("import numpy\r\nHERE\r\n", "import numpy\r\nLINE\r\nHERE\r\n"),
        ("import numpy; x = 1\nHERE\n", "LINE\n\nimport numpy; x = 1\nHERE\n"),
    ],
)
def test_files_without_imports_of_the_package(text: str, expected: str) -> None:
    line = f"from {FSDP} import fully_shard"
    assert planned(text, SHARD) == expected.replace("LINE", line)


def test_a_lazy_file_stays_lazy() -> None:
    text = 'import os\ndef f():\n  "doc"\n  import torch\n  x\ndef g(a):\n  "doc"\n  # c\n  HERE\n'
    line = f"from {FSDP} import fully_shard\n"
    assert planned(text, SHARD) == text.replace('"doc"\n  # c', f'"doc"\n  {line}  # c')
    text = text.replace("HERE", "1").replace("  x\n", "  HERE\n")
    assert planned(text, SHARD) == text.replace("torch\n", "torch\n  " + line)


def test_an_import_that_is_tried_stays_tried() -> None:
    text = "try:\n    import torch\nexcept ImportError:\n    torch = None\n\nHERE\n"
    line = f"    from {FSDP} import fully_shard\n"
    assert planned(text, SHARD) == text.replace("torch\nexcept", "torch\n" + line + "except")
    text = f"import torch\ntry:\n    from {FSDP} import A\nexcept ImportError:\n    A = 1\n\nHERE\n"
    assert planned(text, SHARD) == text.replace("A\nexcept", "A, fully_shard\nexcept")


def test_an_import_that_tests_for_a_module_stays() -> None:
    text = "try:\n    import a\nexcept ImportError:\n    raise\n"
    assert planned(text, without="a") == text
    text = "try:\n    import a\n    import b\nexcept ImportError:\n    raise\n"
    assert planned(text, without="a") == text.replace("    import a\n", "")


def test_type_checking_block_goes_with_its_import() -> None:
    text = "x\nif TYPE_CHECKING:\n    from a import b\ny\n"
    assert planned(text, without="b") == "x\ny\n"
    assert planned("def f():\n    import a\n", without="a") == "def f():\n    pass\n"


def test_an_import_comes_before_its_use() -> None:
    text = f"import torch\nHERE\nimport torch.nn\nfrom {FSDP} import A\n"
    line = f"from {FSDP} import fully_shard\n"
    assert planned(text, SHARD) == text.replace("HERE", line + "HERE")


def test_an_import_has_the_conditions_of_the_name_it_stands_for() -> None:
    text = (
        "import torch\nif torch.distributed.is_available():\n"
        f"    from {FSDP} import FSDP\n\ndef f(): model = FSDP(HERE)\n"
    )
    assert planned(text, SHARD) == text.replace("import FSDP", "import FSDP, fully_shard")
    assert planned(text, SHARD, without="FSDP") == text.replace("import FSDP", "import fully_shard")
    line = f"    from {STATE[0]} import {STATE[1]}\n"
    assert planned(text, STATE) == text.replace("import FSDP\n", "import FSDP\n" + line)
    without = text.replace(f"    from {FSDP} import FSDP\n", line)
    assert planned(text, STATE, without="FSDP") == without


def test_an_import_comes_before_a_use_on_the_line_of_another_import() -> None:
    text = "def f():\n    x = 1\n    import torch; torch.save(HERE)\n"
    line = f"    from {STATE[0]} import {STATE[1]}\n"
    assert planned(text, STATE) == text.replace("    import", line + "    import")


def test_an_import_comes_before_the_call_of_the_function_with_its_use() -> None:
    text = f"import os\ndef f():\n    HERE\ndef g(): f()\ng()\nfrom {FSDP} import A\n"
    line = f"\nfrom {FSDP} import fully_shard\n\n"
    assert planned(text, SHARD) == text.replace("import os\n", "import os\n" + line)
    text = text.replace("\ng()", "")
    assert planned(text, SHARD) == text.replace("import A", "import A, fully_shard")


def test_no_branch_of_two_gets_an_import_that_both_need() -> None:
    text = (
        "def f(c):\n    if c:\n        import torch\n    else:\n        import torch\n"
        "    torch.save(HERE)\n"
    )
    line = f"from {FSDP} import fully_shard\n"
    assert planned(text, SHARD) == text.replace("    if c", f"    {line}    if c")


def test_a_lazy_import_of_what_the_file_imports_anyway_is_no_reason_for_another() -> None:
    text = f"import torch\ndef f():\n    from {FSDP} import FSDP\n    FSDP(HERE)\n"
    line = f"from {STATE[0]} import {STATE[1]}\n"
    assert planned(text, STATE) == text.replace("import torch\n", "import torch\n" + line)


def test_a_lazy_import_stays_where_only_its_module_is_lazy() -> None:
    text = f"import torch\ndef f():\n    from {FSDP} import FSDP\n    FSDP(HERE)\n"
    after = text.replace("import FSDP", "import FSDP, fully_shard")
    assert planned(text, (FSDP, "fully_shard")) == after


def test_branches_import_for_themselves() -> None:
    text = (
        "import torch\n\ndef f(a):\n    if a:\n        HERE\n    else:\n"
        f"        from {FSDP} import fully_shard\n        x\n"
    )
    line = f"        from {FSDP} import fully_shard\n"
    assert planned(text, SHARD) == text.replace("        HERE", line + "        HERE")


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
