# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from dataclasses import replace

import pytest

from channel_tools.foundation.model import FileKind, TakenFile
from channel_tools.foundation.templates import TemplateError, conda_version, expand, flavour, pin_range


def _taken(kind: FileKind, version: str) -> TakenFile:
    return TakenFile(kind=kind, name="x", version=version, file_name="x", sha256="0" * 64, size_bytes=1)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1:1.2.13.dfsg-1", "1.2.13"),
        ("3.11.2-6+deb12u9", "3.11.2"),
        ("20220623.1-1", "20220623.1"),
        ("1.74.0+ds1-21", "1.74.0"),
        ("2022.06.01+dfsg-1", "2022.06.01"),
        ("4:12.2.0-3", "12.2.0"),
        ("0.6.0-2.1+b1", "0.6.0"),
        ("6.4-4", "6.4"),
        ("1.2~rc1-1", "1.2"),
        ("44.0", "44.0"),
    ],
)
def test_a_debian_version_becomes_upstreams(version: str, expected: str) -> None:
    assert conda_version(_taken("deb", version)) == expected


@pytest.mark.parametrize(
    ("version", "requires", "conda", "kind"),
    [
        ("2.13.0+cpu", (), "2.13.0", "cpu"),
        ("2.13.0+cu130", (), "2.13.0", "cuda130"),
        ("2.13.0", ("filelock", "nvidia-cuda-runtime==13.0.96.*"), "2.13.0", "cuda130"),
        ("2.6.0", ("nvidia-cuda-runtime-cu12==12.4.127",), "2.6.0", "cuda124"),
        ("2.13.0", ("filelock",), "2.13.0", "cpu"),
    ],
)
def test_a_wheels_flavour_is_told_apart_from_its_version(
    version: str, requires: tuple[str, ...], conda: str, kind: str
) -> None:
    taken = replace(_taken("wheel", version), requires=requires)
    assert conda_version(taken) == conda
    assert flavour(taken) == kind


@pytest.mark.parametrize(
    ("version", "segments", "expected"),
    [
        ("1.51.1", "x.x", ">=1.51.1,<1.52.0a0"),
        ("1.51.1", "x", ">=1.51.1,<2.0a0"),
        ("1.51.1", "x.x.x", ">=1.51.1,<1.51.2.0a0"),
        ("44", "x.x", ">=44,<45.0a0"),
    ],
)
def test_pins_hold_segments_as_conda_builds_pins_do(version: str, segments: str, expected: str) -> None:
    assert pin_range(version, segments) == expected


@pytest.mark.parametrize(("version", "segments"), [("1.x2", "x.x"), ("1.2", "x.y"), ("1.2", "")])
def test_what_cannot_be_pinned_is_an_error(version: str, segments: str) -> None:
    with pytest.raises(TemplateError):
        pin_range(version, segments)


def _expand(text: str) -> str:
    versions = {None: "1.2.3", "other": "4.5"}
    return expand(text, version_of=lambda name: versions[name], build_of=lambda name: f"h_{name}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x {version}", "x 1.2.3"),
        ("x {version:other} {build:other}", "x 4.5 h_other"),
        ("x {pin:x.x}", "x >=1.2.3,<1.3.0a0"),
        ("x {pin:other:x}", "x >=4.5,<5.0a0"),
        ("plain", "plain"),
    ],
)
def test_templates_expand(text: str, expected: str) -> None:
    assert _expand(text) == expected


@pytest.mark.parametrize("text", ["{}", "{vers}", "{pin}", "{version:a:b}"])
def test_an_unknown_template_is_an_error(text: str) -> None:
    with pytest.raises(TemplateError, match="means nothing"):
        _expand(text)
