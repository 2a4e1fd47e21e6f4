# SPDX-License-Identifier: BSD-3-Clause
"""Real servers on loopback are reached as .condarc and config.toml say: by rattler's client, and by ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from channel_tools.channel import add_set, channel_writer, create_channel
from channel_tools.conda.clients import make_client, make_http_client
from channel_tools.system.errors import ConfigError, NetworkError
from channel_tools.system.http.pace import Retry
from tests.support.certificates import Authority, make_authority
from tests.support.command_line import run_tool
from tests.support.folder_server import serve_folder
from tests.support.packages import REGISTRY, make_conda


@dataclass(frozen=True, kw_only=True)
class Site:
    """Servers of one folder with the channel ``ours``; ``private`` answers only clients with a certificate."""

    authority: Authority
    plain: str
    secure: str
    private: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    work = tmp_path_factory.mktemp("site")
    channel = create_channel(work / "root" / "ours", REGISTRY)
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(work, "toy")])
    as_by_proxy = work / "root" / "http:" / "far.example.org"  # where a request with a whole address looks
    as_by_proxy.mkdir(parents=True)
    (as_by_proxy / "ours").symlink_to(channel.path)
    authority = make_authority(work)
    root = work / "root"
    with (
        serve_folder(root) as plain,
        serve_folder(root, tls=authority.context()) as secure,
        serve_folder(root, tls=authority.context(asks_client=True)) as private,
    ):
        yield Site(authority=authority, plain=plain, secure=secure, private=private)


def condarc(site: Site, case: str) -> str:
    return {
        "nothing": "",
        "certificates": f"ssl_verify: {site.authority.certificates}\n",
        "unverified": "ssl_verify: false\n",
        "proxy": f"proxy_servers: {{http: {site.plain}}}\n",
        "client": f"ssl_verify: {site.authority.certificates}\nclient_ssl_cert: {site.authority.client}\n",
    }.get(case, "")


def toml(site: Site, case: str) -> str:
    return {
        "mirror": f'[mirrors]\n"http://far.example.org/theirs" = ["{site.plain}/ours"]\n',
        "toml-unverified": "tls-no-verify = true\n",
        "toml-proxy": f'[proxy-config]\nhttp = "{site.plain}"\n',
    }.get(case, "")


def address(site: Site, case: str) -> str:
    if case == "client":
        return f"{site.private}/ours"
    if "proxy" in case or case == "mirror":
        return f"http://far.example.org/{'theirs' if case == 'mirror' else 'ours'}"
    return f"{site.secure}/ours"


CASES = ["certificates", "unverified", "proxy", "mirror", "toml-unverified", "toml-proxy"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, where rattler and the commands look, and no variable that would stand over files."""
    (tmp_path / ".pixi").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return tmp_path


def environ(home: Path) -> dict[str, str]:
    """By which a command reads the user's files."""
    return {"CHANNEL_TOOLS_USER_SETTINGS": "", "CHANNEL_TOOLS_CACHE": str(home / "cache")}


def settle(home: Path, site: Site, case: str) -> None:
    (home / ".condarc").write_text(condarc(site, case))
    (home / ".pixi" / "config.toml").write_text(toml(site, case))


@pytest.mark.parametrize("case", CASES)
def test_an_environment_is_made_as_the_settings_say(site: Site, home: Path, case: str) -> None:
    settle(home, site, case)
    made = run_tool("env", "create", home / "env", "toy", "-c", address(site, case), cwd=home, environ=environ(home))
    assert made.returncode == 0, made.stderr
    assert (home / "env" / "share" / "toy.txt").is_file()
    file = {"unverified": ".condarc:1", "toml-unverified": ".pixi/config.toml"}.get(case)
    warning = f"certificates of servers are not verified ({home / file})\n" if file else ""
    assert made.stderr.count("not verified") == made.stderr.count(warning or "not verified") == bool(file)


@pytest.mark.parametrize("case", [*CASES, "client"])
def test_our_own_requests_are_made_as_the_settings_say(site: Site, home: Path, case: str) -> None:
    settle(home, site, case)
    client = make_http_client({"HOME": str(home)})
    content = client.read(f"{address(site, case)}/linux-64/repodata.json", limit_bytes=1 << 20)
    assert list(json.loads(content)["packages.conda"]) == ["toy-1.0-0.conda"]


def test_a_mirror_is_only_read_from(site: Site, home: Path) -> None:
    settle(home, site, "mirror")
    client = make_http_client({"HOME": str(home)}, retry=Retry(attempts=1), writes=True)
    with pytest.raises(NetworkError, match=r"far\.example\.org"):
        client.read(f"{address(site, 'mirror')}/linux-64/repodata.json", limit_bytes=1)


def test_without_settings_no_unknown_server_is_trusted(site: Site, home: Path) -> None:
    settle(home, site, "nothing")
    made = run_tool("env", "create", home / "env", "toy", "-c", f"{site.secure}/ours", cwd=home, environ=environ(home))
    assert made.returncode == NetworkError.exit_code
    assert "certificate" in made.stderr


def test_a_channel_is_found_by_its_name(site: Site, home: Path) -> None:
    """And is named by its address in what is installed."""
    (home / ".condarc").write_text(f"custom_channels:\n  ours: {site.plain}\n")
    made = run_tool("env", "create", home / "env", "toy", "-c", "ours", cwd=home, environ=environ(home))
    assert made.returncode == 0, made.stderr
    (record,) = (home / "env" / "conda-meta").glob("toy-*.json")
    assert json.loads(record.read_text())["url"] == f"{site.plain}/ours/linux-64/toy-1.0-0.conda"


@pytest.mark.parametrize(
    "arguments",
    [
        ("env", "create", "env", "toy", "-c", "conda-forge"),
        ("mirror", "create", "--to", "there", "-c", "conda-forge"),
        ("sbom", "environment.yml"),
        ("env", "create", "env", "--lock", "environment.yml"),
    ],
)
def test_a_name_that_no_setting_knows_is_sent_nowhere(site: Site, home: Path, arguments: tuple[str, ...]) -> None:
    """All requests would go to the proxy; it would answer, and be an error of the network."""
    (home / ".condarc").write_text(condarc(site, "proxy"))
    (home / "environment.yml").write_text("channels: [conda-forge]\ndependencies: [toy]\n")
    found = run_tool(*arguments, cwd=home, environ=environ(home))
    assert found.returncode in {2, 3}
    assert "conda-forge: a channel's name, and no setting says where it is" in found.stderr


def test_what_rattler_cannot_do_at_once_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".condarc").write_text("ssl_verify: false\n")
    monkeypatch.delenv("CHANNEL_TOOLS_USER_SETTINGS")
    with pytest.raises(ConfigError, match="a password in the address, and settings by which no certificate is"):
        make_client(["https://me:secret@host/ours"])


def test_a_file_without_certificates_is_named(home: Path) -> None:
    (home / "empty.pem").write_text("")
    (home / ".condarc").write_text(f"ssl_verify: {home / 'empty.pem'}\n")
    with pytest.raises(ConfigError, match=r"empty\.pem: cannot be used"):
        make_http_client({"HOME": str(home)}).read("https://localhost:9/x", limit_bytes=1)
