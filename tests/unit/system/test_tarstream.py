# SPDX-License-Identifier: BSD-3-Clause
"""Reading an archive in bounded memory says what the standard library says, or that the archive is damaged."""

from __future__ import annotations

import io
import random
import tarfile
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.system.tarstream import tar_members

_FIELDS = ("name", "type", "size", "linkname", "mode", "uid", "gid", "mtime", "chksum", "uname", "gname", "offset_data")
Shown = list[tuple[tuple[object, ...], bytes | None]]


def shown(members: list[tuple[tarfile.TarInfo, bytes | None]]) -> Shown:
    return [(tuple(getattr(member, field) for field in _FIELDS), content) for member, content in members]


def by_tarfile(archive: bytes) -> Shown:
    found: list[tuple[tarfile.TarInfo, bytes | None]] = []
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.isreg() else None
            found.append((member, None if stream is None else stream.read()))
    return shown(found)


def streamed(archive: bytes) -> Shown:
    members = tar_members(io.BytesIO(archive))
    return shown([(member, None if stream is None else stream.read()) for member, stream in members])


def skipped(archive: bytes) -> list[object]:
    """The members' fields where nothing of them is read, of a file in which one can go forward."""
    file = io.BytesIO(archive)
    return [fields for fields, _none in shown([(member, None) for member, _stream in tar_members(file, file=file)])]


def archive_of(members: list[tuple[str, bytes, bytes, str]], form: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as tar:
        for name, kind, content, target in members:
            header = tarfile.TarInfo(name)
            header.type, header.linkname, header.mtime, header.mode = kind, target, 1_700_000_000, 0o755
            header.size = len(content) if kind == tarfile.REGTYPE else 0
            header.uname, header.gname = "conda", "conda"
            tar.addfile(header, io.BytesIO(content))
    return stream.getvalue()


_NAMES = st.text(alphabet="abz/._-+ ä", min_size=1, max_size=40)
_KINDS = st.sampled_from((tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.LNKTYPE))
_MEMBERS = st.lists(st.tuples(_NAMES, _KINDS, st.binary(max_size=1500), _NAMES), min_size=1, max_size=6)


@given(members=_MEMBERS, form=st.sampled_from((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)))
def test_archives_of_every_format_are_read_alike(members: list[tuple[str, bytes, bytes, str]], form: int) -> None:
    archive = archive_of(members, form)
    assert streamed(archive) == by_tarfile(archive)
    assert skipped(archive) == [fields for fields, _content in by_tarfile(archive)]


@pytest.mark.parametrize("size", [0, 1, 512, 700])
def test_a_member_is_read_in_parts_or_left_out_before_the_next(size: int) -> None:
    members = [("a", tarfile.REGTYPE, b"x" * 700, ""), ("b", tarfile.REGTYPE, b"y" * 512, "")]
    streams = tar_members(io.BytesIO(archive_of(members, tarfile.GNU_FORMAT)))
    _a, first = next(streams)
    assert first is not None
    assert first.read(size) == b"x" * size
    _b, second = next(streams)
    assert second is not None
    assert (second.read(500), second.read(500), second.read(500)) == (b"y" * 500, b"y" * 12, b"")
    with pytest.raises(tarfile.StreamError):
        first.read(1)


def with_checksum(archive: bytes, at: int) -> bytes:
    """The archive with the checksum of the header at ``at`` made right."""
    blank = archive[: at + 148] + b" " * 8 + archive[at + 156 :]
    return blank[: at + 148] + b"%06o\0 " % sum(blank[at : at + 512]) + blank[at + 156 :]


_TWO = [("a", tarfile.REGTYPE, b"x" * 600, ""), ("b", tarfile.SYMTYPE, b"", "a")]
_SECOND_AT = 1536


@pytest.mark.parametrize("at", [0, _SECOND_AT], ids=["first", "second"])
@pytest.mark.parametrize("field", [100, 108, 116, 136], ids=["mode", "uid", "gid", "mtime"])
def test_a_number_ends_where_it_does_for_the_library(at: int, field: int) -> None:
    archive = bytearray(archive_of(_TWO, tarfile.GNU_FORMAT))
    archive[at + field] = 0
    changed = with_checksum(bytes(archive), at)
    assert streamed(changed) == by_tarfile(changed)


def _second_is(kind: bytes) -> bytes:
    """An archive that ends with a header of a kind that describes the next one, of which there is none."""
    archive = bytearray(archive_of(_TWO, tarfile.GNU_FORMAT))
    archive[_SECOND_AT + 156] = kind[0]
    return with_checksum(bytes(archive), _SECOND_AT)


@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(archive_of(_TWO, tarfile.GNU_FORMAT)[: _SECOND_AT + 100], id="a header cut short"),
        pytest.param(archive_of(_TWO, tarfile.GNU_FORMAT)[: _SECOND_AT - 1], id="the blank after a content cut short"),
        pytest.param(
            archive_of(_TWO, tarfile.GNU_FORMAT)[:_SECOND_AT] + b"?" + bytes(4096), id="a header with a wrong checksum"
        ),
        pytest.param(_second_is(tarfile.XHDTYPE), id="pax of nothing"),
        pytest.param(_second_is(tarfile.GNUTYPE_LONGNAME), id="a long name of nothing"),
        pytest.param(_second_is(tarfile.GNUTYPE_LONGLINK), id="a long link of nothing"),
        pytest.param(_second_is(tarfile.GNUTYPE_SPARSE), id="sparse"),
    ],
)
def test_what_the_library_takes_for_the_end_is_refused(archive: bytes) -> None:
    with pytest.raises(tarfile.ReadError, match=r"damaged header|unexpected end|sparse"):
        streamed(archive)


