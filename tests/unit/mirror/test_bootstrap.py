# SPDX-License-Identifier: BSD-3-Clause
"""The script that installs this program from a bundle: its own verification, in Python's standard library alone."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from securesystemslib.formats import encode_canonical

import channel_tools.mirror
from channel_tools.mirror.format import ToolWheels
from channel_tools.mirror.keys import Role, Rotation, rotate_keys
from channel_tools.system.work_folder import temporary_folder
from tests.support.processes import TEST_TIMEOUT_S
from tests.unit.mirror.bundles import ExportingSite, exporting_site, new_keys

SCRIPT = Path(channel_tools.mirror.__file__).parent / "data" / "bootstrap.py"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script()


def test_it_needs_nothing_but_python() -> None:
    command = [sys.executable, "-I", "-S", "-c", f"import runpy; runpy.run_path({str(SCRIPT)!r})"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0


WAITING = f"""
import contextlib, runpy, sys
with contextlib.ExitStack() as stack:
    print(runpy.run_path({str(SCRIPT)!r})["temporary_folder"](stack), flush=True)
    sys.stdin.read()
"""


def test_wheels_that_it_left_when_it_was_killed_are_removed_by_the_next_command(tmp_path: Path) -> None:
    command, environ = [sys.executable, "-c", WAITING], os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with temporary_folder(tmp_path):
            assert left.parent == tmp_path
            assert left.is_dir()
        process.kill()
        process.wait()
        with temporary_folder(tmp_path) as folder:
            assert list(tmp_path.iterdir()) == [folder]


# RFC 8032, 7.1: secret key, message, signature
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
]


@pytest.mark.parametrize(("secret", "message", "signature"), VECTORS, ids=["empty", "one-byte"])
def test_signatures_of_the_standard(secret: str, message: str, signature: str) -> None:
    public = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)).public_key().public_bytes_raw()
    assert script.verifies(public, bytes.fromhex(signature), bytes.fromhex(message))


@settings(max_examples=15)
@given(message=st.binary(max_size=300), place=st.integers(0, 64 * 8 - 1), data=st.data())
def test_it_judges_signatures_as_cryptography_does(message: bytes, place: int, data: st.DataObject) -> None:
    key = Ed25519PrivateKey.from_private_bytes(data.draw(st.binary(min_size=32, max_size=32)))
    public, signature = key.public_key().public_bytes_raw(), bytearray(key.sign(message))
    assert script.verifies(public, bytes(signature), message)
    signature[place // 8] ^= 1 << place % 8
    assert not script.verifies(public, bytes(signature), message)
    assert not script.verifies(public, key.sign(message), message + b"x")


@pytest.mark.parametrize("length", [0, 31, 33, 63, 65])
def test_keys_and_signatures_of_other_lengths(length: int) -> None:
    assert not script.verifies(b"\1" * length, b"\1" * 64, b"")
    assert not script.verifies(b"\1" * 32, b"\1" * length, b"")


def test_a_signature_is_refused_in_its_other_form() -> None:
    """S + L gives the same point; accepted, it would make signatures ambiguous."""
    key = Ed25519PrivateKey.generate()
    signature = key.sign(b"x")
    larger = int.from_bytes(signature[32:], "little") + script.ORDER
    assert not script.verifies(
        key.public_key().public_bytes_raw(), signature[:32] + larger.to_bytes(32, "little"), b"x"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(value=JSON)
def test_what_is_signed_is_spelled_as_tuf_does(value: dict[str, Any]) -> None:
    assert script.canonical(value) == encode_canonical(value)


@pytest.fixture
def site(tmp_path: Path) -> ExportingSite:
    return exporting_site(tmp_path)


def targets_of(bundle: Path, root_sha256: str) -> dict[str, object]:
    if bundle.is_dir():
        return dict(script.trusted_targets(script.Bundle(bundle, None), root_sha256))
    with script.tarfile.open(bundle, "r:") as tar:
        return dict(script.trusted_targets(script.Bundle(bundle, tar), root_sha256))


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_a_sound_bundle_is_trusted(tmp_path: Path, site: ExportingSite, name: str) -> None:
    site.bundle(tmp_path / name)
    assert "bundle.json" in targets_of(tmp_path / name, site.fingerprint)


def test_it_follows_new_keys(tmp_path: Path, site: ExportingSite) -> None:
    first = site.fingerprint
    rotations: list[tuple[Role, ...]] = [("root",), ("targets", "timestamp"), ()]
    for roles in rotations:
        rotate_keys(
            site.keys,
            Rotation(roles=roles),
            root_files=(),
            passphrase=None,
            now=datetime.now(UTC),
        )
    site.bundle(tmp_path / "bundle")
    assert "bundle.json" in targets_of(tmp_path / "bundle", first)


def change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    place = content.index(b'"version"')
    content[place + 1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["1.root.json", "timestamp.json", "1.snapshot.json", "1.targets.json"])
def test_changed_metadata_is_refused(tmp_path: Path, site: ExportingSite, name: str) -> None:
    site.bundle(tmp_path / "bundle")
    change(tmp_path / "bundle" / "metadata" / name)
    with pytest.raises((script.RejectedError, KeyError, ValueError)):
        targets_of(tmp_path / "bundle", site.fingerprint)


def test_metadata_of_other_bundles_and_keys_is_refused(tmp_path: Path, site: ExportingSite) -> None:
    site.bundle(tmp_path / "first")
    site.bundle(tmp_path / "second")
    with pytest.raises(script.RejectedError, match="wrong keys"):
        targets_of(tmp_path / "first", "0" * 64)
    stranger = ExportingSite(keys=new_keys(tmp_path / "stranger"), channels=site.channels)
    stranger.bundle(tmp_path / "theirs")
    shutil.copy(tmp_path / "first" / "metadata" / "1.root.json", tmp_path / "theirs" / "metadata" / "1.root.json")
    with pytest.raises(script.RejectedError, match="0 of the 1 signatures"):
        targets_of(tmp_path / "theirs", site.fingerprint)
    for role in ("snapshot", "targets"):
        shutil.copytree(tmp_path / "second", tmp_path / f"mixed {role}")
        place = tmp_path / f"mixed {role}" / "metadata" / f"2.{role}.json"
        shutil.copy(tmp_path / "first" / "metadata" / f"1.{role}.json", place)
        with pytest.raises(script.RejectedError, match="changed"):
            targets_of(tmp_path / f"mixed {role}", site.fingerprint)


def test_what_has_expired_is_refused(tmp_path: Path, site: ExportingSite) -> None:
    site.bundle(tmp_path / "bundle", now=datetime.now(UTC) - timedelta(days=181))
    with pytest.raises(script.RejectedError, match="frozen"):
        targets_of(tmp_path / "bundle", site.fingerprint)


def test_a_changed_wheel_is_not_installed(tmp_path: Path, site: ExportingSite) -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    bundle = tmp_path / "bundle"
    made = site.plan()
    wheels = ToolWheels(version="1", pythons=(here,), machines=(os.uname().machine,))
    small = {**made.small, "tool/pip-1.whl": b"pip", "tool/x-1.whl": b"wheel"}
    site.bundle(bundle, plan=type(made)(locks=made.locks, parts=made.parts, small=small, tool=wheels))
    targets = targets_of(bundle, site.fingerprint)
    out = tmp_path / "out"
    out.mkdir()
    script.copy_wheels(script.Bundle(bundle, None), targets, out)
    assert sorted(path.name for path in out.iterdir()) == ["pip-1.whl", "x-1.whl"]
    (bundle / "tool" / "x-1.whl").write_bytes(b"wheeL")
    with pytest.raises(script.RejectedError, match=r"changed: tool/x-1\.whl"):
        script.copy_wheels(script.Bundle(bundle, None), targets, out)


def run(bundle: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(SCRIPT), "--bundle", str(bundle), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)


def test_errors_are_one_line(tmp_path: Path, site: ExportingSite) -> None:
    site.bundle(tmp_path / "bundle")
    to = ("--to", str(tmp_path / "far"))
    wrong = run(tmp_path / "bundle", "--root-sha256", "0" * 64, *to)
    without = run(tmp_path / "bundle", "--root-sha256", site.fingerprint, *to)
    (tmp_path / "bundle" / "metadata" / "timestamp.json").write_text("[" * 5000)
    damaged = run(tmp_path / "bundle", "--root-sha256", site.fingerprint, *to)
    absent = run(tmp_path / "nowhere", "--root-sha256", site.fingerprint, *to)
    for result, words in (
        (wrong, "wrong keys"),
        (without, "--without-tool"),
        (damaged, "damaged"),
        (absent, "nowhere"),
    ):
        assert result.returncode == 1
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "far").exists()


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path, site: ExportingSite) -> None:
    site.bundle(tmp_path / "bundle")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")
    words = ("--to", str(tmp_path / "far"), "--venv", str(tmp_path / "home"))
    result = run(tmp_path / "bundle", "--root-sha256", site.fingerprint, *words)
    assert "is not a virtual environment" in result.stderr
    assert (tmp_path / "home" / "letter").read_text() == "dear"


def test_a_bundle_for_another_machine_is_named(tmp_path: Path, site: ExportingSite) -> None:
    made = site.plan()
    wheels = ToolWheels(version="1", pythons=("3.99",), machines=("riscv64",))
    plan = type(made)(locks=made.locks, parts=made.parts, small=made.small, tool=wheels)
    site.bundle(tmp_path / "bundle", plan=plan)
    result = run(tmp_path / "bundle", "--root-sha256", site.fingerprint, "--to", str(tmp_path / "far"))
    assert "for Python 3.99 on riscv64; this is Python" in result.stderr


def test_hashes_are_compared_without_a_look_at_the_case(tmp_path: Path, site: ExportingSite) -> None:
    site.bundle(tmp_path / "bundle")
    content = json.loads((tmp_path / "bundle" / "bundle.json").read_bytes())
    assert content["tool"] is None
    digest = hashlib.sha256((tmp_path / "bundle" / "metadata" / "1.root.json").read_bytes()).hexdigest()
    result = run(tmp_path / "bundle", "--root-sha256", digest.upper(), "--to", str(tmp_path / "far"))
    assert "--without-tool" in result.stderr
