# SPDX-License-Identifier: BSD-3-Clause
"""``conda-meta/history`` as conda and mamba write it, and as they read what is written here."""

from __future__ import annotations

from pathlib import Path

import pytest
import rattler

from channel_tools.environments.history import (
    HISTORY,
    append_revision,
    by_name,
    parse_specs,
    read_history,
    requested_specs,
)
from channel_tools.system.errors import FileAccessError, IntegrityError
from tests.support.conda_history import conda_requests

CONDA = """\
==> 2026-11-25 10:00:00 <==
# cmd: /opt/conda/bin/conda create -n job -c conda-forge numpy>=2 python=3.12
# conda version: 26.7.0
+conda-forge/linux-64::numpy-2.1.0-py312h1_0
+conda-forge/linux-64::python-3.12.1-h1_0_cpython
# update specs: ["numpy[version='>=2']", 'python=3.12']
==> 2026-11-25 11:00:00 <==
# cmd: /opt/conda/bin/conda install scipy
# conda version: 26.7.0
-conda-forge/linux-64::numpy-2.1.0-py312h1_0
+conda-forge/linux-64::numpy-2.2.0-py312h1_0
+conda-forge/linux-64::scipy-1.0-0
# update specs: ['scipy']
# neutered specs: ['numpy']
"""
MAMBA = """\
==> 2026-11-25 10:00:00 <==
# cmd: micromamba create -n job numpy
# conda version: 3.8.0
+conda-forge/linux-64::numpy-2.1.0-py312h1_0
# update specs: ["numpy >=2", "libcurl[version=\\">=7.86,<8.10\\"]"]
"""


def write(prefix: Path, text: str) -> Path:
    path = prefix / HISTORY
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def revision(*lines: str) -> str:
    return "\n".join(["==> 2026-11-25 10:00:00 <==", "# cmd: conda install x", *lines, ""])


def record(
    name: str, version: str = "1.0", *, channel: str = "https://conda.anaconda.org/conda-forge/"
) -> rattler.RepoDataRecord:
    package = rattler.PackageRecord(
        name=name, version=version, build=rattler.BuildString("0"), build_number=0, subdir="linux-64"
    )
    return rattler.RepoDataRecord(
        package, f"{name}-{version}-0.conda", f"{channel}linux-64/{name}-{version}-0.conda", channel
    )


def installed(prefix: Path, name: str, *specs: str) -> rattler.PrefixRecord:
    """The record of an installed package, with what a client noted in it as asked for."""
    path = prefix / "conda-meta" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    rattler.PrefixRecord(record(name), paths_data=rattler.PrefixPaths(), requested_specs=list(specs)).write_to_path(
        path, pretty=True
    )
    return rattler.PrefixRecord.from_path(path)


