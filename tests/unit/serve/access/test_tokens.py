# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.serve.access.tokens import (
    TokenRecord,
    TokenTable,
    create_token,
    parse_expiry,
    read_token_file,
    revoke_token,
)
from channel_tools.system.errors import ConfigError, FileAccessError, UsageError

NOW_S = 1_700_000_000.0


def now() -> float:
    return NOW_S


def make_token(file: Path, name: str = "ci") -> tuple[str, TokenRecord]:
    return create_token(
        file, name=name, channels=("ours",), labels=("main",), access="read", expires_s=NOW_S + 60, clock=now
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "tokens.json"


def test_a_token_is_kept_only_as_a_hash_that_nobody_else_can_read(file: Path) -> None:
    token, record = make_token(file)
    assert token.encode() not in file.read_bytes()
    assert token[12:].encode() not in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_token_file(file).records == (record,)
    assert TokenTable(read_token_file(file).records).find(token) == record


@pytest.mark.parametrize("state", ["valid", "revoked", "damaged"])
def test_an_id_names_one_token(file: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    first, record = make_token(file)
    if state == "revoked":
        revoke_token(file, record.id, clock=now)
    elif state == "damaged":
        document = json.loads(file.read_bytes())
        document["tokens"][0]["sha256"] = "no hash"
        file.write_text(json.dumps(document))
    drawn = iter([record.id, "1" * 48, record.id, "2" * 48, "0" * 8, "3" * 48])
    monkeypatch.setattr("secrets.token_hex", lambda _count: next(drawn))
    second, other = make_token(file)
    assert other.id == "0" * 8
    assert second == f"ct-{'0' * 8}-{'3' * 48}"
    table = TokenTable(read_token_file(file).records)
    assert table.find(second) == other
    assert (table.find(first) is None) == (state == "damaged")


def test_conda_takes_all_of_a_token_for_one(file: Path) -> None:
    token, _record = make_token(file)
    assert re.fullmatch(r"[a-zA-Z0-9-]+", token)  # the characters that conda knows in /t/TOKEN/


@pytest.mark.parametrize("change", ["secret", "id", "shorter", "longer", "empty", "none"])
def test_a_wrong_token_is_not_found(file: Path, change: str) -> None:
    token, _record = make_token(file)
    last = "0" if token[-1] != "0" else "1"
    wrong = {
        "secret": token[:-1] + last,
        "id": f"ct-00000000{token[11:]}",
        "shorter": token[:-1],
        "longer": token + "0",
        "empty": "",
        "none": "\ud800é",
    }[change]
    assert TokenTable(read_token_file(file).records).find(wrong) is None


def test_no_two_tokens_are_alike(file: Path) -> None:
    tokens = {make_token(file)[0] for _ in range(20)}
    assert len(tokens) == len({token[3:11] for token in tokens}) == 20


def test_tokens_made_at_once_are_all_kept(file: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _number: make_token(file)[0], range(12)))
    table = TokenTable(read_token_file(file).records)
    assert all(table.find(token) for token in made)


def test_a_revoked_token_stays_in_the_list(file: Path) -> None:
    _token, record = make_token(file)
    revoked = revoke_token(file, record.id, clock=now)
    assert revoked == replace(record, revoked_s=NOW_S)
    assert read_token_file(file).records == (revoked,)
    assert revoke_token(file, record.id, clock=lambda: NOW_S + 9) == revoked


def test_a_token_is_revoked_by_its_name(file: Path) -> None:
    _token, record = make_token(file)
    _other, other = make_token(file, name="another")
    assert revoke_token(file, "another", clock=now) == replace(other, revoked_s=NOW_S)
    assert revoke_token(file, "another", clock=now).id == other.id  # run twice
    _again, again = make_token(file, name="another")
    assert revoke_token(file, "another", clock=now).id == again.id
    assert [item.revoked_s for item in read_token_file(file).records if item.id == record.id] == [None]


def test_a_name_of_several_tokens_revokes_none(file: Path) -> None:
    records = [make_token(file)[1] for _ in range(2)]
    with pytest.raises(UsageError, match="2 tokens have the name") as caught:
        revoke_token(file, records[0].name, clock=now)
    assert all(record.id in str(caught.value) for record in records)
    assert not any(record.revoked_s for record in read_token_file(file).records)


def test_an_id_counts_before_a_name_that_is_the_same(file: Path) -> None:
    _token, record = make_token(file)
    make_token(file, name=record.id)
    assert revoke_token(file, record.id, clock=now).id == record.id


def test_revoking_what_is_not_there_names_what_is(file: Path) -> None:
    token, record = make_token(file)
    for given, shown in (("12345678", "12345678"), (token, "this")):
        expected = rf"no token has the ID or name {shown}; tokens: {record.id} \({record.name}\)"
        with pytest.raises(UsageError, match=expected) as caught:
            revoke_token(file, given, clock=now)
        assert token not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"schema": 1, "tokens": [1]}', '{"schema": 2}', "\x80", '{"schema": ' + "[" * 100_000],
    ids=["empty", "list", "no-record", "newer", "no-text", "deep"],
)
def test_a_damaged_file_is_named(file: Path, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content, encoding="latin-1")
    with pytest.raises(ConfigError, match=r"tokens\.json"):
        read_token_file(file)


