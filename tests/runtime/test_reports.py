"""The page and the Markdown of a proof, from records made by hand; the page in a real browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import BROWSER, see, take_picture
from json_schemas import validate

from fsdplint.diagnostics.finding import Finding
from fsdplint.registry.rules import all_rules
from fsdplint.runtime.launch.failures import fail_in_same_way, failure_summary
from fsdplint.runtime.launch.launcher import Launch, RankEnd, Run
from fsdplint.runtime.launch.records import RankRecord
from fsdplint.runtime.proof.checks import Check, Comparison
from fsdplint.runtime.proof.prove import Proof
from fsdplint.runtime.proof.reports.data import as_json
from fsdplint.runtime.proof.reports.markdown import as_markdown
from fsdplint.runtime.proof.reports.page import as_page
from fsdplint.runtime.proof.reports.simulated import as_markdown as simulated_as_markdown
from fsdplint.runtime.proof.reports.simulated import as_page as simulated_as_page
from fsdplint.runtime.proof.reports.text import as_text
from fsdplint.runtime.proof.runs import Trial
from fsdplint.runtime.proof.simulated_runs import SimulationResult
from fsdplint.runtime.proof.simulation_report import as_json as simulated_as_json
from fsdplint.runtime.proof.verdicts import FixVerdict, Verdict
from fsdplint.trace import FixedSite, Location, Trace

DIFF = """\
--- train.py
+++ train.py
@@ -1,3 +1,3 @@
 import torch
-model = FSDP(model)
+fully_shard(model)
 print("<b>&amp;</b>")
"""


def measures(losses: list[float]) -> list[dict[str, object]]:
    return [
        {
            "step": step,
            "losses": [loss],
            "gradients": {"sharded": loss**2, "whole": 0.0},
            "collectives": {"all_gather": 4, "reduce_scatter": 2},
            "bytes": 4096,
            "seconds": 0.5,
            "peak": 300 * 2**20,
            "updated": 3,
        }
        for step, loss in enumerate(losses, 1)
    ]


def unit(name: str | None, share: int, *parameters: str, **changed: object) -> dict[str, object]:
    """A unit in the record of a layout."""
    about = {"over": [0, 1], "copies": [], "flat": False, "dims": [0], "offload": False}
    whole = "whole" if name == "" else "sharded"
    kinds = {key: [[8, 8], "torch.float32", True] for key in parameters}
    more = {"name": name, "bytes": share, "backward": whole, "step": "sharded", "parameters": kinds}
    return {**about, **more, **changed}


def plain_unit(share: int, *parameters: str) -> dict[str, object]:
    """The unit of parameters without FSDP, for which the recorder writes fewer keys."""
    whole = unit(None, share, *parameters, over=[], dims=[])
    return {key: value for key, value in whole.items() if key not in ("backward", "step")}


def layout(rank: int) -> dict[str, object]:
    units = [
        unit("", 100 + rank, "head.weight"),
        *(unit(f"blocks.{index}", 40, f"blocks.{index}.weight") for index in range(3)),
        plain_unit(8, "scale"),
    ]
    return {"step": 1, "units": units, "groups": {}}


def held(rank: int) -> dict[str, object]:
    blocks = [[f"blocks.{index}", 40, 80] for index in range(3)]
    return {"step": 1, "optimizer": "a", "units": [["", 100, 200 + rank], *blocks, [None, 8, 16]]}


def run(tmp_path: Path, losses: list[float], status: str = "ok") -> Run:
    records = [
        RankRecord(
            rank,
            2,
            {"torch": "2.13.0"},
            measures=measures(losses),
            layouts=[layout(rank)],
            held=[held(rank)],
        )
        for rank in range(2)
    ]
    ends = [RankEnd(rank, status, where="train.py:7", last="backward") for rank in range(2)]
    return Run(Launch("train.py", tmp_path, tmp_path), ends, records, 3.0, 0)


@pytest.fixture
def proof(tmp_path: Path) -> Proof:
    path = str(tmp_path / "train.py")
    checks = [
        Check("losses", True, "6 values agree", "1e-05 relative"),
        Check("parameters", False, "weight: 3 of 4 values differ | <i>", "1e-05 relative"),
        Check("step time", None, "1 ms before, 1 ms after", binding=False),
    ]
    trial = Trial(
        run(tmp_path, [3.0, 2.0, 1.0]),
        run(tmp_path, [3.0, 2.5, 2.0], "raised"),
        (Trace(producer="runtime"), Trace(producer="runtime")),
        oracle=run(tmp_path, [3.0, 2.0, 1.0]),
        comparison=Comparison(checks),
    )
    judged = [
        FixVerdict("Shard <the> model", Verdict.PROVEN, ["fine"], "FSDP201", Location(path, 2)),
        FixVerdict("Another", Verdict.NOT_REACHED, [], "FSDP204", Location(path, 3), before="x"),
    ]
    judged[0].checks = checks[:1]
    return Proof(Path(path), judged, trial, diff=DIFF, root=tmp_path)


class Page(HTMLParser):
    """The tags, and all text that is seen."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def test_the_page(proof: Proof) -> None:
    text = as_page(proof)
    page = Page(text)
    assert page.tags[0][0] == "html"
    assert [tag for tag, _ in page.tags].count("svg") == 4
    badges = [attrs for tag, attrs in page.tags if tag == "a" and "badge" in (attrs["class"] or "")]
    assert [(one["href"], one["class"]) for one in badges] == [
        ("#fix-1", "badge proven"),
        ("#fix-2", "badge not-reached"),
    ]
    assert "Shard <the> model" in page.texts and "<the>" not in text
    assert "-model = FSDP(model)" in page.texts
    assert "How it ended" in page.texts
    # No script, nothing from elsewhere: it can be opened and attached anywhere.
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe"}
    addresses = set(re.findall(r'(?:src|href)="(?!#)([^"]*)"|url\((?!#)([^)]*)\)', text))
    assert not addresses
    assert as_page(proof).split("Made")[0] == text.split("Made")[0]


