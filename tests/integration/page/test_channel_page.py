# SPDX-License-Identifier: BSD-3-Clause
"""The page of a channel in a real browser: axe-core finds nothing, the search finds packages, nothing of them runs."""

from __future__ import annotations

import html
import importlib.resources
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from channel_tools.channel.model import Channel
from channel_tools.validate import write_page as write_report_page
from tests.support.browsers import POLICY, SCREENSHOTS, Looks, browse, told_by
from tests.unit.page.sites import HOSTILE, OTHERS, STACK, whole_channel, write_page
from tests.unit.validate.reports import whole_report

pytestmark = [pytest.mark.integration, pytest.mark.slow]

REPORT = "report.html"
"""A validation's report, which is no part of a channel's page, but is looked at alike."""
PAGES = (
    "index.html",
    "page/packages-1.html",
    "page/stack/toys.html",
    "page/name/toy.html",
    "page/build/linux-64/libtoy-1.0-0.html",
    REPORT,
)


# runs in a page of its own beside two copies of the site, of which axe-core sees the one without the policy
RUNNER = """<body><script>
const wait = (frame) => new Promise((done) => frame.addEventListener("load", done));
async function opened(path) {
  const frame = document.createElement("iframe");
  frame.width = WIDTH; frame.height = 900; frame.src = path;
  document.body.append(frame);
  await wait(frame);
  return frame;
}
async function judged(path) {
  const frame = await opened(`open/${path}`);
  const axe = frame.contentDocument.createElement("script");
  axe.src = new URL("axe.js", location.href);
  frame.contentDocument.head.append(axe);
  await wait(axe);
  const only = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];
  const found = await frame.contentWindow.axe.run(frame.contentDocument, {runOnly: only});
  const root = frame.contentDocument.documentElement;
  const faults = found.violations.map((one) => [one.id, one.nodes[0].html]);
  const described = frame.contentDocument.querySelector("meta[name=description]");
  if (!described?.content.trim()) faults.push(["no description", path]);
  const reached = focused(frame, "a[href], button, input, summary, [tabindex='0']");
  faults.push(...reached.filter((one) => !one.marked).map((one) => ["no outline", one.html]));
  if (matchMedia("(forced-colors: active)").matches) faults.push(...borderless(frame));
  for (const width of [WIDTH, 640, 320]) { // the last two are a window of 1280 at 200 % and 400 %
    frame.width = width;
    if (root.scrollWidth > root.clientWidth) faults.push([`wider than ${width}`, `${root.scrollWidth}`]);
  }
  frame.remove();
  return {faults, passes: found.passes.length, reached: reached.length};
}
// what keys reach, and whether it has something around it then
function focused(frame, query) {
  const here = frame.contentDocument;
  return [...here.querySelectorAll(query)].flatMap((one) => {
    one.focus();
    if (here.activeElement !== one) return [];
    const shown = one.matches(".tabs > input") ? one.nextElementSibling : one;
    return [{html: one.outerHTML, marked: frame.contentWindow.getComputedStyle(shown).outlineStyle !== "none"}];
  });
}
// what says something by colour alone where the reader's colours replace those of the page
function borderless(frame) {
  const style = (one) => frame.contentWindow.getComputedStyle(one);
  const all = (query) => [...frame.contentDocument.querySelectorAll(query)];
  const bare = all(".chip, .card, .grid tbody td").filter((one) => style(one).borderTopStyle !== "solid");
  const alike = all(".tabs > input:checked + label").filter((one) => {
    const other = one.parentElement.querySelector("input:not(:checked) + label");
    return style(one).borderBottomColor === style(other).borderBottomColor;
  });
  return [...bare, ...alike].map((one) => ["no border", one.outerHTML]);
}
async function searched() {
  const frame = await opened("site/index.html");
  const words = frame.contentDocument.getElementById("search-words");
  words.value = "toys";
  const loaded = new Promise((done) => new MutationObserver(done).observe(
    frame.contentDocument.getElementById("search-found"), {childList: true}));
  words.dispatchEvent(new Event("input"));
  await loaded;
  const found = [...frame.contentDocument.querySelectorAll("#search-found li")].map((one) => one.textContent);
  const marks = [...frame.contentDocument.querySelectorAll("#search-found mark")].map((one) => one.textContent);
  const press = (key, target) => target.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  const here = frame.contentDocument;
  const code = here.querySelector(".commands code");
  const lines = code.querySelector("span").getClientRects().length;
  const keys = [];
  press("/", here.body);
  keys.push(here.activeElement.id);
  press("ArrowDown", here.activeElement);
  keys.push(here.activeElement.pathname.replace(/.*page/, "page"));
  press("Escape", here.activeElement);
  keys.push(here.activeElement.id, here.getElementById("search-panel").hidden);
  const shown = () => [...here.querySelectorAll(".commands > .pane")].map((pane) => pane.offsetHeight > 0);
  const tabs = [shown()];
  here.getElementById("install-mamba").click();
  tabs.push(shown());
  const [box, main] = [here.getElementById("search"), here.getElementById("content")];
  const tops = [true, false].map((hidden) => {
    box.hidden = hidden;
    return main.getBoundingClientRect().top;
  });
  const ran = [frame.contentWindow.ran === true];
  for (const path of ["page/name/hostile.html"]) {
    const other = await opened(`site/${path}`);
    ran.push(other.contentWindow.ran === true);
  }
  return {found, marks, ran, keys, tabs, tops, command: code.textContent, lines};
}
(async () => {
  const forced = matchMedia("(forced-colors: active)").matches;
  const seen = {pages: {}, search: await searched(), forced};
  for (const path of PAGES) seen.pages[path] = await judged(path);
  return seen;
})().catch((fault) => ({fault: String(fault)})).then((seen) => {
  document.body.textContent = `RESULT${JSON.stringify(seen)}END`;
  if (location.protocol === "http:") fetch("/seen", {method: "POST", body: JSON.stringify(seen)});
});
</script></body>"""


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Channel:
    return whole_channel(tmp_path_factory.mktemp("page"))