def test_a_hash_that_is_none_is_a_fault_of_its_entry(file: Path) -> None:
    make_token(file)
    document = json.loads(file.read_text())
    document["tokens"][0]["sha256"] = "zz"
    document["tokens"].append({})
    file.write_text(json.dumps(document))
    found = read_token_file(file)
    assert found.records == ()
    assert len(found.faults) == 2


RECORD = TokenRecord(
    id="0" * 8,
    sha256="00" * 32,
    name="x",
    channels=("ours",),
    labels=("main", "testing"),
    access="read",
    created_s=0,
    expires_s=NOW_S,
)


@pytest.mark.parametrize(
    ("record", "channel", "label", "covered"),
    [
        (RECORD, "ours", "main", True),
        (RECORD, "ours", "testing", True),
        (RECORD, "ours", "other", False),
        (RECORD, "theirs", "main", False),
        (replace(RECORD, channels=None), "theirs", "main", True),
        (replace(RECORD, labels=None), "ours", "other", True),
        (replace(RECORD, channels=()), "ours", "main", False),
    ],
)
def test_scope(record: TokenRecord, channel: str, label: str, *, covered: bool) -> None:
    assert record.covers(channel, label) == covered


def test_validity_ends_at_the_second_said() -> None:
    assert RECORD.is_valid(NOW_S - 0.001)
    assert not RECORD.is_valid(NOW_S)
    assert replace(RECORD, expires_s=None).is_valid(NOW_S * 2)
    assert not replace(RECORD, expires_s=None, revoked_s=0.0).is_valid(NOW_S)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90d", NOW_S + 90 * 86400),
        ("12h", NOW_S + 12 * 3600),
        ("2030-01-31", 1_896_134_400.0),  # the first second of February, UTC
        ("never", None),
    ],
)
def test_expiry(text: str, expected: float | None) -> None:
    assert parse_expiry(text, now_s=NOW_S) == expected


@pytest.mark.parametrize("text", ["9999-12-31", "9999-01-01"])
def test_an_expiry_that_no_calendar_shows_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is after the year 9998"):
        parse_expiry(text, now_s=NOW_S)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"channels": ("../x",)}, "is not a valid channel name; use letters"),
        ({"channels": ("api",)}, "is not a valid channel name; use letters"),
        ({"channels": ("",)}, "is not a valid channel name; use letters"),
        ({"labels": ("a/b",)}, "is not a valid label name"),
        ({"name": "two\nlines"}, "printable"),
        ({"name": "\x1b[2J"}, "printable"),
        ({"name": ""}, "printable"),
        ({"name": "x" * 201}, "printable"),
        ({"expires_s": 2.0**60}, "expires after the year 9998"),
    ],
)
def test_what_cannot_be_in_a_token_is_refused_and_kept_from_the_others(
    file: Path, wrong: dict[str, object], said: str
) -> None:
    _token, good = make_token(file)
    fields = {key: getattr(good, key) for key in ("name", "channels", "labels", "access", "expires_s")}
    with pytest.raises(UsageError, match=said):
        create_token(file, **{**fields, **wrong}, clock=now)
    document = json.loads(file.read_text())
    bad = {**document["tokens"][0], "id": "00000001", **wrong}
    file.write_text(json.dumps({**document, "tokens": [bad, *document["tokens"]]}))
    found = read_token_file(file)
    assert found.records == (good,)
    (fault,) = found.faults
    assert "entry 1 (id '00000001')" in fault
    assert said in fault
    make_token(file)
    revoke_token(file, good.id, clock=now)
    assert json.loads(file.read_text())["tokens"][0] == json.loads(json.dumps(bad))


@pytest.mark.parametrize("text", ["", "soon", "90", "-1d", "0d", "2020-01-01", "2030-13-01"])
def test_an_expiry_that_is_none_or_past_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--expires"):
        parse_expiry(text, now_s=NOW_S)


def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    """The advice for a damaged one is to delete it."""
    with pytest.raises(FileAccessError, match=f"{tmp_path}: is a folder") as caught:
        read_token_file(tmp_path)
    assert "delete" not in str(caught.value.hint)
