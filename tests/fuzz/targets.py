# SPDX-License-Identifier: BSD-3-Clause
"""What is fuzzed. A target takes any bytes and raises only where the program does what it must not.

Formats with checksums and compression are fuzzed from the inside: the first byte of an input says which layer the rest
of it stands for, and the layers around that are made right.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
import zstandard
from rattler import MatchSpec, RepoData, Version

from channel_tools.audit.dependencies import Known
from channel_tools.audit.reading import Reader
from channel_tools.audit.run import audit_package
from channel_tools.channel.listing import read_patch
from channel_tools.channel.publish import check_package
from channel_tools.channel.records import _RECORD_FIELDS
from channel_tools.conda.contents import read_path_rows
from channel_tools.conda.metadata import check_index
from channel_tools.conda.repodata import encode_repodata
from channel_tools.environments.package_cache import check_unpacked
from channel_tools.mirror.files import BundleReader, open_bundle, write_members
from channel_tools.mirror.format import TRUSTED_FILES, decode_lock, decode_manifest, read_received
from channel_tools.mirror.importing.site import verify_bundle
from channel_tools.mirror.metadata import check_trusted
from channel_tools.mirror.records import read_plain
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ChannelToolsError, ConfigError, IntegrityError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.yamlfile import load_plain_yaml, parse_yaml
from tests.support import malformed
from tests.support.tars import plain_tar

_FINDINGS = Path(__file__).with_name("findings")


class Target(ABC):
    """One kind of input; ``folder`` is for files that it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def seeds(self) -> Iterator[bytes]:
        """Inputs to begin with."""

    @abstractmethod
    def run(self, data: bytes) -> None:
        """Read the input; an exception is a finding."""

    def close(self) -> None:
        """Remove what it wrote."""
        shutil.rmtree(self.folder)

    @classmethod
    def findings(cls) -> Mapping[str, bytes]:
        """What this target failed at once, by name."""
        folder = _FINDINGS / cls.__name__.lower()
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*"))} if folder.is_dir() else {}


def layered(layer: int, content: bytes) -> bytes:
    """An input that stands for this layer."""
    return bytes([layer]) + content


