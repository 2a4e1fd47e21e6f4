# SPDX-License-Identifier: BSD-3-Clause
"""Files of a user's that may have secrets and cannot be read: the error says where, and quotes none of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from channel_tools.conda.clients import make_client, stored_authorization
from channel_tools.conda.user_settings import find_user_settings
from channel_tools.system.errors import ConfigError, UsageError

SECRET = "Made-Up-S3cret"  # noqa: S105 - no real one
URL = f"https://me:{SECRET}@lab.invalid"
CONDARC, TOML, JSON, NETRC = ".condarc", ".config/rattler/config.toml", ".rattler/credentials.json", ".netrc"
BROKEN = {
    CONDARC: {
        "open-list": f"channels: [{URL}\n",
        "alias": f"proxy_servers: {{http: *{SECRET}}}\n",
        "tag": f"channel_alias: !{SECRET} x\n",
        "number": f"channel_alias: !!int {SECRET}\n",
        "twice": f"{SECRET}: 1\n{SECRET}: 2\n",
        "text-behind": f"channels: 'x'{SECRET}\n",
        "no-mapping": f"{SECRET}\n",
        "list-for-mapping": f"proxy_servers: ['{URL}']\n",
        "mapping-for-text": f"channel_alias: {{a: {SECRET}}}\n",
        "address-without-host": f"channel_alias: https://me:{SECRET}@\n",
        "port": f"channel_alias: {URL}:bad\n",
    },
    TOML: {
        "open-list": f'default-channels = ["{URL}"\n',
        "text-for-list": f'default-channels = "{URL}"\n',
        "text-for-number": f'[concurrency]\nsolves = "{SECRET}"\n',
        "word": f"x = {SECRET}\n",
        "twice": f'"{SECRET}" = 1\n"{SECRET}" = 1\n',
        "list-for-text": f'[proxy-config]\nhttps = ["{URL}"]\n',
        "text-for-switch": f'tls-no-verify = "{SECRET}"\n',
        "no-address": f'[mirrors]\n"{SECRET}" = ["{URL}"]\n',
    },
    JSON: {
        "open": f'{{"127.0.0.1": {{"BearerToken": "{SECRET}"',
        "text": f'{{"127.0.0.1": "{SECRET}"}}',
        "kind": json.dumps({"127.0.0.1": {SECRET: 1}}),
        "list": json.dumps({"127.0.0.1": {"BearerToken": [SECRET]}}),
        "number-for-text": json.dumps({"127.0.0.1": {"BasicHTTP": {"username": SECRET, "password": 1}}}),
        "part-missing": json.dumps({"127.0.0.1": {"BasicHTTP": {"username": SECRET}}}),
        "no-object": json.dumps(SECRET),
        "no-json": SECRET,
    },
    NETRC: {
        "word": f"machine 127.0.0.1 login me password {SECRET} {SECRET}\n",
        "key": f"machine 127.0.0.1 login me {SECRET}\n",
        "alone": f"{SECRET}\n",
    },
}


def reads(home: Path) -> Iterator[Callable[[], object]]:
    """What every command does with these files that reads channels."""
    environ = {"HOME": str(home)}
    yield lambda: find_user_settings(environ).verifies
    yield lambda: find_user_settings(environ).addresses_of(["ours"])
    yield lambda: stored_authorization("https://127.0.0.1:9/ours", environ)
    yield lambda: make_client(["https://127.0.0.1:9/ours"])


@pytest.mark.parametrize(
    ("name", "text"),
    [pytest.param(file, text, id=f"{file}-{kind}") for file, texts in BROKEN.items() for kind, text in texts.items()],
)
def test_a_file_that_cannot_be_read_is_named_and_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path))  # by which rattler finds its files
    for variable in ("XDG_CONFIG_HOME", "CHANNEL_TOOLS_USER_SETTINGS", "RATTLER_AUTH_FILE", "NETRC", "CONDARC"):
        monkeypatch.delenv(variable, raising=False)
    said = []
    for read in reads(tmp_path):
        try:
            said.append(repr(read()))
        except (ConfigError, UsageError) as err:
            said.append(f"{err} {err.hint}")
    assert not [words for words in said if SECRET in words]
    assert any(str(path) in words for words in said)
