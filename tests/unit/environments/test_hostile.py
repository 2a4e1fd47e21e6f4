# SPDX-License-Identifier: BSD-3-Clause
"""Packages that others made: none may touch a file outside the environment, whatever it says, and none is half used."""

from __future__ import annotations

import asyncio
import bz2
import hashlib
import json
import os
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from channel_tools.environments import EnvironmentResult, create_environment, create_locked_environment
from channel_tools.pins.files import read_lock
from channel_tools.pins.virtual import to_generic
from channel_tools.system.errors import IntegrityError
from channel_tools.system.progress import SilentProgress
from tests.support.malformed import FILE_NAME, KINDS, NAME, STEM, index_json, info_part, packed, payload_part
from tests.support.tars import plain_tar
from tests.unit.environments.toychannel import SUBDIR, served

PRECIOUS = b"precious\n"
WAYS = ["channel", "server", "lock"]
OLD_NAME = f"{STEM}.tar.bz2"


@dataclass(frozen=True, kw_only=True)
class Site:
    """A channel of packages made by others, and a file outside of what is installed from it."""

    root: Path

    @property
    def channel(self) -> Path:
        return self.root / "channel"

    @property
    def victim(self) -> Path:
        return self.root / "victim" / "file"

    @property
    def prefix(self) -> Path:
        return self.root / "envs" / "env"

    @property
    def cache(self) -> Path:
        return self.root / "pkgs"

    def offer(self, content: bytes, *, file_name: str = FILE_NAME, subdir: str = SUBDIR, **fields: object) -> None:
        """Publish a package, whatever it contains, with a sound record in the index."""
        for name in (SUBDIR, "noarch"):
            (self.channel / name).mkdir(parents=True, exist_ok=True)
        (self.channel / subdir / file_name).write_bytes(content)
        name, version, build = file_name.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 2)
        said = index_json(name=name, version=version, build=build, subdir=subdir, **fields)
        record = said | {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for one in (SUBDIR, "noarch"):
            index = self.channel / one / "repodata.json"
            document = json.loads(index.read_bytes()) if index.exists() else {"packages": {}, "packages.conda": {}}
            if one == subdir:
                document["packages" if file_name.endswith("bz2") else "packages.conda"][file_name] = record
            index.write_text(json.dumps({"info": {"subdir": one}, "repodata_version": 1} | document))

    def install(self, *specs: str, way: str = "channel", check: bool = False) -> EnvironmentResult:
        if way == "lock":
            return self._install_locked()
        if way == "server":
            with served(self.channel) as address:
                return self._install(specs or (NAME,), address, check=check)
        return self._install(specs or (NAME,), self.channel.as_uri(), check=check)

    def replace(self) -> EnvironmentResult:
        return self._install((NAME,), self.channel.as_uri(), check=False, replace=True)

    def _install(
        self, specs: tuple[str, ...], address: str, *, check: bool, replace: bool = False
    ) -> EnvironmentResult:
        return asyncio.run(
            create_environment(
                self.prefix,
                specs,
                [address],
                package_cache=self.cache,
                subdir=SUBDIR,
                progress=SilentProgress(),
                virtual_packages=[],
                check=(lambda _: None) if check else None,
                replace=(lambda _: True) if replace else None,
            )
        )

    def _install_locked(self) -> EnvironmentResult:
        files = [path for path in self.channel.glob("*/*") if path.name != "repodata.json"]
        lines = [f"{path.as_uri()}#sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
        lock = self.root / "explicit.txt"
        lock.write_text("\n".join([f"# platform: {SUBDIR}", "@EXPLICIT", *lines, ""]))
        return asyncio.run(
            create_locked_environment(
                self.prefix,
                read_lock(lock).platforms[0],
                specs=(),
                sources={},
                virtual_packages=to_generic(()),
                package_cache=self.cache,
                progress=SilentProgress(),
            )
        )

    def installed(self) -> dict[str, bytes]:
        """The files of packages in the environment."""
        files = [path for path in self.prefix.rglob("*") if not path.is_dir() and "conda-meta" not in path.parts]
        own = {"CACHEDIR.TAG"}
        return {str(path.relative_to(self.prefix)): path.read_bytes() for path in files if path.name not in own}

    def assert_untouched(self) -> None:
        """Nothing is outside of the environment, the package cache and the channel but what was there."""
        assert self.victim.read_bytes() == PRECIOUS
        assert self.victim.stat().st_nlink == 1
        assert [path.name for path in self.victim.parent.iterdir()] == ["file"]
        assert {path.name for path in self.root.iterdir()} <= {"channel", "victim", "envs", "pkgs", "explicit.txt"}
        assert {path.name for path in self.prefix.parent.glob("*")} <= {"env"}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(root=tmp_path / "site")
    made.victim.parent.mkdir(parents=True)
    made.victim.write_bytes(PRECIOUS)
    return made


def row(path: str, **fields: object) -> dict[str, object]:
    return {"_path": path, "path_type": "hardlink"} | fields


GOOD = row("share/toy.txt", size_in_bytes=6)


def old_format(members: Mapping[str, bytes | tarfile.TarInfo], rows: object) -> bytes:
    documents: dict[str, bytes | tarfile.TarInfo] = {
        "info/index.json": json.dumps(index_json()).encode(),
        "info/paths.json": json.dumps({"paths": rows, "paths_version": 1}).encode(),
    }
    return bz2.compress(plain_tar({**documents, **members}))


# where a path of a package is to lead; the cache and the prefix are equally deep, so both files are meant
OUTSIDE: Mapping[str, str] = {
    "relative": "../../victim/file",
    "by way of a folder": "share/../../../victim/file",
    "absolute": "VICTIM",
    "of modules": "site-packages/../../../victim/file",
    "of scripts": "python-scripts/../../../victim/file",
    "the cache": "../other-1.0-0/share/x",
    "the prefix": ".",
    "nothing": "",
    "a record": "conda-meta/toy-1.0-0.json",
    "the history": "conda-meta/history",
}
FIELDS: Mapping[str, dict[str, object]] = {
    "a file": {},
    "a file to rewrite": {"prefix_placeholder": "precious", "file_mode": "text"},
    "a program to rewrite": {"prefix_placeholder": "precious", "file_mode": "binary"},
    "a link": {"path_type": "softlink"},
    "a folder": {"path_type": "directory"},
}


def outside(site: Site, where: str) -> str:
    return OUTSIDE[where].replace("VICTIM", str(site.victim))


class TestRowsOutside:
    @pytest.mark.parametrize("fields", FIELDS)
    @pytest.mark.parametrize("where", OUTSIDE)
    def test_are_refused(self, site: Site, where: str, fields: str) -> None:
        site.offer(packed(info=info_part(paths=[GOOD, row(outside(site, where)) | FIELDS[fields]])))
        with pytest.raises(IntegrityError, match=rf"{FILE_NAME}: was not installed: .* not in the package"):
            site.install()
        site.assert_untouched()
        assert site.installed() == {}

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("where", ["relative", "absolute"])
    def test_are_refused_wherever_they_come_from(self, site: Site, where: str, way: str) -> None:
        site.offer(packed(info=info_part(paths=[GOOD, row(outside(site, where))])))
        with pytest.raises(IntegrityError, match=FILE_NAME):
            site.install(way=way)
        site.assert_untouched()
        assert site.installed() == {}

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("where", ["relative", "absolute"])
    def test_are_refused_in_the_older_format(self, site: Site, where: str, way: str) -> None:
        rows = [GOOD, row(outside(site, where))]
        site.offer(old_format({"share/toy.txt": b"hello\n"}, rows), file_name=OLD_NAME)
        with pytest.raises(IntegrityError, match=OLD_NAME):
            site.install(way=way)
        site.assert_untouched()
        assert site.installed() == {}

    @pytest.mark.parametrize("where", OUTSIDE)
    def test_of_modules_are_refused(self, site: Site, where: str) -> None:
        index = {"noarch": "python", "subdir": "noarch"}
        content = packed(info=info_part(paths=[GOOD, row(outside(site, where))], index=index))
        site.offer(packed(), file_name="python-3.11.0-0.conda")
        site.offer(content, subdir="noarch", noarch="python")
        with pytest.raises(IntegrityError, match=FILE_NAME):
            site.install()
        site.assert_untouched()


def link(path: str, target: str, kind: bytes = tarfile.SYMTYPE) -> dict[str, tarfile.TarInfo]:
    header = tarfile.TarInfo(path)
    header.type, header.linkname = kind, target
    return {path: header}


class TestMembersOutside:
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE], ids=["symbolic", "hard"])
    @pytest.mark.parametrize("target", ["../../victim", "/", "../../../victim/file", "../../../../../../etc/passwd"])
    def test_links_are_refused(self, site: Site, target: str, kind: bytes, way: str) -> None:
        path_type = "softlink" if kind == tarfile.SYMTYPE else "hardlink"
        rows = [row("share/x", path_type=path_type)]
        site.offer(packed(payload=payload_part(link("share/x", target, kind)), info=info_part(paths=rows)))
        with pytest.raises(IntegrityError, match=FILE_NAME):
            site.install(way=way)
        site.assert_untouched()
        assert site.installed() == {}

    def test_files_behind_a_link_are_refused(self, site: Site) -> None:
        members: dict[str, bytes | tarfile.TarInfo] = {**link("share/x", "../../../victim"), "share/x/file": b"evil"}
        rows = [row("share/x", path_type="softlink"), row("share/x/file")]
        site.offer(packed(payload=payload_part(members), info=info_part(paths=rows)))
        with pytest.raises(IntegrityError, match=FILE_NAME):
            site.install()
        site.assert_untouched()

    def test_links_of_two_packages_that_lead_outside_together_are_refused(self, site: Site) -> None:
        packages: dict[str, dict[str, bytes | tarfile.TarInfo]] = {
            "one": {**link("p/x", "../q/../victim")},
            "two": {**link("q", ".")},
            "three": {"p/x/file": b"evil"},
        }
        for name, members in packages.items():
            kinds = {path: "hardlink" if isinstance(member, bytes) else "softlink" for path, member in members.items()}
            rows = [row(path, path_type=kind) for path, kind in kinds.items()]
            content = packed(payload=payload_part(members), info=info_part(paths=rows, index={"name": name}))
            site.offer(content, file_name=f"{name}-1.0-0.conda")
        with pytest.raises(IntegrityError, match="cannot be installed together"):
            site.install("one", "two", "three")
        site.assert_untouched()
        assert site.installed() == {}


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if not kind.audit_only])
def test_a_malformed_package_is_refused_or_exactly_what_it_says(site: Site, name: str) -> None:
    """What is wrong with the zip alone, or right in the record, is none of an environment's business; all else is."""
    site.offer(KINDS[name].make())
    if name in INSTALLED_ALL_THE_SAME:
        site.install()
        assert site.installed() in ({"share/toy.txt": b"hello\n"}, {"share/null": b""})
    else:
        with pytest.raises(IntegrityError, match=FILE_NAME) as caught:
            site.install()
        assert caught.value.message.isprintable()
        assert site.installed() == {}
        assert not (site.cache / STEM).exists()
    site.assert_untouched()


