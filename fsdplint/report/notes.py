"""Changes in behaviour or cost that fixes make, for reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fsdplint.diagnostics.finding import Finding, Fix
from fsdplint.report import schema
from fsdplint.report.cells import split, translate_locations
from fsdplint.report.remarks import Place, Remark, remark_lines
from fsdplint.report.result import Result
from fsdplint.trace import Location

HEAD = "What changes in behaviour or cost:"


def _place(at: Location) -> Place:
    return Place(at.path, at.line)


def remarks(fix: Fix, place: Callable[[Location], Place] = _place) -> list[Remark]:
    """The notes of a fix.

    place: how a report names a location.
    """
    result = []
    for note in fix.notes:
        word = note.text.split(" ")[0]
        text = note.text[:1].upper() + note.text[1:] if word.isalpha() else note.text
        places = list(dict.fromkeys(place(at) for at in note.places))
        result.append(Remark(text, note.detail, places))
    return result


def remarks_on(applied: Iterable[Finding]) -> list[Remark]:
    """The notes of the fixes of mended findings, without duplicates."""
    from fsdplint.source.source import NodeSite

    applied = [one for one in applied if one.fix is not None and one.fix.notes]
    sites = [one.site for one in applied if isinstance(one.site, NodeSite)]
    result = Result(findings=applied, sources={one.path: one.source for one in sites})
    found: list[Remark] = []
    for one in translate_locations(result, "full").findings:
        assert one.fix is not None
        found += [remark for remark in remarks(one.fix) if remark not in found]
    return found


def note_lines(found: Iterable[Remark]) -> Iterator[str]:
    """The lines of a report about remarks; empty without remarks."""
    for number, remark in enumerate(found):
        if number == 0:
            yield HEAD
        yield from remark_lines(remark)


def note_data(found: Iterable[Remark]) -> list[schema.Note]:
    """Remarks as JSON."""
    return [
        {
            "text": one.text,
            "detail": one.detail,
            "places": [place_data(place) for place in one.places],
        }
        for one in found
    ]


def place_data(place: Place) -> schema.Line:
    path, cell = split(place.path)
    if cell is None:
        return {"filename": path, "row": place.line}
    return {"filename": path, "row": place.line, "cell": cell}
