# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.errors import FoundationError
from channel_tools.foundation.repairs.certificates import bundle_certificates
from tests.unit.foundation.repairs.trees import context, make_tree

FOLDER = "share/ca-certificates/mozilla"


def certificate(number: int) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{number:04}\n-----END CERTIFICATE-----\n"


def test_certificates_are_joined_in_order(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"{FOLDER}/{number:03}.crt": certificate(number) for number in range(60)})
    bundle_certificates(tmp_path, context("ca-certificates"))
    assert (tmp_path / "ssl/cacert.pem").read_text() == "".join(certificate(number) for number in range(60))
    assert (tmp_path / "ssl/cert.pem").readlink().as_posix() == "cacert.pem"


@pytest.mark.parametrize("contents", [{}, {f"{FOLDER}/{number}.crt": "no PEM" for number in range(60)}])
def test_too_few_or_other_files_are_an_error(tmp_path: Path, contents: dict[str, str | bytes]) -> None:
    make_tree(tmp_path, contents)
    with pytest.raises(FoundationError, match="expected at least 50 PEM certificates"):
        bundle_certificates(tmp_path, context("ca-certificates"))