# of the archive as such, a member that rattler leaves out or makes a plain file, or a field that the record has right
INSTALLED_ALL_THE_SAME = frozenset(
    {
        "5,000 parts",
        "a device",
        "a header of 2 MB",
        "a member more",
        "a part twice",
        "a size of 5,000 digits",
        "a size of 8 EiB",
        "a sparse file",
        "a time that is no number",
        "bytes behind",
        "comment",
        "cut short",
        "deflated",
        "format 3",
        "format nested",
        "format nested deep",
        "license of 1 MB",
        "license of two lines",
        "local header has another name",
        "negative size",
        "no format",
        "overlapping members",
        "requirement blank",
        "requirement empty",
        "requirement no MatchSpec",
        "requirement of 100 kB",
        "requirement with a control character",
        "requirement with a newline",
        "version 255",
    }
)


class TestInstalledRecords:
    @pytest.mark.parametrize("where", ["files", "paths_data", "both"])
    @pytest.mark.parametrize("kind", ["relative", "absolute", "linked folder"])
    def test_that_name_files_outside_delete_nothing(self, site: Site, kind: str, where: str) -> None:
        site.offer(packed())
        site.install()
        paths = {"relative": "../../victim/file", "absolute": str(site.victim), "linked folder": "out/file"}
        (site.prefix / "out").symlink_to(site.victim.parent)
        record = site.prefix / "conda-meta" / f"{STEM}.json"
        document = json.loads(record.read_bytes())
        if where != "paths_data":
            document["files"].append(paths[kind])
        if where != "files":
            document["paths_data"]["paths"].append(row(paths[kind]))
        record.write_text(json.dumps(document))
        changed = packed(info=info_part(index={"license": "BSD-3-Clause"}))
        site.offer(changed)
        with pytest.raises(IntegrityError, match=rf"the record of {STEM} names .*file', which is outside"):
            site.replace()
        site.assert_untouched()
        assert site.installed()["share/toy.txt"] == b"hello\n"


