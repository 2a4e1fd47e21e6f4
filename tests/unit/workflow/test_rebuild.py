# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from channel_tools.build.recorded import RecordedBuild, read_recorded
from channel_tools.channel import Foundation, channel_writer, create_channel, index_channel, indexed_files
from channel_tools.conda.archive import PackageInfo
from channel_tools.conda.platforms import current_platform
from channel_tools.sources.model import NeededSource
from channel_tools.sources.store import SourceStore
from channel_tools.system.errors import FoundationError, NetworkError, UsageError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.yamlfile import dump_yaml
from tests.support.packages import make_conda
from tests.unit.audit.packages import Toy

URL = "https://upstream.example/toy-1.0.txt"


def _recorded(recipe: dict[str, Any], **ours: object) -> RecordedBuild:
    info = PackageInfo(
        sha256="",
        md5="",
        size_bytes=0,
        mtime_ns=0,
        index={"name": "toy", "timestamp": 1_600_000_000_123},
        about={"channels": ["channel/"], "extra": {"channel_tools": {"inputs": {}, **ours}}},
        run_exports=None,
        variant=None,
    )
    text = "# Evaluated from recipes/toy/recipe.yaml\n" + dump_yaml(recipe)
    return RecordedBuild(package=Path("toy-1.0-h_0.conda"), info=info, text=text, recipe=recipe, rendered={})


def test_packages_that_the_channel_no_longer_has_are_named(tmp_path: Path) -> None:
    channel = create_channel(tmp_path / "channel", Foundation(kind="registry"))
    inputs = {"foundation:build": "12 h_0 " + "a" * 64, "package:libtoy": "b" * 64, "recipe:build": "c"}

    with pytest.raises(FoundationError, match=f"(?s)no longer has .*build {'a' * 64}\nlibtoy {'b' * 64}$"):
        _recorded({}, inputs=inputs).link_environment(
            channel, tmp_path, environ={}, offline=True, progress=SilentProgress()
        )


def test_packages_that_the_digest_leaves_out_are_wanted_too(tmp_path: Path) -> None:
    channel = create_channel(tmp_path / "channel", Foundation(kind="registry"))
    inputs = {"foundation:host/zlib": "1.3 h_0 " + "a" * 64, "package:libtoy": "b" * 64}
    resolved = [
        {"name": "zlib", "sha256": "a" * 64},
        {"name": "tzdata", "sha256": "c" * 64},
        {"name": "libtoy", "sha256": "d" * 64},
    ]
    recorded = replace(
        _recorded({}, inputs=inputs), rendered={"finalized_dependencies": {"host": {"resolved": resolved}}}
    )

    with pytest.raises(FoundationError, match=f"host/tzdata {'c' * 64}$") as caught:
        recorded.link_environment(channel, tmp_path, environ={}, offline=True, progress=SilentProgress())
    assert "d" * 64 not in str(caught.value)


def test_what_an_index_said_of_run_exports_is_said_again(tmp_path: Path) -> None:
    """The engine records them as the index of its channel has them: a server's shards say that there are none."""
    channel = create_channel(tmp_path / "channel", Foundation(kind="registry"))
    for name in ("said", "unsaid"):
        make_conda(channel.path, name, subdir=current_platform())
    with channel_writer(channel) as writer:
        index_channel(writer)
    hashes = {file.row.name: file.ref.sha256 for file in indexed_files(channel, [current_platform()]).values()}
    resolved: list[dict[str, object]] = [
        {"name": name, "sha256": sha256} | ({"run_exports": {}} if name == "said" else {})
        for name, sha256 in hashes.items()
    ]
    recorded = replace(_recorded({}), rendered={"finalized_dependencies": {"host": {"resolved": resolved}}})

    (own,) = recorded.link_environment(channel, tmp_path / "made", environ={}, offline=True, progress=SilentProgress())

    repodata = json.loads((own.folder / current_platform() / "repodata.json").read_text())
    said = {record["name"]: record.get("run_exports") for record in repodata["packages.conda"].values()}
    assert said == {"said": {}, "unsaid": None}


def test_a_foundation_on_the_network_is_out_of_reach_offline(tmp_path: Path) -> None:
    channel = create_channel(tmp_path / "channel", Foundation(kind="conda-forge", address="https://forge.example"))

    with pytest.raises(NetworkError, match=r"forge\.example needs the network"):
        _recorded({}).link_environment(channel, tmp_path, environ={}, offline=True, progress=SilentProgress())


def _store(folder: Path, content: bytes) -> tuple[SourceStore, str]:
    store, sha256 = SourceStore(folder=folder / "sources"), hashlib.sha256(content).hexdigest()
    file = folder / "toy-1.0.txt"
    file.write_bytes(content)
    need = NeededSource(kind="url", identity=sha256, urls=(URL,), names=("toy-1.0.txt",))
    store.add_file(file, need, origin=URL)
    return store, sha256


def test_sources_are_taken_from_the_store_and_nothing_else_changes(tmp_path: Path) -> None:
    store, sha256 = _store(tmp_path, b"source")
    script = {"env": {"SOURCE_DATE_EPOCH": "5"}, "content": ["make"]}
    source = [{"url": URL, "sha256": sha256, "patches": ["a.patch"]}, {"path": "src"}]
    recorded = _recorded({"source": source, "build": {"script": script}}, sources=[{"url": [URL], "sha256": sha256}])

    text = recorded.recipe_text(store)

    address = store.supply(recorded.sources(store)[0], "toy-1.0.txt").as_uri()
    assert text == recorded.text.replace(URL, address)


def test_a_package_of_before_there_were_dates_is_an_error(tmp_path: Path) -> None:
    info = {"recipe/recipe.yaml": dump_yaml({"build": {"script": "make"}}).encode()}
    package = Toy(extra={"channel_tools": {"inputs": {}}}, info=info).write(tmp_path)
    with pytest.raises(UsageError, match=r"sets no date \(SOURCE_DATE_EPOCH\)"):
        read_recorded(package)
