"""Blocked sections of one program as one section.

The settings of a framework (a plugin of Accelerate, for example) are rewritten apart from the
program's own uses of FSDP1, so that one program may be blocked in several sections.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.migration.report.model import Section


def join_sections(sections: Sequence[Section]) -> list[Section]:
    """The sections, with the blocked ones that share files put into the first of them."""
    result: list[Section] = []
    for section in sections:
        first = next((one for one in result if _are_of_one_program(one, section)), None)
        if first is None:
            result.append(section)
        else:
            _extend(first, section)
    return result


def _are_of_one_program(first: Section, second: Section) -> bool:
    both_blocked = first.is_blocked and second.is_blocked
    return both_blocked and not set(first.files).isdisjoint(second.files)


def _extend(section: Section, other: Section) -> None:
    """Put what `other` says about the program into `section`."""
    section.files = list(dict.fromkeys([*section.files, *other.files]))
    section.programs = {
        path: section.programs.get(path, frozenset()) | other.programs.get(path, frozenset())
        for path in [*section.programs, *other.programs]
    }
    section.obstacles = sorted(
        [*section.obstacles, *other.obstacles], key=lambda one: (one.place.path, one.place.line)
    )
    blocked = {one.place for one in section.obstacles}
    waiting = dict.fromkeys([*section.waiting, *other.waiting])
    section.waiting = [place for place in waiting if place not in blocked]
    section.remarks += [one for one in other.remarks if one not in section.remarks]
    section.outside = sorted({*section.outside, *other.outside})