class TestWhatIsOffered:
    @pytest.mark.parametrize("build", ["../../evil", "..", "a/b"])
    def test_a_build_that_is_a_path_is_refused(self, site: Site, build: str) -> None:
        site.offer(packed())
        index = site.channel / SUBDIR / "repodata.json"
        document = json.loads(index.read_bytes())
        document["packages.conda"][FILE_NAME]["build"] = build
        index.write_text(json.dumps(document))
        with pytest.raises(IntegrityError, match="toy"):
            site.install()
        site.assert_untouched()

    @pytest.mark.parametrize("path", ["../../victim", "/victim", "lib/../../victim"])
    def test_a_folder_for_modules_outside_is_refused(self, site: Site, path: str) -> None:
        site.offer(packed(), file_name="python-3.11.0-0.conda", python_site_packages_path=path)
        rows = [row("site-packages/file", size_in_bytes=5)]
        payload = payload_part({"site-packages/file": b"evil\n"})
        index = {"noarch": "python", "subdir": "noarch", "depends": ["python"]}
        site.offer(
            packed(payload=payload, info=info_part(paths=rows, index=index)),
            subdir="noarch",
            noarch="python",
            depends=["python"],
        )
        with pytest.raises(IntegrityError, match="python"):
            site.install()
        site.assert_untouched()

    @pytest.mark.parametrize("way", WAYS)
    def test_another_subdir_than_the_folder_is_named(self, site: Site, way: str) -> None:
        site.offer(packed(info=info_part(index={"subdir": "win-64"})))
        with pytest.raises(IntegrityError, match=rf"{FILE_NAME}.* for win-64; it is offered for {SUBDIR}"):
            site.install(way=way)