def test_what_a_rank_holds_of_each_unit(proof: Proof) -> None:
    """The most of any rank; alike units together; in the table, in the tree and in the JSON."""
    assert proof.trial is not None
    after = proof.trial.after
    assert after is not None
    for record in after.records:  # a unit less, and another one is not resharded
        units = record.layouts[0]["units"]
        del units[3]
        units[2]["backward"] = "whole"
    page = Page(as_page(proof))
    table = [one for one in page.texts[page.texts.index("What a rank holds") :] if one]
    rows = table[table.index("(root)") : table.index("The sharding plan")]
    root = ["(root)", *(2 * ["before", "101 B", "100 B", "201 B"])]
    root[5] = "after"
    assert rows[:9] == root
    assert rows[9:14] == ["blocks.*", "before", "120 B", "120 B", "240 B"]
    tree = table[table.index("The sharding plan") :]
    assert "a forward and a backward of each: 2 all-gathers, 1 reduce-scatter" in tree
    assert "a forward and a backward: 1 all-gather, 1 reduce-scatter" in tree
    assert "parameters without FSDP" in tree
    data = {one["path"]: one for one in as_json(proof)["units"]}
    before, now = data["blocks.*"]["before"], data["blocks.1"]["after"]
    assert before is not None and now is not None
    assert (before["units"], before["bytes"]["parameters"]) == (3, 120)
    assert now["collectives"] == {"all_gather": 1, "reduce_scatter": 1}
    assert data["blocks.1"]["before"] is None and data[None]["before"]["collectives"] is None


def test_a_page_of_nothing(tmp_path: Path) -> None:
    page = Page(as_page(Proof(tmp_path / "train.py", [])))
    assert "Nothing to prove: there are no findings." in page.texts
    assert "svg" not in [tag for tag, _ in page.tags]


def test_the_markdown(proof: Proof) -> None:
    lines = as_markdown(proof).splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) in (4, 5) for row in rows)
    assert any(row.startswith("| **proven** | Shard <the> model<br>FSDP201") for row in rows)
    assert (
        "| parameters | DIFFERS | weight: 3 of 4 values differ \\| <i> | 1e-05 relative |" in rows
    )
    assert lines[lines.index("```diff") + 1 :][:6] == DIFF.splitlines()[:6]


def account(share: int) -> dict[str, object]:
    held = {"parameters": share, "gradients": share, "optimizer": 2 * share, "peak": 5 * share}
    return {
        "step": 1,
        **held,
        "calls": {"all_gather": 4, "reduce_scatter": 2},
        "sent": {"all_gather": 2**30, "reduce_scatter": 2**29},
    }


def test_what_several_verdicts_share_is_said_once(proof: Proof) -> None:
    assert proof.trial is not None
    proof.trial.after = run(proof.root, [3.0, 2.5, 2.0])
    verdict, reasons = proof.trial.verdict()
    assert verdict is Verdict.REFUTED and len(reasons) == 1
    for judged in proof.verdicts:
        judged.verdict, judged.reasons = verdict, ["of its own", *reasons]
    text, summary = as_text(proof), as_markdown(proof)
    assert text.startswith(f"The runs as a whole: refuted\n  {reasons[0]}\n\nREFUTED")
    assert text.count(reasons[0]) == 1 and text.count("of its own") == 2
    assert summary.count("parameters: weight") == 1 and summary.count("of its own") == 2


