# SPDX-License-Identifier: BSD-3-Clause
"""MatchSpecs mean what py-rattler says, however they are written; so do file names and fields that are missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rattler import MatchSpec

from channel_tools.conda.package import PackageKey, names_of_files, split_file_name, split_package_address, split_stem
from channel_tools.conda.specs import (
    InvalidRecordError,
    InvalidSpecError,
    as_record,
    condition_of,
    is_on_address,
    is_virtual,
    least_version,
    matches,
    name_or_none,
    read_spec,
    record_of,
    spec_name,
    spec_names,
    specs_on,
    texts_of,
    track_features_of,
)
from channel_tools.system.errors import IntegrityError, UsageError

NAMES = st.from_regex(r"_{0,2}[a-z][a-z0-9]{0,6}([_.-][a-z0-9]{1,4}){0,2}", fullmatch=True)
VERSIONS = st.sampled_from(["0.9", "1", "1.0", "1.0.1", "1.2", "1.10", "2.0a1", "2.0", "2!1.0", "3.1"])
OPERATORS = st.sampled_from([">=", "<=", "<", ">", "==", "!=", "~="])
BUILDS = st.sampled_from(["h1_0", "h2_0", "py311_0", "cuda_1"])
CHANNELS = st.sampled_from(["", "ours::", "conda-forge/linux-64::", "https://host/ours::"])


@st.composite
def written(draw: st.DrawFn) -> tuple[str, str, str]:
    """The name, the version condition in its plain form, and a text that means the same."""
    name, operator = draw(NAMES), draw(OPERATORS)
    bounds = [f"{operator}{draw(VERSIONS)}"]
    if draw(st.booleans()):
        bounds.append(f"<{draw(VERSIONS)}")
    condition = ",".join(bounds)
    quote = draw(st.sampled_from(["'", '"']))
    spaced = condition.replace(operator, operator + draw(st.sampled_from(["", " "])), 1)
    shown = name.upper() if draw(st.booleans()) else name
    text = draw(
        st.sampled_from(
            [
                f"{shown} {condition}",
                f"{shown}{condition}",
                f" {shown}  {spaced} ",
                f"{shown}[version={quote}{condition}{quote}]",
                f"{shown} [version = {quote}{condition}{quote}]",
            ]
        )
    )
    return name, condition, text.lstrip() if (channel := draw(CHANNELS)) == "" else channel + text.lstrip()


@given(written(), VERSIONS, BUILDS)
def test_the_same_condition_is_the_same_however_it_is_written(
    spec: tuple[str, str, str], version: str, build: str
) -> None:
    name, condition, text = spec
    record = as_record(name, version, build)
    assert spec_name(text) == name_or_none(text) == name
    assert matches(read_spec(text), record) is MatchSpec(f"{name} {condition}").matches(record)
    assert specs_on({name}, [text, "zzz"]) == [text]
    assert is_virtual(spec_name(text)) is name.startswith("__")


@pytest.mark.parametrize(
    "text",
    ["", " ", "#", "*", "*lib", "^a.*$", "foo.*", "foo >2,<", "foo >=", "foo[version=1", "foo; if python", "a::b::c"],
)
def test_what_is_no_matchspec_is_an_error_that_quotes_it(text: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        spec_name(text)
    assert str(caught.value).startswith(f"{text!r} is not a valid MatchSpec (")
    assert "\n" not in str(caught.value)
    assert name_or_none(text) is None
    with pytest.raises(IntegrityError, match=r"^toy-1\.0-0\.conda: "):
        spec_names(["good", text], "toy-1.0-0.conda")


FULL: dict[str, Any] = {
    "version": "1.0",
    "build": "h1_0",
    "build_number": 3,
    "license": "MIT",
    "license_family": "Other",
    "track_features": "fast,mkl",
    "flags": ["gpu"],
    "md5": "0" * 32,
    "sha256": "1" * 64,
}


@pytest.mark.parametrize(
    ("key", "same", "other"),
    [
        ("version", "'>=1'", "'>=2'"),
        ("build", "h1_*", "h2_*"),
        ("build_number", "'>2'", "'>3'"),
        ("license", "MIT", "BSD"),
        ("license_family", "Other", "GPL"),
        ("track_features", "'fast mkl'", "slow"),
        ("flags", "[gpu]", "[cpu]"),
        ("md5", "0" * 32, "1" * 32),
        ("sha256", "1" * 64, "0" * 64),
        ("subdir", "linux-64", "noarch"),
        ("fn", "toy-1.0-h1_0.conda", "toy-1.0-h2_0.conda"),
    ],
)
def test_every_key_in_brackets_is_compared_with_the_record(key: str, same: str, other: str) -> None:
    record = record_of(FULL, name="toy", subdir="linux-64")
    for value, expected in ((same, True), (other, False)):
        assert matches(read_spec(f"toy[{key}={value}]"), record, file_name="toy-1.0-h1_0.conda") is expected


def test_conditions_extras_and_channels_do_not_change_what_satisfies() -> None:
    record = record_of(FULL, name="toy", subdir="linux-64")
    for text in ("toy[when='python >=3']", "toy[extras=[gui]]", "other::toy", "https://host/c/linux-64::toy"):
        assert matches(read_spec(text), record)


def test_an_address_is_recognised() -> None:
    assert is_on_address(read_spec("https://host/c/linux-64/toy-1.0-h1_0.conda"))
    assert is_on_address(read_spec("toy[url='https://host/x.conda']"))
    assert not is_on_address(read_spec("toy >=1[license=MIT]"))


@pytest.mark.parametrize("missing", [{}, {"depends": None}, {"depends": []}], ids=["absent", "null", "empty"])
def test_a_list_that_is_missing_or_null_is_empty(missing: dict[str, Any]) -> None:
    assert texts_of(missing, "depends") == ()
    assert track_features_of({"track_features": missing.get("depends")}) == ()


@pytest.mark.parametrize("value", ["foo", 5, {"a": 1}, False])
def test_what_is_no_list_is_an_error(value: object) -> None:
    with pytest.raises(InvalidRecordError, match=r"^depends is .*; expected a list$"):
        texts_of({"depends": value}, "depends")


def test_a_record_with_nulls_is_one_without_these_fields() -> None:
    nulls = dict.fromkeys(
        ("build_number", "license", "license_family", "features", "track_features", "flags", "md5", "sha256", "subdir")
    )
    found = record_of({"version": "1.0", "build": "0", **nulls}, name="toy", subdir="noarch")
    assert found == record_of({"version": "1.0", "build": "0"}, name="toy", subdir="noarch")
    assert (found.build_number, found.license, found.track_features, found.md5) == (0, None, [], None)


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({"version": "1-", "build": "0", "md5": "xyz"}, "md5 is 'xyz'; expected hexadecimal digits"),
        ({"version": "", "build": "0"}, "version '' cannot be ordered by conda"),
    ],
)
def test_metadata_that_cannot_be_compared_is_named(index: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRecordError, match=words):
        record_of(index, name="toy", subdir="noarch")
    with pytest.raises(InvalidRecordError, match="'a b' is not a package name"):
        as_record("a b", "1")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python >=3.11,<3.12.0a0", ">=3.11,<3.12.0a0"),
        ("x  3.11.*  *_cp311", "3.11.* *_cp311"),
        ("x[version='>=3', build=h*]", ">=3 h*"),
        ("ours::x", ""),
    ],
)
def test_the_condition_is_shown_in_one_form(text: str, shown: str) -> None:
    assert condition_of(text) == shown


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ("__glibc >=2.36,<3.0.a0", (2, 36)),
        ("__glibc>=2.17", (2, 17)),
        ("__glibc[version='>=2.17']", (2, 17)),
        ("libstdcxx-ng >=7.5.0", (7, 5, 0)),
        ("__glibc=2.17", (2, 17)),
        ("x ~=2.17", (2, 17)),
        ("x >2.16", (2, 16)),
        ("x 2.17|2.12", (2, 12)),
        ("x <3,>=2.17", (2, 17)),
        ("x >=2.17|<1", ()),
        ("x !=2.12", ()),
        ("libgcc 12.*", (12,)),
        ("libgcc =12=h0", (12,)),
        ("libgcc", ()),
        ("libgcc <14", ()),
    ],
)
def test_requirements_let_in_a_least_version(spec: str, least: tuple[int, ...]) -> None:
    assert least_version(spec) == least


PARTS = st.from_regex(r"[a-z0-9_.!+]{1,8}", fullmatch=True)


@given(NAMES, PARTS, PARTS, st.sampled_from([".conda", ".tar.bz2"]))
def test_file_names_are_divided_as_rattler_divides_them(name: str, version: str, build: str, suffix: str) -> None:
    file_name = f"{name}-{version}-{build}{suffix}"
    assert split_file_name(file_name, old_format=True) == (name, version, build)
    assert split_stem(f"{name}-{version}-{build}") == (name, version, build)
    assert names_of_files([file_name, "repodata.json"]) == [name]
    address = f"https://host/ours/linux-64/{file_name}"
    assert MatchSpec.from_url(address).name.normalized == name
    assert split_package_address(address) == ("https://host/ours", PackageKey("linux-64", file_name))


@pytest.mark.parametrize("stem", ["toy", "toy-1.0", "-1.0-0", "toy--0"])
def test_a_stem_that_names_no_package_is_refused(stem: str) -> None:
    with pytest.raises(IntegrityError, match="expected NAME-VERSION-BUILD"):
        split_stem(stem)


@pytest.mark.parametrize("address", ["https://host/x.conda", "https://host/c/linux-64/x.conda", "https://host/"])
def test_an_address_that_is_no_packages_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="not the address of a package"):
        split_package_address(address)