def test_an_archive_may_end_without_blank_blocks() -> None:
    archive = archive_of(_TWO, tarfile.GNU_FORMAT)[: _SECOND_AT + 512]
    assert streamed(archive) == by_tarfile(archive)
    assert len(streamed(archive)) == 2


def test_headers_for_all_later_members_are_heeded() -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"uname": "builder"}) as tar:
        for name in ("a", "b"):
            tar.addfile(tarfile.TarInfo(name))
    assert [fields[_FIELDS.index("uname")] for fields, _content in streamed(stream.getvalue())] == ["builder"] * 2
    assert streamed(stream.getvalue()) == by_tarfile(stream.getvalue())


@pytest.mark.parametrize("seed", range(4))
def test_damaged_archives_are_read_alike_or_refused(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret is made of it
    archive = archive_of(_TWO, tarfile.GNU_FORMAT)
    taken = refused = 0
    for _ in range(500):
        changed = bytearray(archive)
        at = chance.choice((0, _SECOND_AT))
        changed[at + chance.randrange(512)] = chance.choice((0, 32, 47, 48, 55, 57, 128, chance.randrange(256)))
        if chance.random() < 0.7:
            changed[:] = with_checksum(bytes(changed), at)
        cut = bytes(changed[: chance.choice((len(changed), len(changed), chance.randrange(len(changed))))])
        try:
            found = streamed(cut)
        except tarfile.TarError:
            refused += 1
        else:
            taken += 1
            assert found == by_tarfile(cut)
    assert taken > 20
    assert refused > 20


def gnu_sparse_map(entries: int) -> bytes:
    """An archive whose one file is sparse by pax's version 1.0: the list of its pieces takes the place of content."""
    stream = io.BytesIO()
    headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "a", "GNU.sparse.realsize": "9"}
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("a")
        member.pax_headers = headers
        content = b"%d\n" % entries + b"0\n" * (2 * entries)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize("entries", [1, 1_000_000])
def test_a_list_of_the_pieces_of_a_sparse_file_takes_no_memory(entries: int) -> None:
    archive = gnu_sparse_map(entries)
    tracemalloc.start()
    try:
        with pytest.raises(tarfile.ReadError, match=r"sparse|damaged header"):
            streamed(archive)
        _now, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 1 << 20


def test_a_small_archive_takes_little_memory() -> None:
    """A buffer of megabytes would be mapped and unmapped for each of ten thousand packages."""
    archive = io.BytesIO(archive_of([("a", tarfile.REGTYPE, b"a", "")], tarfile.USTAR_FORMAT))
    tracemalloc.start()
    try:
        assert [member.name for member, _stream in tar_members(archive)] == ["a"]
        _now, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 1 << 20


def test_an_archive_of_more_than_is_allowed_is_refused() -> None:
    archive = archive_of(_TWO, tarfile.GNU_FORMAT)
    with pytest.raises(tarfile.ReadError, match="more than 1 members"):
        list(tar_members(io.BytesIO(archive), limit_members=1))
    with pytest.raises(tarfile.ReadError, match="more bytes"):
        list(tar_members(io.BytesIO(archive), limit_bytes=1024))
