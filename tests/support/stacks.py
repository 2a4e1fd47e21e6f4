# SPDX-License-Identifier: BSD-3-Clause
"""Stacks for tests: built from upstream's sources by the command that users give, installed, and validated.

No source is fetched: where the store lacks one the tests skip and name it, with how to get it.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from channel_tools.environments import activated_environment, create_environment
from channel_tools.matrix import find_stack, load_tree
from channel_tools.system.processes import Deadline, run_command
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import Settings
from channel_tools.validate import ValidationSetup
from channel_tools.validate.distributed.method import DistributedMethod
from channel_tools.validate.model import MethodContext, MethodResult
from channel_tools.validate.runner import DEFAULT_TIMEOUT_S
from tests.integration.conftest import ROOT, build_into_output
from tests.support.command_line import run_tool

SUBDIR = "linux-64"
_BUILD_LIMIT_S = 3600
_INSTALL_LIMIT_S = 600


def build_from_upstream(settings: Settings, stack: str, package: str, *, release: str = "") -> Path:
    """The channel folder with ``package`` of ``stack`` in it, built or built before; skips where that cannot be.

    ``release``: its version in the default variant, where others are built from sources of their own.
    """
    needed = [
        source for source in sources_of(stack, package) if any(name.endswith(release) for name in source["packages"])
    ]
    if missing := [source for source in needed if not source["present"]]:
        addresses = ", ".join(str(source["urls"][0]) for source in missing)
        pytest.skip(f"the source store lacks {addresses}: `channel_tools sources fetch --variant {stack}`")
    result = build_into_output("build", "--variant", stack, "--package", package, limit_s=_BUILD_LIMIT_S)
    assert result.returncode == 0, result.stderr
    return settings.channel


def packages_of(channel: Path, name: str) -> Iterator[Path]:
    """The package files of this name, whatever their version and build."""
    for path in sorted(channel.glob(f"*/{name}-*.conda")):
        if path.name.rsplit("-", 2)[0] == name:
            yield path


@functools.cache
def sources_of(stack: str, package: str) -> list[dict[str, Any]]:
    """What ``sources list --json`` says of the sources of one recipe of a stack."""
    words = ("sources", "list", "--variant", stack, "--package", package, "--json")
    result = run_tool(*words, cwd=ROOT, environ=os.environ)
    assert result.returncode == 0, result.stderr
    sources: list[dict[str, Any]] = json.loads(result.stdout)["sources"]
    return sources


def install(settings: Settings, channel: Path, prefix: Path, specs: Sequence[str]) -> Path:
    """A new environment at ``prefix``, from the channel folder alone."""
    return asyncio.run(
        create_environment(
            prefix,
            specs,
            [channel.as_uri()],
            package_cache=settings.package_cache,
            subdir=SUBDIR,
            progress=SilentProgress(),
        )
    ).prefix


def install_stack(settings: Settings, channel: Path, prefix: Path, stack: str) -> Path:
    """As ``install``, with what a user of the stack installs."""
    return install(settings, channel, prefix, find_stack(load_tree(settings.tree), stack).install)


def install_pytest(prefix: Path) -> None:
    """pytest and pytest-xdist, for the tests that a plugin's sources have; skips where they cannot be installed."""
    # takes a sixth of pip's processor time
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(prefix / "bin" / "python")]
    wanted = [f"{name}=={importlib.metadata.version(name)}" for name in ("pytest", "pytest-xdist")]
    wanted.append("expecttest")
    environ = {**os.environ, "UV_NATIVE_TLS": "1"}  # the machine's certificates, as for pip, and not the environment's
    installed = run_command([*command, *wanted], env=environ, check=False, timeout_s=_INSTALL_LIMIT_S)
    if installed.returncode != 0:
        pytest.skip(f"pytest cannot be installed into the environment: {installed.tail()}")


def validation_request(
    settings: Settings,
    prefix: Path,
    work: Path,
    *,
    stack: str,
    specs: Sequence[str],
    options: dict[str, object],
    method: str = "distributed",
    ranks: int = 2,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> ValidationSetup:
    """Ranks in an environment that was installed from the channel of ``settings``."""
    return ValidationSetup(
        stack=stack,
        method=method,
        options=options,
        specs=tuple(specs),
        channels=(settings.channel.as_uri(),),
        ranks=ranks,
        subdir=SUBDIR,
        package_cache=settings.package_cache,
        work=work,
        forbidden=(settings.tree.root, settings.output),
        prefix=prefix,
        timeout_s=timeout_s,
    )


def method_context(
    stack: str, prefix: Path, folder: Path, options: dict[str, object], *, limit_s: float, **variables: str
) -> MethodContext:
    """Two ranks of a method in the activated environment, which takes ``variables`` as well."""
    return MethodContext(
        stack=stack,
        prefix=prefix,
        variables=activated_environment(prefix, environ=os.environ) | variables,
        ranks=2,
        options=options,
        folder=folder,
        deadline=Deadline.after(limit_s),
        progress=SilentProgress(),
    )


@dataclass(frozen=True, kw_only=True)
class DistributedRun:
    """Few allreduces of a stack's backend in the installed environment, with the options of the stack's validation."""

    settings: Settings
    stack: str
    prefix: Path
    folder: Path
    few: dict[str, object]
    """What the run asks for in place of the stack's options."""
    limit_s: float

    def __call__(self, **options: object) -> MethodResult:
        asked = {**self.options(), **self.few, **options}
        context = method_context(self.stack, self.prefix, self.folder, asked, limit_s=self.limit_s)
        return DistributedMethod().run(context)

    def options(self) -> dict[str, object]:
        validation = find_stack(load_tree(self.settings.tree), self.stack).validation
        return {name: value for name, value in validation.items() if name != "method"}

    def whole(self, *, ranks: int = 2) -> ValidationSetup:
        """The stack's validation as ``channel_tools validate`` does it."""
        specs = find_stack(load_tree(self.settings.tree), self.stack).install
        return validation_request(
            self.settings, self.prefix, self.folder,
            stack=self.stack, specs=specs, options=self.options(), ranks=ranks,
            timeout_s=self.limit_s,
        )  # fmt: skip


def failed(result: MethodResult) -> set[str]:
    """The names of the checks that did not pass."""
    return {check.name for check in result.checks if not check.passed}
