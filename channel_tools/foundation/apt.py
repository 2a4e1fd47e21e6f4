# SPDX-License-Identifier: BSD-3-Clause
"""Debian packages through apt, with separate package lists: it needs no root and leaves the host's apt state alone.

The addresses and keyrings are the host's, so apt checks the lists' signatures as usual; only the entries for the host's
own Debian release are used, with the table's suite instead. The host's other repositories are not used: they have
nothing that the table needs and may be unreachable.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from debian.deb822 import Deb822, Packages

from channel_tools.foundation.model import LockedArtifact
from channel_tools.system.errors import FoundationError, NetworkError
from channel_tools.system.files import write_text_atomically
from channel_tools.system.processes import CommandResult, run_command, watch_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

OTHER_FOUNDATION = "choose the other foundation with --foundation conda-forge"
DEB_ARCHITECTURES: Mapping[str, str] = {"linux-64": "amd64", "linux-aarch64": "arm64"}
_ONE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)")
_SUITE_SUFFIXES = ("", "-updates", "-security")
_UNSTABLE = "sid"
"""The suite that is never released, so that it has neither updates nor security updates of its own."""
_OPTION_KEYS = {"signed-by": "Signed-By", "trusted": "Trusted"}
_CONFIGURATION = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Architecture "{architecture}";
#clear APT::Architectures;
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
Dir::Cache "{state}/cache";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::sourcelist "{state}/debian.sources";
Dir::Etc::sourceparts "-";
Dir::State "{state}";
Dir::State::Lists "{state}/lists";
Dir::State::status "{state}/status";
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Apt:
    """apt with a separate state folder."""

    state: Path
    suite: str
    architecture: str
    sources: str | None = None
    """The apt sources, in the deb822 format of sources.list(5); None: the host's sources for the suite."""

    def update(self) -> None:
        """Fetch the lists and check their signatures. Raises NetworkError, or FoundationError without apt."""
        self._configure()
        result = self._run("apt-get", "update")
        if result.returncode != 0:
            message = f"Debian's package lists could not be fetched:\n{complaints(result)}"
            hint = f"check the network and the host's apt sources, or {OTHER_FOUNDATION}"
            raise NetworkError(message, hint=hint)

    def find(self, names: Iterable[str]) -> dict[str, LockedArtifact]:
        """The packages of these names (or ``name=version``) in the lists; missing ones are left out."""
        wanted = sorted(names)
        if not wanted:
            return {}
        result = self._run("apt-cache", "show", "--no-all-versions", *wanted)
        if result.returncode != 0 and "No packages found" not in result.stderr:
            raise FoundationError(f"apt-cache cannot read the package lists:\n{complaints(result)}")
        artifacts = (_artifact(stanza) for stanza in Packages.iter_paragraphs(result.stdout, use_apt_pkg=False))
        return {artifact.name: artifact for artifact in artifacts}

    def download(self, files: Sequence[LockedArtifact], folder: Path, *, poll: Callable[[], None]) -> CommandResult:
        """Download exactly these versions into ``folder``, continuing partial files.

        apt checks each against its lists; the caller checks what arrived (the result has apt's error messages).
        """
        words = [f"{artifact.name}={artifact.version}" for artifact in files]
        command = ["apt-get", "-c", str(self.state / "apt.conf"), "-q", "download", *words]
        return watch_command(command, cwd=folder, env=_environment(), poll=poll)

    def _configure(self) -> None:
        for folder in (self.state / "lists" / "partial", self.state / "cache" / "archives" / "partial"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.state / "status").touch()
        sources = host_sources(self.suite) if self.sources is None else self.sources
        write_text_atomically(self.state / "debian.sources", sources)
        configuration = _CONFIGURATION.format(state=self.state, architecture=self.architecture)
        write_text_atomically(self.state / "apt.conf", configuration)

    def _run(self, program: str, *words: str) -> CommandResult:
        if shutil.which(program) is None:
            message = f"{program} is not installed; the registry foundation gets Debian packages through apt"
            raise FoundationError(message, hint=f"run this on a Debian or Ubuntu host, or {OTHER_FOUNDATION}")
        command: list[str | Path] = [program, "-c", self.state / "apt.conf", "-q", *words]
        return run_command(command, env=_environment(), check=False)