@pytest.fixture(
    scope="module",
    params=[
        *(Looks(width=width, dark=dark) for width in (390, 1280) for dark in (True, False)),
        Looks(width=390, dark=True, browser="firefox"),
    ],
    ids=["phone-dark", "phone-light", "desktop-dark", "desktop-light", "firefox-forced-colours"],
)
def seen(request: pytest.FixtureRequest, channel: Channel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the runner saw of the pages; one start of the browser for each width."""
    work, looks = tmp_path_factory.mktemp("browser"), request.param
    for name in ("site", "open"):
        shutil.copytree(channel.path, work / name)
    write_report_page(whole_report(), work / "open" / REPORT)
    for path in PAGES:  # axe-core makes styles, which the page forbids
        text = POLICY.sub("", (work / "open" / path).read_text())
        (work / "open" / path).write_text(text.replace("<details>", "<details open>"))
    axe = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    (work / "axe.js").write_text(axe)
    runner = RUNNER.replace("WIDTH", str(looks.width)).replace("of PAGES", f"of {json.dumps(PAGES)}")
    (work / "runner.html").write_text(runner)
    if looks.browser == "firefox":
        said = told_by(looks, work, "runner.html")
    else:
        printed = browse((work / "runner.html").as_uri(), looks, work, "--dump-dom")
        found = re.search("RESULT(.*)END", printed)
        assert found, printed
        said = html.unescape(found[1])
    value: dict[str, Any] = json.loads(said) | {"browser": looks.browser}
    assert "fault" not in value, value
    return value


@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(seen: dict[str, Any], page: str) -> None:
    assert seen["pages"][page]["faults"] == []
    assert seen["pages"][page]["passes"] > 20
    assert seen["pages"][page]["reached"] > 3


def test_the_search_finds_packages_and_nothing_of_them_runs(seen: dict[str, Any]) -> None:
    assert seen["search"]["found"] == [f"hostile 1.0 {HOSTILE}", "libtoy 1.0 A library of toys"]
    assert seen["search"]["marks"] == ["toys", "toys"]
    assert seen["search"]["ran"] == [False, False]
    assert re.search(r"-c (file|http)://.*/site toy$", seen["search"]["command"])
    assert seen["search"]["lines"] == 1  # of --override-channels
    assert seen["search"]["tops"][0] == seen["search"]["tops"][1]  # nothing moves when the search is shown


def test_the_search_and_the_tabs_are_used_by_keys_and_tabs_need_no_script(seen: dict[str, Any]) -> None:
    assert seen["search"]["keys"] == ["search-words", "page/name/hostile.html", "search-words", True]
    assert seen["search"]["tabs"] == [[True, False, False], [False, True, False]]


def test_firefox_alone_forces_its_readers_colours(seen: dict[str, Any]) -> None:
    assert seen["forced"] == (seen["browser"] == "firefox")


def test_a_report_prints_on_two_pages(tmp_path: Path) -> None:
    write_report_page(whole_report(), tmp_path / REPORT)
    printed = tmp_path / "report.pdf"
    looks = Looks(width=1280, dark=False)
    browse((tmp_path / REPORT).as_uri(), looks, tmp_path, f"--print-to-pdf={printed}", "--no-pdf-header-footer")
    pages = re.findall(rb"/Type\s*/Page\b(?!s)", printed.read_bytes())
    assert 1 <= len(pages) <= 2


PHONE, DESKTOP = Looks(width=500, dark=True), Looks(width=1280, dark=False)


@pytest.mark.skipif(SCREENSHOTS not in os.environ, reason=f"{SCREENSHOTS} names the folder for screenshots")
@pytest.mark.parametrize(
    ("name", "place", "height", "looks"),
    [
        ("index-phone", "index.html", 1000, PHONE),
        ("stack-phone", "page/stack/toys.html", 1400, PHONE),
        ("index-desktop", "index.html", 1000, DESKTOP),
        ("stack-desktop", "page/stack/toys.html", 1400, DESKTOP),
        ("package-desktop", "page/name/toy.html", 1000, DESKTOP),
        ("build-desktop", "page/build/linux-64/libtoy-1.0-0.html", 1100, DESKTOP),
    ],
)
def test_screenshots(channel: Channel, tmp_path: Path, name: str, place: str, height: int, looks: Looks) -> None:
    site = Channel(path=tmp_path / "site", foundation=channel.foundation)
    shutil.copytree(channel.path, site.path)
    chosen = {"sentence": "Toys for a stock PyTorch, over the fabrics of our site.", "contact": "toys@our.site"}
    write_page(site, address="https://conda.our.site/ours", stacks=(STACK, *OTHERS), chosen=chosen)
    target = Path(os.environ[SCREENSHOTS]).absolute() / f"page-{name}.png"
    size = f"--window-size={looks.width},{height}"
    browse(
        f"{site.path.as_uri()}/{place}",
        looks,
        tmp_path,
        size,
        "--force-device-scale-factor=0.75",
        f"--screenshot={target}",
    )
    assert target.read_bytes().startswith(b"\x89PNG")
