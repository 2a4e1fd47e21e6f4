# SPDX-License-Identifier: BSD-3-Clause
"""``attest``, ``verify``, ``sbom``, ``licenses`` and ``env create --require-attestation`` as a user types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from channel_tools.channel import Channel, add_set, channel_writer
from tests.support.command_line import run_tool
from tests.support.packages import make_conda, new_channel, own
from tests.support.sigstore import identity_token, running_sigstore
from tests.unit.matrix.toytree import FILES, write_tree

NAME = "toy-meta-1.0-0.conda"
STACKS = "variants/stacks.yaml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree whose stack installs ``toy-meta``, a channel with that package, and a key that signs it in ``keys``."""
    root = tmp_path_factory.mktemp("site")
    install = FILES[STACKS].replace('install: [toy-meta, "libtoy=*=udp*"]', "install: [toy-meta]")
    write_tree(root / "tree", {STACKS: install})
    channel: Channel = new_channel(root)
    about = own("d1") | {"license": "GPL-3.0-only"}
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(root / "made", "toy-meta", about=about, variant={"python": "3.11"})])
    for folder in ("keys", "others"):
        assert run_tool("attest", "create-key", folder, cwd=root).returncode == 0
    signed = run_tool("attest", "sign", "channel", "--signing-key", "keys", cwd=root)
    assert (signed.returncode, signed.stdout.splitlines()[-1]) == (0, "channel: 1 package attested")
    return root


def test_what_a_trusted_key_signed_is_verified(site: Path) -> None:
    result = run_tool("verify", "channel", "--trusted-key", "keys", "--json", cwd=site)
    assert (result.returncode, result.stderr) == (0, "")
    (row,) = json.loads(result.stdout)["packages"]
    assert (row["package"], row["error"]) == (f"linux-64/{NAME}", None)
    address = run_tool("verify", (site / "channel").as_uri(), "--trusted-key", "keys", "--json", cwd=site)
    assert json.loads(address.stdout)["packages"] == [row]


def test_what_another_key_signed_ends_with_9(site: Path) -> None:
    result = run_tool("verify", f"channel/linux-64/{NAME}", "--trusted-key", "others", cwd=site)
    assert result.returncode == 9
    assert "which is not trusted" in result.stderr


@pytest.mark.parametrize(("keys", "code"), [("keys", 0), ("others", 9)])
def test_an_environment_takes_only_what_a_trusted_key_signed(site: Path, tmp_path: Path, keys: str, code: int) -> None:
    where = ("--root", "tree", "-c", "channel", "--require-attestation", "--trusted-key", keys)
    cache = {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")}
    result = run_tool("env", "create", str(tmp_path / "env"), *where, cwd=site, environ=cache)
    assert result.returncode == code, result.stderr
    assert (tmp_path / "env" / "conda-meta" / "toy-meta-1.0-0.json").is_file() == (code == 0)
    run_tool("env", "create", str(tmp_path / "env"), *where[:4], cwd=site, environ=cache)
    commands: list[tuple[str, ...]] = [
        ("create", str(tmp_path / "env"), *where),
        ("add", str(tmp_path / "env"), "toy-meta", *where),
        ("update", str(tmp_path / "env"), *where),
    ]
    for command in commands:  # of packages that are there already, too
        again = run_tool("env", *command, cwd=site, environ=cache)
        assert again.returncode == code, (command, again.stderr)
        assert "nothing to do" in again.stdout or code


def test_an_environment_takes_what_an_identity_signed_by_sigstore(site: Path, tmp_path: Path) -> None:
    with running_sigstore() as sigstore:
        (tmp_path / "config.json").write_text(json.dumps(sigstore.client_config()))
        (tmp_path / "token").write_text(identity_token(identity="https://ci.example/us", issuer="https://ci.example"))
        shutil.copytree(site / "channel", tmp_path / "channel")
        config = ("--sigstore-config", "config.json")
        who = ("--sigstore", "--identity-token-file", "token", "--signing-key", str(site / "keys"))
        signed = run_tool("attest", "sign", "channel", *who, *config, cwd=tmp_path)
    assert (signed.returncode, signed.stdout.splitlines()[-1]) == (0, "channel: 1 package attested"), signed.stderr
    trust = ("--certificate-identity", "https://ci.example/us", *config)
    where = ("--root", str(site / "tree"), "-c", "channel", "--require-attestation")
    cache = {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")}
    for issuer, code in (("https://elsewhere.example", 9), ("https://ci.example", 0)):
        by = (*trust, "--certificate-oidc-issuer", issuer)
        assert run_tool("verify", "channel", *by, cwd=tmp_path).returncode == code
        installed = run_tool("env", "create", "env", *where, *by, cwd=tmp_path, environ=cache)
        assert installed.returncode == code, installed.stderr
        assert (tmp_path / "env" / "conda-meta" / "toy-meta-1.0-0.json").is_file() == (code == 0)
    half = run_tool("verify", "channel", *trust, cwd=tmp_path)
    assert (half.returncode, "give both, and no --trusted-key" in half.stderr) == (2, True)


def test_a_stacks_bill_of_materials_names_its_packages(site: Path, tmp_path: Path) -> None:
    where = ("--root", "tree", "-c", "channel", "-o", str(tmp_path / "toy.cdx.json"))
    result = run_tool("sbom", *where, cwd=site, environ={"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")})
    assert result.returncode == 0, result.stderr
    document = json.loads((tmp_path / "toy.cdx.json").read_text())
    assert [package["name"] for package in document["components"] if package["name"] == "toy-meta"] == ["toy-meta"]


def test_the_licences_of_a_package_say_what_may_be_passed_on(site: Path) -> None:
    result = run_tool("licenses", f"channel/linux-64/{NAME}", "--json", cwd=site)
    (row,) = json.loads(result.stdout)["packages"]
    assert (row["spdx"], row["redistribution"]) == ("GPL-3.0-only", "with source")


def test_a_path_and_a_stack_together_are_an_error(site: Path) -> None:
    result = run_tool("sbom", f"channel/linux-64/{NAME}", "--variant", "udp", cwd=site)
    assert result.returncode == 2
    assert "a path and --variant together" in result.stderr