def host_sources(suite: str, *, etc: Path = Path("/etc/apt"), os_release: Path = Path("/etc/os-release")) -> str:
    """The host's Debian sources, changed to ``suite``, in deb822 format.

    Raises FoundationError if the host has none: it is not Debian, or its sources name another release.
    """
    codename = _codename(os_release)
    names = {f"{name}{suffix}": suffix for name in {codename, suite} for suffix in _SUITE_SUFFIXES if name}
    stanzas = [stanza for stanza in _read_sources(etc) if set(stanza["Suites"].split()) & names.keys()]
    if not stanzas:
        message = f"{etc}: no Debian sources for {codename or 'this host'} or {suite} among the host's apt sources"
        raise FoundationError(message, hint=f"add Debian {suite}'s sources and keyring, or {OTHER_FOUNDATION}")
    for stanza in stanzas:
        suffixes = {names[name] for name in stanza["Suites"].split() if name in names}
        stanza["Suites"] = " ".join(
            f"{suite}{suffix}" for suffix in sorted(suffixes) if not suffix or suite != _UNSTABLE
        )
    enabled = [stanza for stanza in stanzas if stanza["Suites"]]
    return "\n".join("".join(f"{key}: {value}\n" for key, value in stanza.items()) for stanza in enabled)


def _read_sources(etc: Path) -> Iterator[dict[str, str]]:
    """The relevant fields of every enabled binary source of the host, from both formats of sources.list(5)."""
    parts = etc / "sources.list.d"
    for path in [etc / "sources.list", *sorted(parts.glob("*.list"))]:
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                if match := _ONE_LINE.match(line.split("#")[0].strip()):
                    yield _from_one_line(match)
    for path in sorted(parts.glob("*.sources")):
        for stanza in Deb822.iter_paragraphs(path.read_text(encoding="utf-8").splitlines()):
            if "deb" in stanza.get("Types", "").split() and stanza.get("Enabled", "yes") != "no":
                keys = ("URIs", "Suites", "Components", "Signed-By", "Trusted")
                yield {"Types": "deb", **{key: str(stanza[key]) for key in keys if key in stanza}}


def _from_one_line(match: re.Match[str]) -> dict[str, str]:
    options = dict(option.partition("=")[::2] for option in (match["options"] or "").split())
    stanza = {"Types": "deb", "URIs": match["uri"], "Suites": match["suite"], "Components": match["components"].strip()}
    return stanza | {_OPTION_KEYS[key]: value for key, value in options.items() if key in _OPTION_KEYS}


def _codename(os_release: Path) -> str:
    if not os_release.is_file():
        return ""
    pairs = (line.partition("=")[::2] for line in os_release.read_text(encoding="utf-8").splitlines())
    values = {key: value.strip('"') for key, value in pairs}
    return values.get("VERSION_CODENAME", "") if values.get("ID") == "debian" else ""


def _artifact(stanza: Packages) -> LockedArtifact:
    try:
        return LockedArtifact(
            kind="deb",
            name=stanza["Package"],
            version=stanza["Version"],
            file_name=_file_name(stanza),
            sha256=stanza["SHA256"],
            size_bytes=int(stanza["Size"]),
        )
    except (KeyError, ValueError) as err:
        raise FoundationError(
            f"apt's record of {stanza.get('Package', 'a package')} has a missing or invalid field: {err}"
        ) from None


def _file_name(stanza: Packages) -> str:
    """The name under which ``apt-get download`` writes the package: the colon of an epoch is escaped."""
    version = stanza["Version"].replace(":", "%3a")
    return f"{stanza['Package']}_{version}_{stanza['Architecture']}.deb"


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "", "DEBIAN_FRONTEND": "noninteractive"}


def complaints(result: CommandResult) -> str:
    """apt's error lines, for a message."""
    lines = [line for line in result.stderr.splitlines() if line.startswith(("E:", "W:", "Err:"))]
    return "\n".join(lines[:6]) or result.tail()
