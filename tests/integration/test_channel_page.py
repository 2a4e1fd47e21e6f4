# SPDX-License-Identifier: BSD-3-Clause
"""The page of a channel in a real browser: axe-core finds nothing, the search finds packages, nothing of them runs."""

from __future__ import annotations

import html
import importlib.resources
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from channel_tools.channel.model import Channel
from tests.support.programs import program
from tests.unit.channel.toys import make_conda, new_channel, own
from tests.unit.page.sites import publish, toys, write_page

pytestmark = pytest.mark.integration

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
AXE = """axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}).then((found) => {
  const faults = found.violations.map((one) => [one.id, one.nodes[0].html]);
  document.body.textContent = `RESULT${JSON.stringify({faults, passes: found.passes.length})}END`;
});"""
SEARCH = """const words = document.getElementById("search-words");
words.value = "toys";
words.dispatchEvent(new Event("input"));
setTimeout(() => {
  const found = [...document.querySelectorAll("#search-found li")].map((one) => one.textContent);
  document.body.textContent = `RESULT${JSON.stringify({found, ran: window.ran === true})}END`;
}, 1000);"""


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Channel:
    work = tmp_path_factory.mktemp("page")
    channel = new_channel(work)
    hostile = {"summary": "toys <img src=x onerror='ran = true'><script>ran = true</script>"}
    publish(channel, *toys(work / "made"), make_conda(work / "made", "hostile", about=own("d7") | hostile))
    write_page(channel, title="Our toys")
    return channel


def run_in_browser(channel: Channel, page: str, scripts: list[str], work: Path, *looks: str) -> dict[str, object]:
    """What a script of the site itself leaves behind as RESULT...END, in a copy of the site that loads ``scripts``."""
    site = work / "site"
    shutil.copytree(channel.path, site)
    path, root = site / page, "../" * page.count("/")
    tags = ""
    for number, script in enumerate(scripts):
        (site / "page" / f"test-{number}.js").write_text(script)
        tags += f'<script src="{root}page/test-{number}.js" defer></script>'
    path.write_text(path.read_text().replace("</head>", tags + "</head>"))
    browser = Path(program("chromium"))
    sound = ":".join(str(folder) for folder in browser.parents[1].glob("*/pulseaudio"))
    options = ("--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", f"--user-data-dir={work / 'profile'}")
    done = subprocess.run(
        [browser, *options, *looks, "--dump-dom", path.as_uri()],
        env={**os.environ, "LD_LIBRARY_PATH": sound},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search("RESULT(.*)END", done.stdout)
    assert found, done.stderr
    value: dict[str, object] = json.loads(html.unescape(found[1]))
    return value


@pytest.mark.parametrize("looks", [("390", "0"), ("1280", "1")], ids=["phone-dark", "desktop-light"])
@pytest.mark.parametrize("page", ["index.html", "page/name/toy.html", "page/build/linux-64/libtoy-1.0-0.html"])
def test_axe_finds_nothing(channel: Channel, tmp_path: Path, page: str, looks: tuple[str, str]) -> None:
    copy = Channel(path=tmp_path / "open", foundation=channel.foundation)
    shutil.copytree(channel.path, copy.path)
    text = POLICY.sub("", (copy.path / page).read_text())  # axe-core makes styles, which the page forbids
    (copy.path / page).write_text(text.replace("<details>", "<details open>"))
    axe = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    width, scheme = looks
    found = run_in_browser(
        copy,
        page,
        [axe, AXE],
        tmp_path,
        f"--window-size={width},900",
        f"--blink-settings=preferredColorScheme={scheme}",
    )
    assert found["faults"] == []
    assert int(str(found["passes"])) > 20


def test_the_search_finds_packages_and_runs_nothing_of_them(channel: Channel, tmp_path: Path) -> None:
    found = run_in_browser(channel, "index.html", [SEARCH], tmp_path)
    assert found == {
        "found": [
            "hostile 1.0 toys <img src=x onerror='ran = true'><script>ran = true</script>",
            "libtoy 1.0 A library of toys",
        ],
        "ran": False,
    }
