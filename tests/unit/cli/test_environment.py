# SPDX-License-Identifier: BSD-3-Clause
"""The commands of ``env`` as a user types them, on an environment that is there."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.system.errors import IntegrityError, NetworkError, SolveError, UsageError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.http.client import basic_authorization
from channel_tools.system.settings import CACHE_VARIABLE
from tests.support.command_line import run_tool
from tests.support.conda_history import conda_requests
from tests.support.processes import TEST_TIMEOUT_S
from tests.unit.environments.conftest import make_channel
from tests.unit.environments.toychannel import ToyChannel, served

_SHOWN = "- other 1.0 0\n- tool 1.0 0\n  library 2.0 0 -> 1.0 0\n"


@pytest.fixture
def channel(tmp_path: Path) -> ToyChannel:
    toy = make_channel(tmp_path / "channel")
    toy.add("other")
    return toy


@pytest.fixture
def prefix(tmp_path: Path, channel: ToyChannel) -> Path:
    """An environment of all three packages, of which two were asked for."""
    run("create", tmp_path / "env", "tool", "other", "-c", channel.root)
    return tmp_path / "env"


def run(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """``env WORDS``, which must end with this exit code."""
    arguments = [word if isinstance(word, Path) else str(word) for word in words]
    folder = next(word for word in arguments if isinstance(word, Path)).parent
    done = run_tool("env", *arguments, cwd=folder, environ={CACHE_VARIABLE: str(folder / "cache")})
    assert done.returncode == code, done.stderr
    return done


def files_of(prefix: Path) -> dict[str, bytes]:
    return {str(path.relative_to(prefix)): path.read_bytes() for path in sorted(prefix.rglob("*")) if path.is_file()}


def test_a_dry_run_says_what_would_come_and_go_and_changes_nothing(prefix: Path, channel: ToyChannel) -> None:
    channel.add("library", version="3.0", index=False)
    channel.add("extra", depends=["library <2"])
    before = files_of(prefix)
    assert run("add", prefix, "extra", "--dry-run").stdout == (
        f"  library 2.0 0 -> 1.0 0\n+ extra 1.0 0\n{prefix}: 4 packages; 2 packages would change\n"
    )
    shown = json.loads(run("update", prefix, "-n", "--json").stdout)
    ((moved,), added, removed) = (shown[key] for key in ("replaced", "added", "removed"))
    assert (moved["before"]["version"], moved["after"]["version"]) == ("2.0", "3.0")
    assert (added, removed, shown["dry_run"], shown["changed"]) == ([], [], True, 0)
    assert files_of(prefix) == before


def test_what_comes_and_goes_is_said_first_and_done(prefix: Path, channel: ToyChannel) -> None:
    channel.add("library", version="3.0", index=False)
    channel.add("extra")
    added = run("add", prefix, "extra")
    assert added.stderr.startswith("+ extra 1.0 0\n")
    assert added.stdout.startswith(f"{prefix}: 4 packages, ")
    assert run("update", prefix).stderr.startswith("  library 2.0 0 -> 3.0 0\n")
    assert "nothing to do" in run("update", prefix).stdout
    assert conda_requests(prefix).keys() == {"tool", "other", "extra"}


def test_creating_it_again_with_less_changes_nothing_and_with_more_is_an_error(
    prefix: Path, channel: ToyChannel
) -> None:
    before = files_of(prefix)
    assert "nothing to do" in run("create", prefix, "tool", "-c", channel.root).stdout
    refused = run("create", prefix, "tool", "library <2", "-c", channel.root, code=UsageError.exit_code)
    assert f"{prefix}: is an environment already, of 3 packages for other, tool; it lacks library <2" in refused.stderr
    assert f"channel_tools env add {prefix} SPEC..." in refused.stderr
    assert files_of(prefix) == before


def test_it_is_replaced_if_somebody_says_so(prefix: Path, channel: ToyChannel) -> None:
    own = prefix / "lib" / "own"
    own.write_text("mine")
    words = ("create", prefix, "library <2", "-c", channel.root, "--replace")
    before = files_of(prefix)
    refused = run(*words, code=UsageError.exit_code)
    assert refused.stderr.startswith(f"{_SHOWN}error: {prefix}: not replaced, since nobody said yes")
    assert files_of(prefix) == before
    assert run(*words, "--yes").stderr.startswith(_SHOWN)
    assert conda_requests(prefix) == {"library": "library <2"}
    assert own.read_text() == "mine"
    assert not (prefix / "bin").exists()


@pytest.mark.parametrize("answer", ["y", "", "n"])
def test_it_is_asked_on_a_terminal(prefix: Path, channel: ToyChannel, answer: str) -> None:
    code, text = answered(answer, "create", prefix, "library <2", "-c", channel.root, "--replace")
    assert f"{_SHOWN}Replace {prefix}? [y/N] " in text
    assert code == (0 if answer == "y" else UsageError.exit_code)
    assert (prefix / "bin/tool").exists() == (answer != "y")


@pytest.mark.parametrize("answer", ["y", "", "n"])
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("remove", "library"), "- library 2.0 0\n- tool 1.0 0\n"),
        (("add", "library <2"), "  library 2.0 0 -> 1.0 0\n"),
        (("update",), "  library 2.0 0 -> 3.0 0\n"),
    ],
    ids=["remove", "add", "update"],
)
def test_changes_are_asked_for_on_a_terminal(
    prefix: Path, channel: ToyChannel, words: tuple[str, ...], shown: str, answer: str
) -> None:
    if words == ("update",):
        channel.add("library", version="3.0")
    before = files_of(prefix)
    code, text = answered(answer, words[0], prefix, *words[1:])
    assert text.count(shown) == 1
    assert f"{shown}Change {prefix}? [Y/n] " in text
    assert code == (UsageError.exit_code if answer == "n" else 0)
    assert (files_of(prefix) == before) == (answer == "n")


def answered(answer: str, *words: object) -> tuple[int, str]:
    """The exit code and the text of ``env WORDS`` on a terminal, where a question gets this answer."""
    prefix = next(word for word in words if isinstance(word, Path))
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "channel_tools", "env", *map(str, words)],
        stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, CACHE_VARIABLE: str(prefix.parent / "cache"), "NO_COLOR": "1"},
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while not re.search(rb"\[y/n\] ", shown, re.IGNORECASE):
            shown += os.read(ours, 4096)
        os.write(ours, f"{answer}\n".encode())
        # read to the end: the other side waits for room
        while True:
            try:
                shown += os.read(ours, 4096)
            except OSError:
                break
        code = process.wait(TEST_TIMEOUT_S)
    os.close(ours)
    return code, shown.decode().replace("\r\n", "\n")


def test_removing_takes_what_depends_on_it_and_what_only_these_needed(tmp_path: Path, channel: ToyChannel) -> None:
    channel.add("needed", index=False)
    channel.add("top", depends=["middle", "shared"], index=False)
    channel.add("middle", depends=["needed", "shared"], index=False)
    channel.add("beside", depends=["shared"], index=False)
    channel.add("shared")
    prefix = tmp_path / "env"
    run("create", prefix, "top", "beside", "other", "-c", channel.root)
    shown = run("remove", prefix, "middle", "--dry-run").stdout
    assert shown == "".join(f"- {name} 1.0 0\n" for name in ("middle", "needed", "top")) + (
        f"{prefix}: 6 packages; 3 packages would change\n".replace("6 packages", "3 packages")
    )
    done = json.loads(run("remove", prefix, "middle", "--json").stdout)
    assert [package["name"] for package in done["removed"]] == ["middle", "needed", "top"]
    assert (done["added"], done["replaced"], done["changed"]) == ([], [], 3)
    assert conda_requests(prefix).keys() == {"beside", "other"}
    assert f"channel_tools env remove {prefix} middle" in (prefix / "conda-meta/history").read_text()
    # what was asked for stays, also if only what goes needs it
    run("add", prefix, "shared")
    assert "- shared" not in run("remove", prefix, "beside", "--yes").stderr
    assert [row["name"] for row in json.loads(run("list", prefix, "--json").stdout)["packages"]] == ["other", "shared"]


def test_what_stays_keeps_what_it_needs_though_nobody_asked_for_it(tmp_path: Path, channel: ToyChannel) -> None:
    channel.add("needed", index=False)
    channel.add("top", depends=("needed",), index=False)
    channel.add("left", depends=("needed",))
    prefix = tmp_path / "env"
    run("create", prefix, "top", "left", "-c", channel.root)
    with (prefix / "conda-meta/history").open("a") as history:
        history.write("==> 2026-01-01 00:00:00 <==\n# cmd: conda remove --force left\n# remove specs: ['left']\n")
    run("remove", prefix, "top", "--yes")
    assert [row["name"] for row in json.loads(run("list", prefix, "--json").stdout)["packages"]] == ["left", "needed"]


def test_a_removal_needs_no_channel_and_names_what_is_not_there(prefix: Path, channel: ToyChannel) -> None:
    shutil.rmtree(channel.root)
    before = files_of(prefix)
    for spec in ("absent", "library >=3"):
        refused = run("remove", prefix, "other", spec, code=UsageError.exit_code)
        assert f"{prefix}: has no package for {spec}; nothing was changed" in refused.stderr
    assert files_of(prefix) == before
    run("remove", prefix, "library 2.*")
    assert conda_requests(prefix).keys() == {"other"}


def test_an_environment_is_listed_with_what_was_asked_for(prefix: Path) -> None:
    rows = run("list", prefix).stdout.splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["library", "other", "tool"]
    assert [row.split()[-1] for row in rows[2:]] == ["other", "tool"]
    assert json.loads(run("list", prefix, "--json").stdout)["requested"] == {"other": ["other"], "tool": ["tool"]}


def test_a_shell_activates_it_without_conda(prefix: Path, channel: ToyChannel) -> None:
    """With what packages set, and quoted as the path needs."""
    spaced = prefix.with_name("a path with spaces")
    channel.add("setter", files={"etc/conda/activate.d/setter.sh": b'export SET="$CONDA_PREFIX"\n'})
    run("create", spaced, "tool", "setter", "-c", channel.root)
    lines = run("activate", spaced).stdout
    script = f'set -eu\n{lines}\ntool; printf "%s\\n" "$SET" "$PATH"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{spaced}/share", str(spaced), f"{spaced}/bin:{os.environ['PATH']}"]
    assert "not an environment" in run("activate", prefix.with_name("absent"), code=UsageError.exit_code).stderr


def test_what_is_exported_makes_the_same_environment(prefix: Path, tmp_path: Path, channel: ToyChannel) -> None:
    channel.add("library", version="3.0")
    said = run("export", prefix, "-o", tmp_path / "pins").stdout
    names = ["conda-lock.yml", "environment.yml", "explicit.txt", "pip-constraints.txt", "pixi.lock", "pixi.toml"]
    assert said == f"{tmp_path / 'pins'}: wrote: {', '.join(names)}\n"
    for name in ("conda-lock.yml", "explicit.txt", "pixi.lock", "environment.yml"):
        again = tmp_path / f"from {name}"
        run("create", again, "--lock", tmp_path / "pins" / name)
        assert [path.name for path in sorted(again.glob("conda-meta/*.json"))] == [
            path.name for path in sorted(prefix.glob("conda-meta/*.json"))
        ]
    assert run("export", prefix, "-f", "explicit").stdout == (tmp_path / "pins/explicit.txt").read_text()
    (tmp_path / "asked.yml").write_text(run("export", prefix, "--from-history").stdout)
    run("create", tmp_path / "solved", "--lock", tmp_path / "asked.yml")
    assert (tmp_path / "solved/conda-meta/library-3.0-0.json").is_file()
    assert conda_requests(tmp_path / "solved").keys() == {"tool", "other"}


@pytest.mark.parametrize("secret", ["me:sesame@", "/t/sesame"])
def test_no_error_shows_the_secret_in_an_address(prefix: Path, channel: ToyChannel, secret: str) -> None:
    channel.add("needy", depends=["nowhere"])
    authorization = basic_authorization("me", "sesame") if "@" in secret else "Bearer sesame"
    with served(channel.root, authorization=authorization) as address:
        host = address.removeprefix("http://")
        given = f"http://{secret}{host}" if "@" in secret else f"http://{host}{secret}"
        needy, other = f"{given}/linux-64/needy-1.0-0.conda", f"{given}/linux-64/library-1.0-0.conda"
        ends = [
            run("create", prefix.parent / "new", needy, "-c", channel.root, code=SolveError.exit_code),
            run("create", prefix, other, "-c", channel.root, code=UsageError.exit_code),
            run("create", prefix, f"{other}#{'0' * 32}", "-c", channel.root, code=UsageError.exit_code),
            run("add", prefix, f"{other}#{'0' * 32}", "-c", channel.root, code=IntegrityError.exit_code),
            run("add", prefix, f"{other}#12", "-c", channel.root, code=UsageError.exit_code),
            run("add", prefix, f"{other}[[", "-c", channel.root, code=UsageError.exit_code),
            run("add", prefix, f"{given}/linux-64/none-1.0-0.conda", "-c", channel.root, code=NetworkError.exit_code),
            run("remove", prefix, other, code=UsageError.exit_code),
            run("add", prefix, other, "-c", channel.root),
        ]
    assert [line for end in ends for line in (end.stdout + end.stderr).splitlines() if "sesame" in line] == []


@pytest.mark.parametrize("how", ["by address", "from a folder", "from a list"])
def test_what_was_installed_without_an_index_is_exported(
    prefix: Path, tmp_path: Path, channel: ToyChannel, how: str
) -> None:
    made, archive = tmp_path / "made", channel.archive("tool")
    if how == "from a folder":
        archive = Path(shutil.copytree(archive.parent, tmp_path / "releases/v1.0"), archive.name)
    if how != "from a list":
        run("create", made, archive.as_uri(), "-c", channel.root)
    else:
        (tmp_path / "explicit.txt").write_text(run("export", prefix, "-f", "explicit").stdout)
        run("create", made, "--lock", tmp_path / "explicit.txt")
    assert f"{archive.as_uri()}#{sha256_of_file(archive)}\n" in run("export", made, "-f", "explicit").stdout
    run("export", made, "-o", tmp_path / "pins")
    for name in ("conda-lock.yml", "explicit.txt", "pixi.lock"):
        run("create", tmp_path / f"from {name}", "--lock", tmp_path / "pins" / name)
        assert json.loads((tmp_path / f"from {name}/conda-meta/tool-1.0-0.json").read_text())["subdir"] == "linux-64"


def test_a_listed_package_for_another_platform_is_refused_wherever_it_is(tmp_path: Path, channel: ToyChannel) -> None:
    archive = channel.add("tool", subdir="osx-64")
    elsewhere = Path(shutil.copytree(archive.parent, tmp_path / "releases/v1.0"), archive.name)
    (tmp_path / "explicit.txt").write_text(
        f"# platform: linux-64\n@EXPLICIT\n{elsewhere.as_uri()}#{sha256_of_file(archive)}\n"
    )
    refused = run("create", tmp_path / "made", "--lock", tmp_path / "explicit.txt", code=IntegrityError.exit_code)
    assert f"{elsewhere.as_uri()}: is a package for osx-64; the lock is for linux-64" in refused.stderr
    assert not (tmp_path / "made").exists()


def test_what_was_recorded_without_a_hash_is_exported_after_an_update(tmp_path: Path, channel: ToyChannel) -> None:
    """As version 0.3.0 recorded what was asked for by its address."""
    made, archive = tmp_path / "made", channel.archive("tool")
    run("create", made, archive.as_uri(), "-c", channel.root)
    path = made / "conda-meta/tool-1.0-0.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in record.items() if key not in {"sha256", "md5", "size"}}))
    lacking = run("export", made, "-f", "explicit", code=IntegrityError.exit_code).stderr
    assert f"channel_tools env update {made}" in lacking
    run("update", made)
    assert sha256_of_file(archive) in run("export", made, "-f", "explicit").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("add",), "nothing to add"),
        (("add", "tool", "--variant", "udp"), "MatchSpecs with --variant"),
        (("add", "tool", "--trusted-key", "keys"), "trust options without --require-attestation"),
        (("update", "--trusted-key", "keys"), "trust options without --require-attestation"),
        (("create", "tool", "--yes"), "--yes without --replace"),
        (("remove",), "Missing argument"),
        (("remove", "tool >"), "tool >: not a MatchSpec"),
        (("export", "-f", "pixi"), "several files on standard output"),
        (("export", "-f", "explicit", "-f", "conda-lock"), "several files on standard output"),
        (("export", "--from-history", "-f", "explicit"), "--from-history with another format"),
        (("add", "tool >"), "tool >: not a MatchSpec"),
        (("add", "nowhere", "-c", "/nowhere/channel"), "the channel's index cannot be read"),
    ],
)
def test_what_makes_no_sense_is_an_error(prefix: Path, words: tuple[str, ...], message: str) -> None:
    before = files_of(prefix)
    done = run_tool("env", words[0], prefix, *words[1:], cwd=prefix.parent)
    assert done.returncode != 0
    assert message in done.stderr
    assert files_of(prefix) == before


def test_a_folder_that_is_no_environment_is_an_error(tmp_path: Path) -> None:
    for words in (
        ("add", tmp_path, "tool"),
        ("update", tmp_path),
        ("remove", tmp_path, "x"),
        ("list", tmp_path),
        ("export", tmp_path),
    ):
        assert "not an environment" in run(*words, code=UsageError.exit_code).stderr


def test_files_that_are_left_out_are_said_to_the_quiet_and_in_json(tmp_path: Path, channel: ToyChannel) -> None:
    channel.add("first", files={"share/same": b"first"}, index=False)
    channel.add("second", files={"share/same": b"second"})
    words = ("create", tmp_path / "env", "first", "second", "-c", channel.root)
    shown = run(*words, "--quiet").stdout.splitlines()
    assert len(shown) == 2
    assert shown[1].endswith("of the same name; only one of each was installed, left out: share/same of second")
    words = ("create", tmp_path / "other", "first", "second", "-c", channel.root)
    assert json.loads(run(*words, "--json").stdout)["left_out"] == ["share/same of second"]
