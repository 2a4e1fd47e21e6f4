# SPDX-License-Identifier: BSD-3-Clause
"""Reading ``.conda`` packages as streams; whatever is cut short or malformed becomes an IntegrityError.

conda-package-streaming is not used for reading: it decompresses through the same library but leaves every low-level
exception to the caller, and a damaged package must end as one clear message.
"""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
import zipfile
from typing import IO, TYPE_CHECKING, Any, Literal

import zstandard

from channel_tools.errors import IntegrityError
from channel_tools.packages.tarstream import stream_tar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typing_extensions import Buffer

Component = Literal["pkg", "info"]
_CHUNK_BYTES = 1 << 20
_MAX_METADATA_BYTES = 256 << 20


def read_index_json(path: Path) -> dict[str, Any]:
    """The info/index.json of a package. Raises IntegrityError when the package is damaged or lacks it."""
    index = read_info_json(path, "index.json")
    if not isinstance(index, dict):
        raise _damaged(path, "info/index.json is no mapping")
    return index


def read_info_json(path: Path, name: str) -> Any:  # noqa: ANN401 - JSON of any shape, for the caller to check
    """The parsed info/``name``. Raises IntegrityError when the package is damaged or lacks it."""
    found = read_info_files(path, frozenset({name}))
    if name not in found:
        raise _damaged(path, f"info/{name} is missing")
    try:
        return json.loads(found[name])
    except ValueError as err:
        raise _damaged(path, f"info/{name} is no JSON: {err}") from None


def read_info_files(path: Path, names: frozenset[str]) -> dict[str, bytes]:
    """Those of the files info/``names`` that the package has, in one pass over its info part."""
    found: dict[str, bytes] = {}
    for member, stream in stream_component(path, "info"):
        name = member.name.removeprefix("info/")
        if name in names and stream is not None:
            if member.size > _MAX_METADATA_BYTES:
                raise _damaged(path, f"info/{name} has {member.size} bytes, no plausible size")
            found[name] = stream.read()
            if len(found) == len(names):
                break
    return found


def stream_component(path: Path, component: Component) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Every member of the payload (``pkg``) or metadata (``info``) with a stream of its bytes (None for links).

    A member's stream must be read before the next member is taken. Raises IntegrityError for a damaged package.
    """
    with _reported(path), zipfile.ZipFile(path) as archive:
        name = _component_name(path, archive, component)
        with archive.open(name) as packed:
            for member, source in stream_tar(packed, archive.getinfo(name).file_size):
                yield member, None if source is None else io.BufferedReader(_Guarded(path, source), _CHUNK_BYTES)


class _Guarded(io.RawIOBase):
    """A member's bytes, whose damage shows only while they are read, by whoever took the member."""

    def __init__(self, path: Path, source: IO[bytes]) -> None:
        self._path = path
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        with _reported(self._path):
            chunk = self._source.read(len(view))
        view[: len(chunk)] = chunk
        return len(chunk)


def _component_name(path: Path, archive: zipfile.ZipFile, component: Component) -> str:
    wanted = f"{component}-{path.name.removesuffix('.conda')}.tar.zst"
    names = [name for name in archive.namelist() if name.startswith(f"{component}-") and name.endswith(".tar.zst")]
    if wanted in names:
        return wanted
    if len(names) != 1:
        raise _damaged(path, f"{wanted} is missing in it")
    return names[0]


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zstandard.ZstdError, tarfile.TarError, EOFError) as err:
        raise _damaged(path, str(err) or type(err).__name__) from None
    except FileNotFoundError:
        raise IntegrityError(f"{path}: the package is not there") from None


def _damaged(path: Path, what: str) -> IntegrityError:
    hint = "remove the file and make or fetch the package again"
    return IntegrityError(f"{path}: no complete conda package: {what}", hint=hint)
