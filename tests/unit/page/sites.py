# SPDX-License-Identifier: BSD-3-Clause
"""A small channel with all that a page shows, and what writes its page."""

from __future__ import annotations

import json
from pathlib import Path

from channel_tools.channel import add_packages, channel_writer
from channel_tools.channel.model import Channel
from channel_tools.page import PageReport, add_page, refresh_page
from tests.unit.channel.toys import make_conda, own

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


def write_page(channel: Channel, **given: object) -> PageReport:
    settings = {"title": None, "address": None, "stacks": None} | given
    with channel_writer(channel) as writer:
        return add_page(writer, **settings)  # type: ignore[arg-type]


def publish(channel: Channel, *files: Path) -> PageReport | None:
    with channel_writer(channel) as writer:
        add_packages(writer, files)
        return refresh_page(writer)


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
