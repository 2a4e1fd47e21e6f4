# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import subprocess
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
import rattler

from channel_tools.environments import EnvironmentResult, create_environment
from channel_tools.system.errors import ChannelError, IntegrityError, NetworkError, SolveError, UsageError
from channel_tools.system.files import exclusive_lock
from channel_tools.system.progress import SilentProgress
from tests.unit.environments.toychannel import SUBDIR, ToyChannel, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from channel_tools.environments.create import Check
    from channel_tools.system.progress import Progress, Task

    Damage = Callable[[Path], None]


@dataclass(frozen=True, kw_only=True)
class Installer:
    """create_environment with everything in one temporary folder."""

    root: Path
    address: str
    prefix_name: str = "env"

    @property
    def prefix(self) -> Path:
        return self.root / self.prefix_name

    def __call__(
        self,
        *specs: str,
        address: str | None = None,
        progress: Progress | None = None,
        virtual_packages: Sequence[rattler.GenericVirtualPackage] = (),
        check: Check | None = None,
    ) -> EnvironmentResult:
        return asyncio.run(
            create_environment(
                self.prefix,
                specs,
                [address or self.address],
                package_cache=self.root / "pkgs",
                subdir=SUBDIR,
                progress=progress or SilentProgress(),
                virtual_packages=virtual_packages,
                check=check,
            )
        )


@pytest.fixture
def install(tmp_path: Path, channel: ToyChannel) -> Installer:
    return Installer(root=tmp_path, address=channel.address)


@pytest.mark.parametrize(
    ("name", "message"), [("a:b", "cannot work at a path with ':'"), ("long/" * 60, "packages have room for 255")]
)
def test_a_prefix_that_cannot_work_is_refused_before_anything_is_made(
    install: Installer, name: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        asyncio.run(
            create_environment(
                install.root / name,
                ["tool"],
                [install.address],
                package_cache=install.root / "pkgs",
                subdir=SUBDIR,
                progress=SilentProgress(),
            )
        )
    assert not (install.root / "pkgs").exists()
    assert not (install.root / name.partition("/")[0]).exists()


def names(result: EnvironmentResult) -> list[str]:
    return [f"{record.name}-{record.version}" for record in result.records]


class TestNewEnvironment:
    def test_holds_the_solution(self, install: Installer) -> None:
        result = install("tool")
        assert names(result) == ["library-2.0", "tool-1.0"]
        assert result.changed == 2
        assert result.size_bytes > 200_000

    def test_a_record_that_is_cut_off_as_it_is_written_is_an_error(self, install: Installer, tmp_path: Path) -> None:
        """py-rattler reports no error of its last write; the limit is met only with the requested specs."""
        toy = ToyChannel(root=tmp_path / "many")
        toy.add("many", files={f"share/many/{number}": b"" for number in range(99)})
        first, second = (replace(install, address=toy.address, prefix_name=name) for name in ("env", "other"))
        first("many")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        whole = (first.prefix / "conda-meta/many-1.0-0.json").read_bytes()
        named = len(str(second.prefix)) - len(str(first.prefix))
        size = len(whole) + named * whole.count(bytes(first.prefix))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, limits[1]))
        try:
            with pytest.raises(ChannelError, match=r"cannot be installed into .*other: .*EOF while parsing") as caught:
                second("many")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert caught.value.hint == "run the same command again: complete packages are kept"
        assert names(second("many")) == ["many-1.0"]
        assert len((second.prefix / "conda-meta/many-1.0-0.json").read_bytes()) == size

    def test_its_programs_know_their_prefix(self, install: Installer) -> None:
        install("tool")
        printed = subprocess.run([install.prefix / "bin/tool"], capture_output=True, text=True, check=True).stdout
        assert printed == f"{install.prefix}/share\n"

    @pytest.mark.parametrize("spec", ["library=1.0=0", "library=*=0*", "library ==2.0 0", "library[version='>=1']"])
    def test_reads_specs_as_conda_does(self, install: Installer, spec: str) -> None:
        assert install(spec).changed == 1

    def test_takes_a_folder_for_a_channel(self, install: Installer, channel: ToyChannel) -> None:
        assert names(install("library ==1.0", address=str(channel.root))) == ["library-1.0"]

    def test_takes_a_served_channel(self, install: Installer, channel: ToyChannel) -> None:
        with served(channel.root) as address:
            assert names(install("tool", address=address)) == ["library-2.0", "tool-1.0"]

    def test_an_empty_folder_will_do(self, install: Installer) -> None:
        install.prefix.mkdir()
        assert install("library").changed == 1

    def test_notes_what_was_asked_for(self, install: Installer) -> None:
        install("tool >=1")
        requested = {
            record["name"]: record.get("requested_specs", [])
            for record in (json.loads(path.read_text()) for path in (install.prefix / "conda-meta").glob("*.json"))
        }
        assert requested == {"tool": ["tool >=1"], "library": []}

    def test_leaves_no_marker(self, install: Installer) -> None:
        install("tool")
        assert not (install.prefix / "conda-meta/.channel_tools-unfinished").exists()

    def test_reports_every_package(self, install: Installer) -> None:
        progress = RecordingProgress()
        install("tool", progress=progress)
        assert progress.totals == [2, 2]  # fetched, installed
        assert progress.advanced == 4


