"""Why a finding matters, in one sentence, or two if the first says that there is no error."""

from __future__ import annotations

from fsdplint.diagnostics.finding import Finding, RuleInfo
from fsdplint.report.pages import section

_SILENT = "There is no error. "


def why_of(finding: Finding) -> str:
    """Why a finding matters: what it says itself, else what the page of its rule says first."""
    return finding.why or reason(finding.rule)


def reason(rule: type[RuleInfo]) -> str:
    """The first sentence of the section of the rule's page on why it matters.

    An error message that follows the sentence is a part of it, and so is what comes after "There is
    no error." unless it is about one of several cases. Empty if the section is a list of cases, of
    which a finding names its own.
    """
    first, _, rest = section(rule, "Why is this bad?").partition("\n\n")
    if first.startswith("- "):
        return ""
    paragraph = " ".join(first.split())
    sentence = _first_sentence(paragraph)
    following = _first_sentence(paragraph.removeprefix(_SILENT))
    if paragraph.startswith(_SILENT) and following and not following.startswith("In the first"):
        sentence = _SILENT + following
    if not sentence.endswith(":"):
        return sentence
    lines = rest.partition("\n\n")[0].splitlines()
    message = lines[0].strip() if len(lines) == 1 and lines[0].startswith("    ") else ""
    return f"{sentence} {message}" if message else f"{sentence[:-1]}."


def _first_sentence(paragraph: str) -> str:
    quoted = False
    for position, character in enumerate(paragraph):
        if character == "`":
            quoted = not quoted
        elif (
            character == "." and not quoted and paragraph[position + 1 : position + 2] in ("", " ")
        ):
            return paragraph[: position + 1]
    return paragraph
