"""What of its text a program can do without."""

from __future__ import annotations

import pytest

from fsdplint.syntax.version_guards import asks_for_version, is_of_fsdp, optional_lines, tried_lines

TEXT = """\
import a
try:
    import b
except ImportError:
    import c
finally:
    import d
if torch.__version__ >= "2.6":
    import e
else:
    import f
if rank == 0:
    import g
x = m.new() if hasattr(m, "new") else m.old()
"""


def test_lines_that_a_program_can_do_without() -> None:
    assert optional_lines(TEXT) == {3, 4, 5, 9, 11, 14}
    assert tried_lines(TEXT) == {3}
    assert optional_lines("import (") == frozenset()
    assert tried_lines("import (") == frozenset()


@pytest.mark.parametrize(
    ("test", "asks"),
    [
        ("version.parse(torch.__version__) >= version.parse('2.6')", True),
        ("TORCH_2_6", True),
        ("_TORCH_GREATER_EQUAL_2_3", True),
        ("is_torch_greater_or_equal('2.6')", True),
        ("torch_at_least(2, 6)", True),
        ("TORCH_GE_2_4", True),
        ("typing.TYPE_CHECKING", True),
        ("rank == 0", False),
        ("args.torch_fsdp2", False),
        ("torch.cuda.device_count() > 1", False),
        ("torch_gather_targets", False),
    ],
)
def test_tests_of_the_version(test: str, asks: bool) -> None:
    assert asks_for_version(test, "") is asks


VERSIONED = """\
import torch

MODERN = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)
flag = MODERN
sharded = args.fsdp


def modern():
    return flag


def configured():
    return sharded
"""


@pytest.mark.parametrize(
    ("test", "asks"),
    [
        ("MODERN", True),
        ("not flag", True),
        ("modern()", True),
        ("configured()", False),
        ("sharded", False),
    ],
)
def test_variables_and_functions_that_test_the_version(test: str, asks: bool) -> None:
    assert asks_for_version(test, VERSIONED) is asks


def test_packages() -> None:
    assert is_of_fsdp("torch.distributed.fsdp.api")
    assert is_of_fsdp("torch.distributed._composable")
    assert not is_of_fsdp("torch.distributed._composable_state")
    assert not is_of_fsdp("torch.distributed")