class TestExistingEnvironment:
    def test_nothing_is_done_where_the_solution_stands(self, install: Installer) -> None:
        install("tool")
        before = {path: path.stat().st_mtime_ns for path in install.prefix.rglob("*") if path.suffix != ".owner"}
        progress = RecordingProgress()
        assert install("tool", progress=progress).changed == 0
        assert progress.totals == []
        after = {path: path.stat().st_mtime_ns for path in install.prefix.rglob("*") if path.suffix != ".owner"}
        assert after == before

    def test_it_is_brought_to_another_solution(self, install: Installer) -> None:
        install("tool")
        progress = RecordingProgress()
        result = install("library ==1.0", progress=progress)
        assert names(result) == ["library-1.0"]
        assert result.changed == 2
        assert progress.notes == [f"{install.prefix}: removes packages that are not part of it: tool"]
        assert (install.prefix / "lib/library").read_bytes() == b"one"
        assert not (install.prefix / "bin/tool").exists()

    def test_new_bytes_under_an_old_name_are_installed(self, install: Installer, channel: ToyChannel) -> None:
        install("library ==1.0")
        channel.add("library", version="1.0", files={"lib/library": b"uno"})
        assert install("library ==1.0").changed == 1
        assert (install.prefix / "lib/library").read_bytes() == b"uno"

    def test_one_user_at_a_time(self, install: Installer) -> None:
        install("library")
        lock = install.prefix / "conda-meta/.channel_tools.lock"
        with exclusive_lock(lock, resource="x"), pytest.raises(ChannelError, match="in use by process"):
            install("tool")

    @pytest.mark.parametrize(
        "how", ["library-2.0-0\ntool-1.0-0\n", "library-2.0", ""], ids=["marked", "marked in part", "begun"]
    )
    def test_an_interrupted_one_is_made_whole(self, install: Installer, how: str) -> None:
        install("tool")
        (install.prefix / "conda-meta/.channel_tools-unfinished").write_text(how)
        (install.prefix / "lib/library").unlink()
        (install.prefix / "conda-meta/tool-1.0-0.json").write_text('{"na')
        (install.prefix / "bin/tool").write_text("half")
        assert install("tool").changed == 2
        assert (install.prefix / "lib/library").stat().st_size == 200_000
        assert (install.prefix / "bin/tool").read_text().startswith("#!/bin/sh")
        assert install("tool").changed == 0

    def test_leftovers_of_an_interrupted_creation_go(self, install: Installer) -> None:
        install("tool")
        (install.prefix / "conda-meta/.channel_tools-unfinished").write_text("tool-1.0-0\n")
        (install.prefix / "conda-meta/tool-1.0-0.json").unlink()
        install("library")
        assert not (install.prefix / "bin/tool").exists()

    def test_an_unreadable_record_is_named(self, install: Installer) -> None:
        install("tool")
        (install.prefix / "conda-meta/tool-1.0-0.json").write_text('{"na')
        with pytest.raises(IntegrityError, match=r"conda-meta/tool-1\.0-0\.json: the record"):
            install("tool")


