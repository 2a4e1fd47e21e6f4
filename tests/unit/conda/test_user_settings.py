# SPDX-License-Identifier: BSD-3-Clause
"""What the settings of conda, rattler and pixi make of a channel's name, and of how servers are reached."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from channel_tools.conda.user_settings import Condarc, UserSettings, condarc_files, find_user_settings, read_condarc
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
    assert (settings.conda, settings.files) == (Condarc(), ())
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


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_files_are_read_in_the_order_of_conda(tmp_path: Path) -> None:
    root, home, prefix = tmp_path / "root", tmp_path / "home", tmp_path / "env"
    expected = [
        write(root / ".condarc", ""),
        write(tmp_path / "xdg" / "conda" / "condarc", ""),
        write(home / ".config" / "conda" / ".condarc", ""),
        write(home / ".conda" / "condarc.d" / "a.yaml", ""),
        write(home / ".conda" / "condarc.d" / "b.yml", ""),
        write(home / ".condarc", ""),
        write(prefix / ".condarc", ""),
        write(tmp_path / "mine.yml", ""),
    ]
    write(home / ".conda" / "condarc.d" / "c.txt", "")
    environ = {
        "CONDA_EXE": str(root / "bin" / "conda"),
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(tmp_path / "xdg"),
        "CONDA_PREFIX": str(prefix),
        "CONDARC": str(tmp_path / "$NAME.yml"),
        "NAME": "mine",
    }
    assert [path for path in condarc_files(environ) if tmp_path in path.parents] == expected


def test_later_files_stand_over_earlier_ones_key_by_key(tmp_path: Path) -> None:
    first = write(
        tmp_path / ".config" / "conda" / "condarc",
        "channel_alias: https://first\ncustom_channels: {a: https://one, b: https://one}\ndefault_channels: [x, y]\n",
    )
    second = write(tmp_path / ".condarc", "custom_channels:\n  b: https://two/${WHERE}\ndefault_channels: [z, x]\n")
    found = read_condarc({"HOME": str(tmp_path), "WHERE": "here"})
    assert (found.texts["channel_alias"].value, found.texts["channel_alias"].origin) == ("https://first", f"{first}:1")
    assert {name: one.value for name, one in found.custom_channels.items()} == {
        "a": "https://one",
        "b": "https://two/here",
    }
    assert found.custom_channels["b"].origin == f"{second}:2"
    assert found.multichannels["defaults"].value == ("z", "x", "y")


def test_what_is_final_stays_and_a_variable_stands_over_all(tmp_path: Path) -> None:
    write(
        tmp_path / ".config" / "conda" / "condarc",
        "channel_alias: https://first  #!final\nssl_verify: truststore\ncustom_channels:\n  a: https://one  #!final\n",
    )
    write(
        tmp_path / ".condarc",
        "channel_alias: https://second\nssl_verify: true\ncustom_channels:\n  a: https://two\n",
    )
    found = read_condarc({"HOME": str(tmp_path), "CONDA_SSL_VERIFY": "no", "CONDA_DEFAULT_CHANNELS": "x, y"})
    assert found.texts["channel_alias"].value == "https://first"
    assert found.custom_channels["a"].value == "https://one"
    assert (found.texts["ssl_verify"].value, found.texts["ssl_verify"].origin) == (False, "CONDA_SSL_VERIFY")
    assert found.multichannels["defaults"].value == ("x", "y")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("- a\n", None, "not a configuration file of conda"),
        ("ssl_verify: true\nchannel_alias: 3\n", 2, "channel_alias: expected text"),
        ("custom_channels:\n- a\n", 1, "custom_channels: expected names and values"),
        ("custom_channels:\n  a: [x]\n", 2, "custom_channels.a: expected text"),
        ("default_channels: main\n", 1, "default_channels: expected a list"),
        ("default_channels:\n- main  #!top\n", 1, "#!top and #!bottom"),
        ("channel_alias: https://a\nchannel_alias: https://b\n", 2, "channel_alias"),
    ],
)
def test_what_conda_would_not_read_is_an_error_with_its_line(
    tmp_path: Path, text: str, line: int | None, said: str
) -> None:
    path = write(tmp_path / ".condarc", text)
    with pytest.raises(ConfigError, match=said) as raised:
        read_condarc({"HOME": str(tmp_path)})
    assert (raised.value.path, raised.value.line) == (path, line)


def test_an_order_of_another_list_is_no_order_of_channels(tmp_path: Path) -> None:
    write(tmp_path / ".condarc", "pkgs_dirs:\n- /a  #!top\ndefault_channels:\n- https://one\n")
    assert read_condarc({"HOME": str(tmp_path)}).multichannels["defaults"].value == ("https://one",)


def test_a_file_in_the_home_folder_of_nobody_is_not_read() -> None:
    """As by conda, which leaves the ~ of an unknown user as it is."""
    assert Path("~nosuchuser/condarc") not in condarc_files({"CONDARC": "~nosuchuser/condarc"})
