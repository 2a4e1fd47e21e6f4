# SPDX-License-Identifier: BSD-3-Clause
"""Pages can be read in both schemes, say what an owner has them say, and stay small."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path

import pytest

from channel_tools.channel import channel_writer
from channel_tools.channel.listing import with_foundation
from channel_tools.channel.maintenance import relist
from channel_tools.channel.model import Channel
from channel_tools.foundation.model import DATA_FOLDER
from channel_tools.foundation.summaries import summary_of
from channel_tools.page.front import speeds
from channel_tools.page.model import ShownBandwidth, ShownStack
from channel_tools.page.render import HERE, as_tree, command
from channel_tools.page.write import follow_page
from channel_tools.pins.explicit import parse_explicit
from channel_tools.system.pages import SHARED_TEMPLATES, day
from channel_tools.system.progress import format_amount
from channel_tools.system.yamlfile import load_plain_yaml
from tests.support.html_pages import read_page
from tests.support.packages import make_conda, new_channel, own
from tests.unit.page.sites import publish, run_of, toys, whole_channel, write_page

SURFACES = {"light": ("#ffffff", "#f5f7f9"), "dark": ("#14181d", "#1d2229")}
MOST_BYTES = 60_000
CONTRAST = 4.5
"""What WCAG 2.1 asks of AA."""


def contrast(colour: str, other: str) -> float:
    """The contrast of two colours (#rrggbb) by WCAG 2.1, 1 to 21."""

    def luminance(text: str) -> float:
        parts = [part / 255 for part in bytes.fromhex(text[1:])]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(factor * part for factor, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    lighter, darker = sorted((luminance(colour), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def rules_of(style: str) -> dict[str, dict[str, str]]:
    """The colours of both schemes in a style sheet, by name."""
    light, _media, dark = style.partition("@media (prefers-color-scheme: dark)")
    found = {}
    for scheme, text in (("light", light), ("dark", dark.partition("\n}\n")[0])):
        found[scheme] = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", text))
    return found


def test_the_colours_of_all_pages_can_be_read() -> None:
    for scheme, rules in rules_of((SHARED_TEMPLATES / "tokens.css").read_text()).items():
        assert (rules["paper"], rules["raised"]) == SURFACES[scheme]
        for text in ("ink", "soft", "good", "bad", "warn", "accent", "focus"):
            for surface in SURFACES[scheme]:
                assert contrast(rules[text], surface) >= CONTRAST, (scheme, text, surface)
        for kind in ("good", "bad", "warn", "accent"):
            assert contrast(rules[kind], rules[f"{kind}-back"]) >= CONTRAST, (scheme, kind)


def test_the_documentation_has_the_same_tokens() -> None:
    docs = Path(__file__).parents[3] / "docs" / "css"
    assert (docs / "tokens.css").read_bytes() == (SHARED_TEMPLATES / "tokens.css").read_bytes()
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", (docs / "look.css").read_text()))
    assert used
    assert used <= set(re.findall(r"(--[a-z0-9-]+):", (docs / "tokens.css").read_text()))


def test_black_on_white_has_the_contrast_that_wcag_states() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    channel = new_channel(tmp_path)
    publish(channel, *toys(tmp_path / "made"))
    return channel


def test_a_channel_has_its_own_sentence_and_contact(channel: Channel) -> None:
    write_page(channel, chosen={"sentence": "Toys & tools", "contact": "toys@our.site"})
    front = (channel.path / "index.html").read_text()
    assert "Toys &amp; tools" in front
    assert 'href="mailto:toys%40our.site"' in front
    assert write_page(channel).written == 0  # what is not said stays as it is


def test_the_front_page_stays_small_and_shows_the_channels_own_first(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    summary: dict[str, object] = {"summary": "A library for what libraries of its kind are for"}
    ours = [
        make_conda(tmp_path / "made", f"our{number:03}", about=own(f"o{number}") | summary) for number in range(160)
    ]
    theirs = [make_conda(tmp_path / "made", f"a{number:03}", about=summary) for number in range(200)]
    publish(channel, *ours, *theirs)
    keys = [f"linux-64/{path.name}" for path in theirs]
    with channel_writer(channel) as writer:
        relist(writer, lambda loaded: with_foundation(loaded.listing, keys))
    stacks = tuple(
        ShownStack(
            name=f"stack{number}", description="Toys over one fabric, for a stock PyTorch", install=("our001",),
            validated=True, runs=(run_of(20, "our001-1.0-0"),),
        )
        for number in range(20)
    )  # fmt: skip
    write_page(channel, stacks=stacks)
    front = (channel.path / "index.html").read_bytes()
    assert len(front) <= MOST_BYTES
    assert front.index(b"our000") < front.index(b"a000.html")
    assert b"200 packages of the foundation" in front
    assert b"linux-64 (160)" in front  # what they were made for counts the channel's own alone
    listed = (channel.path / "page/packages-1.html").read_text()
    assert listed.count('<li class="third">') == 200
    assert 'id="show-own"' in listed


def test_packages_of_the_foundation_without_a_summary_have_one() -> None:
    names = load_plain_yaml((DATA_FOLDER / "native.yaml").read_bytes())["packages"]
    assert [name for name in names if not summary_of(name)] == []
    lines = load_plain_yaml((DATA_FOLDER / "summaries.json").read_bytes())
    # some bases take from Debian what others take from wheels
    others = load_plain_yaml((DATA_FOLDER / "registry.yaml").read_bytes())["packages"]
    assert [name for name in lines if name not in {*names, *others}] == []


def test_a_stack_has_what_is_built_for_it_and_what_it_installs_depends_on(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    variant = {"python": "3.11.* *_cpython", "pytorch": "2.5"}
    other = {"python": "3.11.* *_cpython", "pytorch": "2.6"}
    made = tmp_path / "made"
    publish(
        channel,
        make_conda(made, "face", about=own("1"), variant=variant, index={"depends": ["plugin", "elsewhere"]}),
        make_conda(made, "plugin", build="five", about=own("2"), variant=variant, index={"depends": ["core"]}),
        make_conda(made, "plugin", build="six", about=own("3"), variant=other),
        make_conda(made, "core", about=own("4")),
        make_conda(made, "unrelated", about=own("5")),
    )
    stack = ShownStack(name="toys", description="Toys", install=("face",), packages=("core", "plugin", "face"))
    write_page(channel, stacks=(stack,))
    page = (channel.path / "page/stack/toys.html").read_text()
    listed = re.findall(r">([a-z0-9.-]+)</a></li>", page.partition("<h3>Builds</h3>")[2])
    assert listed == ["face-1.0-0", "plugin-1.0-five", "core-1.0-0"]


def test_a_stack_that_is_slower_says_so(channel: Channel) -> None:
    rows = tuple(
        ShownBandwidth(dtype=dtype, size_bytes=size, transport_mb_s=mb_s, baseline_mb_s=100.0)
        for dtype, size, mb_s in (("float32", 1 << 16, 300.0), ("float32", 1 << 22, 60.0), ("int32", 1 << 22, 90.0))
    )
    run = run_of(20, "toy-1.0-py11_pt5", bandwidth=rows)
    assert speeds(run) == (("64 KiB", "3", False), ("4 MiB", "0.6 to 0.9", True))
    here = dataclasses.replace(
        run,
        carrier_here="this host's memory",
        bandwidth_here=(ShownBandwidth(dtype="float32", size_bytes=4 << 20, transport_mb_s=900, baseline_mb_s=300),),
    )
    assert speeds(here) == (("4 MiB", "3", False),)
    stack = ShownStack(name="toys", description="Toys", install=("toy",), validated=True, runs=(run,))
    write_page(channel, stacks=(stack,))
    page = " ".join((channel.path / "page/stack/toys.html").read_text().split())
    assert (
        "slower than gloo, with this share of its bandwidth, for float32 of 4 MiB (0.60), int32 of 4 MiB (0.90); it was"
        in page
    )
    assert "0.6 to 0.9 × gloo (slower)" in (channel.path / "index.html").read_text()  # noqa: RUF001


def test_the_files_of_a_package_are_a_tree_with_the_size_of_each_folder() -> None:
    (folder, alone) = as_tree([("lib/a/b/one", 3), ("lib/a/b/two", None), ("top", 1)])
    assert (folder.name, folder.size_bytes, folder.file_count) == ("lib/a/b", 3, 2)
    assert [(one.name, one.size_bytes) for one in folder.entries] == [("one", 3), ("two", None)]
    assert (alone.name, alone.entries) == ("top", ())


def test_a_day_is_said_as_people_do_with_the_exact_time_beside_it() -> None:
    assert day("2026-11-26T23:33:22+02:00") == (
        '<time datetime="2026-11-26T21:33:22Z" title="2026-11-26 21:33 UTC">26 November 2026</time>'
    )
    assert day("<b>\x1b soon") == "&lt;b&gt;\ufffd soon"


def test_no_word_of_a_command_is_broken_in_two_and_comments_stand_back() -> None:
    said = command("pixi add -c 'a<b-c' --no-deps torch-mpi https://x-y.z   # --why a-b")
    assert said == (
        "pixi add -c &#39;a&lt;b-c&#39; <span>--no-deps</span> <span>torch-mpi</span> https://x-y.z"
        ' <i class="after"># <span>--why</span> <span>a-b</span></i>'
    )
    assert command("# first\nls # then") == '<i># first</i>\nls <i class="after"># then</i>'
    assert "<span>" not in command(f"conda install {'a-' * 20}")  # which does not fit a line of a phone
    style = (HERE / "static/page.css").read_text()
    assert re.search(r"^code span \{[^}]*white-space: nowrap", style, re.MULTILINE)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "In the activated environment, with channel_tools from its wheel (pip install channel_tools-VERSION-"),
        (
            ("torchrun train.py",),
            "In the activated environment:\ntorchrun train.py\nOr with channel_tools from its wheel",
        ),
    ],
    ids=["only with channel_tools", "without it, too"],
)
def test_a_stack_says_how_to_run_a_script_in_one_sentence(channel: Channel, lines: tuple[str, ...], said: str) -> None:
    stack = ShownStack(name="toys", description="Toys", install=("toy",), validated=True, how_to_run=lines)
    write_page(channel, stacks=(stack,))
    words = read_page((channel.path / "page/stack/toys.html").read_text()).words
    assert said in words


def test_a_stack_of_one_python_and_pytorch_has_a_line_and_one_of_more_a_table(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    publish(channel, *toys(tmp_path / "made")[:2])
    stack = ShownStack(name="toys", description="Toys", install=("toy",), validated=True)
    write_page(channel, stacks=(stack,))
    front = (channel.path / "index.html").read_text()
    assert re.search(r"Python 3\.11, PyTorch 2\.5: \w", read_page(front).words)
    assert 'class="grid"' not in front
    publish(channel, *toys(tmp_path / "made")[2:])
    assert 'class="grid"' in (channel.path / "index.html").read_text()


def test_a_stack_offers_the_list_of_what_was_validated(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    files = toys(tmp_path / "made")
    publish(channel, *files)
    run = run_of(20, "toy-1.0-py11_pt5", "libtoy-1.0-0")
    stack = ShownStack(name="toys", description="Toys", install=("toy",), validated=True, runs=(run,))
    write_page(channel, stacks=(stack,))
    path, page = channel.path / "page/stack/toys.txt", channel.path / "page/stack/toys.html"
    assert not path.exists()  # without the channel's address
    size = sum(file.stat().st_size for file in files[:2])
    assert f"Download {format_amount(size, unit='bytes')} in 2 packages" in read_page(page.read_text()).words
    write_page(channel, address="https://conda.our.site/ours", stacks=(stack,))
    lock = parse_explicit(path.read_text(), path)
    assert [package.url for package in lock.platforms[0].packages] == [  # dependencies first
        f"https://conda.our.site/ours/linux-64/{name}" for name in ("libtoy-1.0-0.conda", "toy-1.0-py11_pt5.conda")
    ]
    assert {one.sha256 for one in lock.platforms[0].packages} == {digest(file) for file in files[:2]}
    said = "curl --fail --location --netrc-optional --remote-name https://conda.our.site/ours/page/stack/toys.txt"
    assert said in read_page(page.read_text()).words  # private channels, too, and those behind a redirect
    with channel_writer(channel) as writer:
        yanked = {"linux-64/libtoy-1.0-0.conda": "wrong"}
        relist(writer, lambda loaded: dataclasses.replace(loaded.listing, yanked=yanked))
        follow_page(writer)
    assert not path.exists()  # what was yanked is offered no more
    assert "Install exactly what was validated" not in page.read_text()


def test_the_list_of_what_was_validated_has_the_builds_of_one_platform(tmp_path: Path) -> None:
    """As of a foundation of several platforms, in which a file name may stand for a file of each."""
    channel = new_channel(tmp_path)
    publish(
        channel,
        make_conda(tmp_path / "made", "mutex", subdir="linux-64"),
        make_conda(tmp_path / "made", "mutex", subdir="linux-aarch64"),
        make_conda(tmp_path / "made", "toy", subdir="linux-aarch64", about=own("d1"), index={"depends": ["mutex"]}),
    )
    run = run_of(20, "mutex-1.0-0", "toy-1.0-0")
    stack = ShownStack(name="toys", description="Toys", install=("toy",), validated=True, runs=(run,))
    write_page(channel, address="https://conda.our.site/ours", stacks=(stack,))
    path = channel.path / "page/stack/toys.txt"
    (platform,) = parse_explicit(path.read_text(), path).platforms
    assert platform.platform == "linux-aarch64"
    assert [one.ref.key.subdir for one in platform.packages] == ["linux-aarch64"] * 2


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_the_front_page_with_its_style_and_script_stays_small(tmp_path: Path) -> None:
    channel = whole_channel(tmp_path)
    loaded = [channel.path / name for name in ("index.html", "page/page.css", "page/page.js")]
    page = read_page(loaded[0].read_text())
    assert {name for name in page.values("src") + page.values("href") if name.endswith((".css", ".js"))} == {
        path.relative_to(channel.path).as_posix() for path in loaded[1:]
    }
    assert sum(path.stat().st_size for path in loaded) <= MOST_BYTES