class Packages(Target):
    """``.conda`` files: the channel and the audit refuse one alike, and what enters is fit for repodata."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / malformed.SUBDIR / malformed.FILE_NAME
        self._path.parent.mkdir(parents=True)

    _LAYERS: tuple[Callable[[bytes], bytes], ...] = (
        lambda content: content,
        lambda content: malformed.packed(payload=content),
        lambda content: malformed.packed(payload=zstandard.compress(content, 1)),
        lambda content: malformed.packed(info=zstandard.compress(content, 1)),
        lambda content: malformed.packed(metadata=content),
        *(
            lambda content, name=name: malformed.packed(info=malformed.info_part(more={name: content}))
            for name in (
                *("index.json", "about.json", "paths.json", "run_exports.json", "hash_input.json", "link.json"),
                *("recipe/rendered_recipe.yaml", "has_prefix"),
            )
        ),
    )

    def seeds(self) -> Iterator[bytes]:
        payload = plain_tar({"share/toy.txt": b"hello\n", "bin/toy": b"#!/bin/sh\n"})
        info = zstandard.decompress(malformed.info_part(), 1 << 20)
        index = json.dumps(malformed.index_json(depends=["python >=3.11,<4", "libtoy"], timestamp=1)).encode()
        about = (
            b'{"summary": "a toy", "extra": {"audit": {"allow": [{"rule": "link", "files": ["x"], "reason": "r"}]}}}'
        )
        paths = (
            b'{"paths": [{"_path": "share/toy.txt", "path_type": "hardlink", "size_in_bytes": 6}], "paths_version": 1}'
        )
        recipe = b"recipe: {build: {dynamic_linking: {missing_dso_allowlist: [x]}}}\n"
        documents = (
            index,
            about,
            paths,
            b'{"weak": ["toy >=1"]}',
            b'{"v": "1"}',
            b'{"noarch": {"entry_points": ["a = b:c"]}}',
        )
        contents = (malformed.sound(), zstandard.compress(payload), payload, info, b'{"conda_pkg_format_version": 2}')
        for layer, content in enumerate((*contents, *documents, recipe, b"/opt/x text bin/toy\n")):
            yield layered(layer, content)
        for name, kind in malformed.KINDS.items():
            if len(content := kind.make()) < 1 << 16 and name != "60,000 members":
                yield layered(0, content)

    def run(self, data: bytes) -> None:
        if not data:
            return
        self._path.write_bytes(self._LAYERS[data[0] % len(self._LAYERS)](data[1:]))
        audit = audit_package(self._path, Known(()), Reader())
        assert all(finding.found for finding in audit.findings)
        said = ""
        try:
            record = check_package(self._path).record
        except IntegrityError as err:
            said = err.message
        if said:
            assert str(self._path) in said
            assert said.isprintable(), said
            return
        assert f"{record['name']}-{record['version']}-{record['build']}" == malformed.STEM
        assert_read_by_rattler(record, self.folder)


class Unpacked(Target):
    """Packages of others as ``env create`` unpacks them: what is accepted writes only into the environment."""

    _NAMES = ("paths.json", "index.json", "about.json", "link.json")
    _ROWS = (
        {"_path": "share/toy.txt", "path_type": "hardlink", "size_in_bytes": 6},
        {"_path": "../../out", "path_type": "hardlink"},
        {"_path": "/out", "path_type": "softlink"},
        {"_path": "share", "path_type": "directory"},
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._package = folder / malformed.STEM
        (self._package / "info").mkdir(parents=True)
        (self._package / "share").mkdir()
        (self._package / "share" / "toy.txt").write_bytes(b"hello\n")

    def seeds(self) -> Iterator[bytes]:
        for count in range(1, len(self._ROWS) + 1):
            yield layered(0, json.dumps({"paths": self._ROWS[:count], "paths_version": 1}).encode())
        yield layered(1, json.dumps(malformed.index_json()).encode())
        yield layered(2, b'{"summary": "a toy"}')
        yield layered(3, b'{"noarch": {"entry_points": ["a = b:c"]}}')
        yield layered(4, b"toy.txt")
        yield layered(4, b"../../out")

    def run(self, data: bytes) -> None:
        if not data or (data[0] % 5 == len(self._NAMES) and (b"\0" in data or not 1 < len(data) < 4000)):
            return
        sound = {"paths.json": json.dumps({"paths": self._ROWS[:1], "paths_version": 1}).encode()}
        sound["index.json"] = json.dumps(malformed.index_json()).encode()
        shutil.rmtree(self._package / "info")
        (self._package / "info").mkdir()
        link = self._package / "share" / "link"
        link.unlink(missing_ok=True)
        if (layer := data[0] % 5) < len(self._NAMES):
            sound[self._NAMES[layer]] = data[1:]
        else:
            link.symlink_to(os.fsdecode(data[1:]))
            rows = [self._ROWS[0], {"_path": "share/link", "path_type": "softlink"}]
            sound["paths.json"] = json.dumps({"paths": rows, "paths_version": 1}).encode()
        for name, content in sound.items():
            (self._package / "info" / name).write_bytes(content)
        said = ""
        try:
            check_unpacked(self._package, self._package, stem=malformed.STEM, subdir=malformed.SUBDIR)
        except IntegrityError as err:
            said = err.message
        if said:
            assert str(self._package) in said
            assert said.isprintable(), said
            return
        for path in read_path_rows(sound["paths.json"], self._package):
            place = os.path.normpath(f"/prefix/{path}")
            assert place.startswith("/prefix/"), path
        if link.is_symlink():
            assert os.path.normpath(f"/prefix/share/{link.readlink()}").startswith("/prefix"), link


def assert_read_by_rattler(record: Mapping[str, Any], folder: Path) -> None:
    """An index that lists the record is one that clients can read, down to its requirements."""
    file = folder / "repodata.json"
    file.write_bytes(encode_repodata(malformed.SUBDIR, {malformed.FILE_NAME: dict(record)}, removed=()))
    RepoData.from_path(file)
    Version(str(record["version"]))
    for spec in (*record.get("depends", ()), *record.get("constrains", ())):
        MatchSpec(spec)


class Records(Target):
    """Records of packages, and indexes and patches of others that hold them."""

    def seeds(self) -> Iterator[bytes]:
        index = malformed.index_json(depends=["python >=3.11", "a 1.* *_0"], constrains=["b <2"], timestamp=1)
        index |= {"track_features": "x", "noarch": "generic", "purls": ["pkg:pypi/x"], "arch": None}
        record = json.dumps(index).encode()
        yield layered(0, record)
        for timestamp in (253402207200, 253402300799, 253402207200000, 253402300799999):
            yield layered(0, json.dumps(index | {"timestamp": timestamp}).encode())
        yield layered(1, b'{"packages": {}, "packages.conda": {"%s": %s}}' % (malformed.FILE_NAME.encode(), record))
        patch = (
            b'{"patch_instructions_version": 1, "packages.conda": {"a-1-0.conda": {"depends": ["b"]}}, "remove": []}'
        )
        yield layered(2, patch)

    def run(self, data: bytes) -> None:
        file = self.folder / "input.json"
        file.write_bytes(data[1:])
        match data[0] % 3 if data else None:
            case 0:
                with contextlib.suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError, IntegrityError):
                    index = msgspec.json.decode(data[1:], type=dict[str, object])
                    check_index(index, file)
                    fields = (*_RECORD_FIELDS, "depends", "constrains")
                    known = {key: index[key] for key in fields if index.get(key) is not None}
                    assert_read_by_rattler({"depends": [], **known}, self.folder)
            case 1:
                with contextlib.suppress(ChannelToolsError):
                    read_plain(Beneath(root=file.parent), file.name)
            case 2:
                with contextlib.suppress(ConfigError):
                    read_patch(file)


class Bundles(Target):
    """Bundles as tar files and their metadata, at a site that trusts the keys of the sound one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from tests.unit.mirror.bundles import exporting_site, verify  # noqa: PLC0415

        site = exporting_site(folder / "site")
        self._sound = folder / "bundle"
        site.bundle(self._sound)
        self._root_sha256 = site.fingerprint
        self._trusted = verify(self._sound, site.fingerprint).bundle.metadata
        self._names = sorted(path.name for path in (self._sound / "metadata").iterdir())

    def seeds(self) -> Iterator[bytes]:
        files = sorted(path for path in self._sound.rglob("*") if path.is_file())
        stream = io.BytesIO()
        write_members(stream, [(str(path.relative_to(self._sound)), path.open("rb")) for path in files])
        yield layered(0, stream.getvalue())
        for number, name in enumerate(self._names):
            yield layered(1, bytes([number]) + (self._sound / "metadata" / name).read_bytes())
        for number, name in enumerate(TRUSTED_FILES):
            yield layered(2, bytes([number]) + self._trusted[name])
        yield layered(3, (self._sound / "bundle.json").read_bytes())
        yield layered(4, next((self._sound / "locks").iterdir()).read_bytes())
        yield layered(5, b'{"version": 1, "root_sha256": "x", "files": {"a": "b"}, "schema": 1}')

    def run(self, data: bytes) -> None:
        if len(data) < 2:
            return
        with contextlib.suppress(ChannelToolsError):
            self._read(data[0] % 6, data[1:])

    def _read(self, layer: int, content: bytes) -> None:
        file = self.folder / "input"
        if layer == 0:
            file.write_bytes(content)
            self._verify(open_bundle(file))
        elif layer == 1:
            changed = self._sound / "metadata" / self._names[content[0] % len(self._names)]
            before = changed.read_bytes()
            changed.write_bytes(content[1:])
            try:
                self._verify(open_bundle(self._sound))
            finally:
                changed.write_bytes(before)
        elif layer == 2:
            name = TRUSTED_FILES[content[0] % len(TRUSTED_FILES)]
            check_trusted({**self._trusted, name: content[1:]}, self.folder)
        elif layer == 3:
            decode_manifest(content, where="bundle.json")
        elif layer == 4:
            decode_lock(content, where="lock")
        else:
            file.write_bytes(content)
            read_received(file)

    def _verify(self, reader: BundleReader) -> None:
        progress = SilentProgress()
        report = verify_bundle(reader, trusted={}, root_sha256=self._root_sha256, progress=progress)
        assert report.bundle.targets  # what is accepted was signed


class Documents(Target):
    """YAML that people and programs write."""

    def seeds(self) -> Iterator[bytes]:
        root = Path(__file__).parents[2]
        for path in sorted((*root.glob("variants/*.yaml"), *root.glob("recipes/*/recipe.yaml"))):
            yield path.read_bytes()[:4000]
        yield b"a: &a [1, 2.5, ~, 2001-01-01, 0x1f, .inf]\nb: [*a, *a]\n? c\n: !!str d\n<<: {e: f}\n"
        yield b'{"a": [1, "\\u00e4", null, true], "b": {"c": 1e9}}'

    def run(self, data: bytes) -> None:
        with contextlib.suppress(yaml.YAMLError):
            load_plain_yaml(data)
        with contextlib.suppress(UnicodeDecodeError, ConfigError):
            document = parse_yaml(data.decode(), Path("x.yaml"))
            assert all(line >= 1 for line in document.lines.values())
