# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rattler import MatchSpec, RepoData, Version

from channel_tools.channel.publish import check_package
from channel_tools.conda import metadata
from channel_tools.conda.metadata import check_link, checked_index
from channel_tools.conda.repodata import encode_repodata
from channel_tools.system.errors import IntegrityError
from tests.support.packages import make_conda

_LETTERS = st.text(alphabet="0129abz.*<>=!|, _-+", min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"build_number": True}, "has build_number True; expected a number"),
        ({"build_number": 2**64}, "build_number"),
        ({"timestamp": "1"}, "timestamp '1'; expected milliseconds"),
        ({"timestamp": -1}, "timestamp"),
        ({"timestamp": 253402207201}, "timestamp"),
        ({"timestamp": 253402300799}, "timestamp"),
        ({"timestamp": 253402207200001}, "timestamp"),
        ({"license": ["MIT"]}, "license"),
        ({"noarch": "ruby"}, "noarch 'ruby'; expected generic or python"),
        ({"depends": ["python >=3,,"]}, "depends 'python >=3,,', which is not a valid MatchSpec"),
        ({"constrains": [3]}, "constrains"),
        ({"constrains": ["toy >=" + "9" * 20]}, "constrains 'toy >=999"),
        ({"track_features": {"a": 1}}, "track_features"),
        ({"purls": "pkg:x"}, "purls"),
        ({"purls": ["pypi/x"]}, "purls"),
        ({"purls": ["pkg:pypi/"]}, "purls"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_fields_of_a_wrong_kind_are_refused(tmp_path: Path, index: dict[str, object], message: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        check_package(make_conda(tmp_path, "toy", index=index))
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("name", "version", "build", "message"),
    [
        ("Toy", "1.0", "0", "has name 'Toy'"),
        ("toy", "1..0", "0", "version '1..0', which conda cannot order"),
        ("toy", "9" * 20 + ".0", "0", "which conda cannot order"),
        ("toy", "1.0", "a b", "has build 'a b'"),
    ],
)
def test_a_package_that_no_client_could_name_is_refused(
    tmp_path: Path, name: str, version: str, build: str, message: str
) -> None:
    with pytest.raises(IntegrityError) as caught:
        check_package(make_conda(tmp_path, name, version=version, build=build))
    assert message in caught.value.message


@pytest.mark.parametrize("exports", [{"weak": "toy"}, {"strong": [1]}, {"noarch": ["toy >=1,,"]}])
def test_run_exports_that_build_tools_cannot_read_are_refused(tmp_path: Path, exports: dict[str, list[str]]) -> None:
    with pytest.raises(IntegrityError, match="run_exports"):
        check_package(make_conda(tmp_path, "toy", run_exports=exports))


@settings(max_examples=500)
@given(text=_LETTERS)
def test_what_the_patterns_accept_rattler_accepts(text: str) -> None:
    if metadata._SPEC.fullmatch(f"p {text}"):
        MatchSpec(f"p {text}")
    if metadata._VERSION.fullmatch(text):
        Version(text)


@pytest.mark.parametrize(
    "spec",
    [
        "a",
        "a 1.2",
        "a 1.2.*",
        "a >=1.2,<2.0a0",
        "a 1.* *_cpython",
        "a ==1.0 h1_0",
        "a >=1|2.*",
        "_x *",
        "a * h*",
        "a =1.2",
    ],
)
def test_common_requirements_need_no_rattler(spec: str) -> None:
    assert metadata._SPEC.fullmatch(spec)
    MatchSpec(spec)


@pytest.mark.parametrize("purl", ["pkg:pypi/x@1.0", "pkg:github/a/b@1?x=y#z"])
def test_package_urls_are_taken(tmp_path: Path, purl: str) -> None:
    assert check_package(make_conda(tmp_path, "toy", index={"purls": [purl]})).record["purls"] == [purl]


@pytest.mark.parametrize("timestamp", [0, 253402207200, 253402300800, 253402207200000])
def test_an_index_with_the_first_and_last_times_is_read_by_rattler(tmp_path: Path, timestamp: int) -> None:
    record = check_package(make_conda(tmp_path, "toy", index={"timestamp": timestamp})).record
    index = tmp_path / "repodata.json"
    index.write_bytes(encode_repodata("linux-64", {"toy-1.0-0.conda": record}, removed=()))
    RepoData.from_path(index)


@pytest.mark.parametrize(
    "line",
    [
        "toy = toy.main",
        "toy = toy:main [cli]",
        "toy = toy:main[cli]",
        "toy = toy:",
        "toy = :main",
        "toy = toy:main()",
        "toy = toy-tools:main",
        "toy = toy:main:more",
        "toy = toy..tools:main",
        "toy = 2toy:main",
        "../toy = toy:main",
    ],
)
def test_an_entry_point_that_no_client_can_make_a_program_of_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        check_link({"noarch": {"type": "python", "entry_points": [line]}}, tmp_path / "toy-1.0-0.conda")
    assert f"the entry point {line!r}; expected NAME = MODULE:FUNCTION" in caught.value.message


@pytest.mark.parametrize(
    "line", ["toy=toy:main", "toy = toy.tools : App.run", " toy-2.0 = _toy:main ", "toy = füge:an"]
)
def test_entry_points_may_have_dots_and_need_no_spaces(tmp_path: Path, line: str) -> None:
    assert check_link({"noarch": {"entry_points": [line]}}, tmp_path / "toy-1.0-0.conda") == (line,)


BAD = {"constrains": ["dsk[array] >=2023"], "depends": ["zlib"], "license": "MIT"}


def test_a_correction_is_taken_where_no_index_can_contain_a_packages_own_fields(tmp_path: Path) -> None:
    asked = []

    def correction() -> dict[str, object]:
        asked.append(True)
        return {"constrains": ["dsk >=2023"], "license": None}

    index = {"name": "toy", "version": "1.0", "build": "0", "build_number": 0}
    path = tmp_path / "toy-1.0-0.conda"
    assert checked_index({**index, "depends": ["zlib"]}, path, correction) == {**index, "depends": ["zlib"]}
    assert asked == []
    corrected = checked_index({**index, **BAD}, path, correction)
    assert corrected == {**index, "constrains": ["dsk >=2023"], "depends": ["zlib"]}
    useless: list[dict[str, object] | None] = [None, {"depends": []}, {"constrains": ["dsk [x"]}]
    for fields in useless:
        with pytest.raises(IntegrityError, match="constrains 'dsk"):
            checked_index({**index, **BAD}, path, lambda fields=fields: fields)  # type: ignore[misc]
    for wrong in ({"build_number": -1}, {"constrains": [5]}, {"constrains": "dsk"}, {"license": ["MIT"]}):
        with pytest.raises(IntegrityError, match=next(iter(wrong))):
            checked_index({**index, **wrong}, path, correction)


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (1761000063, 1761000063000),
        (1761000063000, 1761000063000),
        (0, 0),
        (253402207200, 253402207200000),
        (253402300800, 253402300800),
        (253402207200000, 253402207200000),
        (253402207200001, 0),
        (253402207201, 0),
        (-1, 0),
        (True, 0),
        ("1761000063", 0),
        (None, 0),
    ],
)
def test_a_time_may_be_in_seconds(timestamp: object, expected: int) -> None:
    assert metadata.timestamp_ms(timestamp) == expected
