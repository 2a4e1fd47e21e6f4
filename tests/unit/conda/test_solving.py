# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from channel_tools.conda.solving import (
    check_indexes,
    check_not_downgraded,
    gateway_error,
    make_gateway,
    memory_index,
    one_line,
    parse_spec,
    shown_channels,
    solve_error,
    solve_specs,
)
from channel_tools.system.errors import (
    ChannelError,
    ChannelToolsError,
    DiskFullError,
    IntegrityError,
    NetworkError,
    SolveError,
    UsageError,
)
from tests.support.damage import bounded, damage

CHANNELS = ["https://user:secret@conda.example/lab"]


def test_a_match_spec_that_is_none_is_the_users_error() -> None:
    assert parse_spec("python >=3.11").name is not None
    with pytest.raises(UsageError):
        parse_spec("python >=>=3")


def test_a_long_explanation_is_cut_and_names_what_was_asked_for() -> None:
    explanation = "\n".join(f"line {number}" for number in range(100))
    error = solve_error(Exception(explanation), specs=["toy"], channels=CHANNELS)
    assert isinstance(error, SolveError)
    assert "line 1" in error.message
    assert "line 99" not in error.message


def test_a_full_disk_of_the_cache_is_no_missing_channel() -> None:
    error = gateway_error(OSError("failed to write: No space left on device (os error 28)"), channels=["https://a.b/c"])
    assert isinstance(error, DiskFullError)
    assert "free space there" in (error.hint or "")


def test_a_token_that_is_not_accepted_is_not_asked_for_again() -> None:
    refusal = OSError("HTTP status client error (401 Unauthorized) for url")
    without = gateway_error(refusal, channels=["https://channel.example/c"])
    wrong = gateway_error(refusal, channels=["https://channel.example/t/tk-secret/c"])
    assert (without.hint or "").startswith("put a token into .netrc")
    assert (wrong.hint or "").startswith("the token or password in the address is not accepted")
    assert "tk-secret" not in f"{wrong.message} {wrong.hint}"


def test_no_credentials_are_shown() -> None:
    assert shown_channels(CHANNELS) == "https://conda.example/lab"
    assert "secret" not in one_line(Exception(f"dns error: {CHANNELS[0]}/noarch"))
    unreachable: ChannelToolsError = gateway_error(Exception("error sending request"), channels=CHANNELS)
    assert isinstance(unreachable, NetworkError)
    assert "secret" not in unreachable.message


@pytest.mark.parametrize(
    ("channels", "words"),
    [(["https://conda.example/lab"], "--channel"), (["file:///srv/lab", "https://conda.example/lab"], "build")],
    ids=["others'", "own"],
)
def test_who_cannot_build_is_not_told_to(channels: list[str], words: str) -> None:
    hint = solve_error(Exception("nothing provides toy"), specs=["toy"], channels=channels).hint or ""
    assert words in hint
    assert ("channel_tools build" in hint) is (words == "build")


def test_a_full_disk_is_no_fault_of_the_index() -> None:
    """As py-rattler 0.28 says it of a cache on a full file system."""
    text = "failed to write cache state\nCaused by: No space left on device (os error 28)"
    error = gateway_error(Exception(text), channels=CHANNELS)
    assert isinstance(error, DiskFullError)
    assert "https://conda.example/lab: no space left" in error.message
    assert "secret" not in error.message


def test_a_token_that_is_refused_is_told_from_one_that_is_missing() -> None:
    refused = "HTTP status client error (401 Unauthorized) for url (https://conda.example/lab/noarch/repodata.json)"
    hint = gateway_error(Exception(refused), channels=["https://conda.example/lab"]).hint or ""
    assert "put a token into .netrc" in hint
    assert "wrong, expired or for another channel" in hint


@pytest.mark.parametrize("name", ["repodata.json", "repodata.json.zst", "repodata_shards.msgpack.zst"])
@pytest.mark.parametrize(
    "kind", ["folder", "pipe", "socket", "link to a device", "link to nothing", "link to itself", "too large"]
)
def test_what_is_no_index_is_not_given_to_a_library_that_opens_it(tmp_path: Path, name: str, kind: str) -> None:
    """It would wait for the other end of a pipe for ever."""
    index = tmp_path / "channel" / "noarch" / name
    index.parent.mkdir(parents=True)
    index.touch()
    check_indexes(tmp_path / "channel", ["linux-64", "noarch"])
    damage(tmp_path / "channel", f"noarch/{name}", kind, tmp_path)
    with pytest.raises(ChannelError, match=rf"noarch/{name}: (is a|has \d+ bytes)"):
        check_indexes(tmp_path / "channel", ["linux-64", "noarch"])
    check_indexes(tmp_path / "channel", ["linux-64"])


def test_no_solve_waits_for_a_pipe(tmp_path: Path) -> None:
    for subdir in ("linux-64", "noarch"):
        (tmp_path / subdir).mkdir()
        (tmp_path / subdir / "repodata.json").write_text('{"packages": {}, "packages.conda": {}}')
    damage(tmp_path, "noarch/repodata.json", "pipe", tmp_path)
    solved = solve_specs(
        ["toy"], [tmp_path.as_uri()], subdir="linux-64", gateway=make_gateway(tmp_path / "cache"), virtual_packages=()
    )
    with bounded("solve"), pytest.raises(ChannelError, match=r"repodata\.json: is a pipe"):
        asyncio.run(solved)


def test_a_package_at_plain_http_of_an_https_channel_is_not_asked_for() -> None:
    row = {"name": "toy", "version": "1", "build": "0", "build_number": 0, "subdir": "noarch", "depends": []}
    index = memory_index("https://host/ours", "noarch", {"toy-1-0.conda": row}, base_url="http://host/ours/noarch")
    with pytest.raises(IntegrityError, match="at the plain http address http://host/ours"):
        check_not_downgraded(index.load_records("toy"))
    check_not_downgraded(memory_index("https://host/ours", "noarch", {"toy-1-0.conda": row}).load_records("toy"))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("toy 3.*", "The channels have toy 2 0, 1 b, 1 a."),
        ("toy * cuda*", "The channels have toy 2 0, 1 b, 1 a."),
        ("many 9.*", "The channels have many 6 0, 5 0, 4 0, 3 0 and 3 more."),
        ("other", "No channel has a package other."),
    ],
)
def test_what_the_channels_have_instead_is_said(tmp_path: Path, spec: str, said: str) -> None:
    builds = [("toy", "1", "a"), ("toy", "1", "b"), ("toy", "2", "0"), *(("many", str(n), "0") for n in range(7))]
    rows = {
        f"{name}-{version}-{build}.conda": {
            "name": name, "version": version, "build": build, "build_number": 0, "subdir": "noarch", "depends": [],
        }
        for name, version, build in builds
    }  # fmt: skip
    for subdir, packages in (("noarch", rows), ("linux-64", {})):
        (tmp_path / subdir).mkdir()
        document = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": packages}
        (tmp_path / subdir / "repodata.json").write_text(json.dumps(document))
    solved = solve_specs(
        [spec], [tmp_path.as_uri()], subdir="linux-64", gateway=make_gateway(tmp_path / "cache"), virtual_packages=()
    )
    with pytest.raises(SolveError) as caught:
        asyncio.run(solved)
    assert caught.value.message.splitlines()[-1] == said
