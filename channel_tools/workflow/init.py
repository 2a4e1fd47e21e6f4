# SPDX-License-Identifier: BSD-3-Clause
"""Starts a tree of a site: recipes, variants and a stack that can be built at once, from the files in ``site/``.

A template's name ends in ``.in`` and has ``dot-`` for a leading dot; the words in capitals in it are replaced.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import has_secret, split_revision, without_credentials
from channel_tools.matrix.site import CREDENTIALS_OF_GIT, read_site
from channel_tools.matrix.stacks import read_stacks
from channel_tools.system.errors import UsageError
from channel_tools.system.files import absolute_path, atomic_path
from channel_tools.system.settings import Tree, user_path
from channel_tools.workflow.upstream import update_upstreams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.requests.init import InitRequest
    from channel_tools.system.progress import Progress

_TEMPLATES = Path(__file__).parent / "site"
_SUFFIX = ".in"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_UPSTREAM_NAME = "upstream"


def init_tree(request: InitRequest, *, progress: Progress) -> tuple[str, ...]:
    """Write the tree and return the paths of its files, without the upstream's, sorted.

    The folder appears when it is whole. Raises UsageError for a folder that exists and is not empty, for a name that a
    stack cannot have and for an upstream without a revision, with credentials or in a home folder that does not exist,
    and the errors of update_upstreams.
    """
    folder = absolute_path(request.folder)
    name = folder.name
    if not _NAME.fullmatch(name):
        message = f"{name!r} cannot be the name of a stack: expected lower-case letters, digits, - _ and ."
        raise UsageError(message, hint="give the folder another name, for example  channel_tools init mysite")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = f"{folder}: exists and is not an empty folder; nothing was changed"
        raise UsageError(message, hint="give a new folder; a tree of your own is extended by editing its files")
    parts = ["base", "alone" if request.upstream is None else "on_upstream"]
    if request.ci is not None:
        parts.append(f"ci_{request.ci}")
    with atomic_path(folder) as temporary:
        words = {"SITE_NAME": name}
        if request.upstream is not None:
            words |= _upstream_words(request.upstream, folder)
        files = [path for part in parts for path in _write(_TEMPLATES / part, temporary, words)]
        if request.upstream is not None:
            tree = Tree(root=temporary)
            update_upstreams(tree, (), progress=progress, start=folder)
            (upstream,) = read_site(tree)
            base = read_stacks(tree.upstreams / upstream.name / "variants" / "stacks.yaml").default_stack
            _replace_words(tree.stacks_file, {"BASE_STACK": base})
        if folder.is_dir():
            folder.rmdir()
    return tuple(sorted(files))


def _upstream_words(text: str, folder: Path) -> dict[str, str]:
    """The lines of site.yaml in ``folder`` for ``--upstream``."""
    path = user_path(text)
    if path.is_dir():
        relative = os.path.relpath(path.resolve(), folder.resolve())
        return {"UPSTREAM_NAME": _name_of(path.resolve().name), "UPSTREAM_KEYS": f"path: {_quoted(relative)}"}
    if has_secret(text):
        message = f"--upstream {without_credentials(text)}: given with credentials, which site.yaml would show"
        raise UsageError(message, hint=f"give the address without them, and {CREDENTIALS_OF_GIT}")
    address, rev = split_revision(text)
    if not address or not rev or ":" in rev:
        message = f"--upstream {text}: neither a folder nor ADDRESS@REV"
        raise UsageError(message, hint="name a folder with recipes/ and variants/, or a git repository: ADDRESS@v1.0")
    name = _name_of(address.rstrip("/").rpartition("/")[2].removesuffix(".git"))
    return {"UPSTREAM_NAME": name, "UPSTREAM_KEYS": f"git: {_quoted(address)}\n    rev: {_quoted(rev)}"}


def _name_of(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_") or _UPSTREAM_NAME


def _quoted(text: str) -> str:
    return (
        text
        if re.fullmatch(r"[A-Za-z./][\w./:@~+-]*", text)
        else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )


def _write(source: Path, destination: Path, words: Mapping[str, str]) -> list[str]:
    written = []
    for path in sorted(source.rglob(f"*{_SUFFIX}")):
        parts = [
            part.replace("dot-", ".", 1) if part.startswith("dot-") else part for part in path.relative_to(source).parts
        ]
        name = "/".join(parts).removesuffix(_SUFFIX)
        target = destination / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        _replace_words(target, words)
        written.append(name)
    return written


def _replace_words(path: Path, words: Mapping[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for word, value in words.items():
        text = text.replace(word, value)
    path.write_text(text, encoding="utf-8")