class TestReading:
    def test_a_request_of_conda_is_replaced_by_what_it_was_relaxed_to(self, tmp_path: Path) -> None:
        write(tmp_path, CONDA)
        history = read_history(tmp_path)
        assert history.requested == {"numpy": ("numpy",), "python": ("python=3.12",), "scipy": ("scipy",)}
        assert history.packages == {
            "conda-forge/linux-64::numpy-2.2.0-py312h1_0",
            "conda-forge/linux-64::python-3.12.1-h1_0_cpython",
            "conda-forge/linux-64::scipy-1.0-0",
        }
        assert history.channels == ("conda-forge",)

    def test_quotes_in_quotes_are_read_as_mamba_writes_them(self, tmp_path: Path) -> None:
        write(tmp_path, MAMBA)
        assert read_history(tmp_path).requested == {
            "numpy": ("numpy >=2",),
            "libcurl": ('libcurl[version=">=7.86,<8.10"]',),
        }

    def test_build_numbers_are_read_as_mamba_writes_them(self, tmp_path: Path) -> None:
        specs = r'["tool[build=\"py*\",build_number=\"=1\"]", "library[build_number=\">=1\"]"]'
        write(tmp_path, revision(f"# update specs: {specs}"))
        assert read_history(tmp_path).requested == {
            "tool": ('tool[build="py*",build_number="1"]',),
            "library": ('library[build_number=">=1"]',),
        }

    @pytest.mark.parametrize(
        ("lines", "requested"),
        [
            (("# update specs: ['tool']", "# remove specs: ['tool']"), {"tool": ("tool",)}),
            (("# install specs: tool >=1,<2,other",), {"tool": ("tool >=1,<2",), "other": ("other",)}),
            (("#update specs:['tool']",), {"tool": ("tool",)}),
            (("# update specs:", "# update specs: []"), {}),
            (("# update specs: ['mkl@', '', 'tool']",), {"tool": ("tool",)}),
            (("# update specs: ['tool >=1', 'tool <2']",), {"tool": ("tool >=1", "tool <2")}),
            (("# revert specs: ['tool']",), {}),
            (("# a remark on specs", "no package", "=> <=", "==> <==", "\x00"), {}),
            (("# create specs: ['ours/linux-64::tool==1.0=0']",), {"tool": ("ours/linux-64::tool==1.0=0",)}),
        ],
    )
    def test_odd_lines_mean_what_they_mean_to_conda(
        self, tmp_path: Path, lines: tuple[str, ...], requested: dict[str, tuple[str, ...]]
    ) -> None:
        write(tmp_path, revision(*lines))
        assert read_history(tmp_path).requested == requested

    @pytest.mark.parametrize("ends", ["\n", "\r\n", "\n\n  "])
    def test_any_ends_of_lines_will_do(self, tmp_path: Path, ends: str) -> None:
        write(tmp_path, CONDA.replace("\n", ends))
        assert read_history(tmp_path).requested.keys() == {"numpy", "python", "scipy"}

    def test_what_is_before_the_first_revision_and_bytes_that_are_no_text_are_ignored(self, tmp_path: Path) -> None:
        path = write(tmp_path, "# update specs: ['lost']\n" + CONDA)
        path.write_bytes(path.read_bytes() + b"==> now <==\n# cmd: \xff\xfe\n+a::b-1-0\n")
        assert read_history(tmp_path).requested.keys() == {"numpy", "python", "scipy"}

    @pytest.mark.parametrize("specs", ["['tool", "{'tool'}[", "[1]", "['=><']"])
    def test_a_request_that_cannot_be_read_is_an_error_that_names_its_line(self, tmp_path: Path, specs: str) -> None:
        write(tmp_path, revision(f"# update specs: {specs}"))
        with pytest.raises(IntegrityError, match="conda-meta/history, line 3: what was asked for cannot be read"):
            read_history(tmp_path)

    def test_a_list_of_all_packages_is_a_state(self, tmp_path: Path) -> None:
        """As conda of before 2014 wrote them."""
        write(tmp_path, revision("a-1-0", "b-1-0") + revision("-a-1-0", "+c-1-0"))
        assert read_history(tmp_path).packages == {"b-1-0", "c-1-0"}

    def test_no_file_is_an_empty_history_and_a_folder_is_an_error(self, tmp_path: Path) -> None:
        assert read_history(tmp_path).requested == {}
        (tmp_path / HISTORY).mkdir(parents=True)
        with pytest.raises(FileAccessError, match="history"):
            read_history(tmp_path)

    def test_a_spec_goes_on_after_a_comma_as_before_conda_4_5(self) -> None:
        assert parse_specs("param >=1.5.1,<2.0,!=1.7,jupyter") == ["param >=1.5.1,<2.0,!=1.7", "jupyter"]


class TestWhatWasAskedFor:
    def test_is_what_the_history_says_of_installed_packages(self, tmp_path: Path) -> None:
        write(tmp_path, CONDA)
        packages = [installed(tmp_path, name) for name in ("numpy", "scipy", "zlib")]
        assert requested_specs(read_history(tmp_path), packages) == {"numpy": ("numpy",), "scipy": ("scipy",)}

    def test_is_what_the_records_say_where_the_history_is_empty(self, tmp_path: Path) -> None:
        """So it is in environments that version 0.2.0 made."""
        write(tmp_path, "")
        packages = [installed(tmp_path, "tool", "tool >=1"), installed(tmp_path, "library")]
        assert requested_specs(read_history(tmp_path), packages) == {"tool": ("tool >=1",)}

    def test_is_not_what_a_record_says_that_the_history_takes_back(self, tmp_path: Path) -> None:
        write(tmp_path, revision("# update specs: ['other']") + revision("# remove specs: ['tool']"))
        packages = [installed(tmp_path, "tool", "tool"), installed(tmp_path, "other", "None")]
        assert requested_specs(read_history(tmp_path), packages) == {"other": ("other",)}

    def test_is_everything_where_nothing_says_it(self, tmp_path: Path) -> None:
        packages = [installed(tmp_path, "tool"), installed(tmp_path, "library")]
        assert requested_specs(read_history(tmp_path), packages) == {"tool": ("tool",), "library": ("library",)}

    def test_keeps_what_conda_cannot_read(self, tmp_path: Path) -> None:
        spec = 'tool >=1[extras=[fast], when="python >=3"]'
        append_revision(tmp_path, by_name([spec]), [record("tool")], command=["x"])
        assert conda_requests(tmp_path) == {"tool": "tool >=1"}
        assert requested_specs(read_history(tmp_path), [installed(tmp_path, "tool", spec)]) == {"tool": (spec,)}


