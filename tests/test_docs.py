"""The site of the documentation: built, its links followed, and opened in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fsdplint.diagnostics.codes import known_rules
from fsdplint.registry.rules import own_rules
from fsdplint.report.urls import BASE, page_of, rule_url

pytest.importorskip("sphinx")

ROOT = Path(__file__).parents[1]
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by the command that `docs/conf.py` names, in a copy of what it is built from."""
    folder = tmp_path_factory.mktemp("docs")
    for name in ("docs", "fsdplint", "rules", "fixtures/rules"):
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted, symlinks=True)
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder)
    subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "-n", "-b", "dirhtml", "docs", "build/site"],
        cwd=folder,
        check=True,
    )
    return folder / "build" / "site"


def test_every_address_that_is_told_has_its_page(site: Path) -> None:
    told = {rule_url(name) for name in known_rules().values()}
    told |= {page_of(rule) for rule in own_rules()}
    assert len(told) > len(own_rules())
    for url in told:
        assert url.startswith(BASE + "/")
        assert (site / url.removeprefix(BASE + "/") / "index.html").is_file(), url


def test_the_schemas_are_where_their_id_says(site: Path) -> None:
    files = sorted((ROOT / "docs" / "schemas").iterdir())
    for file in files:
        address = json.loads(file.read_text(encoding="utf-8"))["$id"]
        published = site / address.removeprefix(BASE + "/")
        assert published.read_bytes() == file.read_bytes()


def test_links_lead_somewhere(site: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "docs" / "links.py")]
    subprocess.run([*command, str(site)], check=True)
    (tmp_path / "page").mkdir()
    page = '<p id="a"></p><a href="../page/#a"></a><a href="https://example.org/none"></a>'
    (tmp_path / "page" / "index.html").write_text(
        f'{page}<a href="#b"></a><a href="../other/"></a><img src="c.png">', encoding="utf-8"
    )
    result = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True)
    lines = ["page/index.html: #b", "page/index.html: ../other/", "page/index.html: c.png"]
    assert (result.returncode, result.stdout.splitlines()) == (1, lines)


def test_the_pages_are_complete(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="checking/"' in start
    assert 'src="_images/finding.svg"' in start
    rules = (site / "rules" / "index.html").read_text(encoding="utf-8")
    for rule in own_rules():
        assert f'href="{rule.name}/"' in rules
    assert (site / "_images" / "layers.svg").is_file()


def test_codes_in_a_page_lead_to_their_pages(site: Path) -> None:
    number = 0
    for page in (site / "rules").glob("*/index.html"):
        for target in re.findall(r'href="\.\./([\w-]+)/"', page.read_text(encoding="utf-8")):
            assert (site / "rules" / target).is_dir(), (page, target)
            number += 1
    assert number > 1000


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_a_page_in_a_browser(site: Path, tmp_path: Path) -> None:
    """Laid out and readable without a network."""
    import matplotlib.image

    assert BROWSER is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += ["--allow-file-access-from-files", "--proxy-server=127.0.0.1:9"]
    options += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1300,1500"]
    options += [f"--screenshot={tmp_path / 'page.png'}"]
    page = site / "rules" / "direct-forward-call" / "index.html"
    subprocess.run([BROWSER, *options, page.as_uri()], check=True, timeout=300, capture_output=True)
    pixels = matplotlib.image.imread(tmp_path / "page.png")[..., :3]
    assert (pixels[5, 900] == 1).all()  # white paper
    assert not (pixels[5, 300] == 1).all()  # beside the coloured list of rules
    # The example is a box of its own, the first words are black and large.
    assert (pixels[:200, 400:900] < 0.2).all(-1).any()
    grey = abs(pixels[:, 1100] - 0xF2 / 255) < 0.01
    assert grey.all(-1).sum() > 100
