# SPDX-License-Identifier: BSD-3-Clause
"""A small channel with all that a page shows, and what writes its page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from channel_tools.channel import add_set, channel_writer
from channel_tools.channel.maintenance import relist
from channel_tools.channel.model import Channel
from channel_tools.channel.results import BuildRecord
from channel_tools.page.model import PageChoices, ShownBandwidth, ShownCheck, ShownRun, ShownStack, TreeRecords
from channel_tools.page.write import PageReport, add_page, follow_page
from channel_tools.system.files import sha256_of_file
from tests.support.html_pages import Page, read_page
from tests.support.packages import make_conda, new_channel, own

RECIPE = {
    "finalized_sources": [
        {
            "url": "https://upstream.example/a-1.tar.gz",
            "sha256": "9" * 64,
            "patches": ["_tree/patches/0001-mend.patch"],
        },
        {"path": "src"},
        {"url": "javascript:alert(3)"},
    ]
}
PATCH = b"From 0123 Mon\nSubject: Mend the build\n\nUpstream looks in /usr.\n---\n a.c | 2 +-\ndiff --git a/a.c b/a.c\n"
HOSTILE = "toys <img src=x onerror='ran = true'><script>ran = true</script>"
ICONS = 2
"""In every page: the mark of the channel, and that of the search."""
YANKED = {"linux-64/toy-1.0-py12_pt6.conda": "wrong sums"}


def write_page(
    channel: Channel,
    *,
    title: str | None = None,
    address: str | None = None,
    stacks: tuple[ShownStack, ...] = (),
    builds: Mapping[str, BuildRecord] = MappingProxyType({}),
    chosen: Mapping[str, object] = MappingProxyType({}),
) -> PageReport:
    stacks = tuple(
        dataclasses.replace(stack, runs=tuple(with_files(channel, run) for run in stack.runs)) for stack in stacks
    )
    known = TreeRecords(stacks=stacks, builds=builds)
    choices = PageChoices(title=title, address=address)
    choices = dataclasses.replace(choices, **chosen)  # type: ignore[arg-type]
    with channel_writer(channel) as writer:
        return add_page(writer, choices, known=known)


def run_of(day: int, *packages: str, mb_s: float = 1000.0, **others: object) -> ShownRun:
    run = ShownRun(
        started=f"2026-11-{day:02}T10:00:00+00:00",
        seconds=38.6,
        passed=True,
        ranks=4,
        hosts=1,
        processor="A processor",
        cores=2,
        python="3.11.2",
        pytorch="2.5.1",
        baseline="gloo",
        packages=packages,
        checks=(ShownCheck(name="sums are exact", passed=True, found="0 wrong", expected="0 wrong"),),
        bandwidth=(ShownBandwidth(dtype="int32", size_bytes=4 << 20, transport_mb_s=mb_s, baseline_mb_s=500.0),),
    )
    return dataclasses.replace(run, **others)  # type: ignore[arg-type]


def with_files(channel: Channel, run: ShownRun) -> ShownRun:
    """A run of the files that the channel has under the names of its packages, of one platform; "" for others."""
    if run.sha256:
        return run
    files = [sorted(channel.path.glob(f"*/{stem}.conda")) for stem in run.packages]
    return dataclasses.replace(run, sha256=tuple(sha256_of_file(found[-1]) if found else "" for found in files))


def publish(channel: Channel, *files: Path) -> PageReport | None:
    with channel_writer(channel) as writer:
        add_set(writer, files)
        return follow_page(writer)


def toys(folder: Path) -> list[Path]:
    about = own("d1") | {
        "summary": "A library of toys",
        "home": "https://upstream.example/",
        "dev_url": "javascript:alert(4)",
    }
    info = {
        "info/recipe/rendered_recipe.yaml": json.dumps(RECIPE).encode(),
        "info/recipe/_tree/patches/0001-mend.patch": PATCH,
    }
    return [
        make_conda(
            folder,
            "libtoy",
            about=about,
            info=info,
            run_exports={"weak": ["libtoy >=1.0,<2"]},
            index={"license": "BSD-3-Clause"},
        ),
        *(
            make_conda(
                folder,
                "toy",
                build=f"py{python}_pt{pytorch}",
                about=own(f"{python}{pytorch}"),
                variant={"python": f"3.{python}.* *_cpython", "pytorch": f"2.{pytorch}"},
                index={"depends": ["libtoy >=1.0,<2", "__glibc >=2.28,<3", f"python 3.{python}.*", "elsewhere"]},
            )
            for python, pytorch in ((11, 5), (11, 6), (12, 6))
        ),
    ]


def rows_of(mb_s: float) -> tuple[ShownBandwidth, ...]:
    """Figures by size for two types: faster than the baseline for small tensors, slower for one of the large ones."""
    figures = {1 << 16: (0.05, 0.012), 1 << 20: (0.4, 0.2), 1 << 22: (0.8, 0.75), 1 << 26: (1.0, 1.1)}
    return tuple(
        ShownBandwidth(
            dtype=dtype,
            size_bytes=size,
            transport_mb_s=mb_s * own * share,
            baseline_mb_s=900 * other,
        )
        for dtype, share in (("float32", 0.9), ("int32", 1.15))
        for size, (own, other) in figures.items()
    )


STACK = ShownStack(
    name="toys",
    description="Toys for a stock PyTorch",
    install=("toy",),
    validated=True,
    runs=tuple(
        run_of(day, "toy-1.0-py11_pt5", "libtoy-1.0-0", bandwidth=rows_of(900 + 37 * (day % 5))) for day in range(1, 20)
    ),
)
OTHERS = (
    ShownStack(
        name="toys-fast", description="Toys over another fabric; needs its cards", install=("toy",), validated=True
    ),
    ShownStack(name="tools", description="What the toys are made with", install=("libtoy",)),
)


def whole_channel(work: Path) -> Channel:
    """A channel in the new folder ``work`` whose page has all that one can have: stacks, validations, yanked."""
    channel = new_channel(work)
    hostile = make_conda(work / "made", "hostile", about=own("d7") | {"summary": HOSTILE})
    older = make_conda(work / "made", "libtoy", version="0.9", about=own("d0"), index={"depends": ["older"]})
    publish(channel, *toys(work / "made"), hostile, older)
    with channel_writer(channel) as writer:
        hidden = {"linux-64/toy-1.0-py11_pt6.conda": "superseded by another"}
        relist(writer, lambda loaded: dataclasses.replace(loaded.listing, hidden=hidden, yanked=YANKED))
    names = ("libtoy-1.0-0.conda", "toy-1.0-py11_pt5.conda")
    write_page(
        channel,
        title="Our channel",
        stacks=(STACK, *OTHERS),
        builds={
            name: BuildRecord(file_name=name, finished="2026-11-20T09:30:00+00:00", seconds=34.0) for name in names
        },
    )
    return channel


def read(path: Path) -> Page:
    """A page that was written."""
    return read_page(path.read_text(encoding="utf-8"))


def pages(channel: Channel) -> dict[str, Page]:
    """All pages of a channel, by their path in it."""
    paths = [channel.path / "index.html", *sorted((channel.path / "page").rglob("*.html"))]
    return {path.relative_to(channel.path).as_posix(): read(path) for path in paths}