class TestWriting:
    def test_is_as_conda_does_it(self, tmp_path: Path) -> None:
        path = write(tmp_path, CONDA)
        requested = {**read_history(tmp_path).requested, "tool": ("tool[version='>=1']",)}
        del requested["scipy"]
        packages = [record("numpy", "2.2.0"), record("tool", channel="file:///srv/ours/")]
        append_revision(tmp_path, requested, packages, command=["channel_tools", "env", "add", "/my envs/job"])
        added = path.read_text().removeprefix(CONDA).splitlines()
        assert added[0].startswith("==> 20")
        assert added[0].endswith(" <==")
        assert added[1:] == [
            "# cmd: channel_tools env add '/my envs/job'",
            "-conda-forge/linux-64::numpy-2.2.0-py312h1_0",
            "-conda-forge/linux-64::python-3.12.1-h1_0_cpython",
            "-conda-forge/linux-64::scipy-1.0-0",
            "+conda-forge/linux-64::numpy-2.2.0-0",
            "+file:///srv/ours/linux-64::tool-1.0-0",
            "# remove specs: ['scipy']",
            "# update specs: [\"tool[version='>=1']\"]",
        ]
        assert read_history(tmp_path).requested == requested
        assert conda_requests(tmp_path).keys() == requested.keys()

    def test_again_adds_nothing(self, tmp_path: Path) -> None:
        arguments = (by_name(["tool"]), [record("tool")])
        append_revision(tmp_path, *arguments, command=["x"])
        before = (tmp_path / HISTORY).read_bytes()
        append_revision(tmp_path, *arguments, command=["x"])
        assert (tmp_path / HISTORY).read_bytes() == before

    def test_of_a_request_alone_lists_the_packages_for_conda_to_know_them(self, tmp_path: Path) -> None:
        packages = [record("tool"), record("library")]
        append_revision(tmp_path, by_name(["tool"]), packages, command=["x"])
        append_revision(tmp_path, by_name(["tool", "library"]), packages, command=["x"])
        lines = (tmp_path / HISTORY).read_text().splitlines()
        assert lines[-3:] == [
            "conda-forge/linux-64::library-1.0-0",
            "conda-forge/linux-64::tool-1.0-0",
            "# update specs: ['library']",
        ]
        assert read_history(tmp_path).packages == set(lines[-3:-1])

    def test_begins_a_line_after_one_that_was_cut_off(self, tmp_path: Path) -> None:
        write(tmp_path, CONDA.removesuffix("\n"))
        requested = {**read_history(tmp_path).requested, **by_name(["tool"])}
        append_revision(tmp_path, requested, [], command=["x"])
        assert read_history(tmp_path).requested.keys() == {"numpy", "python", "scipy", "tool"}

    def test_has_a_line_for_each_whatever_is_in_it_and_no_credentials(self, tmp_path: Path) -> None:
        specs = [
            "https://u:sesame@host.example/t/sesame/c::tool  >=1\n",
            "lib[url='https://u:sesame@host.example/linux-64/lib-1-0.conda']",
        ]
        command = ["env", "add", "a\u2028b\n# update specs: ['evil']", "--channel=https://h.example/t/sesame/c", *specs]
        append_revision(tmp_path, by_name(specs), [], command=command)
        text = (tmp_path / HISTORY).read_text()
        assert "sesame" not in text
        assert len(text.splitlines()) == 3
        assert read_history(tmp_path).requested.keys() == {"tool", "lib"}
