"""A proof as Markdown, for a pull request."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator

from fsdplint.runtime.launch.failures import failure_lines, relative_path
from fsdplint.runtime.proof.prove import Proof
from fsdplint.runtime.proof.reports.text import common_reasons, findings_of, heading, sign, summary
from fsdplint.runtime.proof.verdicts import FixVerdict

LONGEST_DIFF = 30_000  # characters; a comment on GitHub may have 65,536 in all


def as_markdown(proof: Proof) -> str:
    """The verdicts, the checks, and the diff in a collapsed section."""
    return "\n".join(_lines(proof)) + "\n"


def _lines(proof: Proof) -> Iterator[str]:
    yield f"## Proof of `{relative_path(str(proof.script))}`"
    yield ""
    yield summary(proof)
    if proof.runs:
        before = proof.runs["before"]
        versions = {str(one.head.get("torch")) for one in before.records}
        arguments = shlex.join(before.launch.args)
        yield ""
        yield (
            f"torch {', '.join(sorted(versions))}, seed {before.launch.seed}, "
            + (f"arguments `{arguments}`" if arguments else "no arguments")
        )
    common = common_reasons(proof)
    if common and proof.trial is not None:
        yield from ("", f"The runs as a whole: **{proof.trial.verdict()[0].value}**", "")
        yield from (f"- {_cell(reason)}" for reason in common)
    if proof.verdicts:
        yield ""
        yield "| Verdict | Fix | Evidence |"
        yield "| --- | --- | --- |"
        for judged in proof.verdicts:
            yield _row(judged, common)
    checks = proof.checks
    if checks:
        yield ""
        yield f"| {heading(proof)} | | Found | Tolerance |"
        yield "| --- | --- | --- | --- |"
        for check in checks:
            yield f"| {check.name} | {sign(check)} | {_cell(check.detail)} | {check.tolerance} |"
    for title, findings in findings_of(proof).items():
        yield from ("", f"{title}:", "")
        yield from (f"- {_cell(line)}" for line in findings)
    for name, run in proof.runs.items():
        if not run.ok:
            yield from ("", "```", *failure_lines(f"The program {name}", run), "```")
    yield from collapsed_diff(proof.diff)


def collapsed_diff(diff: str) -> Iterator[str]:
    """A diff in a collapsed section. A long one is cut: a comment on GitHub has an upper bound."""
    if not diff:
        return
    lines = diff.splitlines()
    room, shown = LONGEST_DIFF, 0
    while shown < len(lines) and room >= len(lines[shown]):
        room -= len(lines[shown]) + 1
        shown += 1
    yield from ("", "<details><summary>The change</summary>", "", "```diff")
    yield from lines[:shown]
    if shown < len(lines):
        yield f"... {len(lines) - shown} more lines"
    yield from ("```", "", "</details>")


def _row(judged: FixVerdict, common: Collection[str]) -> str:
    at = judged.at
    where = f"<br>{judged.code} `{relative_path(at.path)}:{at.line}`" if at is not None else ""
    evidence = [reason for reason in judged.reasons if reason not in common]
    for name, happened in (("before", judged.before), ("after", judged.after)):
        if happened:
            evidence.append(f"{name}: {happened}")
    text = "<br>".join(_cell(one) for one in evidence)
    return f"| **{judged.verdict.value}** | {_cell(judged.title)}{where} | {text} |"


def _cell(text: str) -> str:
    """A text escaped for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")
