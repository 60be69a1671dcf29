"""Tests of the installed torch: those for a torch without FSDP2 are decided."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Sharded, Wrapped

HEAD = """
from packaging import version
from packaging.version import Version, parse
from accelerate.utils import is_torch_version
model = Net()
"""

NEW = [
    'version.parse(torch.__version__) >= version.parse("2.1.0")',
    'version.parse(torch.__version__) > parse("1.13")',
    'not Version(torch.__version__) < Version("2.0")',
    'Version("2.0.1") <= version.parse(torch.__version__)',
    'torch.__version__ >= "2.1"',
    'is_torch_version(">=", "2.1.0")',
    'not is_torch_version("<", "1.12")',
]


@pytest.mark.parametrize("test", NEW)
@pytest.mark.parametrize("named", [False, True])
def test_an_old_torch_is_not_assumed(tmp_path: Path, test: str, named: bool) -> None:
    head = HEAD + (f"is_new = {test}\n" if named else "")
    body = f"if {'is_new' if named else test}:\n    fully_shard(model)\nelse:\n    FSDP(model)\n"
    found = program(tmp_path, head + body)
    assert list(events(found, Sharded)) and not list(events(found, Wrapped))
    assert len(found.traces) == 1


OPEN = [
    'version.parse(torch.__version__) >= version.parse("2.4")',
    'version.parse(torch.__version__) < version.parse("2.6.0")',
    'version.parse(torch.__version__) == version.parse("2.1.0")',
    'version.parse(other.__version__) >= version.parse("2.1.0")',
    "version.parse(torch.__version__) >= version.parse(wanted())",
    'is_torch_version(">=", "2.6")',
    'torch.__version__ >= "2.5"',
]


@pytest.mark.parametrize("test", OPEN)
def test_both_sides_of_other_tests_are_followed(tmp_path: Path, test: str) -> None:
    body = f"import other\nfrom other import wanted\nif {test}:\n    fully_shard(model)\nelse:\n    FSDP(model)\n"
    found = program(tmp_path, HEAD + body)
    assert list(events(found, Sharded)) and list(events(found, Wrapped))
