# SPDX-License-Identifier: BSD-3-Clause
"""Packages that nobody may publish, each wrong in one way, with a part of what is to be said of it."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import zstandard

from tests.support.packages import FORMAT, conda_bytes, tar_zst
from tests.support.tars import plain_tar

NAME = "toy"
STEM = f"{NAME}-1.0-0"
FILE_NAME = f"{STEM}.conda"
SUBDIR = "linux-64"
_PKG, _INFO = f"pkg-{STEM}.tar.zst", f"info-{STEM}.tar.zst"
_DEEP = b"[" * 100_000 + b"]" * 100_000
_CENTRAL, _LOCAL = b"PK\x01\x02", b"PK\x03\x04"


@dataclass(frozen=True, kw_only=True)
class Malformed:
    """``said`` is a regular expression that what is said of the package matches.

    What is ``audit_only`` concerns no channel: only the audit reads it.
    """

    make: Callable[[], bytes]
    said: str
    audit_only: bool = False


def payload_part(members: Mapping[str, bytes | tarfile.TarInfo] | None = None) -> bytes:
    return tar_zst({"share/toy.txt": b"hello\n"} if members is None else members)


def index_json(**changed: object) -> dict[str, object]:
    index: dict[str, object] = {"name": NAME, "version": "1.0", "build": "0", "build_number": 0}
    return index | {"subdir": SUBDIR, "depends": [], "license": "MIT"} | changed


def info_part(
    paths: object = None, more: Mapping[str, bytes] | None = None, index: Mapping[str, object] | None = None
) -> bytes:
    """The metadata; ``index`` has fields of its index.json, ``more`` files of info/ with their bytes."""
    rows = [{"_path": "share/toy.txt", "path_type": "hardlink", "size_in_bytes": 6}]
    documents = {
        "info/index.json": json.dumps(index_json(**(index or {}))).encode(),
        "info/about.json": b"{}",
        "info/paths.json": json.dumps({"paths": rows if paths is None else paths, "paths_version": 1}).encode(),
    }
    return tar_zst(documents | {f"info/{name}": content for name, content in (more or {}).items()})


def packed(
    *,
    payload: bytes | None = None,
    info: bytes | None = None,
    metadata: bytes = FORMAT,
    method: int = zipfile.ZIP_STORED,
    more: tuple[tuple[str, bytes], ...] = (),
) -> bytes:
    """A package of these parts; without any it is sound."""
    return conda_bytes(
        STEM,
        payload_part() if payload is None else payload,
        info_part() if info is None else info,
        metadata=metadata,
        method=method,
        more=more,
    )


def sound() -> bytes:
    return packed()


def with_field(content: bytes, offset: int, value: bytes, *, local: int | None, central: int | None = None) -> bytes:
    """A field of the last member's headers replaced: at ``local`` and ``central`` bytes behind their signatures."""
    changed = bytearray(content)
    for signature, at in ((_LOCAL, local), (_CENTRAL, central)):
        if at is not None:
            start = content.rfind(signature) + at + offset
            changed[start : start + len(value)] = value
    return bytes(changed)


def index_is(**changed: object) -> Callable[[], bytes]:
    return lambda: packed(info=info_part(index=changed))


def document_is(name: str, content: bytes) -> Callable[[], bytes]:
    return lambda: packed(info=info_part(more={name: content}))


def payload_is(path: str, *, kind: bytes = tarfile.REGTYPE, target: str = "") -> Callable[[], bytes]:
    """A payload of one empty member, which paths.json lists."""
    header = tarfile.TarInfo(path)
    header.type, header.linkname = kind, target
    path_type = "softlink" if kind == tarfile.SYMTYPE else "hardlink"
    row = {"_path": path, "path_type": path_type}
    return lambda: packed(payload=payload_part({path: header}), info=info_part(paths=[row]))


