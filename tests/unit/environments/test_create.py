# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import shutil
import socket
import stat
import subprocess
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import rattler

from channel_tools.conda import answers
from channel_tools.conda.clients import make_http_client
from channel_tools.environments import (
    EnvironmentResult,
    ExistingEnvironmentError,
    PackageChanges,
    create_environment,
    extend_environment,
)
from channel_tools.environments.state import Unfinished, mark_unfinished, read_state
from channel_tools.pins.solve import solve_lock
from channel_tools.system.errors import ChannelError, IntegrityError, NetworkError, SolveError, UsageError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.http.client import HttpClient, basic_authorization
from channel_tools.system.http.pace import Retry, Timeouts
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.progress import SilentProgress
from tests.support.conda_history import conda_requests
from tests.support.endless_server import endless
from tests.support.packages import old_format
from tests.unit.environments.conftest import make_channel
from tests.unit.environments.toychannel import PREFIX_PLACEHOLDER, SUBDIR, ToyChannel, move_packages, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
        replace: bool = False,
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
                replace=(lambda _change: True) if replace else None,
            )
        )

    def extend(
        self,
        *specs: str,
        newest: bool = False,
        agreed: bool = True,
        channels: Sequence[str] = (),
        meanwhile: Callable[[], object] = lambda: None,
    ) -> EnvironmentResult:
        """extend_environment; ``meanwhile`` is called when the change is known."""

        def announce(_change: PackageChanges) -> bool:
            meanwhile()
            return agreed

        return asyncio.run(
            extend_environment(
                self.prefix,
                specs,
                channels,
                newest=newest,
                package_cache=self.root / "pkgs",
                subdir=SUBDIR,
                progress=SilentProgress(),
                virtual_packages=(),
                announce=announce,
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

    def test_knows_the_channel_of_what_is_asked_for_by_its_address(
        self, install: Installer, channel: ToyChannel
    ) -> None:
        install(channel.archive("tool").as_uri())
        record = json.loads((install.prefix / "conda-meta/tool-1.0-0.json").read_text())
        assert record["channel"] == channel.address
        assert f"+{channel.address}/linux-64::tool-1.0-0" in (install.prefix / "conda-meta/history").read_text()

    def test_knows_the_hashes_of_what_is_asked_for_by_its_address(
        self, install: Installer, channel: ToyChannel
    ) -> None:
        archive = channel.archive("tool")
        install(archive.as_uri())
        record = json.loads((install.prefix / "conda-meta/tool-1.0-0.json").read_text())
        assert record["sha256"] == sha256_of_file(archive)
        assert record["md5"] == hashlib.md5(archive.read_bytes(), usedforsecurity=False).hexdigest()
        assert record["size"] == archive.stat().st_size
        assert install(archive.as_uri()).changed == 0
        assert install.extend("library").changed == 0
        assert install.extend(newest=True).changed == 0

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

    def test_it_is_brought_to_another_solution_to_replace_it(self, install: Installer) -> None:
        install("tool")
        result = install("library ==1.0", replace=True)
        assert names(result) == ["library-1.0"]
        assert result.changed == 2
        assert [package.name for package in result.change.removed] == ["tool"]
        assert [(old.version, new.version) for old, new in result.change.replaced] == [("2.0", "1.0")]
        assert (install.prefix / "lib/library").read_bytes() == b"one"
        assert not (install.prefix / "bin/tool").exists()

    def test_new_bytes_under_an_old_name_are_installed(self, install: Installer, channel: ToyChannel) -> None:
        install("library ==1.0")
        channel.add("library", version="1.0", files={"lib/library": b"uno"})
        assert install("library ==1.0", replace=True).changed == 1
        assert (install.prefix / "lib/library").read_bytes() == b"uno"

    def test_one_user_at_a_time(self, install: Installer) -> None:
        install("library")
        lock = install.prefix / "conda-meta/.channel_tools.lock"
        with exclusive_lock(lock, resource="x"), pytest.raises(ChannelError, match="in use by process"):
            install("tool", replace=True)

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


class TestAnEnvironmentThatIsThere:
    """Creating one again."""

    def test_stays_where_it_has_all_that_is_asked_for(self, install: Installer, channel: ToyChannel) -> None:
        install("tool")
        channel.add("library", version="3.0")
        (install.prefix / "conda-meta/.channel_tools.lock").unlink()  # of another program
        before = files_of(install.prefix)
        shutil.rmtree(channel.root)
        assert install("tool", "library >=2").changed == 0
        assert files_of(install.prefix) == before

    def test_stays_whose_packages_the_check_agrees_to(self, install: Installer) -> None:
        def check(records: Sequence[rattler.RepoDataRecord]) -> None:
            raise IntegrityError(f"{len(records)} unsigned")

        install("tool")
        with pytest.raises(IntegrityError, match="2 unsigned"):
            install("tool", check=check)

    @pytest.mark.parametrize(
        ("specs", "lacks"),
        [
            (("library ==1.0",), r"it lacks library ==1\.0: it has library 2\.0 0"),
            (("tool", "other"), "it lacks other"),
            (("tool[build=1*]",), "it lacks tool.*: it has tool 1.0 0"),
            (("conda-forge::tool",), "it lacks conda-forge::tool"),
            (("tool[md5=0123456789abcdef0123456789abcdef]",), "it lacks tool"),
            (("tool[subdir=noarch]",), "it lacks tool"),
        ],
    )
    def test_is_refused_and_stays_where_it_lacks_something(
        self, install: Installer, specs: tuple[str, ...], lacks: str
    ) -> None:
        install("tool")
        before = files_of(install.prefix)
        with pytest.raises(
            ExistingEnvironmentError, match=f"env: is an environment already, of 2 packages for tool; {lacks}"
        ) as caught:
            install(*specs)
        for command in ("env add", "env update", "--replace"):
            assert command in str(caught.value.hint)
        assert files_of(install.prefix) == before

    def test_is_refused_where_a_package_is_from_another_channel(self, install: Installer, tmp_path: Path) -> None:
        install("tool")
        other = make_channel(tmp_path / "other")
        with pytest.raises(
            ExistingEnvironmentError, match=f"tool from {other.address}/: it has that of {install.address}"
        ):
            install("tool", address=other.address)

    def test_is_refused_where_a_requirement_is_gone(self, install: Installer) -> None:
        install("tool")
        (install.prefix / "conda-meta/library-2.0-0.json").unlink()
        with pytest.raises(ExistingEnvironmentError, match=r"it lacks library >=1 \(for tool\)"):
            install("tool")

    def test_is_refused_where_another_run_was_interrupted(self, install: Installer) -> None:
        install("tool")
        marker = Unfinished(packages=("library-2.0-0",), requested={"tool": ("tool",), "other": ("other",)})
        mark_unfinished(install.prefix, marker)
        with pytest.raises(ExistingEnvironmentError, match=r"an interrupted run left incomplete: .* for other, tool"):
            install("tool")
        mark_unfinished(install.prefix, replace(marker, requested={"tool": ("tool",)}))
        assert install("tool").changed == 2

    def test_loses_to_a_new_one_what_is_of_packages_and_nothing_else(self, install: Installer) -> None:
        install("tool")
        own = install.prefix / "lib" / "own.txt"
        own.write_text("mine")
        (install.prefix / "bin" / "own").symlink_to("tool")
        result = install("library ==1.0", replace=True)
        assert [package.name for package in result.change.removed] == ["tool"]
        assert own.read_text() == "mine"
        assert (install.prefix / "bin" / "own").is_symlink()
        assert not (install.prefix / "bin" / "tool").exists()
        assert conda_requests(install.prefix) == {"library": "library ==1.0"}


class TestMoreInAnEnvironment:
    """Adding to one, and updating it."""

    def test_is_beside_what_was_asked_for_before(self, install: Installer, channel: ToyChannel) -> None:
        channel.add("other")
        install("tool")
        result = install.extend("other")
        assert names(result) == ["library-2.0", "other-1.0", "tool-1.0"]
        assert [package.name for package in result.change.added] == ["other"]
        assert conda_requests(install.prefix) == {"tool": "tool", "other": "other"}

    @pytest.mark.parametrize("newest", [False, True], ids=["add", "update"])
    def test_leaves_none_of_it_out(self, install: Installer, channel: ToyChannel, *, newest: bool) -> None:
        """Of what another client was asked for as well, and of all packages where nothing says it."""
        channel.add("picky", constrains=["library <2"])
        install("tool", "library >=2")
        before = files_of(install.prefix)
        with pytest.raises(SolveError, match="picky"):
            install.extend("picky", newest=newest)
        (install.prefix / "conda-meta/history").write_text("")
        for path in (install.prefix / "conda-meta").glob("*.json"):
            record = json.loads(path.read_text())
            path.write_text(json.dumps(record | {"requested_specs": []}))
        assert install.extend(newest=True).changed == 0
        assert conda_requests(install.prefix) == {"tool": "tool", "library": "library"}
        assert files_of(install.prefix).keys() == before.keys()

    def test_keeps_installed_packages_as_they_are_if_it_can(self, install: Installer, channel: ToyChannel) -> None:
        install("tool")
        channel.add("library", version="3.0", index=False)
        channel.add("other", depends=["library"])
        assert names(install.extend("other")) == ["library-2.0", "other-1.0", "tool-1.0"]
        assert names(install.extend(newest=True)) == ["library-3.0", "other-1.0", "tool-1.0"]

    def test_can_be_what_was_only_needed_before(self, install: Installer) -> None:
        install("tool")
        assert install.extend("library").changed == 0
        assert conda_requests(install.prefix) == {"tool": "tool", "library": "library"}

    def test_takes_the_place_of_an_earlier_request_for_the_name(self, install: Installer) -> None:
        install("tool", "library >=2")
        result = install.extend("library <2")
        assert [(before.version, after.version) for before, after in result.change.replaced] == [("2.0", "1.0")]
        assert conda_requests(install.prefix) == {"tool": "tool", "library": "library <2"}

    def test_keeps_the_minor_version_of_python(self, install: Installer, channel: ToyChannel) -> None:
        for version in ("3.11.1", "3.11.2", "3.12.0"):
            channel.add("python", version=version, index=False)
        channel.index()
        install("python ==3.11.1")
        (install.prefix / "conda-meta/history").write_text("==> 1 <==\n# update specs: ['python']\n")
        assert names(install.extend(newest=True)) == ["python-3.11.2"]

    def test_moves_the_modules_to_another_python_and_checks_them_again(
        self, install: Installer, channel: ToyChannel
    ) -> None:
        for version in ("3.11.0", "3.12.0"):
            channel.add("python", version=version, index=False)
        files = {"site-packages/module.py": b"x = 1\n"}
        channel.add("module", subdir="noarch", noarch="python", depends=["python"], files=files)
        install("module", "python 3.11.*")
        (install.root / "pkgs/module-1.0-0/site-packages/module.py").write_text("x = 2\n")
        assert install.extend("python 3.12.*").changed == 2
        assert not (install.prefix / "lib/python3.11/site-packages/module.py").exists()
        assert (install.prefix / "lib/python3.12/site-packages/module.py").read_bytes() == b"x = 1\n"

    def test_moves_the_modules_to_a_python_of_the_same_version_that_looks_elsewhere(
        self, install: Installer, channel: ToyChannel
    ) -> None:
        for build, modules in (
            ("0_cp313", "lib/python3.13/site-packages"),
            ("0_cp313t", "lib/python3.13t/site-packages"),
        ):
            more = {"python_site_packages_path": modules}
            channel.add("python", version="3.13.0", build=build, index=False, more=more)
        channel.add("module", subdir="noarch", noarch="python", files={"site-packages/module.py": b"x = 1\n"})
        install("module", "python=3.13.0=0_cp313")
        for build, here in (("0_cp313t", "python3.13t"), ("0_cp313", "python3.13")):
            install.extend(f"python=3.13.0={build}")
            (path,) = install.prefix.glob("lib/**/module.py")
            assert path == install.prefix / "lib" / here / "site-packages/module.py"

    def test_changes_nothing_where_it_is_not_agreed_to(self, install: Installer, channel: ToyChannel) -> None:
        channel.add("other")
        install("tool")
        before = files_of(install.prefix)
        result = install.extend("other", agreed=False)
        assert [package.name for package in result.change.added] == ["other"]
        assert result.changed == 0
        assert files_of(install.prefix) == before

    def test_completes_an_interrupted_run_with_what_that_was_to_have(
        self, install: Installer, channel: ToyChannel
    ) -> None:
        channel.add("other")
        install("tool")
        requested = {"tool": ("tool",), "other": ("other",)}
        mark_unfinished(install.prefix, Unfinished(packages=("other-1.0-0",), requested=requested))
        (install.prefix / "conda-meta/library-2.0-0.json").write_text("{")
        assert install.extend("tool", agreed=False).changed == 0
        assert (install.prefix / "conda-meta/library-2.0-0.json").read_text() == "{"
        assert names(install.extend(newest=True)) == ["library-2.0", "other-1.0", "tool-1.0"]
        assert conda_requests(install.prefix) == {"tool": "tool", "other": "other"}

    def test_of_an_environment_that_version_0_2_0_left_keeps_what_its_records_ask_for(
        self, install: Installer, channel: ToyChannel
    ) -> None:
        channel.add("other")
        install("tool >=1")
        (install.prefix / "conda-meta/history").write_text("")
        install.extend("other")
        assert conda_requests(install.prefix) == {"tool": "tool >=1", "other": "other"}

    def test_is_refused_where_another_run_has_been_meanwhile(self, install: Installer, channel: ToyChannel) -> None:
        channel.add("other")
        install("tool")
        with pytest.raises(ChannelError, match="was changed by another run"):
            install.extend("other", meanwhile=(install.prefix / "conda-meta/tool-1.0-0.json").unlink)

    def test_comes_from_the_channels_in_the_order_of_the_first_command(
        self, install: Installer, tmp_path: Path
    ) -> None:
        second = ToyChannel(root=tmp_path / "a-second")
        second.add("library", version="9.0", index=False)
        second.add("extra", index=False)
        second.index()
        install("tool")
        install.extend("extra", channels=[install.address, second.address])
        assert names(install.extend(newest=True)) == ["extra-1.0", "library-2.0", "tool-1.0"]

    def test_needs_an_environment(self, install: Installer) -> None:
        with pytest.raises(UsageError, match="not an environment"):
            install.extend("tool")


def files_of(prefix: Path) -> dict[str, bytes]:
    return {str(path.relative_to(prefix)): path.read_bytes() for path in sorted(prefix.rglob("*")) if path.is_file()}


class TestClashingFiles:
    def test_what_is_left_out_is_said(self, install: Installer, channel: ToyChannel) -> None:
        equal = {"share/license": b"the same"}
        channel.add("first", files={"share/same": b"first", "share/own": b"", **equal}, index=False)
        channel.add("second", files={"share/same": b"second", **equal})
        assert install("first", "second").left_out == ("share/same of second",)
        assert (install.prefix / "share/same").read_bytes() == b"first"

    @pytest.mark.parametrize(
        ("first", "second", "path"),
        [
            ({"files": {"bin": b"a file"}}, {"files": {"bin/tool": b""}}, "bin"),
            ({"links": {"lib/one": "../share"}}, {"files": {"lib/one/deep/file": b""}}, "lib/one"),
            ({"files": {"share/a/b/c": b""}}, {"links": {"share/a": "b"}}, "share/a"),
            (
                {"files": {"site-packages/one/two.py": b""}, "subdir": "noarch", "noarch": "python"},
                {"files": {"lib/python/site-packages/one": b""}},
                "lib/python/site-packages/one",
            ),
        ],
        ids=["a file named bin", "a link", "a link above", "modules"],
    )
    def test_a_folder_of_one_that_is_a_file_of_another_is_refused_before_anything_is_written(
        self, install: Installer, channel: ToyChannel, first: dict[str, Any], second: dict[str, Any], path: str
    ) -> None:
        channel.add("first", **first, index=False)
        channel.add("second", **second)
        with pytest.raises(IntegrityError, match=f"cannot be installed together: '{path}' is a file of"):
            install("first", "second")
        assert not install.prefix.exists()
        install("second")
        before = files_of(install.prefix)
        with pytest.raises(IntegrityError, match=f"cannot be installed together: '{path}' is a file of"):
            install.extend("first", channels=[channel.address])
        assert files_of(install.prefix) == before

    @pytest.mark.parametrize("taken", ["share/extra", "share/extra/below", "share/extra/one/two/mine"])
    def test_a_file_of_the_users_is_not_replaced(self, install: Installer, channel: ToyChannel, taken: str) -> None:
        install("tool")
        (install.prefix / taken).parent.mkdir(parents=True, exist_ok=True)
        (install.prefix / taken).write_bytes(b"mine")
        before = files_of(install.prefix)
        channel.add("extra", files={"share/extra/one/two": b"theirs", "share/extra/below/three": b"theirs"})
        with pytest.raises(UsageError, match="would replace files that are of no package: share/extra"):
            install.extend("extra")
        assert files_of(install.prefix) == before
        shutil.rmtree(install.prefix / "share/extra") if taken.count("/") > 1 else (install.prefix / taken).unlink()
        assert install.extend("extra").changed == 1


def test_records_are_readable_for_those_who_may_read_the_environment(install: Installer) -> None:
    previous = os.umask(0o027)
    try:
        install("tool")
    finally:
        os.umask(previous)
    assert {stat.S_IMODE(path.stat().st_mode) for path in install.prefix.glob("conda-meta/*.json")} == {0o640}


@pytest.mark.parametrize("place", ["gone/../env", "./gone/deeper/../../env"])
def test_no_file_of_an_environment_names_a_folder_on_the_way_to_it(
    install: Installer, channel: ToyChannel, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    channel.add("script", files={"bin/script": f"#!{PREFIX_PLACEHOLDER}/bin/sh\necho {PREFIX_PLACEHOLDER}\n".encode()})
    (install.root / "gone/deeper").mkdir(parents=True)
    monkeypatch.chdir(install.root)
    replace(install, root=Path(place).parent, prefix_name="env")("script")
    assert [name for name, content in files_of(install.prefix).items() if b"gone" in content] == []
    assert (install.prefix / "bin/script").read_text().endswith(f"echo {install.prefix}\n")


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
        install("tool", progress=progress, replace=True)
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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rattler asks for is asked for by ours after a moment, which waits for a moment."""
    monkeypatch.setattr(answers, "_ASK_AFTER_S", 0.1)
    monkeypatch.setattr(answers, "_TIMEOUTS", Timeouts(connect_s=1.0, read_s=0.2))


HEAD = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {"nothing": b"", "headers": HEAD + b"X-Slow: ", "body": HEAD + b"Content-Length: 1000000\r\n\r\n"}


@pytest.mark.usefixtures("impatient")
class TestServerThatSendsAlmostNothing:
    @pytest.mark.parametrize("sent", ENDLESS)
    def test_for_the_index(self, install: Installer, sent: str) -> None:
        with endless(ENDLESS[sent], b"x" if sent != "nothing" else b"", 0.02) as address:
            with pytest.raises(NetworkError, match="its server sends nothing, or almost nothing") as caught:
                install("tool", address=f"{address}/ours")
            assert caught.value.message.startswith(f"{address}/ours/noarch/")
        assert not install.prefix.exists()

    @pytest.mark.parametrize("sent", ENDLESS)
    def test_for_a_package(self, install: Installer, channel: ToyChannel, sent: str) -> None:
        with endless(ENDLESS[sent], b"x" if sent != "nothing" else b"", 0.02) as address:
            move_packages(channel.root, f"{address}/SUBDIR/", install.root / "elsewhere")
            with pytest.raises(NetworkError, match="its server sends nothing, or almost nothing") as caught:
                install("tool")
            assert caught.value.message.startswith(f"{address}/{SUBDIR}/")
            moved = channel.root / SUBDIR / "repodata.json"
            moved.write_text(moved.read_text().replace(address, (install.root / "elsewhere").as_uri()))
        assert "tool-1.0" in names(install("tool"))

    @pytest.mark.parametrize("sent", ENDLESS)
    def test_for_a_lock(self, tmp_path: Path, sent: str) -> None:
        with endless(ENDLESS[sent], b"x" if sent != "nothing" else b"", 0.02) as address:
            lock = solve_lock(
                "toy", ["tool"], [address], [SUBDIR], virtual_packages={SUBDIR: ()}, package_cache=tmp_path / "cache"
            )
            with pytest.raises(NetworkError, match="its server sends nothing, or almost nothing"):
                asyncio.run(lock)

    def test_what_is_only_slow_is_waited_for(
        self, install: Installer, channel: ToyChannel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(answers, "_ASK_AFTER_S", 0.001)
        monkeypatch.setattr(answers, "_TIMEOUTS", Timeouts())  # a busy machine is slow itself
        with served(channel.root) as address:
            assert names(install("tool", address=address)) == ["library-2.0", "tool-1.0"]


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


def correct(archive: Path, **fields: object) -> None:
    """Have the channel list fields of a package otherwise than that says itself."""
    index = archive.parent / "repodata.json"
    document = json.loads(index.read_bytes())
    document["packages.conda"][archive.name] |= fields
    index.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("own", "listed"),
    [
        ({"constrains": ["dsk[array] >=2"]}, {"constrains": ["library <2"]}),
        ({"depends": ["dsk[array] >=2"]}, {"depends": ["library"]}),
        ({"depends": ["library 9.*"]}, {"depends": ["library"]}),
        ({"constrains": None}, {"constrains": ["library <9"]}),
        ({"depends": None}, {"depends": ["library"]}),
    ],
)
def test_a_package_whose_record_was_corrected_is_installed_as_its_channel_lists_it(
    install: Installer, channel: ToyChannel, own: Mapping[str, list[str] | None], listed: Mapping[str, list[str]]
) -> None:
    archive = channel.add("fixed", depends=own.get("depends", ()), constrains=own.get("constrains", ()))
    correct(archive, **listed)
    assert "fixed-1.0" in names(install("fixed"))
    record = json.loads((install.prefix / "conda-meta" / "fixed-1.0-0.json").read_bytes())
    assert listed.items() <= record.items()
    install("fixed", "library", replace=True)  # from the cache, checked again


def test_a_package_with_nulls_in_the_cache_of_an_earlier_version_is_fetched_again(
    install: Installer, channel: ToyChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    correct(channel.add("fixed", constrains=None), constrains=[])
    with monkeypatch.context() as earlier:
        earlier.setattr("channel_tools.environments.package_cache._remove_nulls", lambda _index: None)
        with pytest.raises(IntegrityError):
            install("fixed")
    assert "fixed-1.0" in names(install("fixed"))


class TestByAddress:
    def test_a_package_of_the_web_is_fetched_once(self, install: Installer, channel: ToyChannel) -> None:
        with served(channel.root) as address:
            url = f"{address}/linux-64/tool-1.0-0.conda"
            install(url)
        record = json.loads((install.prefix / "conda-meta/tool-1.0-0.json").read_text())
        assert (record["url"], record["sha256"]) == (url, sha256_of_file(channel.archive("tool")))
        # its server is gone, and what it had is known
        assert install.extend("library").changed == 0

    def test_the_requirements_are_those_of_the_package_at_the_address(self, tmp_path: Path, install: Installer) -> None:
        """And not those of another with its file name, which was read before."""
        other = ToyChannel(root=tmp_path / "other")
        other.add("tool", files={"share/other": b"other"})
        with served(tmp_path) as address:
            install(f"{address}/channel/linux-64/tool-1.0-0.conda")
            second = replace(install, prefix_name="second")
            second(f"{address}/other/linux-64/tool-1.0-0.conda")
        assert installed_names(install.prefix) == {"tool", "library"}
        assert installed_names(second.prefix) == {"tool"}
        assert (second.prefix / "share/other").is_file()

    @pytest.mark.parametrize("form", ["{md5}", "md5:{md5}", "{sha256}", "sha256:{sha256}"])
    def test_a_hash_in_the_address_is_that_of_the_file(
        self, install: Installer, channel: ToyChannel, form: str
    ) -> None:
        content = channel.archive("tool").read_bytes()
        hashes = {name: hashlib.new(name, content).hexdigest() for name in ("md5", "sha256")}
        right = f"{channel.archive('tool').as_uri()}#{form.format(**hashes)}"
        wrong = (
            f"{channel.archive('tool').as_uri()}#{form.format(**{name: text[::-1] for name, text in hashes.items()})}"
        )
        with pytest.raises(IntegrityError, match="which was asked for"):
            install(wrong)
        assert not install.prefix.exists()
        install(right)
        assert install(right).changed == 0
        assert read_state(install.prefix).requested["tool"] == (right,)
        with pytest.raises(ExistingEnvironmentError):
            install(wrong)

    def test_what_follows_the_address_and_is_no_hash_is_refused(self, install: Installer, channel: ToyChannel) -> None:
        with pytest.raises(UsageError, match="expected an md5 or sha256"):
            install(f"{channel.archive('tool').as_uri()}#sha512:12")

    @pytest.mark.parametrize("secret", ["/t/sesame", "me:sesame@"])
    def test_no_secret_of_the_address_is_kept(self, install: Installer, channel: ToyChannel, secret: str) -> None:
        authorization = "Bearer sesame" if secret.startswith("/") else basic_authorization("me", "sesame")
        with served(channel.root, authorization=authorization) as address:
            host = address.removeprefix("http://")
            given = f"http://{host}{secret}" if secret.startswith("/") else f"http://{secret}{host}"
            install(f"{given}/linux-64/tool-1.0-0.conda")
        kept = [path for path in install.root.rglob("*") if path.is_file() and b"sesame" in path.read_bytes()]
        assert kept == []

    def test_an_old_archive_will_do(self, install: Installer, channel: ToyChannel) -> None:
        old = old_format(channel.archive("library", "2.0"))
        install(old.as_uri())
        (path,) = (install.prefix / "conda-meta").glob("library-*.json")
        assert json.loads(path.read_text())["sha256"] == sha256_of_file(old)

    def test_a_file_that_has_changed_is_installed_as_it_is_now(self, install: Installer, channel: ToyChannel) -> None:
        install(channel.archive("library", "2.0").as_uri())
        channel.add("library", version="2.0", files={"lib/library": b"again"})
        second = replace(install, prefix_name="second")
        second(channel.archive("library", "2.0").as_uri())
        assert (second.prefix / "lib/library").read_bytes() == b"again"

    def test_a_record_without_hashes_gets_them(self, install: Installer, channel: ToyChannel) -> None:
        """As version 0.3.0 wrote it."""
        install(channel.archive("tool").as_uri())
        path = install.prefix / "conda-meta/tool-1.0-0.json"
        record = json.loads(path.read_text())
        path.write_text(json.dumps({key: text for key, text in record.items() if key not in {"sha256", "md5", "size"}}))
        install.extend("library")
        assert json.loads(path.read_text())["sha256"] == record["sha256"]

    @pytest.mark.parametrize(
        ("address", "error", "message"),
        [
            ("file:///nowhere/linux-64/tool-1.0-0.conda", ChannelError, "/nowhere/linux-64/tool-1.0-0.conda: does not"),
            ("http://127.0.0.1:1/tool-1.0-0.conda", NetworkError, "http://127.0.0.1:1/tool-1.0-0.conda: "),
            ("s3://bucket/linux-64/tool-1.0-0.conda", UsageError, "addresses that start with s3://"),
        ],
    )
    def test_what_cannot_be_read_is_named(
        self, install: Installer, address: str, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("channel_tools.conda.addressed.make_http_client", impatient_client)
        with pytest.raises(error, match=message):
            install(address)

    def test_what_is_for_another_platform_is_refused(self, install: Installer, channel: ToyChannel) -> None:
        archive = channel.add("tool", subdir="osx-64")
        with pytest.raises(UsageError, match="is a package for osx-64; expected one for linux-64"):
            install(archive.as_uri())

    def test_what_is_another_package_than_its_file_name_says_is_refused(
        self, install: Installer, channel: ToyChannel
    ) -> None:
        archive = channel.archive("tool").rename(channel.archive("tool").with_name("tool-2.0-0.conda"))
        with pytest.raises(IntegrityError, match="it is tool-1"):
            install(archive.as_uri())

    def test_a_damaged_file_is_named_by_its_address(self, install: Installer, channel: ToyChannel) -> None:
        channel.archive("tool").write_bytes(b"no archive")
        with served(channel.root) as address, pytest.raises(IntegrityError) as caught:
            install(f"{address}/linux-64/tool-1.0-0.conda")
        assert caught.value.message.startswith(f"{address}/linux-64/tool-1.0-0.conda: not a complete conda package")

    def test_a_relative_path_is_none_and_says_what_will_do(self, install: Installer) -> None:
        with pytest.raises(UsageError) as caught:
            install("./tool-1.0-0.conda")
        assert "its absolute path" in (caught.value.hint or "")

    def test_its_folder_is_not_taken_for_a_channel(
        self, install: Installer, channel: ToyChannel, tmp_path: Path
    ) -> None:
        shutil.copytree(channel.root / "linux-64", tmp_path / "releases/v1")
        install((tmp_path / "releases/v1/tool-1.0-0.conda").as_uri())
        channel.add("other")
        assert install.extend("other").changed == 1


def installed_names(prefix: Path) -> set[str]:
    return {json.loads(path.read_text())["name"] for path in (prefix / "conda-meta").glob("*.json")}


def impatient_client(environ: Mapping[str, str]) -> HttpClient:
    return make_http_client(environ, retry=Retry(attempts=1))
