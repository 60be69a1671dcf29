"""Tests of the installed torch: rules do not look at code for a torch without FSDP2."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.engine.check import check
from fsdplint.rules.fsdp133_wrong_wrapper_argument import WrongWrapperArgument
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
def test_code_for_an_old_torch_is_marked(tmp_path: Path, test: str, named: bool) -> None:
    head = HEAD + (f"is_new = {test}\n" if named else "")
    body = f"if {'is_new' if named else test}:\n    fully_shard(model)\nelse:\n    FSDP(model)\n"
    found = program(tmp_path, head + body)
    new, old = list(events(found, Sharded)), list(events(found, Wrapped))
    assert new and not any(guard.before_fsdp2 for event in new for guard in event.guards)
    assert old and all(any(guard.before_fsdp2 for guard in event.guards) for event in old)


@pytest.mark.parametrize("test", NEW)
def test_no_rule_is_about_an_old_torch(tmp_path: Path, test: str) -> None:
    body = f"if {test}:\n    FSDP(model)\nelse:\n    FSDP(model, auto_wrap=True)\n"
    found = program(tmp_path, HEAD + body)
    assert [one.rule.code for one in check(found, [WrongWrapperArgument()])] == []
    both = body.replace("FSDP(model)", "FSDP(model, auto_wrap=True)")
    assert len(check(program(tmp_path, HEAD + both), [WrongWrapperArgument()])) == 1


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
