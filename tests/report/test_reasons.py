"""The sentence of a report that says why a finding is bad."""

from __future__ import annotations

import pytest

from fsdplint.registry.rule import Rule
from fsdplint.registry.rules import own_rules
from fsdplint.report.reasons import reason

CASES = {
    "The parameters are plain. More follows.": "The parameters are plain.",
    "torch 2.6 has `a. b`, which fails. More.": "torch 2.6 has `a. b`, which fails.",
    "The call fails:\n\n    TypeError: no\n\nMore.": "The call fails: TypeError: no",
    "The call fails:\n\n    TypeError: no\n    ValueError: no\n\nMore.": "The call fails.",
    "There is no error. The step has none.\n\n    a": "There is no error. The step has none.",
    "There is no error. In the first case, none. In the second, one.": "There is no error.",
    "There is no error.": "There is no error.",
    "- A case.\n- Another case.": "",
}


@pytest.mark.parametrize("text", CASES)
def test_the_first_sentence_of_the_section(text: str) -> None:
    page = f"A title.\n\n## Why is this bad?\n{text}\n\n## Since\nAlways."
    rule = type("Example", (Rule,), {"__doc__": page, "__module__": __name__})
    assert reason(rule) == CASES[text]


@pytest.mark.parametrize("rule", own_rules(), ids=lambda rule: rule.code)
def test_a_rule_has_a_whole_sentence(rule: type[Rule]) -> None:
    assert not reason(rule).endswith(":")