class TestCache:
    """What is unpacked in the cache is installed only as it was when it was checked."""

    @pytest.fixture
    def file(self, site: Site) -> Path:
        site.offer(packed())
        site.install()
        return site.cache / STEM / "share/toy.txt"

    def second(self, site: Site) -> dict[str, bytes]:
        another = replace(site, root=site.root / "second")
        another.root.mkdir()
        (another.root / "channel").symlink_to(site.channel)
        (another.root / "pkgs").symlink_to(site.cache)
        another.install()
        return another.installed()

    def test_bytes_of_the_same_size_are_noticed(self, site: Site, file: Path) -> None:
        file.unlink()  # the one in the environment is the same file
        file.write_bytes(b"HELLO\n")
        assert self.second(site) == {"share/toy.txt": b"hello\n"}

    def test_bytes_changed_in_an_environment_are_noticed(self, site: Site, file: Path) -> None:
        assert file.stat().st_nlink == 2
        (site.prefix / "share/toy.txt").write_bytes(b"HELLO\n")
        assert self.second(site) == {"share/toy.txt": b"hello\n"}

    @pytest.mark.parametrize("place", ["share/toy.txt", "share", ".", "info/paths.json", "info"])
    @pytest.mark.parametrize("bits", [stat.S_IWGRP, stat.S_IWOTH], ids=["group", "others"])
    def test_what_others_can_write_is_hashed(self, site: Site, file: Path, place: str, bits: int) -> None:
        before = file.stat()
        file.unlink()
        file.write_bytes(b"HELLO\n")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        changed = site.cache / STEM / place
        changed.chmod(changed.stat().st_mode | bits)
        assert self.second(site) == {"share/toy.txt": b"hello\n"}

    def test_rows_that_were_changed_with_the_file_are_noticed(self, site: Site, file: Path) -> None:
        file.unlink()
        file.write_bytes(b"HELLO\n")
        rows = file.parent.parent / "info/paths.json"
        rows.write_bytes(rows.read_bytes().replace(b'"size_in_bytes": 6', b'"size_in_bytes": 6, "sha256": null'))
        assert self.second(site) == {"share/toy.txt": b"hello\n"}

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    def test_what_another_user_owns_is_hashed(self, site: Site, file: Path) -> None:
        before = file.stat()
        file.write_bytes(b"HELLO\n")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        os.chown(file, 65534, 65534)
        assert self.second(site) == {"share/toy.txt": b"hello\n"}

    @pytest.mark.parametrize("how", ["writable", "a link", "no JSON", "absent", "a pipe"])
    def test_a_note_that_others_may_have_written_is_not_believed(self, site: Site, file: Path, how: str) -> None:
        file.unlink()
        file.write_bytes(b"HELLO\n")
        note = site.cache / STEM / ".channel_tools-checked.json"
        content = note.read_bytes()
        if how == "writable":
            note.chmod(0o666)
        else:
            note.unlink()
        if how == "a link":
            (site.cache / "elsewhere").write_bytes(content)
            note.symlink_to(site.cache / "elsewhere")
        elif how == "no JSON":
            note.write_bytes(b"{")
        elif how == "a pipe":
            os.mkfifo(note)
        assert self.second(site) == {"share/toy.txt": b"hello\n"}

    def test_what_is_unchanged_is_not_fetched_again(self, site: Site, file: Path) -> None:
        inode = file.stat().st_ino
        (site.channel / SUBDIR / FILE_NAME).unlink()
        assert self.second(site) == {"share/toy.txt": b"hello\n"}
        assert file.stat().st_ino == inode

    def test_what_looks_changed_and_is_not_stays(self, site: Site, file: Path) -> None:
        os.utime(file, (0, 0))
        inode = file.stat().st_ino
        (site.channel / SUBDIR / FILE_NAME).unlink()
        assert self.second(site) == {"share/toy.txt": b"hello\n"}
        assert file.stat().st_ino == inode

    def test_only_the_owner_can_write_to_it(self, site: Site) -> None:
        header = tarfile.TarInfo("share/toy.txt")
        header.mode = 0o666
        members: dict[str, bytes | tarfile.TarInfo] = {"share/toy.txt": header}
        site.offer(packed(payload=payload_part(members), info=info_part(paths=[row("share/toy.txt")])))
        site.install()
        folder = site.cache / STEM
        modes = {path: path.lstat().st_mode for path in [folder, *folder.rglob("*")]}
        assert not [path for path, mode in modes.items() if mode & (stat.S_IWGRP | stat.S_IWOTH)]