def unpacks_to(size_bytes: int, name: str) -> bytes:
    """A part that is far smaller than the zeros that it unpacks to."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    header = tarfile.TarInfo(name)
    header.size = size_bytes
    pieces = [compressor.compress(header.tobuf())]
    pieces += [compressor.compress(bytes(1 << 20)) for _ in range(size_bytes >> 20)]
    return b"".join((*pieces, compressor.flush()))


def bombs_in(method: int) -> Callable[[], bytes]:
    """A part of nothing but zeros, compressed once more by the zip."""

    def make() -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as archive:
            archive.writestr("metadata.json", FORMAT)
            with archive.open(_PKG, "w", force_zip64=True) as part:
                for _ in range(64):
                    part.write(bytes(1 << 20))
            archive.writestr(_INFO, info_part())
        return stream.getvalue()

    return make


def window(exponent: int) -> bytes:
    """A zstd frame that asks for a window of 2 to this power, as its header says, and then holds what is right."""
    plain = plain_tar({"share/toy.txt": b"hello\n"})
    block = struct.pack("<I", (len(plain) << 3) | 1)[:3] + plain
    return b"\x28\xb5\x2f\xfd" + bytes([0, (exponent - 10) << 3]) + block


def folder_header(name: str) -> bytes:
    header = tarfile.TarInfo(name)
    header.type = tarfile.DIRTYPE
    return header.tobuf()


def pax(records: bytes) -> bytes:
    header = tarfile.TarInfo("PaxHeaders/x")
    header.type, header.size = tarfile.XHDTYPE, len(records)
    return header.tobuf() + records + bytes(-len(records) % tarfile.BLOCKSIZE)


def pax_record(text: bytes) -> bytes:
    length = len(text) + 2
    while len(b"%d %s\n" % (length, text)) != length:
        length += 1
    return b"%d %s\n" % (length, text)


def before_the_payload(blocks: bytes) -> Callable[[], bytes]:
    return lambda: packed(payload=zstandard.compress(blocks + plain_tar({"share/toy.txt": b"hello\n"})))


def _zip64_that_lies() -> bytes:
    """The size of the last member is said to be 8 EiB."""
    content = packed()
    at = content.rfind(_CENTRAL)
    changed = bytearray(content)
    changed[at + 20 : at + 28] = b"\xff" * 8
    changed[at + 30 : at + 32] = struct.pack("<H", 20)
    end = content.rfind(b"PK\x05\x06")
    extra = struct.pack("<HHQQ", 1, 16, 1 << 63, 1 << 63)
    directory = struct.unpack("<I", content[end + 12 : end + 16])[0]
    tail = bytearray(content[end:])
    tail[12:16] = struct.pack("<I", directory + 20)
    return bytes(changed[:end]) + extra + bytes(tail)


def _overlapping() -> bytes:
    """Both parts are the same bytes of the file."""
    content = bytearray(packed())
    first = content.find(_CENTRAL)
    second = content.find(_CENTRAL, first + 4)
    third = content.find(_CENTRAL, second + 4)
    content[third + 42 : third + 46] = content[second + 42 : second + 46]
    return bytes(content)


def _hidden_between() -> bytes:
    content = packed()
    end = content.rfind(b"PK\x05\x06")
    directory = struct.unpack("<I", content[end + 16 : end + 20])[0]
    tail = bytearray(content[end:])
    tail[16:20] = struct.pack("<I", directory + 9)
    return content[:directory] + b"smuggled!" + content[directory:end] + bytes(tail)


def _thousands_of_parts() -> bytes:
    return packed(more=tuple((f"more-{number}", b"") for number in range(5_000)))


KINDS: Mapping[str, Malformed] = {
    # the zip
    "empty file": Malformed(make=lambda: b"", said="complete"),
    "no zip": Malformed(make=lambda: b"x" * 1000, said="complete"),
    "cut short": Malformed(make=lambda: sound()[:-100], said="complete"),
    "encrypted": Malformed(make=lambda: with_field(sound(), 0, b"\1\0", local=6, central=8), said="encrypted"),
    "unknown method": Malformed(make=lambda: with_field(sound(), 0, b"\x63\0", local=8, central=10), said="compressed"),
    "method zstd": Malformed(make=lambda: with_field(sound(), 0, b"\x5d\0", local=8, central=10), said="compressed"),
    "deflated": Malformed(make=lambda: packed(method=zipfile.ZIP_DEFLATED), said="compressed"),
    "bzip2": Malformed(make=lambda: packed(method=zipfile.ZIP_BZIP2), said="compressed"),
    "lzma": Malformed(make=lambda: packed(method=zipfile.ZIP_LZMA), said="compressed"),
    "deflated bomb": Malformed(make=bombs_in(zipfile.ZIP_DEFLATED), said="compressed"),
    "local header says deflated": Malformed(
        make=lambda: with_field(sound(), 0, b"\x08\0", local=8), said="header of its member"
    ),
    "local header has another name": Malformed(
        make=lambda: with_field(sound(), 0, b"xxxx", local=30), said="header of its member"
    ),
    "local header has another size": Malformed(
        make=lambda: with_field(sound(), 0, b"\1\0\0\0", local=18), said="header of its member"
    ),
    "version 255": Malformed(make=lambda: with_field(sound(), 0, b"\xff\0", local=4, central=6), said="version 25.5"),
    "bytes before": Malformed(make=lambda: b"#!/bin/sh\n" + sound(), said="bytes before"),
    "bytes behind": Malformed(make=lambda: sound() + b"hidden", said="bytes after"),
    "bytes between": Malformed(make=_hidden_between, said="bytes between"),
    "comment": Malformed(make=lambda: sound()[:-2] + b"\4\0" + b"said", said="bytes after"),
    "overlapping members": Malformed(make=_overlapping, said="header of its member|bytes between"),
    "a size of 8 EiB": Malformed(make=_zip64_that_lies, said="damaged|complete|header of its member"),
    "5,000 parts": Malformed(make=_thousands_of_parts, said="directory of"),
    "a member more": Malformed(make=lambda: packed(more=(("../../x", b""),)), said=r"contains \.\./\.\./x"),
    "a part twice": Malformed(make=lambda: packed(more=((_INFO, info_part()),)), said="contains"),
    "no format": Malformed(make=lambda: packed(metadata=b""), said="metadata.json"),
    "format 3": Malformed(make=lambda: packed(metadata=b'{"conda_pkg_format_version": 3}'), said="metadata.json says"),
    "format nested deep": Malformed(make=lambda: packed(metadata=_DEEP), said="metadata.json"),
    "format nested": Malformed(make=lambda: packed(metadata=_DEEP[99_000:101_000]), said="metadata.json"),
    # zstd
    "payload no zstd": Malformed(make=lambda: packed(payload=b"x" * 1000), said="zstd"),
    "payload cut": Malformed(make=lambda: packed(payload=payload_part()[:-9]), said="complete"),
    "payload empty": Malformed(make=lambda: packed(payload=b""), said="complete|not in the package"),
    "window of 2 GiB": Malformed(make=lambda: packed(payload=window(31)), said="window|memory"),
    "window of 256 MiB": Malformed(make=lambda: packed(info=window(28)), said="window|memory"),
    "metadata of 300 MB": Malformed(
        make=lambda: packed(info=unpacks_to(300 << 20, "info/x")), said="unpacks to|too large|no plausible size"
    ),
    # tar
    "3,000 pax headers": Malformed(make=before_the_payload(pax(pax_record(b"comment=x")) * 3000), said="header"),
    "a header of 2 MB": Malformed(
        make=before_the_payload(pax(pax_record(b"comment=" + b"x" * 2_000_000))), said="header of"
    ),
    "negative size": Malformed(make=before_the_payload(pax(pax_record(b"size=-512"))), said="complete"),
    "a size of 5,000 digits": Malformed(
        make=before_the_payload(pax(pax_record(b"size=" + b"9" * 5000))), said="bytes|complete"
    ),
    "a time that is no number": Malformed(
        make=before_the_payload(pax(pax_record(b"mtime=nan"))), said="complete|mtime"
    ),
    "a sparse file": Malformed(
        make=before_the_payload(pax(pax_record(b"GNU.sparse.map=0,9,") + pax_record(b"GNU.sparse.size=999999999"))),
        said="complete",
    ),
    "60,000 members": Malformed(
        make=lambda: packed(payload=zstandard.compress(folder_header("d") * 60_000)), said="members"
    ),
    "name of bytes": Malformed(make=before_the_payload(folder_header("share/\udcff")), said="UTF-8"),
    # metadata
    "index.json nested deep": Malformed(make=document_is("index.json", _DEEP), said="index.json"),
    "about.json nested deep": Malformed(
        make=document_is("about.json", b'{"extra": ' + _DEEP + b"}"), said="about.json"
    ),
    "about.json nested": Malformed(
        make=document_is("about.json", b'{"summary": ' + _DEEP[99_100:100_900] + b"}"), said="about.json"
    ),
    "recipe nested deep": Malformed(
        make=document_is("recipe/rendered_recipe.yaml", _DEEP), said="rendered_recipe", audit_only=True
    ),
    "recipe with a cycle": Malformed(
        make=document_is("recipe/rendered_recipe.yaml", b"a: &a [*a]\n"), said="rendered_recipe", audit_only=True
    ),
    "recipe of aliases": Malformed(
        make=document_is(
            "recipe/rendered_recipe.yaml",
            b"a: &a [x,x,x,x,x,x,x,x,x]\n"
            + b"".join(b"%c: &%c [%s]\n" % (x, x, b",".join([b"*%c" % (x - 1)] * 9)) for x in range(98, 110)),
        ),
        said="rendered_recipe",
        audit_only=True,
    ),
    "link.json a list": Malformed(make=document_is("link.json", b"[]"), said="link.json"),
    "link.json noarch a number": Malformed(make=document_is("link.json", b'{"noarch": 5}'), said="link.json"),
    **{
        f"the entry point {line}": Malformed(
            make=document_is("link.json", json.dumps({"noarch": {"type": "python", "entry_points": [line]}}).encode()),
            said="entry.?point",
        )
        for line in (
            "../../evil = a:b",
            "/evil = a:b",
            ".. = a:b",
            "a/b = c:d",
            "evil",
            "a = b",
            "e\x1b[2J = a:b",
            5,
        )
    },
    **{
        f"site-packages at {path}": Malformed(
            make=index_is(python_site_packages_path=path), said="python_site_packages_path"
        )
        for path in ("../../evil", "/evil", "lib/../../evil", "", ".", 5)
    },
    "index.json no text": Malformed(make=document_is("index.json", b'{"name": "\xff"}'), said="index.json"),
    "index.json a list": Malformed(make=document_is("index.json", b"[]"), said="index.json"),
    "index.json a surrogate": Malformed(
        make=document_is("index.json", json.dumps(index_json(license="\ud800")).encode()), said="index.json"
    ),
    "a number of 5,000 digits": Malformed(
        make=document_is(
            "index.json", json.dumps(index_json()).encode()[:-1] + b', "timestamp": ' + b"9" * 5000 + b"}"
        ),
        said="index.json",
    ),
    "build number 10^30": Malformed(make=index_is(build_number=10**30), said="build_number"),
    "build number -1": Malformed(make=index_is(build_number=-1), said="build_number"),
    "build number a text": Malformed(make=index_is(build_number="1"), said="build_number"),
    "timestamp 10^30": Malformed(make=index_is(timestamp=10**30), said="timestamp"),
    "name ../../x": Malformed(make=index_is(name="../../x"), said="name '../../x'"),
    "name with a newline": Malformed(make=index_is(name="toy\n"), said="name"),
    "name a number": Malformed(make=index_is(name=5), said="name"),
    "version with a newline": Malformed(make=index_is(version="1.0\n"), said="version"),
    "version no version": Malformed(make=index_is(version="!!"), said="version"),
    "version of 10,000 characters": Malformed(make=index_is(version="1." * 5000 + "1"), said="version"),
    "build ../x": Malformed(make=index_is(build="../x"), said="build"),
    "subdir ../../x": Malformed(make=index_is(subdir="../../x"), said="subdir"),
    "subdir a list": Malformed(make=index_is(subdir=["linux-64"]), said="subdir"),
    "requirement with a newline": Malformed(make=index_is(depends=["python >=3.11\nevil"]), said="depends"),
    "requirement with a control character": Malformed(make=index_is(depends=["python\x1b[2J >=3.11"]), said="depends"),
    "requirement empty": Malformed(make=index_is(depends=[""]), said="depends"),
    "requirement blank": Malformed(make=index_is(depends=["   "]), said="depends"),
    "requirement no MatchSpec": Malformed(make=index_is(depends=["toy >=1,,<2"]), said="depends"),
    "requirement of 100 kB": Malformed(make=index_is(depends=["a " + ">1," * 33_000 + ">1"]), said="depends"),
    "requirement a number": Malformed(make=index_is(depends=[5]), said="depends"),
    "requirements a text": Malformed(make=index_is(depends="python"), said="depends"),
    "constrains a number": Malformed(make=index_is(constrains=5), said="constrains"),
    "noarch true": Malformed(make=index_is(noarch=True), said="noarch"),
    "license a list": Malformed(make=index_is(license=["MIT"]), said="license"),
    "license of 1 MB": Malformed(make=index_is(license="x" * 1_000_000), said="license"),
    "license of two lines": Malformed(make=index_is(license="MIT\nevil: true"), said="license"),
    "features a number": Malformed(make=index_is(track_features=3), said="track_features"),
    "run_exports nonsense": Malformed(make=document_is("run_exports.json", b'{"weak": "x"}'), said="run_exports"),
    "summary a list": Malformed(make=document_is("about.json", b'{"summary": [[1]]}'), said="about.json"),
    # paths
    "paths no rows": Malformed(make=lambda: packed(info=info_part(paths=[3])), said="paths.json"),
    "paths nested deep": Malformed(make=document_is("paths.json", b'{"paths": ' + _DEEP + b"}"), said="paths.json"),
    "paths no list": Malformed(make=lambda: packed(info=info_part(paths={})), said="paths.json"),
    "a placeholder that is a list": Malformed(
        make=lambda: packed(info=info_part(paths=[{"_path": "share/toy.txt", "prefix_placeholder": ["x"]}])),
        said="paths.json",
    ),
    "an empty placeholder": Malformed(
        make=lambda: packed(info=info_part(paths=[{"_path": "share/toy.txt", "prefix_placeholder": ""}])),
        said="placeholder",
    ),
    "a record of what is installed": Malformed(make=payload_is("conda-meta/history"), said="conda-meta"),
    "metadata in the payload": Malformed(make=payload_is("info/index.json"), said="info/index.json"),
    "member outside": Malformed(make=payload_is("../x"), said="outside"),
    "member with a newline": Malformed(make=payload_is("share/a\nb"), said="control character"),
    "link outside": Malformed(make=payload_is("share/x", kind=tarfile.SYMTYPE, target="/etc"), said="outside"),
    "a device": Malformed(make=payload_is("share/null", kind=tarfile.CHRTYPE), said="neither a file"),
}
