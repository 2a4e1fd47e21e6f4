# SPDX-License-Identifier: BSD-3-Clause
"""Packages changed by chance, at every layer: the zip, the tar headers, the JSON, the links."""

from __future__ import annotations

import io
import json
import random
import tarfile
import zipfile
from collections.abc import Callable, Mapping

import zstandard

from tests.support.packages import FORMAT, conda_bytes, tar_zst

Members = dict[str, bytes | tarfile.TarInfo]

ODD_VALUES: tuple[object, ...] = (
    None, True, -1, 0, 2**64, 10**30, 1.5, "", "..", "../../etc/x", "/etc/passwd", "a" * 5000, "toy\0", "\ud7ff\n", [],
    {}, [[]], [None], ["a b c d e"], {"a": {"b": [1]}}, "toy >=1,,<2", "toy[when='__cuda']",
)  # fmt: skip
ODD_NAMES = ("..", "../x", "a/../../x", "/abs", "", ".", "./share/toy.txt", "a//b", "d/up/../../x", "d/up/x", "x" * 300)
_HEADER_FIELDS = {"name": (0, 100), "mode": (100, 108), "size": (124, 136), "type": (156, 157), "link": (157, 257)}


class Mutator:
    """Makes one changed package after the other, the same ones for the same seed."""

    def __init__(self, seed: int, stem: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret is made of it
        self._stem = stem
        self._ways: tuple[Callable[[], bytes], ...] = (
            self._flipped, self._cut, self._spliced, self._odd_json, self._odd_header, self._odd_members, self._odd_zip,
            self._flipped_metadata,
        )  # fmt: skip

    def package(self) -> bytes:
        """The bytes of a changed package named after the stem."""
        return self._random.choice(self._ways)()

    def payload(self) -> Members:
        """What the sound package writes."""
        up = tarfile.TarInfo("d/up")
        up.type, up.linkname = tarfile.SYMTYPE, "../share"
        return {"share/toy.txt": b"hello\n", "bin/toy": b"#!/bin/sh\n", "d/up": up}

    def documents(self, payload: Members) -> dict[str, object]:
        """Its metadata."""
        name, version, build = self._stem.split("-")
        rows = [
            {"_path": path, "path_type": "hardlink", "size_in_bytes": len(content)}
            if isinstance(content, bytes)
            else {"_path": path, "path_type": "softlink"}
            for path, content in payload.items()
        ]
        return {
            "index.json": {
                "name": name, "version": version, "build": build, "build_number": 0, "subdir": "linux-64",
                "depends": ["python >=3.11", "libtoy"], "constrains": ["other <2"], "license": "MIT", "timestamp": 1,
                "track_features": "", "noarch": None,
            },
            "about.json": {"summary": "a toy", "extra": {"channel_tools": {"digest": "d", "inputs": {"a": "b"}}}},
            "paths.json": {"paths": rows, "paths_version": 1},
            "run_exports.json": {"weak": ["toy >=1"]},
            "hash_input.json": {"v": "1"},
        }  # fmt: skip

    def pack(self, payload: bytes, info: bytes, metadata: bytes = FORMAT) -> bytes:
        """A package of these parts."""
        return conda_bytes(self._stem, payload, info, metadata=metadata)

    def sound(self) -> bytes:
        """The package as it should be."""
        payload = self.payload()
        return self.pack(tar_zst(payload), info_part(self.documents(payload)))

    def _flipped(self) -> bytes:
        content = bytearray(self.sound())
        for _ in range(self._random.randint(1, 4)):
            content[self._random.randrange(len(content))] = self._random.randrange(256)
        return bytes(content)

    def _cut(self) -> bytes:
        content = self.sound()
        return content[: self._random.randrange(len(content))] + b"\0" * self._random.choice((0, 0, 100))

    def _spliced(self) -> bytes:
        content = self.sound()
        start, length, to = (self._random.randrange(len(content)) for _ in range(3))
        return content[:to] + content[start : start + length % 300] + content[to + self._random.randrange(50) :]

    def _odd_json(self) -> bytes:
        payload = self.payload()
        documents = self.documents(payload)
        name = self._random.choice(sorted(documents))
        documents[name] = self._changed(documents[name])
        return self.pack(tar_zst(payload), info_part(documents))

    def _changed(self, value: object) -> object:
        """The value with something in it replaced, left out or added."""
        if isinstance(value, dict) and value and self._random.random() < 0.9:
            key = self._random.choice(sorted(value))
            if self._random.random() < 0.15:
                return {other: item for other, item in value.items() if other != key}
            return value | {key: self._changed(value[key])}
        if isinstance(value, list) and value and self._random.random() < 0.8:
            at = self._random.randrange(len(value))
            return [*value[:at], self._changed(value[at]), *value[at + self._random.randrange(2) :]]
        return self._random.choice(ODD_VALUES)

    def _odd_header(self) -> bytes:
        payload = self.payload()
        which = self._random.randrange(2)
        parts = [tar_zst(payload), info_part(self.documents(payload))]
        plain = bytearray(zstandard.ZstdDecompressor().decompressobj().decompress(parts[which]))
        at = 512 * self._random.randrange(len(plain) // 512)
        start, end = self._random.choice(list(_HEADER_FIELDS.values()))
        junk = self._random.choice((self._random.randbytes(end - start), b"7" * (end - start), b"\x80" + b"\xff" * 11))
        plain[at + start : at + end] = junk[: end - start].ljust(end - start, b"\0")
        if self._random.random() < 0.8:  # with a checksum that fits
            plain[at + 148 : at + 156] = b" " * 8
            plain[at + 148 : at + 156] = b"%06o\0 " % sum(plain[at : at + 512])
        parts[which] = zstandard.compress(bytes(plain))
        return self.pack(*parts)

    def _odd_members(self) -> bytes:
        payload = self.payload()
        name = self._random.choice(ODD_NAMES)
        kind = self._random.choice(
            (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)
        )
        header = tarfile.TarInfo(name if self._random.random() < 0.6 else "d/more")
        header.type, header.linkname = kind, self._random.choice(ODD_NAMES)
        payload[f"{header.name} "] = header
        documents = self.documents({path.rstrip(): content for path, content in payload.items()})
        info: dict[str, object] = dict(documents)
        if self._random.random() < 0.3:
            info[self._random.choice(ODD_NAMES)] = {}
        return self.pack(tar_zst(payload), info_part(info))

    def _odd_zip(self) -> bytes:
        stream = io.BytesIO()
        payload = self.payload()
        method = self._random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        parts = [
            ("metadata.json", self._random.choice((FORMAT, b"[]", b"{", b" " * 9999))),
            (f"pkg-{self._stem}.tar.zst", tar_zst(payload)),
            (f"info-{self._stem}.tar.zst", info_part(self.documents(payload))),
            (self._random.choice(("../x", "/x", "more")), b"x"),
        ]
        self._random.shuffle(parts)
        with zipfile.ZipFile(stream, "w", compression=method) as archive:
            for name, content in parts[: self._random.randint(2, 4)]:
                archive.writestr(name, content)
        return stream.getvalue()

    def _flipped_metadata(self) -> bytes:
        payload = self.payload()
        documents = {name: json.dumps(value).encode() for name, value in self.documents(payload).items()}
        name = self._random.choice(sorted(documents))
        content = bytearray(documents[name])
        content[self._random.randrange(len(content))] = self._random.randrange(256)
        documents[name] = bytes(content)
        return self.pack(tar_zst(payload), tar_zst({f"info/{path}": body for path, body in documents.items()}))


def info_part(documents: Mapping[str, object]) -> bytes:
    return tar_zst({f"info/{name}": json.dumps(value).encode() for name, value in documents.items()})
