# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from channel_tools.build.model import BuildJob
from channel_tools.build.usage import read_usage
from channel_tools.channel import Channel, Foundation, create_channel, published_packages, verify_channel
from channel_tools.conda.archive import read_info_files, stream_component
from channel_tools.system.errors import BuildError, ChannelError, ConfigError, DiskFullError, SolveError
from channel_tools.system.work_folder import choose_work_folder
from channel_tools.workflow.debug import find_failed, shell_command, work_folder_of
from tests.integration.build.driver import BUILD, build, toy_job
from tests.support.processes import TEST_TIMEOUT_S, assert_ended, time_limit

pytestmark = pytest.mark.integration

_ROOT = Path(__file__).parents[3]
_PARENTS = "engine=$(cut -d' ' -f4 /proc/$PPID/stat)"
"""In a script, whose parent passes on its output: the process of the engine."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_channel(tmp_path / "channel", Foundation(kind="registry"))
    return tmp_path


def toy(
    folder: Path,
    name: str,
    *waits_for: str,
    script: str | None = None,
    test: str | None = None,
    build_string: str = BUILD,
    extra: dict[str, object] | None = None,
    sources: Sequence[Mapping[str, object]] = (),
) -> BuildJob:
    """Write a recipe that needs no compiler and no foundation; its job."""
    recipe = {
        "schema_version": 1,
        "package": {"name": name, "version": "1.0"},
        "source": [*sources],
        "build": {
            "number": 0,
            "noarch": "generic",
            "string": build_string,
            "script": [script or f"mkdir -p $PREFIX/share; echo {name} > $PREFIX/share/{name}"],
        },
        "requirements": {"host": list(waits_for), "run": list(waits_for)},
        "tests": [{"script": [test or f"test -f $PREFIX/share/{name}"]}],
        "extra": {"channel_tools": {"schema": 1, "digest": f"digest of {name}", "inputs": {}, **(extra or {})}},
    }
    recipe_folder = folder / "recipes" / name
    recipe_folder.mkdir(parents=True)
    (recipe_folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return toy_job(folder, name, *waits_for)


def channel_of(folder: Path) -> Channel:
    return Channel(path=folder / "channel", foundation=Foundation(kind="registry"))


def published(folder: Path) -> list[str]:
    """Names of our packages in a channel that is sound."""
    assert verify_channel(channel_of(folder)) == []
    repodata = json.loads((folder / "channel" / "noarch" / "repodata.json").read_bytes())
    names = [package.row.name for package in published_packages(channel_of(folder))]
    assert sorted(row["name"] for row in repodata["packages.conda"].values()) == names
    return names


@pytest.mark.parametrize(
    "name", [pytest.param("my trée $;&(a:b,c%#d\ne=f'\"`\\", id="odd"), pytest.param("a" * 200, id="long")]
)
def test_a_package_is_built_wherever_its_recipe_and_channel_lie(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    create_channel(folder / "channel", Foundation(kind="registry"))
    # as many scripts do, this one leaves out the quotes
    script = "cd $SRC_DIR; mkdir -p $PREFIX/share; cp $RECIPE_DIR/recipe.yaml $PREFIX/share/toy"
    jobs = [toy(folder, "toy", script=script), toy(folder, "after", "toy", test="test -f $PREFIX/share/toy")]
    with tempfile.TemporaryDirectory() as short:
        work = choose_work_folder(output=folder, cache=folder / "cache", environ={"TMPDIR": short})
        assert str(work).startswith(short)
        results = build(folder, jobs, work=work)
        assert sorted(path.name for path in work.iterdir()) == [".lock", ".lock.owner"]
    assert [result.status for result in results] == ["built", "built"]
    assert published(folder) == ["after", "toy"]


PATCHES = (
    """\
