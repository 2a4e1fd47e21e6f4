# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to a folder: the root is label ``main``, every other label a channel folder at ``label/NAME`` below it.

Labels share bytes by hard links. The root's writer's lock guards all of them, so that no name gets other bytes under
one label while it is published under another.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from channel_tools.channel import add_set, channel_writer, create_channel, held_files, open_channel
from channel_tools.errors import ChannelError, UsageError
from channel_tools.publish.labels import LABEL_FOLDER, label_address, label_path
from channel_tools.publish.model import MAIN_LABEL, PackageFile, PackageSet, PublishPlan, PublishReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from channel_tools.channel import Channel, ChannelWriter, Foundation, HeldFile
    from channel_tools.progress import Progress


def open_folder(address: str, environ: Mapping[str, str]) -> FolderTarget:
    """The folder that a path or a ``file://`` address names; it need not exist yet."""
    del environ
    path = Path(url2pathname(urlsplit(address).path)) if "://" in address else Path(address).expanduser()
    return FolderTarget(root=path.absolute())


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FolderTarget:
    """A folder that is published to; see Target for what its methods promise."""

    root: Path
    clock: Callable[[], float] = time.time
    wait_s: float = 0.0
    """How long to wait for another writer to end."""

    @property
    def address(self) -> str:
        """The ``file://`` address of label ``main``."""
        return self.root.as_uri()

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with the folder, changing nothing. Raises ChannelError when a name has other bytes there."""
        place = self._place(label)
        if not self._is_channel():
            return PublishPlan(packages=packages, label=label, upload=packages.files, link=(), present=())
        open_channel(self.root, foundation=packages.foundation)
        subdirs = {file.subdir for file in packages.files}
        own = held_files(open_channel(place), subdirs) if place.exists() else {}
        others = self._held_elsewhere(place, packages)
        upload: list[PackageFile] = []
        link: list[PackageFile] = []
        present: list[PackageFile] = []
        for file in packages.files:
            for held in (own.get(file.key), others.get(file.key)):
                _refuse_other_bytes(file, held)
            (present if file.key in own else link if file.key in others else upload).append(file)
        return PublishPlan(
            packages=packages, label=label, upload=tuple(upload), link=tuple(link), present=tuple(present)
        )

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Carry the plan out in one step for readers; the folder is made when it is not there."""
        started = time.monotonic()
        with self._writer(plan.label, plan.packages.foundation) as writer:
            fresh = self.plan(plan.packages, label=plan.label)  # another publisher may have come between
            others = self._held_elsewhere(writer.channel.path, plan.packages)
            sources = {file.key: file.path for file in fresh.upload}
            sources |= {file.key: others[file.key].path for file in fresh.link}
            sources |= {file.key: writer.channel.path / file.key for file in fresh.present}
            with progress.task(f"publish {plan.packages.name}", total=len(sources)) as task:
                own = [sources[file.key] for file in plan.packages.files if not file.foundation]
                foundation = [sources[file.key] for file in plan.packages.files if file.foundation]
                add_set(writer, own, foundation)
                task.advance(len(sources))
        return PublishReport(
            address=label_address(self.address, plan.label),
            label=plan.label,
            uploaded=tuple(file.key for file in fresh.upload),
            linked=tuple(file.key for file in fresh.link),
            seconds=time.monotonic() - started,
        )

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Link packages of label ``source`` in under ``label`` as well, in one step for readers."""
        place = self._place(source)
        if not self._is_channel() or not place.exists():
            raise UsageError(f"{self.root}: has no label {source!r}", hint=f"labels there: {self._labels_text()}")
        channel = open_channel(place)
        held = held_files(channel, {key.partition("/")[0] for key in keys})
        if missing := sorted(key for key in keys if key not in held or held[key].hidden):
            message = f"{place}: label {source} does not list {missing[0]}"
            raise ChannelError(message, hint=f"publish it there first: channel_tools publish --label {source}")
        files = tuple(_package_file(key, held[key]) for key in sorted(set(keys)))
        packages = PackageSet(name=f"{source} to {label}", files=files, foundation=channel.foundation)
        return self.publish(self.plan(packages, label=label), progress=progress)

    def labels(self) -> list[str]:
        """The labels that there are, main first."""
        folder = self.root / LABEL_FOLDER
        return [MAIN_LABEL, *sorted(path.name for path in folder.iterdir())] if folder.is_dir() else [MAIN_LABEL]

    def _labels_text(self) -> str:
        return ", ".join(self.labels()) if self._is_channel() else "none, nothing was published yet"

    def _place(self, label: str) -> Path:
        return self.root / label_path(label)

    def _is_channel(self) -> bool:
        """Whether the root exists. Raises ChannelError when it does and is no channel of ours."""
        if not self.root.exists():
            return False
        open_channel(self.root)
        return True

    def _held_elsewhere(self, place: Path, packages: PackageSet) -> dict[str, HeldFile]:
        """Those of the set's files that labels other than the one at ``place`` hold."""
        found: dict[str, HeldFile] = {}
        for label in self.labels():
            other = self._place(label)
            keys = [file.key for file in packages.files if file.key not in found and (other / file.key).exists()]
            if other != place and keys:
                held = held_files(open_channel(other), {key.partition("/")[0] for key in keys})
                found |= {key: held[key] for key in keys if key in held}
        return found

    @contextlib.contextmanager
    def _writer(self, label: str, foundation: Foundation) -> Iterator[ChannelWriter]:
        """The label's channel with its lock and the root's held; both are made when they are not there."""
        place = self._place(label)
        with contextlib.ExitStack() as stack:
            writer = stack.enter_context(self._locked(self.root, foundation))
            if place != self.root:
                writer = stack.enter_context(self._locked(place, foundation))
            yield writer

    def _locked(self, path: Path, foundation: Foundation) -> contextlib.AbstractContextManager[ChannelWriter]:
        return channel_writer(self._opened(path, foundation), clock=self.clock, wait_s=self.wait_s)

    def _opened(self, path: Path, foundation: Foundation) -> Channel:
        if path.exists():
            return open_channel(path, foundation=foundation)
        return create_channel(path, foundation)


def _refuse_other_bytes(file: PackageFile, held: HeldFile | None) -> None:
    if held is None or held.sha256 == file.sha256:
        return
    message = (
        f"{held.path}: the target holds other bytes under this name (sha256 {held.sha256}) "
        f"than {file.path} ({file.sha256})"
    )
    raise ChannelError(message, hint="published files never change: raise the recipe's build number and build again")


def _package_file(key: str, held: HeldFile) -> PackageFile:
    subdir, _, file_name = key.partition("/")
    return PackageFile(
        subdir=subdir,
        file_name=file_name,
        path=held.path,
        sha256=held.sha256,
        size_bytes=held.size_bytes,
        foundation=held.foundation,
    )
