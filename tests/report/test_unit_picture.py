"""The picture of a sharding plan: its text, its sizes, and how it looks in a browser."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from browser import BROWSER, see, take_picture

from fsdplint.report.unit_picture import KINDS, Node, as_html, as_svg
from fsdplint.report.web_page import page

SVG = "{http://www.w3.org/2000/svg}"


def sizes(share: int) -> dict[str, int]:
    return {"parameters": share, "gradients": share, "optimizer state": 2 * share}


@pytest.fixture
def tree() -> Node:
    inner = Node("blocks.*", "each <Block>", ["a & b"], {"before": sizes(30), "after": sizes(60)})
    inner.nodes = [Node("mlp", sizes={"before": sizes(0)})]
    return Node("model", "Net", ["mesh (all ranks)"], {"before": sizes(15)}, [inner])


def test_svg(tree: Node) -> None:
    root = ElementTree.fromstring(as_svg([tree]))
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert texts[:3] == [
        "model Net",
        "mesh (all ranks)",
        "before 60 B: parameters 15 B, gradients 15 B, optimizer state 30 B",
    ]
    assert "blocks.* each <Block>" in texts and "a & b" in texts and "before 0 B" in texts
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    boxes = [one.attrib for one in root.iter(f"{SVG}rect") if one.get("class") == "box"]
    places = [tuple(float(box[key]) for key in ("x", "y", "width", "height")) for box in boxes]
    assert len(places) == 3 and [x for x, *_ in places] == sorted({x for x, *_ in places})
    for (_, y, _, high), (_, below, *_) in itertools.pairwise(places):
        assert y + high < below
    assert all(x + wide < width and y + high < height for x, y, wide, high in places)
    assert len([*root.iter(f"{SVG}path")]) == 2
    parts = [one for one in root.iter(f"{SVG}rect") if one.get("fill") == KINDS["parameters"]]
    # Parameters are a quarter of a bar; the longest bar has the width of a box.
    assert [round(float(one.attrib["width"])) for one in parts] == [
        round((places[0][2] - 20) * share / 240) for share in (15, 30, 60)
    ]


def test_html(tree: Node) -> None:
    text = as_html([tree])
    assert "each &lt;Block&gt;" in text and "a &amp; b" in text
    widths = [float(one) for one in re.findall(r"width:([\d.]+)%", text)]
    assert widths == [6.25, 6.25, 12.5, 12.5, 12.5, 25, 25, 25, 50]
    assert text.count('<ul class="units">') == 3 == text.count('<div class="unit">')
    assert 'class="legend"' in text
    assert 'class="legend"' not in as_html([Node("model", "Net")])


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
@pytest.mark.parametrize("dark", [False, True])
def test_in_a_browser(tree: Node, tmp_path: Path, dark: bool) -> None:
    deep = tree
    for number in range(8):
        deep.nodes.append(Node(f"a_rather_long_name_of_a_module.{number}", "x" * 90, ["y " * 90]))
        deep = deep.nodes[-1]
    for seen in see(page("Plan", as_html([tree])), tmp_path, (400, 800, 1200, 1600), dark=dark):
        assert (seen.page_width, seen.cut, seen.pale) == (seen.width, [], [])


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_the_browser_sees_what_is_cut_and_pale(tmp_path: Path) -> None:
    body = '<div style="width:500px">wide</div><p style="color:#ccc">pale</p>'
    body += (
        '<div style="overflow:auto"><pre style="white-space:pre">' + "long " * 20 + "</pre></div>"
    )
    narrow, wide = see(page("Bad", body), tmp_path, (400, 1600))
    assert narrow.page_width > 400 and wide.page_width == 1600
    assert len(narrow.cut) >= 2 and wide.cut == []
    assert [one.split()[-1] for one in wide.pale] == ["pale"]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_the_drawing_in_the_dark(tree: Node, tmp_path: Path) -> None:
    import matplotlib.image

    (tmp_path / "plan.svg").write_text(as_svg([tree]), encoding="utf-8")
    for dark, paper in ((False, (255, 255, 255)), (True, (13, 17, 23))):
        picture = tmp_path / f"{dark}.png"
        take_picture(tmp_path / "plan.svg", picture, 600, 400, dark=dark)
        first = matplotlib.image.imread(picture)[1, 1, :3] * 255
        assert tuple(round(float(one)) for one in first) == paper
