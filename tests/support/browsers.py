# SPDX-License-Identifier: BSD-3-Clause
"""Pages in Debian's browsers: what one prints of a page, and what a page that it runs tells a server."""

from __future__ import annotations

import mimetypes
import os
import queue
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from channel_tools.system.processes import running_program
from tests.support.processes import TEST_TIMEOUT_S, wait_for
from tests.support.programs import program
from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted

SCREENSHOTS = "CHANNEL_TOOLS_TEST_SCREENSHOTS"
"""The variable that names the folder for pictures of pages and terminals."""
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
"""What a page allows itself; a test's own script runs in a copy without it."""
KEPT_OPEN: dict[str, tuple[str, ...]] = {"firefox": (), "chromium": ("--remote-debugging-port=0",)}
"""Without it, Chromium ends when a page is loaded."""
PREFERENCES = """\
user_pref("layout.css.prefers-color-scheme.content-override", SCHEME);
user_pref("browser.display.document_color_use", 2);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
"""
"""Firefox's: it replaces the colours of pages by the reader's, opens no page of its own and connects to nothing.

SCHEME is 0 for dark, 1 for light.
"""


@dataclass(frozen=True, kw_only=True)
class Looks:
    """A window's width, the colours that the reader prefers, and the browser."""

    width: int
    dark: bool
    browser: str = "chromium"


# without rules of its own, fontconfig takes a serif font for all that is not named
FONTS = """<fontconfig><dir>{fonts}</dir><cachedir>{cache}</cachedir>
<match><test name="family"><string>ui-monospace</string></test>
<edit name="family" mode="assign" binding="same"><string>DejaVu Sans Mono</string></edit></match>
<match><test name="family" compare="not_contains"><string>Mono</string></test>
<edit name="family" mode="assign" binding="same"><string>DejaVu Sans</string></edit></match>
</fontconfig>"""


def font_settings(browser: Path, work: Path) -> Path:
    """Fontconfig's file with the fonts beside a browser, which ends where it finds no font at all."""
    fonts = work / "fonts.conf"
    fonts.write_text(FONTS.format(fonts=browser.parents[2] / "share" / "fonts", cache=work / "fonts"))
    return fonts


def browse(address: str, looks: Looks, work: Path, *options: str) -> str:
    """What Chromium prints with ``options`` beside those of all."""
    command, env = _chromium(looks, work)
    done = subprocess.run(
        [*command, "--virtual-time-budget=60000", "--allow-file-access-from-files", *options, address],
        env=env,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT_S,
        check=True,
    )
    return f"{done.stdout}\n{done.stderr}"


def told_by(looks: Looks, work: Path, page: str) -> str:
    """What the page in the folder ``work`` sends to /seen, in a browser that it is served to as a channel is."""
    told: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def reply(asked: Asked) -> Reply:
        if asked.method == "POST":
            told.put(asked.body)
            return 204, {}, b""
        file = work / unquote(asked.path.lstrip("/"))
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return (200, {"Content-Type": kind}, file.read_bytes()) if file.is_file() else (404, {}, b"")

    command, env = (_firefox if looks.browser == "firefox" else _chromium)(looks, work)
    command += KEPT_OPEN[looks.browser]
    log = work / "browser.log"
    with (
        scripted(ScriptedServer(reply)) as server,
        running_program(looks.browser, [*command, f"{server.origin}/{page}"], env=env, cwd=work, log=log) as browser,
    ):
        wait_for(lambda: not told.empty() or browser.has_ended())
        assert not told.empty(), log.read_text()
        return told.get().decode()


def _firefox(looks: Looks, work: Path) -> tuple[list[str], dict[str, str]]:
    browser = Path(program("firefox"))
    profile = work / "profile"
    profile.mkdir()
    (profile / "user.js").write_text(PREFERENCES.replace("SCHEME", "0" if looks.dark else "1"))
    env = {**os.environ, "HOME": str(work), "FONTCONFIG_FILE": str(font_settings(browser, work))}
    return [str(browser), "--headless", "--no-remote", "--profile", str(profile)], env


def _chromium(looks: Looks, work: Path) -> tuple[list[str], dict[str, str]]:
    browser = Path(program("chromium"))
    sound = ":".join(str(folder) for folder in browser.parents[1].glob("*/pulseaudio"))
    command = [
        *(str(browser), "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={work / 'profile'}"),
        *(f"--window-size={looks.width},900", f"--blink-settings=preferredColorScheme={0 if looks.dark else 1}"),
    ]
    return command, {**os.environ, "LD_LIBRARY_PATH": sound, "FONTCONFIG_FILE": str(font_settings(browser, work))}