diff --git a/tool.sh b/tool.sh
new file mode 100755
--- /dev/null
+++ b/tool.sh
@@ -0,0 +1 @@
+echo one
diff --git a/link b/link
index 1..2 120000
--- a/link
+++ b/link
@@ -1 +1 @@
-plain
\\ No newline at end of file
+tool.sh
\\ No newline at end of file
""",
    "--- a/tool.sh\n+++ b/tool.sh\n@@ -1 +1 @@\n-echo one\n+echo two\n",
)
"""The first has what the engine does not know, the second changes what it makes."""


def test_a_build_has_what_its_patches_say_and_its_package_has_the_patches(folder: Path) -> None:
    script = 'test "$(readlink sub/link) $(readlink other/link)" = "tool.sh plain" && test ! -e other/tool.sh'
    sources: list[dict[str, object]] = [
        {"path": "src", "target_directory": "sub", "patches": ["0.patch", "1.patch"]},
        {"path": "src", "target_directory": "other"},
    ]
    job = toy(
        folder, "toy", script=f"{script} && mkdir $PREFIX/share && cp -p sub/tool.sh $PREFIX/share/toy", sources=sources
    )
    recipe = folder / "recipes" / "toy"
    (recipe / "src").mkdir()
    (recipe / "src" / "plain").write_text("plain\n")
    (recipe / "src" / "link").symlink_to("plain")
    for number, text in enumerate(PATCHES):
        (recipe / f"{number}.patch").write_text(text)
    assert [result.status for result in build(folder, [job])] == ["built"]
    (package,) = (folder / "channel" / "noarch").glob("toy-*.conda")
    (made,) = (
        (member.mode & 0o777, stream.read())
        for member, stream in stream_component(package, "pkg")
        if stream is not None
    )
    assert made == (0o755, b"echo two\n")
    texts = read_info_files(package, frozenset({f"recipe/{number}.patch" for number in range(2)}))
    assert [texts[f"recipe/{number}.patch"].decode() for number in range(2)] == list(PATCHES)


NESTED = """\
    if (given) {
        path = given;
    }
    else {
        if (root) {
            path = root;
        }
        else {
            path = "own";
            say(path);
        }
    }
"""
FLAT = """\
--- a/choice.c
+++ b/choice.c
@@ -4,9 +4,4 @@
     else {
-        if (root) {
-            path = root;
-        }
-        else {
-            path = "own";
-            say(path);
-        }
+        path = "own";
+        say(path);
     }
