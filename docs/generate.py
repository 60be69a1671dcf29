"""Writes the pages of the rules from their docstrings, and the list of rules on their page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from fsdplint.registry.rule import Rule
from fsdplint.registry.rules import own_rules
from fsdplint.report.pages import rule_table, text
from fsdplint.report.urls import page_of

GROUPS = {
    "FSDP1": "Forward, sharding and optimizers",
    "FSDP2": "FSDP1's API and its replacement",
    "FSDP3": "States and checkpoints",
    "FSDP4": "Gradients and precision",
    "FSDP5": "Process groups and launch",
    "FSDP6": "Performance",
    "FSDP7": "What only a real run shows",
    "FSDP9": "About fsdplint itself",
}
# Findings without a rule: code, name and page.
OTHERS = {
    ("FSDP901", "unreadable-file"): """\
A file could not be checked: it is missing, too large, not decodable, or not Python.

Its findings are unknown, so the run ends with exit code 2. Correct the file, or exclude it
with `exclude` in `[tool.fsdplint]`.
""",
    ("FSDP902", "broken-plug-in"): """\
A rule of another package could not be loaded, or raised an exception.

The other rules ran. The findings of this rule are unknown, so the run ends with exit code 2. This
is a defect of the plug-in: with `FSDPLINT_DEBUG=1` in the environment, the run shows its traceback.
""",
    ("FSDP903", "unused-suppression"): """\
A comment turns off a rule that finds nothing there.

The comment would hide a new finding at this place. Remove the comment, or remove the code from its
list.
""",
    ("FSDP904", "program-too-large"): """\
The analysis of a program reached its bound. Code after this place was not checked, or not in every
configuration. This note does not change the exit code.

fsdplint checks every file in bounded time. Rules about something that is missing report nothing for
such a program. `fsdplint run` checks a real run of the program, which has no such bound.
""",
}
_CODE = re.compile(r"\bFSDP\d{3}\b")
_ADDRESS = re.compile(r"(?<![<(\w])https?://[^\s)>\]`]+[^\s)>\]`.,;:]")
_ISSUE = re.compile(r"\b([A-Za-z][\w.-]*/[\w.-]+)#(\d+)")
_INLINE = re.compile(r"(`[^`]*`|\[[^\]]*\]\([^)]*\))")


def write(folder: Path) -> None:
    """Write a page for each rule below a folder; replace the pages that are there."""
    rules = folder / "rules"
    shutil.rmtree(rules, ignore_errors=True)
    rules.mkdir()
    names = {rule.code: rule.name for rule in own_rules()} | dict(OTHERS)
    for rule in own_rules():
        lines = [line for line in text(rule) if line != page_of(rule)]
        _write(rules / f"{rule.name}.md", "\n".join(linked(lines, names)))
    for (code, name), page in OTHERS.items():
        _write(rules / f"{name}.md", f"# {name} ({code})\n\n{page}")


def completed(page: str, text: str) -> str:
    """The text of a page for the site, with links and groups in the table of rules."""
    if page != "rules":
        return text
    before, rest = text.split("<!-- rules -->")
    _, after = rest.split("<!-- /rules -->")
    return "\n".join([before.rstrip(), *_overview(), after])


def _overview() -> Iterator[str]:
    for prefix, title in GROUPS.items():
        chosen: list[type[Rule]] = [one for one in own_rules() if one.code.startswith(prefix)]
        others = [(code, name) for code, name in OTHERS if code.startswith(prefix)]
        if not chosen and not others:
            continue
        yield from ("", f"## {title}", "")
        if chosen:
            table = rule_table(chosen)
            yield re.sub(r"\| (FSDP\d+) \| `([\w-]+)`", r"| \1 | [`\2`](rules/\2.md)", table)
        yield from (f"- {code} [`{name}`](rules/{name}.md)" for code, name in others)
        yield from ("", "```{toctree}", ":hidden:", "")
        yield from (f"{one.code} {one.name} <rules/{one.name}>" for one in chosen)
        yield from (f"{code} {name} <rules/{name}>" for code, name in others)
        yield "```"


def linked(lines: list[str], names: dict[str, str]) -> Iterator[str]:
    """The lines of a page, with links for addresses and codes of other rules in its prose."""
    in_code = False
    for line in "\n".join(lines).split("\n"):
        if line.startswith("```"):
            in_code = not in_code
        if in_code or line.startswith(("#", "```", "    ")):
            yield line
            continue
        parts = _INLINE.split(line)
        for number in range(0, len(parts), 2):
            part = _ADDRESS.sub(lambda match: f"<{match.group()}>", parts[number])
            part = _ISSUE.sub(r"[\g<0>](https://github.com/\1/issues/\2)", part)
            parts[number] = _CODE.sub(
                lambda m: (
                    f"[{m.group()}]({names[m.group()]}.md)" if m.group() in names else m.group()
                ),
                part,
            )
        yield "".join(parts)


def _write(path: Path, page: str) -> None:
    path.write_text(page.rstrip("\n") + "\n", encoding="utf-8")
