# SPDX-License-Identifier: BSD-3-Clause
"""What the settings of conda, rattler and pixi make of a channel's name, and of how servers are reached."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from channel_tools.conda.user_settings import UserSettings, find_user_settings
from channel_tools.system.errors import ConfigError, UsageError

CONDARC = """\
channel_alias: https://me:secret@conda.example.org/all
custom_channels:
  ours: https://packages.example.org/t/secret/conda
  team: below-the-alias
default_channels: [main, https://repo.example.org/r]
custom_multichannels:
  both: [ours, https://other.example.org/x]
proxy_servers:
  http: http://me:secret@proxy:3128
  https: http://proxy:3129
  https://one.example.org: http://other:1
denylist_channels: [evil]
"""
TOML = """\
pinning-strategy = "semver"
[mirrors]
"https://conda.anaconda.org/conda-forge" = ["https://mirror.example.org/cf"]
[proxy-config]
https = "http://proxy:4000"
non-proxy-hosts = ["localhost", ".example.org"]
"""


def settings_of(
    monkeypatch: pytest.MonkeyPatch, home: Path, *, condarc: str = "", toml: str = "", **variables: str
) -> UserSettings:
    (home / ".pixi").mkdir()
    (home / ".condarc").write_text(condarc)
    (home / ".pixi" / "config.toml").write_text(toml)
    monkeypatch.setenv("HOME", str(home))  # by which rattler finds its files
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return find_user_settings({"HOME": str(home), **variables})


@pytest.mark.parametrize(
    ("channel", "addresses"),
    [
        ("ours", ("https://packages.example.org/t/secret/conda/ours",)),
        ("ours/label/dev", ("https://packages.example.org/t/secret/conda/ours/label/dev",)),
        ("team", ("https://me:secret@conda.example.org/all/team",)),
        ("anything", ("https://me:secret@conda.example.org/all/anything",)),
        ("defaults", ("https://me:secret@conda.example.org/all/main", "https://repo.example.org/r")),
        ("both", ("https://me:secret@conda.example.org/all/ours", "https://other.example.org/x")),
        ("r", ("https://repo.example.org/r",)),
        ("x/label/dev", ("https://other.example.org/x/label/dev",)),
        ("https://host/x", ("https://host/x",)),
        ("./ours", ("./ours",)),
        ("other/label/dev", ("other/label/dev",)),
    ],
)
def test_names_are_what_conda_makes_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, channel: str, addresses: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings_of(monkeypatch, tmp_path, condarc=CONDARC).addresses_of([channel]) == addresses


def test_a_name_without_a_setting_is_sent_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings = settings_of(monkeypatch, tmp_path, toml=TOML)
    assert settings.addresses_of(["conda-forge"]) == ("https://conda.anaconda.org/conda-forge",)  # which is mirrored
    for name in ("conda-forge2", "defaults", "bioconda"):
        with pytest.raises(UsageError, match=f"{name}: a channel's name, and no setting says where it is"):
            settings.addresses_of([name])
    (tmp_path / "bioconda").mkdir()
    assert settings.addresses_of(["bioconda"]) == ("bioconda",)


def test_proxies_and_certificates_become_variables_unless_these_are_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("")
    condarc = f"{CONDARC}ssl_verify: {bundle}\n"
    settings = settings_of(monkeypatch, tmp_path, condarc=condarc, toml=TOML, NO_PROXY="mine")
    assert settings.variables() == {
        "http_proxy": "http://me:secret@proxy:3128",
        "https_proxy": "http://proxy:4000/",
        "SSL_CERT_FILE": str(bundle),
    }
    assert settings.verifies
    other = find_user_settings({"HOME": str(tmp_path), "HTTPS_PROXY": "http://x", "SSL_CERT_DIR": "/certs"})
    assert sorted(other.variables()) == ["http_proxy", "no_proxy"]


@pytest.mark.parametrize(
    ("condarc", "toml", "verifies"),
    [
        ("", "", True),
        ("ssl_verify: false", "", False),
        ("ssl_verify: false", "tls-no-verify = false", True),
        ("", "tls-no-verify = true", False),
        ("ssl_verify: truststore", "", True),
    ],
)
def test_either_of_them_may_leave_certificates_unverified(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, condarc: str, toml: str, *, verifies: bool
) -> None:
    assert settings_of(monkeypatch, tmp_path, condarc=condarc, toml=toml).verifies is verifies


def test_each_setting_is_shown_with_its_file_and_without_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = {line.key: line for line in settings_of(monkeypatch, tmp_path, condarc=CONDARC, toml=TOML).lines()}
    condarc, toml = tmp_path / ".condarc", tmp_path / ".pixi" / "config.toml"
    shown = {key: (line.value, line.origin) for key, line in lines.items() if line.used}
    assert shown == {
        "channel_alias": ("https://conda.example.org/all", f"{condarc}:1"),
        "custom_channels.ours": ("https://packages.example.org/conda/ours", f"{condarc}:3"),
        "custom_channels.team": ("https://conda.example.org/all/team", f"{condarc}:4"),
        "default_channels": ("https://conda.example.org/all/main, https://repo.example.org/r", f"{condarc}:5"),
        "custom_multichannels.both": (
            "https://conda.example.org/all/ours, https://other.example.org/x",
            f"{condarc}:7",
        ),
        "proxy_servers.http": ("http://proxy:3128", f"{condarc}:9"),
        "proxy_servers.https": ("http://proxy:3129", f"{condarc}:10"),
        "mirrors.https://conda.anaconda.org/conda-forge": ("https://mirror.example.org/cf", str(toml)),
        "proxy-config.https": ("http://proxy:4000/", str(toml)),
        "proxy-config.non-proxy-hosts": ("localhost, .example.org", str(toml)),
    }
    unused = {key for key, line in lines.items() if not line.used}
    assert unused == {"proxy_servers.https://one.example.org", "denylist_channels", "pinning-strategy"}


def test_a_configuration_that_rattler_does_not_read_is_an_error_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toml = '[proxy-config]\nhttp = { secret = "secret" }\n'
    with pytest.raises(ConfigError, match="line 2") as raised:
        settings_of(monkeypatch, tmp_path, toml=toml)
    assert raised.value.path == tmp_path / ".pixi" / "config.toml"
    assert "secret" not in str(raised.value)


def test_files_of_users_can_be_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = settings_of(monkeypatch, tmp_path, condarc=CONDARC, toml=TOML, CHANNEL_TOOLS_USER_SETTINGS="no")
    assert list(settings.lines()) == []
    with pytest.raises(UsageError, match="CHANNEL_TOOLS_USER_SETTINGS=maybe: expected no"):
        find_user_settings({"CHANNEL_TOOLS_USER_SETTINGS": "maybe"})


@pytest.mark.parametrize("path", ["/nowhere/mine.pem", "~nosuchuser/mine.pem"])
def test_a_missing_file_of_certificates_is_named_with_its_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str
) -> None:
    settings = settings_of(monkeypatch, tmp_path, condarc=f"client_ssl_cert: {path}\n")
    with pytest.raises(ConfigError, match=f"client_ssl_cert: {re.escape(path)} does not exist"):
        _ = settings.client_certificate


def test_a_working_folder_that_was_removed_is_an_error_of_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError):
        settings_of(monkeypatch, tmp_path)