"""
"""What it leaves is in the file already, but for blanks, which is why the engine takes it for applied and skips it."""


def test_a_patch_that_leaves_what_is_in_the_file_already_is_applied(folder: Path) -> None:
    sources: list[dict[str, object]] = [{"path": "src", "patches": ["0.patch"]}]
    job = toy(folder, "toy", script="mkdir $PREFIX/share && cp choice.c $PREFIX/share/toy", sources=sources)
    recipe = folder / "recipes" / "toy"
    (recipe / "src").mkdir()
    (recipe / "src" / "choice.c").write_text(NESTED)
    (recipe / "0.patch").write_text(FLAT)
    assert [result.status for result in build(folder, [job])] == ["built"]
    (package,) = (folder / "channel" / "noarch").glob("toy-*.conda")
    (made,) = (stream.read() for _member, stream in stream_component(package, "pkg") if stream is not None)
    assert b"root" not in made


def test_a_name_too_long_for_a_prefix_is_refused_before_anything_is_built(folder: Path) -> None:
    jobs = [toy(folder, "toy"), toy(folder, "n" * 120)]
    with pytest.raises(ConfigError, match="bytes longer than the 255 allowed"):
        build(folder, jobs)
    assert [path for path in (folder / "work").iterdir() if path.is_dir()] == []


def test_a_chain_is_built_tested_and_published(folder: Path) -> None:
    jobs = [
        toy(folder, "upper", "lower", test="test -f $PREFIX/share/lower && test -f $PREFIX/share/upper"),
        toy(folder, "lower"),
    ]
    results = build(folder, jobs)
    assert [(result.job.stem, result.status) for result in results] == [
        ("lower-1.0-h_0", "built"),
        ("upper-1.0-h_0", "built"),
    ]
    assert [result.package for result in results] == [
        folder / "channel" / "noarch" / f"{name}-1.0-h_0.conda" for name in ("lower", "upper")
    ]
    assert published(folder) == ["lower", "upper"]
    assert {package.row.digest for package in published_packages(channel_of(folder))} == {
        "digest of lower",
        "digest of upper",
    }
    assert [path.name for path in (folder / "work").iterdir() if path.is_dir()] == []
    usage = read_usage(channel_of(folder))
    assert sorted(usage) == ["lower-1.0-h_0", "upper-1.0-h_0"]
    assert all(used.seconds > 0 and used.cpu_s > 0 and used.memory_bytes > 1 << 20 for used in usage.values())
    assert "+ echo lower" in (folder / "logs" / "lower-1.0-h_0.log").read_text()


def test_independent_packages_are_built_at_once(folder: Path) -> None:
    one, two = folder / "one.pipe", folder / "two.pipe"
    os.mkfifo(one)
    os.mkfifo(two)
    finish = "mkdir -p $PREFIX/share; touch $PREFIX/share/{name}"
    jobs = [  # each waits for the other; alone, either would wait forever
        toy(folder, "first", script=f"echo x > {one}; read y < {two}; " + finish.format(name="first")),
        toy(folder, "second", script=f"read y < {one}; echo x > {two}; " + finish.format(name="second")),
    ]
    assert [result.status for result in build(folder, jobs, max_jobs=2)] == ["built", "built"]


@pytest.mark.parametrize(
    ("recipe", "error", "words"),
    [
        pytest.param(
            {"script": "echo compiling; echo boom >&2; exit 3"},
            BuildError,
            ["build script failed", "boom"],
            id="script",
        ),
        pytest.param({"test": "echo testing; false"}, BuildError, ["the recipe's test failed", "testing"], id="test"),
        pytest.param(
            {"script": "echo x > /dev/full"}, DiskFullError, ["no space is left", "No space left on device"], id="disk"
        ),
        pytest.param(
            {"script": f"{_PARENTS}; kill -9 $engine"}, BuildError, ["it was killed (signal 9)"], id="engine killed"
        ),
        pytest.param(
            {"script": f"{_PARENTS}; kill -9 $(cut -d' ' -f4 /proc/$engine/stat); sleep 1000"},
            BuildError,
            ["it was killed (signal 9)"],
            id="supervisor killed",
        ),
        pytest.param(
            {"script": "mkdir $PREFIX/bin; printf '\\0%s' $PREFIX > $PREFIX/bin/x"},
            BuildError,
            ["the build engine failed", "bin/x which contains host prefix placeholder"],
            id="prefix in a binary file",
        ),
        pytest.param(
            {"script": "mkdir $PREFIX/bin; mkfifo $PREFIX/bin/pipe"},
            BuildError,
            [
                (
                    "one of its files cannot be packed (bin/pipe is a named pipe; packages have only files, folders "
                    "and links)"
                )
            ],
            id="a named pipe",
        ),
        pytest.param(
            {"script": "cd $PREFIX; exec python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"open\")'"},
            BuildError,
            ["one of its files cannot be packed (open is a socket;"],
            id="a socket",
        ),
        pytest.param(
            {"build_string": "other_0"},
            BuildError,
            ["made noarch/bad-1.0-other_0.conda; expected noarch/bad-1.0-h_0.conda"],
            id="another name than planned",
        ),
    ],
)
def test_a_failed_build_says_why_and_publishes_nothing_of_it(
    folder: Path, recipe: dict[str, str], error: type[BuildError], words: list[str]
) -> None:
    name = recipe.get("build_string", BUILD)
    script = recipe.get("script", f"mkdir -p $PREFIX/share; echo {name} > $PREFIX/share/bad")
    bad = toy(folder, "bad", script=script, test=recipe.get("test"), build_string=name)
    jobs = [bad, toy(folder, "after", "bad"), toy(folder, "beside")]
    with pytest.raises(error) as caught:
        build(folder, jobs)
    assert type(caught.value) is error
    for word in words:
        assert word in caught.value.message
    assert "bad-1.0-h_0" in caught.value.message
    assert f"log: {folder / 'logs' / 'bad-1.0-h_0.log'}" in caught.value.message
    assert "not built because of that: after-1.0-h_0" in caught.value.message
    assert published(folder) == ["beside"]


def test_what_cannot_be_solved_or_rendered_says_so(folder: Path) -> None:
    with pytest.raises(SolveError, match=r"cannot be solved[\s\S]*no-such-package"):
        build(folder, [toy(folder, "lonely", "no-such-package")])
    broken = toy(folder, "broken")
    (broken.recipe_folder / "recipe.yaml").write_text("schema_version: 1\npackage: {name: broken}\n")
    with pytest.raises(ConfigError, match="the engine rejects the rendered recipe"):
        build(folder, [broken])


def test_a_mended_recipe_builds_after_a_failure(folder: Path) -> None:
    bad = toy(folder, "toy", script="echo begun > left; exit 1")
    with pytest.raises(BuildError):
        build(folder, [bad])
    failed = find_failed([folder / "work"], "toy")
    look = shell_command(work_folder_of(failed), ["sh", "-c", "cat left; echo $PKG_NAME"])
    seen = subprocess.run(look, cwd=work_folder_of(failed), capture_output=True, text=True, check=True)
    assert seen.stdout == "begun\ntoy\n"
    recipe_file = bad.recipe_folder / "recipe.yaml"
    recipe_file.write_text(
        recipe_file.read_text().replace("echo begun > left; exit 1", "mkdir $PREFIX/share; touch $PREFIX/share/toy")
    )
    assert [result.status for result in build(folder, [bad])] == ["built"]
    assert (folder / "logs" / "toy-1.0-h_0.previous.log").is_file()


_NOT_UTF8 = {
    "one byte": (r"printf 'caf\351\n'", r"caf\xe9"),
    "a lone byte at the end": (r"printf 'end\377'", r"end\xff"),
    "half a character at the end": (r"printf 'end\303'", r"end\xc3"),
    "NUL": (r"printf 'a\0b\n'", r"a\x00b"),
    "UTF-16": (r"printf '\377\376h\0i\0\n\0'", r"\xff\xfeh\x00i\x00"),
    "a quote": (r"""printf '"\nsaid "so"\n"\n"caf\351"\n'""", '"caf\\xe9" \n'),
    "UTF-8, a byte at a time": (r"printf '\303'; sleep 0.2; printf '\251t\303\251\n'", "été"),
    "much binary": (r"seq 100000 | gzip -1n; printf '\nend\351\n'", r"end\xe9"),
    "a megabyte in one line": ("head -c 1000000 /dev/zero | tr '\\0' x; echo", "x" * 16_000),
}


_IN_EVERY_RUN = ("one byte", "half a character at the end")


@pytest.mark.parametrize(
    ("writes", "shown"),
    [
        pytest.param(*case, id=name, marks=[] if name in _IN_EVERY_RUN else [pytest.mark.slow])
        for name, case in _NOT_UTF8.items()
    ],
)
def test_a_log_is_whole_whatever_bytes_a_script_writes(folder: Path, writes: str, shown: str) -> None:
    """A pipe holds 64 KiB: a script that writes more than that where nobody reads would wait for ever."""
    outputs = "".join(
        f"{{ {writes}; }} >&{descriptor}; {{ echo; seq -f '%.0f lines of {name}' 10000; }} >&{descriptor}; "
        for descriptor, name in ((1, "output"), (2, "errors"))
    )
    job = toy(
        folder,
        "toy",
        script=f"set +x; {outputs}mkdir -p $PREFIX/share; touch $PREFIX/share/toy",
        test=f"set +x; {outputs}echo tested",
    )
    with time_limit():
        assert [result.status for result in build(folder, [job])] == ["built"]
    log = (folder / "logs" / "toy-1.0-h_0.log").read_text(encoding="utf-8")
    assert log.count(shown) >= 4
    assert "\0" not in log
    for name in ("output", "errors"):
        assert [log.count(f"\n{number} lines of {name}\n") for number in (1, 5000, 10000)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("ending", "status"), [("exit 3", "3"), ("kill -9 $$", "1"), ("false", "1")], ids=["status", "signal", "command"]
)
def test_a_script_that_fails_after_such_bytes_fails_the_build(folder: Path, ending: str, status: str) -> None:
    bad = toy(folder, "toy", script=rf"printf '\377 error: \351\n'; seq 20000; {ending}")
    with time_limit(), pytest.raises(BuildError, match="the build script failed"):
        build(folder, [bad])
    assert f"Script failed with status {status}" in (folder / "logs" / "toy-1.0-h_0.log").read_text(encoding="utf-8")


def test_what_a_script_leaves_in_the_background_is_in_the_log(folder: Path) -> None:
    script = r"(sleep 1; printf 'late\377\n'; seq 20000) & mkdir -p $PREFIX/share; touch $PREFIX/share/toy; echo ended"
    with time_limit():
        assert [result.status for result in build(folder, [toy(folder, "toy", script=script)])] == ["built"]
    log = (folder / "logs" / "toy-1.0-h_0.log").read_text(encoding="utf-8")
    assert log.index("\nended\n") < log.index("\nlate\\xff\n") < log.index("\n20000\n")


@pytest.mark.slow
def test_what_a_script_leaves_running_does_not_keep_its_build_and_is_named(folder: Path) -> None:
    script = "sleep 600 & mkdir -p $PREFIX/share; touch $PREFIX/share/toy; echo ended"
    with time_limit():
        (result,) = build(folder, [toy(folder, "toy", script=script)])
    assert result.status == "built"
    log = (folder / "logs" / "toy-1.0-h_0.log").read_text(encoding="utf-8")
    assert "the script has ended, but sleep (process " in log


def test_a_script_in_another_language_may_write_any_bytes_too(folder: Path) -> None:
    line = 'print chr($_ % 256) for 0..256000; mkdir "$ENV{PREFIX}/share"; open F, ">$ENV{PREFIX}/share/toy";'
    job = toy(folder, "toy")
    recipe_file = job.recipe_folder / "recipe.yaml"
    recipe = yaml.safe_load(recipe_file.read_text())
    recipe["build"]["script"] = {"interpreter": "perl", "content": [line]}
    recipe_file.write_text(yaml.safe_dump(recipe))
    with time_limit():
        assert [result.status for result in build(folder, [job])] == ["built"]
    assert r"\xfe\xff\x00" in (folder / "logs" / "toy-1.0-h_0.log").read_text(encoding="utf-8")


def test_building_a_published_package_again_keeps_its_bytes(folder: Path) -> None:
    job = toy(folder, "toy")
    build(folder, [job])
    published_file = folder / "channel" / "noarch" / job.file_name
    before = published_file.read_bytes()
    assert [(result.status, result.package) for result in build(folder, [job])] == [("built", published_file)]
    assert published_file.read_bytes() == before
    recipe_file = job.recipe_folder / "recipe.yaml"
    recipe_file.write_text(recipe_file.read_text().replace("digest of toy", "another digest"))
    with pytest.raises(ChannelError, match="the channel has other bytes under this name"):
        build(folder, [job])
    assert published_file.read_bytes() == before


def test_a_build_sees_no_tool_of_the_host_but_the_systems(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    compiler = tmp_path / "bin" / "my-compiler"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("CFLAGS", "-march=native")
    script = (
        'echo "PATH=$PATH CFLAGS=[$CFLAGS] CORES=$CPU_COUNT"; ! command -v my-compiler; command -v bash; '
        "mkdir $PREFIX/share; touch $PREFIX/share/toy"
    )
    build(folder, [toy(folder, "toy", script=script)])
    log = (folder / "logs" / "toy-1.0-h_0.log").read_text()
    assert "\nPATH=$BUILD_PREFIX/bin:$PREFIX/bin:/usr/bin:/bin CFLAGS=[] CORES=2\n" in log
    assert "\n/usr/bin/bash\n" in log


@contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """The driver with one package built and one in the midst of its script; the ids of that script and its daemon."""
    pipe = folder / "pids.pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    daemon = "setsid sleep 1000 > /dev/null 2>&1 & daemon=$!"
    toy(folder, "done")
    toy(folder, "endless", "done", script=f"{daemon}; echo $$ $daemon > {pipe}; sleep 1000")
    command = [sys.executable, "-m", "tests.integration.build.driver", str(folder), "done", "endless"]
    with subprocess.Popen(command, cwd=_ROOT) as driver:
        try:
            assert select.select([reading], [], [], TEST_TIMEOUT_S)[0], "the build did not start"
            yield driver, [int(word) for word in os.read(reading, 4096).split()]
        finally:
            driver.kill()
            os.close(reading)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, id="interrupt"),
        pytest.param(signal.SIGTERM, 143, id="terminate", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -9, id="kill", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_leaves_no_process_and_a_sound_channel(
    folder: Path, number: signal.Signals, status: int
) -> None:
    with running(folder) as (driver, process_ids):
        driver.send_signal(number)
        assert driver.wait(timeout=TEST_TIMEOUT_S) == status
        assert len(process_ids) == 2
        assert_ended(process_ids)
    assert "endless" not in published(folder)
    recipe_file = folder / "recipes" / "endless" / "recipe.yaml"
    recipe = yaml.safe_load(recipe_file.read_text())
    recipe["build"]["script"] = ["mkdir -p $PREFIX/share; touch $PREFIX/share/endless"]
    recipe_file.write_text(yaml.safe_dump(recipe))
    left = [name for name in ("done", "endless") if name not in published(folder)]
    assert [result.status for result in build(folder, [toy_job(folder, name) for name in left])] == ["built"] * len(
        left
    )
    assert published(folder) == ["done", "endless"]
    assert [path.name for path in (folder / "work").iterdir() if path.is_dir()] == []


def test_a_second_run_at_the_same_time_is_refused_at_once(folder: Path) -> None:
    with running(folder) as (driver, _), pytest.raises(ChannelError, match=f"in use by process {driver.pid}"):
        build(folder, [toy(folder, "other")])
