"""Where the statement of a new import stands."""

from __future__ import annotations

import pytest
from planned_imports import FSDP, SHARD, STATE, planned


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


def test_beside_the_modules_of_the_same_subpackage() -> None:
    text = (
        "import torch\nfrom torch.distributed.fsdp import x\nfrom my import z\n"
        "from torch.utils.tensorboard import y\n\nHERE\n"
    )
    line = f"from {STATE[0]} import {STATE[1]}\n"
    old = "from torch.distributed.fsdp"
    assert planned(text, STATE) == text.replace(old, line + old)


def test_not_below_a_comment_on_other_imports() -> None:
    text = (
        "import torch\nimport torch.distributed as dist\n\n# policies\n"
        "from torch.distributed.fsdp.wrap import x\n\n# data\n"
        "from torch.utils.data import y\n\nHERE\n"
    )
    line = f"from {STATE[0]} import {STATE[1]}\n"
    old = "import torch.distributed as dist\n"
    assert planned(text, STATE) == text.replace(old, old + line)
