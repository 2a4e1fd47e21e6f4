# SPDX-License-Identifier: BSD-3-Clause
"""Addresses and names in OCI registries."""

from __future__ import annotations

import pytest

from channel_tools.conda.package import PackageKey
from channel_tools.publish.target import open_target
from channel_tools.system.errors import UsageError
from tests.unit.publish.oci.docker import ADDRESS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("oci://registry.example", "not a valid address of a channel"),
        ("oci://registry.example/Upper", "not a valid address of a channel"),
        ("oci://registry.example/a//b", "not a valid address of a channel"),
        ("oci://registry.example/ours:latest", "not a valid address of a channel"),
        ("oci://registry.example/ours?insecure=yes", "not a valid address of a channel"),
        ("oci:///ours", "it names no host"),
        ("oci://us:secret@registry.example/ours", "must not contain credentials"),
    ],
)
def test_an_address_that_cannot_be_used_is_an_error(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        open_target(text, environ={})
    assert "secret" not in f"{raised.value}{raised.value.hint}"


@pytest.mark.parametrize(
    ("file_name", "expected"),
    [
        ("toy-1.0-0.conda", ("team/ours/linux-64/toy", "1.0-0")),
        ("_lib-1!2+cu-h1_0.conda", ("team/ours/linux-64/zzz_lib", "1__e__2__p__cu-h1_0")),
        ("a-b-1.0=2-0.tar.bz2", ("team/ours/linux-64/a-b", "1.0__eq__2-0")),
    ],
)
def test_a_package_is_named_as_in_conda_oci_mirror(file_name: str, expected: tuple[str, str]) -> None:
    assert ADDRESS.place_of(PackageKey("linux-64", file_name), label="main") == expected


@pytest.mark.parametrize(
    "file_name", ["toy_-1.0-0.conda", "a___b-1.0-0.conda", "toy-1.0-a~b.conda", f"{'n' * 250}-1-0.conda"]
)
def test_a_package_that_no_registry_can_hold_is_an_error(file_name: str) -> None:
    with pytest.raises(UsageError, match=r"no OCI registry can hold it|longer than the 255"):
        ADDRESS.place_of(PackageKey("linux-64", file_name), label="main")


def test_a_label_is_a_path_below_the_channel() -> None:
    assert ADDRESS.label_address("main") == "oci://registry.example:5000/team/ours"
    assert ADDRESS.label_address("rc1") == "oci://registry.example:5000/team/ours/label/rc1"
    with pytest.raises(UsageError, match="not a label in an OCI registry"):
        ADDRESS.label_address("Testing")
