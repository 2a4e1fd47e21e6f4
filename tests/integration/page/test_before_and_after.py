# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of pages as they were and as they are, for those who judge a change of the look.

CHANNEL_TOOLS_TEST_BEFORE and CHANNEL_TOOLS_TEST_AFTER name output folders (``channel/`` with its page, ``report/``) of
the same packages, written by channel_tools before and after the change.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.browsers import SCREENSHOTS, Looks, browse

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FOLDERS = {when: f"CHANNEL_TOOLS_TEST_{when.upper()}" for when in ("before", "after")}
VIEWS = {
    "front": "channel/index.html",
    "stack": "channel/page/stack/udp.html",
    "package": "channel/page/name/torch-switchml.html",
    "build": "channel/page/build/linux-64/torch-switchml-*.html",
    "list": "channel/page/packages-1.html",
    "search": "channel/index.html",
    "report": "report/udp.html",
}
HEIGHT = 900
SCALE = 0.36
# a frame prefers the colours of its element's color-scheme, so one picture shows both
SHEET = """<!DOCTYPE html><meta charset="utf-8"><style>
body { margin: 0; padding: 20px; width: 3460px; background: #808080; font: 700 40px sans-serif; }
section { display: flex; gap: 20px; }
iframe { border: 0; }
</style><body><script>
(async () => {
  for (const [when, address] of Object.entries(PAGES)) {
    const row = document.createElement("section");
    document.body.append(when, row);
    for (const width of [1280, 390]) for (const scheme of ["light", "dark"]) {
      const frame = document.createElement("iframe");
      Object.assign(frame, {width, height: HEIGHT, src: address});
      frame.style.colorScheme = scheme;
      const loaded = new Promise((done) => frame.addEventListener("load", done));
      row.append(frame);
      await loaded;
      const words = frame.contentDocument.getElementById("search-words");
      if (SEARCHED) {
        words.value = "switch";
        words.dispatchEvent(new Event("input"));
      }
    }
  }
})();
</script>"""


@pytest.mark.skipif(
    any(name not in os.environ for name in (SCREENSHOTS, *FOLDERS.values())),
    reason=f"{SCREENSHOTS}, {' and '.join(FOLDERS.values())} name folders",
)
@pytest.mark.parametrize("view", VIEWS)
def test_screenshots_of_before_and_after(tmp_path: Path, view: str) -> None:
    pages = {}
    for when, variable in FOLDERS.items():
        (page, *_others) = sorted(Path(os.environ[variable]).absolute().glob(VIEWS[view]))
        pages[when] = page.as_uri()
    sheet = SHEET.replace("PAGES", json.dumps(pages)).replace("HEIGHT", str(HEIGHT))
    (tmp_path / "sheet.html").write_text(sheet.replace("SEARCHED", json.dumps(view == "search")))
    target = Path(os.environ[SCREENSHOTS]).absolute() / f"before-after-{view}.webp"
    looks = Looks(width=3460, dark=False)
    size = f"--window-size={looks.width},{2 * HEIGHT + 150}"
    options = (size, f"--force-device-scale-factor={SCALE}", f"--screenshot={target}")
    browse((tmp_path / "sheet.html").as_uri(), looks, tmp_path, *options)
    assert target.read_bytes()[8:12] == b"WEBP"  # which takes half of what a PNG does
