"""The formats of GitLab and reviewdog."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from samples import MESSAGE, NAME, URL, Sample, data_of, site

from fsdplint.diagnostics.finding import Edit, Finding, Fix, Safety
from fsdplint.report import Result
from fsdplint.source.source import Source

POSITION = {"type": "object", "required": ["line"], "properties": {"line": {"type": "integer"}}}
GITLAB = {  # what its documentation demands of a report
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": {"type": "string"},
            "check_name": {"type": "string"},
            "fingerprint": {"type": "string"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "positions"],
                "properties": {
                    "path": {"type": "string", "not": {"pattern": r"^(\./|/)"}},
                    "positions": {"required": ["begin"], "properties": {"begin": POSITION}},
                },
            },
        },
    },
}


def test_gitlab(result: Result) -> None:
    issues = data_of(result, "gitlab")
    jsonschema.validate(issues, GITLAB)
    assert [one["severity"] for one in issues] == ["critical", "minor", "critical", "info"]
    odd = issues[1]
    assert len(odd.pop("fingerprint")) == 64
    assert odd == {
        "check_name": "FSDP100",
        "description": "FSDP100: 100% wrong, really: <b> & ] [only when `args.fsdp` is true]",
        "severity": "minor",
        "location": {
            "path": NAME,
            "positions": {"begin": {"line": 2, "column": 6}, "end": {"line": 2, "column": 22}},
        },
    }
    assert data_of(Result(), "gitlab") == []


def test_gitlab_fingerprints_stay_and_differ() -> None:
    def marks(text: str, *lines: int) -> list[str]:
        found = [Finding(Sample, site(line, 1, line, 5, "a.py"), "bad") for line in lines]
        issues = data_of(Result(found, sources={"a.py": Source("a.py", text)}), "gitlab")
        return [one["fingerprint"] for one in issues]

    before = marks("def f():\n    g()\n    g()\n\ndef h():\n    g()\n", 2, 3, 6)
    assert len(set(before)) == 3
    moved = marks(
        "import x\n\ndef f():\n    g()  # now\n    x\n    g()\ndef h():\n  g()\n", 4, 6, 8
    )
    assert moved == before


def test_paths_are_told_from_the_top_of_the_repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = folder / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    found = Result([Finding(Sample, site(1, 1, 1, 2, "a.py"), "bad")])

    def paths() -> tuple[str, str]:
        run = data_of(found, "sarif")["runs"][0]
        location = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
        base = run["originalUriBaseIds"]["%SRCROOT%"]["uri"]
        assert location["uriBaseId"] == "%SRCROOT%" and base.endswith("/")
        assert base + location["uri"] == (below / "a.py").as_uri()
        return data_of(found, "gitlab")[0]["location"]["path"], location["uri"]

    assert paths() == ("a.py", "a.py")
    monkeypatch.setenv("CI_PROJECT_DIR", str(folder))
    assert paths() == ("below/a.py", "below/a.py")
    monkeypatch.delenv("CI_PROJECT_DIR")
    (folder / ".git").mkdir()
    assert paths() == ("below/a.py", "below/a.py")


def closed(required: Iterable[str] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


STRING, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 1}
RANGE = closed(
    ["start"], start=closed(line=NUMBER, column=NUMBER), end=closed(line=NUMBER, column=NUMBER)
)
LOCATION = closed(["path"], path=STRING, range=RANGE)
SOURCE = closed(name=STRING, url=STRING)
SEVERITY = {"enum": ["UNKNOWN_SEVERITY", "ERROR", "WARNING", "INFO"]}
RDJSON = closed(  # the messages of reviewdog.proto
    diagnostics={
        "type": "array",
        "items": closed(
            message=STRING,
            location=LOCATION,
            severity=SEVERITY,
            source=SOURCE,
            code=closed(value=STRING, url=STRING),
            suggestions={"type": "array", "items": closed(range=RANGE, text=STRING)},
            original_output=STRING,
            related_locations={
                "type": "array",
                "items": closed(["location"], message=STRING, location=LOCATION),
            },
        ),
    },
    source=SOURCE,
    severity=SEVERITY,
)


def test_rdjson(result: Result) -> None:
    whole = data_of(result, "rdjson")
    jsonschema.validate(whole, RDJSON)
    assert whole["source"] == {"name": "fsdplint", "url": "https://fsdplint.readthedocs.io"}
    problem, odd, alone, several = whole["diagnostics"]
    assert problem["location"]["path"] == "broken.py"
    # Before column 6 are 5 characters of 2 + 4 + 3 bytes. Two files change: no suggestion.
    assert odd == {
        "message": f"{MESSAGE} [only when `args.fsdp` is true]\nCall the module.",
        "location": {
            "path": NAME,
            "range": {"start": {"line": 2, "column": 10}, "end": {"line": 2, "column": 26}},
        },
        "severity": "WARNING",
        "code": {"value": "FSDP100", "url": URL},
        "related_locations": [
            {
                "message": "defined here",
                "location": {
                    "path": "b.py",
                    "range": {"start": {"line": 1, "column": 1}, "end": {"line": 2, "column": 13}},
                },
            }
        ],
    }
    assert alone["suggestions"] == [
        {
            "range": {"start": {"line": 2, "column": 24}, "end": {"line": 2, "column": 25}},
            "text": "éy",
        }
    ]
    assert "suggestions" not in several  # --fix would not apply it
    assert data_of(Result(), "rdjson")["diagnostics"] == []


def test_rdjson_suggests_a_fix_of_several_edits_as_one_and_once() -> None:
    text = "a = 1\nb = 2\nc = 3\n"
    fix = Fix(
        "Mend",
        Safety.SAFE,
        (Edit("a.py", 16, 17, "C"), Edit("a.py", 4, 5, "one"), Edit("a.py", 6, 6, "#\n")),
        group="g",
    )
    found = [
        Finding(Sample, site(line, 1, line, 2, "a.py"), "bad", group="g", fix=fix)
        for line in (1, 3)
    ]
    sources = {"a.py": Source("a.py", text)}
    result = Result(found, sources=sources, fixable={id(one) for one in found})
    first, second = data_of(result, "rdjson")["diagnostics"]
    assert first["suggestions"] == [
        {
            "range": {"start": {"line": 1, "column": 5}, "end": {"line": 3, "column": 6}},
            "text": "one\n#\nb = 2\nc = C",
        }
    ]
    assert "suggestions" not in second