class TestClashingFiles:
    def test_what_is_left_out_is_said(self, install: Installer, channel: ToyChannel) -> None:
        channel.add("first", files={"share/same": b"first", "share/own": b""}, index=False)
        channel.add("second", files={"share/same": b"second"})
        progress = RecordingProgress()
        install("first", "second", progress=progress)
        assert (install.prefix / "share/same").read_bytes() == b"first"
        (note,) = progress.notes
        assert note.endswith("left out: share/same of second")


class TestLinkScripts:
    @pytest.mark.parametrize("action", ["pre-link", "post-link", "pre-unlink", "post-unlink"])
    def test_scripts_that_are_not_run_are_named(self, install: Installer, channel: ToyChannel, action: str) -> None:
        channel.add(
            "scripted", files={f"bin/.scripted-{action}.sh": b'touch "$PREFIX/ran"', "bin/other-post-link.sh": b""}
        )
        progress = RecordingProgress()
        install("scripted", progress=progress)
        (note,) = progress.notes
        assert note.endswith(f"scripts that conda runs and this command does not: bin/.scripted-{action}.sh")
        assert not (install.prefix / "ran").exists()

    def test_windows_scripts_mean_nothing_here(self, install: Installer, channel: ToyChannel) -> None:
        channel.add("scripted", files={"Scripts/.scripted-post-link.bat": b"echo"})
        progress = RecordingProgress()
        install("scripted", progress=progress)
        assert progress.notes == []

    def test_the_scripts_for_a_removal_are_named_before_they_are_gone(
        self, install: Installer, channel: ToyChannel
    ) -> None:
        script = "bin/.scripted-pre-unlink.sh"
        channel.add("scripted", files={script: b"", "bin/.scripted-post-link.sh": b""})
        install("scripted", "tool")
        progress = RecordingProgress()
        install("tool", progress=progress)
        assert [note for note in progress.notes if "does not" in note] == [
            f"{install.prefix}: packages have scripts that conda runs and this command does not: {script}"
        ]


class TestRefusedPrefix:
    def test_a_file(self, install: Installer) -> None:
        install.prefix.write_text("mine")
        with pytest.raises(UsageError, match="a file; expected a new folder"):
            install("tool")
        assert install.prefix.read_text() == "mine"

    def test_a_folder_with_other_content(self, install: Installer) -> None:
        install.prefix.mkdir()
        (install.prefix / "thesis.tex").write_text("mine")
        with pytest.raises(UsageError, match="other content"):
            install("tool")
        assert [path.name for path in install.prefix.iterdir()] == ["thesis.tex"]

    def test_an_environment_of_another_program_that_would_lose_packages(self, install: Installer) -> None:
        install("tool")
        (install.prefix / "conda-meta/.channel_tools.lock").unlink()
        with pytest.raises(UsageError, match="an environment of another program, which would lose tool"):
            install("library")
        assert (install.prefix / "bin/tool").exists()
        assert not (install.prefix / "conda-meta/.channel_tools.lock").exists()
        assert install("library", "tool").changed == 0

    def test_a_place_below_a_file(self, install: Installer) -> None:
        (install.root / "file").write_text("mine")
        with pytest.raises(UsageError, match=r"file.*: Not a directory"):
            replace(install, root=install.root / "file")("tool")


class TestNoSolution:
    def test_unknown_package(self, install: Installer) -> None:
        with pytest.raises(SolveError, match=r"No candidates were found for nowhere") as caught:
            install("nowhere")
        assert caught.value.exit_code == 11
        assert install.address in str(caught.value)
        assert not install.prefix.exists()

    def test_unmet_dependency_is_explained(self, install: Installer, channel: ToyChannel) -> None:
        channel.add("lost", depends=["absent >=3"])
        with pytest.raises(SolveError, match=r"(?s)satisfies lost.*absent >=3, for which no candidates were found"):
            install("lost")

    def test_virtual_packages_decide(self, install: Installer, channel: ToyChannel) -> None:
        channel.add("cuda-only", depends=["__cuda >=12"])
        with pytest.raises(SolveError, match="__cuda"):
            install("cuda-only")
        cuda = rattler.GenericVirtualPackage(
            rattler.PackageName("__cuda"), rattler.Version("12.8"), rattler.BuildString("0")
        )
        assert names(install("cuda-only", virtual_packages=[cuda])) == ["cuda-only-1.0"]

    def test_no_matchspec(self, install: Installer) -> None:
        with pytest.raises(UsageError, match="tool ==><: not a MatchSpec"):
            install("tool ==><")


