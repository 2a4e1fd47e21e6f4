# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.build.script_output import LEFT_RUNNING, ReadableOutput, put_before_path
from tests.support.processes import wait_for

_SYSTEM = "/usr/bin:/bin"


@given(st.lists(st.one_of(st.binary(max_size=9), st.sampled_from([b'"', b"\n", b"\r", b"\0", "é€😀".encode()]))))
def test_what_is_shown_does_not_depend_on_how_the_output_is_cut(pieces: list[bytes]) -> None:
    def shown(pieces: list[bytes]) -> bytes:
        output = ReadableOutput()
        return b"".join(map(output.readable, pieces)) + output.readable(b"", final=True)

    whole = shown([b"".join(pieces)])
    assert shown(pieces) == whole
    assert b"\0" not in whole
    lines = whole.decode().replace("\r", "\n").split("\n")
    assert not [line for line in lines if line == '"' or (line.startswith('"') and line.endswith('"'))]


def test_a_line_without_an_end_is_shown_before_it_fills_the_memory() -> None:
    output = ReadableOutput()
    pieces = [output.readable(b"x" * 1000) for _ in range(1000)]
    assert max(map(len, pieces)) < 100_000
    assert sum(map(len, pieces)) - b"".join(pieces).count(b"\n") > 900_000


def run(folder: Path, script: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script as the engine does, in a folder with its file that sets the environment."""
    path = put_before_path(folder / "interpreter", _SYSTEM)
    (folder / "build_env.sh").write_text(f"export PATH={path}\nexport TOY=1\n")
    file = folder / "conda_build.sh"
    file.write_text(f"source {folder}/build_env.sh\n{script}\n")
    return subprocess.run(
        ["bash", file], env={"PATH": path}, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60
    )


def test_a_script_does_not_see_what_stands_before_it(tmp_path: Path) -> None:
    result = run(tmp_path, 'echo "$PATH" $TOY; command -v bash; bash -c "env | grep interpreter"')
    assert (result.returncode, result.stdout, result.stderr) == (1, b"/usr/bin:/bin 1\n/usr/bin/bash\n", b"")
    assert (tmp_path / "build_env.sh").read_text() == "export PATH=/usr/bin:/bin\nexport TOY=1\n"


def test_a_script_does_not_see_the_password_of_a_proxy(tmp_path: Path) -> None:
    path = put_before_path(tmp_path / "interpreter", _SYSTEM)
    proxy = "http://me:made-up@proxy.example:3128"
    (tmp_path / "build_env.sh").write_text(f"export HTTPS_PROXY='{proxy}'\n")
    (tmp_path / "conda_build.sh").write_text(f"source {tmp_path}/build_env.sh\nenv | grep -i proxy | sort\n")
    words = ["bash", str(tmp_path / "conda_build.sh")]
    environ = {"PATH": path, "HTTPS_PROXY": proxy, "http_proxy": proxy, "no_proxy": "me@host"}
    result = subprocess.run(words, env=environ, capture_output=True, check=False, timeout=60)
    assert result.stdout.decode().splitlines() == [
        "HTTPS_PROXY=http://proxy.example:3128",
        "http_proxy=http://proxy.example:3128",
        "no_proxy=me@host",
    ]


@pytest.mark.parametrize("ending", ["exit 0", "exit 37", "kill -TERM $$", "kill -KILL $$", "kill -SEGV $$"])
def test_it_ends_as_the_script_does(tmp_path: Path, ending: str) -> None:
    script = rf"printf 'caf\351'; printf '\377\n' >&2; {ending}"
    (tmp_path / "plain.sh").write_text(script)
    plain = subprocess.run(["/bin/bash", tmp_path / "plain.sh"], capture_output=True, check=False, timeout=60)
    result = run(tmp_path, script)
    assert (result.returncode, result.stdout, result.stderr) == (plain.returncode, rb"caf\xe9", b"\\xff\n")


def test_it_ends_with_the_reader_of_its_output(tmp_path: Path) -> None:
    path = put_before_path(tmp_path, _SYSTEM)
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as output:
        endless = subprocess.Popen(["bash", "-c", "yes"], env={"PATH": path}, stdout=output, stderr=subprocess.PIPE)
    os.read(reading, 1)
    os.close(reading)
    _, errors = endless.communicate(timeout=60)
    assert (endless.returncode, errors) == (-signal.SIGPIPE, b"")


@pytest.mark.parametrize(
    "left",
    ["sleep 600 &", "(while :; do echo again; done) &", "sleep 600 2>&1 >/dev/null &", "setsid sleep 600 &"],
    ids=["silent", "writing", "error-output", "session"],
)
def test_what_a_script_leaves_running_does_not_keep_the_build(tmp_path: Path, left: str) -> None:
    script = f"{left} echo $! > {tmp_path}/left; echo last; exit 5"
    path = put_before_path(tmp_path / "interpreter", _SYSTEM)
    (tmp_path / "script.sh").write_text(script)
    program = (
        "import sys; from channel_tools.build.script_output import main\n"
        "sys.exit(main(sys.argv[1], sys.argv[2:], held_s=0.2))"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "interpreter"), str(tmp_path / "script.sh")]
    result = subprocess.run(words, env={"PATH": path}, stdin=-3, capture_output=True, check=False, timeout=60)
    assert result.returncode == 5
    assert b"last\n" in result.stdout
    assert b"the script has ended, but " in result.stderr
    assert b"still had its output open 0.2 s later and was killed" in result.stderr
    (note,) = (tmp_path / "interpreter" / LEFT_RUNNING).read_text().splitlines()
    assert note.encode() in result.stderr
    wait_for(
        lambda: not Path("/proc", (tmp_path / "left").read_text().strip(), "cmdline").exists() or _is_dead(tmp_path)
    )


def _is_dead(folder: Path) -> bool:
    """Whether the process is a zombie, which nobody has waited for."""
    try:
        return (
            Path("/proc", (folder / "left").read_text().strip(), "stat").read_text().rpartition(")")[2].split()[0]
            == "Z"
        )
    except FileNotFoundError:
        return True


def test_what_writes_the_rest_of_the_output_after_a_script_is_waited_for(tmp_path: Path) -> None:
    result = run(tmp_path, "exec > >(cat; echo of-the-end); echo text")
    assert (result.returncode, result.stdout) == (0, b"text\nof-the-end\n")
    assert not (tmp_path / "interpreter" / LEFT_RUNNING).exists()
