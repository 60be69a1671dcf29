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
# What is reported without being a rule: its code, its name and its page.
OTHERS = {
    ("FSDP901", "unreadable-file"): """\
A file could not be checked: it is missing, too large, not decodable, or no Python.

Nothing is known about what stands in it, so the run ends with 2. Mend the file, or leave it out
with `exclude` in `[tool.fsdplint]`.
""",
    ("FSDP902", "broken-plug-in"): """\
A rule of another package could not be loaded, or raised an exception.

The other rules ran; what this one would have found is not known, so the run ends with 2. It is a
defect of the plug-in: with `FSDPLINT_DEBUG=1` in the environment the run ends with its traceback.
""",
    ("FSDP903", "unused-suppression"): """\
A comment turns off a rule that finds nothing there.

It may have had a reason once, and hides the next finding. Take it away, or the code out of its
list.
""",
    ("FSDP904", "program-too-large"): """\
The work on a program met its bound, and what comes after the place was not looked at, or not in
every configuration. It leaves the exit code as it is.

Every file is gone through in bounded time. Rules about something that is missing are silent for
such a program. `fsdplint run` checks a real run of it, which has no such bound.
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
    """The text of a page for the site: the table of rules gets links, and groups by code."""
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
