# SPDX-License-Identifier: BSD-3-Clause
"""The gate for what was uploaded: each package is audited among the others of its set and those of the channel.

Nothing is changed in a package, unlike at the gate of builds: its bytes are what the client announced. Where the
channel's foundation lies elsewhere, its packages are not here to be looked at, so the rules that need them are left to
the gate of the build; the report says so.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from channel_tools.audit.gate import described
from channel_tools.audit.model import Rule
from channel_tools.audit.package import read_package_facts
from channel_tools.audit.policy import PACKAGE_RULES
from channel_tools.audit.reading import Reader
from channel_tools.audit.run import judged
from channel_tools.audit.surroundings import Known, neighbour_of, neighbours_of_records
from channel_tools.channel.model import PACKAGE_SUFFIX
from channel_tools.channel.state import read_listing, read_state
from channel_tools.channel.store import open_channel
from channel_tools.errors import IntegrityError, VerificationError
from channel_tools.packages.reader import read_info_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from channel_tools.channel.model import Channel, Foundation

DIGEST_DIGITS = 7
"""How many digits of a plan's digest stand in a build string, as channel_tools.plan writes them."""
_ABOUT = "about.json"
_NEED_FOUNDATION = frozenset({Rule.NEEDED, Rule.LINK, Rule.LIBSTDCXX})


def check_digests(files: Sequence[Path]) -> None:
    """Raise IntegrityError for a package that names a plan's digest which its build string does not have.

    The digest decides whether a plan builds a package again, so one that lies about it would be taken for another.
    """
    for path in files:
        digest = _digest_in(path)
        build = path.name.removesuffix(PACKAGE_SUFFIX).rpartition("-")[2]
        if digest is not None and f"h{digest[:DIGEST_DIGITS]}" not in build:
            message = f"{path}: its metadata names the digest {digest[:64]}, which is not in its build string {build}"
            raise IntegrityError(message, hint="build it by channel_tools build, which writes both")


def _digest_in(path: Path) -> str | None:
    """The digest of a plan that a package names, None for one that was not made from a plan."""
    content = read_info_files(path, frozenset({_ABOUT})).get(_ABOUT, b"{}")
    with contextlib.suppress(ValueError):  # what is no JSON is found and told elsewhere
        match json.loads(content):
            case {"extra": {"channel_tools": {"digest": str(digest)}}}:
                return digest
    return None


def audit_uploaded(files: Sequence[Path], foundation: Foundation, places: Sequence[Path]) -> tuple[str, ...]:
    """Audit package files beside each other and those of the channels at ``places``; notes for the report.

    Raises VerificationError with the findings.
    """
    facts = [read_package_facts(path, Reader()) for path in files]
    own = {f"{one.subdir}/{one.file_name}" for one in facts}
    beside = [row for place in places for row in _records(open_channel(place)) if _key(row[0]) not in own]
    known = Known([*(neighbour_of(one) for one in facts if one.index), *neighbours_of_records(beside)])
    elsewhere = foundation.address is not None
    findings = []
    for one in facts:
        audit = judged(one, known.around(one), PACKAGE_RULES, 0.0)
        findings += [found for found in audit.findings if not (elsewhere and found.rule in _NEED_FOUNDATION)]
    if findings:
        message = f"{len(findings)} findings of the audit; nothing of the set was published\n"
        hint = "mend the recipe as said above, build again and publish the new build; channel_tools audit shows all"
        raise VerificationError(message + described(findings), hint=hint)
    if not elsewhere or not files:
        return ()
    rules = ", ".join(sorted(rule.value for rule in _NEED_FOUNDATION))
    return (f"the foundation {foundation.address} is not here to be looked at: rules not applied: {rules}",)


def _records(channel: Channel) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The package files that the channel's last index read, with their records."""
    incoming = set(read_listing(channel).incoming)
    for folder in sorted(path for path in channel.path.iterdir() if (path / "repodata.json").is_file()):
        for name, row in sorted(read_state(channel, folder.name).records.packages.items()):
            if f"{folder.name}/{name}" not in incoming:
                yield folder / name, row.record


def _key(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
