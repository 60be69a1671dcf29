"""Which rules are on: selectors, as `--select` and the settings use them.

The codes and names are read from the text of the rules' files: a selector is checked without an
import of the rules.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fsdplint.source.files import Problem

ALL = "ALL"
UNUSED = ("FSDP903", "unused-suppression")  # see fsdplint.engine.unused_suppressions
CUT_SHORT = ("FSDP904", "program-too-large")  # see fsdplint.registry.meta_rules
_RULE_FILE = re.compile(r"fsdp\d+_\w+\.py")
_RULE = re.compile(r'^    code = "(FSDP\d+)"\n    name = "([\w-]+)"', re.MULTILINE)


class UnknownRuleError(ValueError):
    """A selector matches no rule."""


@lru_cache(maxsize=1)
def known_rules() -> dict[str, str]:
    """The name of every rule by its code."""
    package = importlib.import_module("fsdplint.rules")
    rules = dict([(Problem.CODE, Problem.NAME), UNUSED, CUT_SHORT])
    for folder in package.__path__:
        for file in os.listdir(folder):
            if _RULE_FILE.fullmatch(file):
                rules.update(_RULE.findall(Path(folder, file).read_text(encoding="utf-8")))
    from fsdplint.diagnostics.plugins import plugins

    rules.update((rule.code, rule.name) for rule in plugins().rules)
    return dict(sorted(rules.items()))


def resolve(selector: str) -> str:
    """The code, or the prefix of codes, that a selector means ("" for ALL).

    Raises:
        UnknownRuleError: no rule has this code, prefix or name.
    """
    wanted = selector.strip()
    code = wanted.upper()
    if code == ALL:
        return ""
    for known, name in known_rules().items():
        if wanted.lower() == name:
            return known
    if code and any(known.startswith(code) for known in known_rules()):
        return code
    choices = [*known_rules(), *known_rules().values()]
    close = difflib.get_close_matches(wanted, choices, n=1, cutoff=0.7)
    digits = code.translate(str.maketrans("OIL", "011"))  # letters that look like digits
    if digits in known_rules():
        close = [digits]
    beginning = re.fullmatch(r"(FSDP\d+)[X*]+", code)  # FSDP2xx as a pattern
    if beginning and any(known.startswith(beginning.group(1)) for known in known_rules()):
        close = [beginning.group(1)]
    hint = f"did you mean {close[0]}?" if close else "`fsdplint rule --all` lists the rules"
    raise UnknownRuleError(f"unknown rule {selector!r}; {hint}")


def split(values: Iterable[str]) -> tuple[str, ...]:
    """The selectors in the values of an option, which may hold commas."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


@dataclass(frozen=True)
class Selection:
    """The selectors of the settings or of the command line.

    If a select and an ignore both match a rule, the longer one decides; of equal ones, the ignore.
    """

    select: tuple[str, ...] = (ALL,)
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for selector in (*self.select, *self.ignore):
            resolve(selector)

    def has(self, code: str) -> bool:
        selected, ignored = _longest(self.select, code), _longest(self.ignore, code)
        return selected is not None and (ignored is None or selected > ignored)

    def with_more(self, select: Sequence[str], ignore: Sequence[str]) -> Selection:
        """This selection with further selectors, which win over the present ones."""
        codes = known_rules()
        present = [code for code in codes if self.has(code) and _longest(ignore, code) is None]
        return Selection((*present, *select), tuple(ignore))


def _longest(selectors: Iterable[str], code: str) -> int | None:
    """The length of the longest selector that matches a code."""
    matching = [len(prefix) for prefix in map(resolve, selectors) if code.startswith(prefix)]
    return max(matching, default=None)