def test_what_is_found_and_not_fixed_is_in_all_reports(proof: Proof) -> None:
    rule = next(rule for rule in all_rules() if rule.code == "FSDP501")
    at = FixedSite(Location("train.py", 9))
    proof.remaining = [Finding(rule, at, "one rank", blocker="unknown | names")]
    proof.found = [Finding(rule, at, "another")]
    texts = [as_text(proof), as_markdown(proof), as_page(proof)]
    for text in texts:
        assert "Found and not fixed" in text and "Found in the run of the program after" in text
        assert "train.py:9: FSDP501 one rank" in text and "not migrated: unknown" in text
    assert "    not migrated: unknown | names\n" in texts[0]
    assert "- train.py:9: FSDP501 one rank not migrated: unknown \\| names" in texts[1]
    assert "torch 2.13.0, seed None, no arguments" in texts[1]


def test_which_runs_fail_alike(tmp_path: Path) -> None:
    hung, other = run(tmp_path, [1.0], "hung"), run(tmp_path, [1.0], "hung")
    left, raised = run(tmp_path, [1.0], "exit"), run(tmp_path, [1.0], "raised")
    left.ends[0].cause, raised.ends[1].cause = "exit code 2", "ValueError: no data"
    assert (
        fail_in_same_way(hung, other)
        and fail_in_same_way(left, left)
        and fail_in_same_way(raised, raised)
    )
    assert not fail_in_same_way(hung, raised) and not fail_in_same_way(left, raised)
    assert "rank 1: raised at train.py:7: ValueError: no data" in failure_summary(raised, "after")
    assert "rank 0: ended with exit code 2 at train.py:7" in failure_summary(left, "after")


@pytest.fixture
def simulated(tmp_path: Path) -> SimulationResult:
    before, after = run(tmp_path, []), run(tmp_path, [], "raised")
    for one, share in ((before, 3 * 2**30), (after, 4 * 2**30)):
        one.records[:] = [RankRecord(0, 512, {"torch": "2.13.0"}, accounts=[account(share)])]
    return SimulationResult(tmp_path / "train.py", 512, before, after, [], DIFF)


def test_a_simulation(simulated: SimulationResult) -> None:
    text = simulated_as_page(simulated)
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("svg") == 2
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe"}
    assert "4 calls, 1.00 GiB" in page.texts and "How it ended" in page.texts
    assert "Held by the rank" in text and "GiB" in text
    lines = simulated_as_markdown(simulated).splitlines()
    assert "| optimizer | 6.00 GiB | 8.00 GiB |" in [
        line.replace("optimizer state", "optimizer") for line in lines
    ]
    assert lines.count("```diff") == 1 and "  rank 0: raised at train.py:7" in lines


def test_the_data(proof: Proof, simulated: SimulationResult, tmp_path: Path) -> None:
    rule = next(rule for rule in all_rules() if rule.code == "FSDP501")
    proof.remaining = [Finding(rule, FixedSite(Location("train.py", 9)), "one rank")]
    proof.verdicts.append(FixVerdict("Of the whole", Verdict.REFUTED, ["why"]))
    validate("proof", json.loads(json.dumps(as_json(proof))))
    validate("proof", as_json(Proof(tmp_path / "train.py", [])))
    data = json.loads(json.dumps(simulated_as_json(simulated)))
    validate("simulation", data)
    assert data["after"]["steps"][0]["peak"] == 20 * 2**30
    simulated.after = None
    validate("simulation", simulated_as_json(simulated))


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_into_a_window(
    proof: Proof, simulated: SimulationResult, tmp_path: Path, dark: bool
) -> None:
    """Nothing is cut, and all text can be read."""
    proof.diff += "+" + "wide = " * 60 + "\n"
    proof.verdicts[0].reasons = ["a " * 300, "an_expression_without_any_space_" * 20]
    for page in (as_page(proof), simulated_as_page(simulated)):
        for seen in see(page, tmp_path, (400, 800, 1200, 1600), dark=dark):
            assert (seen.page_width, seen.cut, seen.pale) == (seen.width, [], [])
            assert seen.paper == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_the_page_in_a_browser(proof: Proof, tmp_path: Path) -> None:
    import matplotlib.image
    import numpy as np

    (tmp_path / "page.html").write_text(as_page(proof), encoding="utf-8")
    take_picture(tmp_path / "page.html", tmp_path / "page.png", 1100, 3000)
    pixels = matplotlib.image.imread(tmp_path / "page.png")[..., :3]
    assert pixels.shape[:2] == (3000, 1100)
    assert (pixels[0, 0] == 1).all()  # white paper

    def rows_with(colour: str) -> np.ndarray:
        wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        return np.flatnonzero((np.abs(pixels - wanted) < 0.02).all(-1).any(1))

    # The verdicts come first, then the pictures, then the diff with its badges, then the rest.
    proven, curve, added = rows_with("#1a7f37"), rows_with("#d55e00"), rows_with("#dafbe1")
    assert len(proven) and len(curve) and len(added)
    assert proven[0] < curve[0] < added[0]
    # The second curve, the oracle's and the bars are there too, and the page ends in the window.
    assert len(rows_with("#0072b2")) and len(rows_with("#767676"))
    assert not (pixels[-40:] < 0.9).any()
