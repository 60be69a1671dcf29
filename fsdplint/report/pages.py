"""The documentation of the rules: pages, the table of all rules, and both as data."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator

from fsdplint.diagnostics.finding import RuleInfo, Safety
from fsdplint.registry.example_files import examples_of
from fsdplint.registry.rule import Rule
from fsdplint.report import schema
from fsdplint.report.urls import page_of


def summary(rule: type[RuleInfo]) -> str:
    """The first paragraph of the rule's page, on one line."""
    return " ".join(page(rule).split("\n\n")[0].split())


def section(rule: type[RuleInfo], title: str) -> str:
    """The text of a section of the rule's page; empty if it has no such section."""
    inside = False
    lines = []
    for line in page(rule).splitlines():
        if line.startswith("## "):
            inside = line[3:].strip() == title
        elif inside:
            lines.append(line)
    return "\n".join(lines).strip()


def page(rule: type[RuleInfo]) -> str:
    """The rule's page without its examples, as Markdown."""
    return inspect.cleandoc(rule.__doc__ or "")


def fix_availability(rule: type[RuleInfo]) -> str:
    """How the rule's findings can be fixed, in words."""
    if rule.fixable is None:
        return "There is no fix."
    if rule.fixable is Safety.SAFE:
        return "Fixed by `--fix` where a faithful rewrite exists."
    return "Fixed by `--fix --unsafe-fixes` where a faithful rewrite exists."


RUNTIME_ONLY = "Only a real run shows it: `fsdplint run`."


def text(rule: type[Rule]) -> Iterator[str]:
    """The lines of a rule's page, including its examples."""
    title = f"{rule.name} ({rule.code})"
    yield f"# {title}"
    yield ""
    runtime_only = f" {RUNTIME_ONLY}" if rule.runtime_only else ""
    yield f"Severity: {rule.severity.value}. {fix_availability(rule)}{runtime_only}"
    yield ""
    yield from page(rule).splitlines()
    examples = examples_of(rule)
    for bad in examples.bad[:1]:
        yield from _program("Example", bad.code)
        if bad.fixed:
            yield from _program("Fixed", bad.fixed)
    for good in examples.good[:1]:
        yield from _program("Not reported", good.code, good.why)
    yield ""
    yield page_of(rule)


def _program(title: str, code: str, why: str = "") -> Iterator[str]:
    yield ""
    yield f"## {title}"
    if why:
        yield why
    yield "```python"
    yield from inspect.cleandoc(code).splitlines()
    yield "```"


def as_data(rule: type[Rule]) -> schema.RulePage:
    """A rule's page as data."""
    examples = examples_of(rule)
    return {
        "schema_version": 1,
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "fix": rule.fixable.value if rule.fixable else None,
        "fix_availability": fix_availability(rule),
        "runtime_only": rule.runtime_only,
        "summary": summary(rule),
        "explanation": page(rule),
        "bad": [
            {"code": inspect.cleandoc(one.code), "fixed": one.fixed and inspect.cleandoc(one.fixed)}
            for one in examples.bad
        ],
        "good": [{"code": inspect.cleandoc(one.code), "why": one.why} for one in examples.good],
        "url": page_of(rule),
    }


def rule_table(rules: Iterable[type[RuleInfo]]) -> str:
    """The rules as a Markdown table."""
    lines = [
        "| Code | Name | Severity | By | Fix | Finds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for rule in rules:
        fix = rule.fixable.value if rule.fixable else ""
        what = summary(rule).replace("|", "\\|")
        command = "run" if rule.runtime_only else "check"
        lines.append(
            f"| {rule.code} | `{rule.name}` | {rule.severity.value} | {command} | {fix} | {what} |"
        )
    return "\n".join(lines)
