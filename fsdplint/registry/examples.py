"""The examples of a rule: bad programs with findings, and good programs without."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Symptom:
    """The effect of a bad program on two ranks; at least one field is given.

    Attributes:
        raises: regular expression that matches the exception of some rank.
        prints: regular expression that matches the output of some rank.
        hangs: some rank waits forever in a collective (or the transport aborts it because the other
            rank is elsewhere).
    """

    raises: str | None = None
    prints: str | None = None
    hangs: bool = False


@dataclass(frozen=True)
class Bad:
    """A program that violates the rule; its lines marked `# <- CODE` are the findings.

    Attributes:
        code: the program; the markers are removed before it is checked or run.
        symptom: the effect on two ranks.
        fixed: the program's text after `--fix --unsafe-fixes`, if the rule can fix it.
        healthy: regular expression that matches the output of the fixed program.
        config_dependent: whether the finding must name a configuration.
        runtime_only: whether only a real run shows its findings.
        check_only: whether the record of a run lacks what its findings are about.
        skip: why the tests on two ranks cannot run it; empty if they can.
        target_torch: the torch to check it for, as in the settings.
        suffix: the suffix of its file.
        name: a short description, from the file's name.
    """

    code: str
    symptom: Symptom | None = None
    fixed: str | None = None
    healthy: str | None = None
    config_dependent: bool = False
    runtime_only: bool = False
    check_only: bool = False
    skip: str = ""
    target_torch: str | None = None
    suffix: str = ".py"
    name: str = ""


@dataclass(frozen=True)
class Good:
    """A program that a naive rule would flag and this one must not.

    Attributes:
        code: the program.
        why: why the program is correct.
        skip: why the tests on two ranks cannot run it; empty if they can.
        target_torch: the torch to check it for, as in the settings.
        suffix: the suffix of its file.
        name: a short description, from the file's name.
    """

    code: str
    why: str = ""
    skip: str = ""
    target_torch: str | None = None
    suffix: str = ".py"
    name: str = ""


@dataclass(frozen=True)
class Examples:
    """All examples of a rule; the first of each kind is on its page."""

    bad: tuple[Bad, ...] = ()
    good: tuple[Good, ...] = ()


_MARKER = re.compile(r"[ \t]*# <- ([A-Z]+\d+(?: [A-Z]+\d+)*)[ \t]*$", re.MULTILINE)


def without_markers(code: str) -> str:
    """An example's program as it is checked and run."""
    return _MARKER.sub("", code)


def markers(code: str) -> set[tuple[int, str]]:
    """The findings that an example expects: (line, rule code) pairs."""
    return {
        (number, rule)
        for number, line in enumerate(code.splitlines(), 1)
        for match in _MARKER.finditer(line)
        for rule in match.group(1).split()
    }
