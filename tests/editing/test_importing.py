"""What of its text a program can do without."""

from __future__ import annotations

from fsdplint.editing.importing import asks_for_version, is_of_fsdp, optional_lines, tried_lines

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


def test_tests_of_the_version() -> None:
    assert asks_for_version("version.parse(torch.__version__) >= version.parse('2.6')")
    assert asks_for_version("TORCH_2_6")
    assert asks_for_version("typing.TYPE_CHECKING")
    assert not asks_for_version("rank == 0")


def test_packages() -> None:
    assert is_of_fsdp("torch.distributed.fsdp.api")
    assert is_of_fsdp("torch.distributed._composable")
    assert not is_of_fsdp("torch.distributed._composable_state")
    assert not is_of_fsdp("torch.distributed")