class TestUnreachableChannel:
    def test_no_such_folder(self, install: Installer, tmp_path: Path) -> None:
        with pytest.raises(ChannelError, match=r"nowhere: the channel's index cannot be read.*No such file"):
            install("tool", address=(tmp_path / "nowhere").as_uri())

    def test_nobody_listens(self, install: Installer) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(NetworkError, match=r"the channel's index cannot be reached.*[Rr]efused"):
            install("tool", address=address)


def cut(archive: Path) -> None:
    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) // 2])


def flip(archive: Path) -> None:
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)


def repack(archive: Path) -> None:
    toy = ToyChannel(root=archive.parent.parent)
    toy.add("library", version="2.0", files={"lib/library": b"other bytes, well packed"}, index=False)


class TestDamagedPackage:
    # over http rattler tries again for seconds when it cannot unpack, so one such damage must do there
    @pytest.mark.parametrize(
        ("scheme", "damage"),
        [("file", cut), ("file", flip), ("file", repack), ("http", cut), ("http", repack)],
        ids=["file-cut", "file-flip", "file-repack", "http-cut", "http-repack"],
    )
    def test_is_named_and_can_be_mended(
        self, install: Installer, channel: ToyChannel, scheme: str, damage: Damage
    ) -> None:
        archive = channel.archive("library", "2.0")
        good = archive.read_bytes()
        damage(archive)
        with address_of(channel, scheme) as address:
            with pytest.raises(IntegrityError, match=r"library-2\.0-0\.conda: cannot be used"):
                install("tool", address=address)
            archive.write_bytes(good)
            assert names(install("tool", address=address)) == ["library-2.0", "tool-1.0"]
        assert (install.prefix / "lib/library").stat().st_size == 200_000

    def test_that_is_indexed_but_absent_is_named(self, install: Installer, channel: ToyChannel) -> None:
        channel.archive("library", "2.0").unlink()
        with pytest.raises(IntegrityError, match=r"library-2\.0-0\.conda.*index names it, but .* does not exist"):
            install("tool")

    def test_that_is_absent_from_a_server_is_named(self, install: Installer, channel: ToyChannel) -> None:
        channel.archive("library", "2.0").unlink()
        with served(channel.root) as address, pytest.raises(NetworkError, match=r"library-2\.0-0\.conda.*404"):
            install("tool", address=address)


class TestDamagedCache:
    def test_a_file_that_is_gone_is_unpacked_again(self, install: Installer) -> None:
        install("library ==1.0")
        (install.root / "pkgs/library-1.0-0/lib/library").unlink()
        replace(install, prefix_name="second")("library ==1.0")
        assert (install.root / "second/lib/library").read_bytes() == b"one"

    def test_a_file_that_was_cut_is_unpacked_again(self, install: Installer) -> None:
        install("library ==1.0")
        os.truncate(install.root / "pkgs/library-1.0-0/lib/library", 0)
        replace(install, prefix_name="second")("library ==1.0")
        assert (install.root / "second/lib/library").read_bytes() == b"one"

    def test_what_was_edited_in_one_environment_is_in_no_signed_one(self, install: Installer) -> None:
        install("library ==1.0")
        (install.root / "pkgs/library-1.0-0/lib/library").write_bytes(b"own")
        replace(install, prefix_name="signed")("library ==1.0", check=lambda _: None)
        assert (install.root / "signed/lib/library").read_bytes() == b"one"


def address_of(channel: ToyChannel, scheme: str) -> AbstractContextManager[str]:
    @contextmanager
    def folder() -> Iterator[str]:
        yield channel.address

    return folder() if scheme == "file" else served(channel.root)


@dataclass
class RecordingProgress:
    totals: list[int | None] = field(default_factory=list)
    advanced: int = 0
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def task(self, description: str, *, total: int | None, unit: str = "items") -> Iterator[Task]:
        del description, unit
        self.totals.append(total)
        yield self

    def advance(self, amount: int = 1, *, detail: str | None = None) -> None:
        del detail
        self.advanced += amount

    def show(self, state: str) -> None:
        """Nothing is noted of it."""

    def follow(self, state: Callable[[], str]) -> None:
        del state

    def note(self, message: str) -> None:
        self.notes.append(message)
