# SPDX-License-Identifier: BSD-3-Clause
"""Damage to every file and folder that a mirror reads or writes; each use ends with a result or one error.

These are the channels that a bundle is made from, the bundle, an unfinished one, and what the importing site has.
Nothing outside them changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from channel_tools.mirror.exporting.create import unfinished_folder
from channel_tools.mirror.exporting.plan import read_since
from channel_tools.mirror.importing.site import import_state
from channel_tools.pins import Lock
from channel_tools.provenance.trust import Trust, create_key, read_trusted_keys
from channel_tools.provenance.verify import verify_folder
from channel_tools.requests.attest import AttestRequest, SignRequest
from channel_tools.workflow.attest import sign_packages
from tests.support.damage import (
    DAMAGES,
    EXTENTS,
    GROWTH_BYTES,
    damage,
    faults_of,
    peak_memory_bytes,
    places_of,
    state_of,
)
from tests.unit.mirror.bundles import ExportingSite, exporting_site, foreign_channel, import_to, toy_channel, verify

_KINDS = sorted(DAMAGES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """Two channels, a bundle of them, one that is unfinished, and a site that has imported the first."""

    work: Path
    site: ExportingSite
    lock: Lock
    trust: Trust

    def uses(self) -> Mapping[str, Mapping[str, Callable[[], object]]]:
        """What is done with each folder, by the folder's name."""
        work, site = self.work, self.site
        request = AttestRequest(signing_key=work / "signing")

        def export() -> None:
            shutil.rmtree(work / "again", ignore_errors=True)
            site.bundle(work / "again", plan=site.plan([self.lock]))

        return {
            "channel": {
                "mirror": export,
                "sign": lambda: sign_packages(None, SignRequest(target=work / "channel", attest=request, again=True)),
                "verify": lambda: verify_folder(work / "channel", self.trust),
            },
            "foreign": {"mirror": export},
            "bundle": {
                "verify": lambda: verify(work / "bundle", site.fingerprint),
                "update": lambda: read_since(work / "bundle"),
                "import": lambda: import_to(work / "bundle", work / "new", site.fingerprint),
            },
            ".next.unfinished": {"mirror": lambda: site.bundle(work / "next", plan=site.plan([self.lock]))},
            "far": {
                "import": lambda: import_to(work / "bundle", work / "far"),
                "update": lambda: read_since(import_state(work / "far").received_file),
            },
        }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    work = tmp_path_factory.mktemp("mirror")
    channel, foreign = toy_channel(work), foreign_channel(work / "foreign", ["other"], old=["older"])
    create_key(work / "signing", passphrase=None, days=30, now=datetime.now(UTC))
    sign_packages(None, SignRequest(target=channel.path, attest=AttestRequest(signing_key=work / "signing")))
    site = exporting_site(work, channel, foreign)
    plan = site.plan()
    site.bundle(work / "bundle", plan=plan)
    shutil.copytree(work / "bundle", unfinished_folder(work / "next"))
    import_to(work / "bundle", work / "far", site.fingerprint)
    return Made(work=work, site=site, lock=plan.locks[0], trust=read_trusted_keys([work / "signing"]))


def put_back(work: Path, folder: str, kept: Path) -> None:
    """Make the folder as it was, and remove what the uses of a damaged one have left."""
    for name in (folder, "again", "new", "next", ".again.unfinished", ".next.unfinished"):
        if name != folder and (kept / name).exists():
            continue
        shutil.rmtree(work / name, ignore_errors=True)
    shutil.copytree(kept / folder, work / folder, symlinks=True)


@pytest.mark.parametrize("every", EXTENTS)
@pytest.mark.parametrize("folder", ["channel", "foreign", "bundle", ".next.unfinished", "far"])
def test_every_use_of_a_damaged_folder_ends_with_a_result_or_one_error(
    made: Made, tmp_path: Path, folder: str, *, every: bool
) -> None:
    work, kept = made.work, tmp_path / "kept"
    for name in ("channel", "foreign", "bundle", ".next.unfinished", "far"):
        shutil.copytree(work / name, kept / name, symlinks=True)
    victim, peak = tmp_path / "victim", peak_memory_bytes()
    shutil.copytree(work / folder, victim)
    before, failures = state_of(victim), []
    for number, place in enumerate(places_of(kept / folder)):
        for kind in _KINDS if every else (_KINDS[number % len(_KINDS)],):
            if kind == "too large" and place.endswith((".conda", ".tar.bz2")):
                continue  # a package may be as large as that
            damage(work / folder, place, kind, victim / place)
            for name, use in made.uses()[folder].items():
                failures += faults_of(use, f"{name}, {place}: {kind}")
            put_back(work, folder, kept)
            if state_of(victim) != before:
                failures.append(f"{place}: {kind}: what the link leads to was changed")
                shutil.rmtree(victim)
                shutil.copytree(kept / folder, victim)
    assert failures == []
    assert peak_memory_bytes() - peak < GROWTH_BYTES
