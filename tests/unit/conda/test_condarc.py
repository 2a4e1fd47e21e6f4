# SPDX-License-Identifier: BSD-3-Clause
"""Which of conda's files are read, and which of their settings stand over others."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.conda.condarc import condarc_files, read_condarc
from channel_tools.system.errors import ConfigError


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
