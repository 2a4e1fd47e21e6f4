# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from channel_tools.publish.target import open_target
from channel_tools.publish.third_party import UploadJob, dependencies_first, open_third_party, parse_service_address
from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.system.progress import SilentProgress
from tests.support.packages import make_conda
from tests.support.processes import TEST_TIMEOUT_S
from tests.unit.publish.sets import make_set


@pytest.mark.parametrize(
    ("text", "service", "read", "arguments"),
    [
        (
            "artifactory+https://host/artifactory/toys", "Artifactory", "https://host/artifactory/toys",
            {"url": "https://host/artifactory", "channels": "toys"},
        ),
        ("quetz+https://host/toys/", "quetz", "https://host/get/toys", {"url": "https://host", "channels": "toys"}),
        ("prefix://toys", "prefix.dev", "https://prefix.dev/toys", {"url": "https://prefix.dev", "channels": "toys"}),
        (
            "anaconda://owner", "Anaconda", "https://conda.anaconda.org/owner",
            {"url": "https://api.anaconda.org", "owner": "owner", "channel": ["main"]},
        ),
        (
            "cloudsmith://owner/repo", "Cloudsmith", "https://conda.cloudsmith.io/owner/repo",
            {"url": "https://api.cloudsmith.io/v1", "owner": "owner", "repo": "repo"},
        ),
        (
            "anaconda://owner?api=https://host/api/&read=https://host/repo/owner", "Anaconda", "https://host/repo/owner",
            {"url": "https://host/api", "owner": "owner", "channel": ["main"]},
        ),
    ],
)  # fmt: skip
def test_addresses_say_where_packages_go_and_are_read(
    text: str, service: str, read: str, arguments: dict[str, object]
) -> None:
    parsed = parse_service_address(text)
    assert (parsed.service.name, parsed.read) == (service, read)
    assert parsed.service.arguments(parsed, "main") == arguments
    assert open_target(text, environ={}).address == read


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quetz+https://host", "expected quetz\\+https://HOST/CHANNEL"),
        ("artifactory+https:///toys", "expected artifactory"),
        ("quetz+https://key@host/toys", "must not contain credentials"),
        ("anaconda://", "expected anaconda://OWNER"),
        ("anaconda://owner/more", "expected anaconda://OWNER"),
        ("anaconda://owner?api=https://key@host", "must not contain credentials"),
        ("cloudsmith://owner", "expected cloudsmith://OWNER/REPOSITORY"),
        ("prefix://toys?key=x", "expected prefix://CHANNEL"),
    ],
)
def test_what_is_no_address_is_told_with_the_form(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_target(text, environ={})


def test_labels_and_promotion_are_refused_where_there_are_none(tmp_path: Path) -> None:
    packages = make_set([make_conda(tmp_path, "one")])
    target = open_third_party("quetz+https://host/toys", {})
    with pytest.raises(UsageError, match="quetz has no labels, so publishing to label 'testing' is not possible"):
        target.plan(packages, label="testing")
    with pytest.raises(UsageError, match="cannot promote packages there from testing to main"):
        target.promote((), source="testing", label="main", progress=SilentProgress())
    assert parse_service_address("anaconda://owner").label_address("testing").endswith("/owner/label/testing")


def test_packages_go_after_what_they_need_even_in_circles(tmp_path: Path) -> None:
    needs = {"a": ["c >=1", "python"], "b": [], "c": ["d[version='>=1']"], "d": ["b", "e"], "e": ["d"]}
    made = [make_conda(tmp_path, name, index={"depends": depends}) for name, depends in needs.items()]
    names = [file.file_name[0] for file in dependencies_first(make_set(made).files)]
    assert names == ["b", "e", "d", "c", "a"]


def test_a_file_that_is_not_the_planned_one_is_not_sent(tmp_path: Path) -> None:
    packages = make_set([make_conda(tmp_path, "one")])
    make_conda(tmp_path, "one", files={"a": b"made again"})
    with pytest.raises(IntegrityError, match=", as planned"):
        dependencies_first(packages.files)


def ended(function: str, path: Path) -> subprocess.CompletedProcess[bytes]:
    """The worker, after this job with an address that nobody listens at."""
    arguments: dict[str, str | list[str]] = {"url": "http://127.0.0.1:9", "channels": "ours", "api_key": "a secret"}
    job = UploadJob(function=function, path=str(path), arguments=arguments, limit_s=60)
    worker = [sys.executable, "-m", "channel_tools.publish.third_party"]
    return subprocess.run(
        worker, input=msgspec.json.encode(job), capture_output=True, check=False, timeout=TEST_TIMEOUT_S
    )


def test_what_the_engine_says_is_the_result(tmp_path: Path) -> None:
    done = ended("upload_package_to_quetz", tmp_path / "absent-1.0-0.conda")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "No such file or directory" in msgspec.json.decode(done.stdout, type=str)


def test_a_defect_is_no_answer_of_a_server(tmp_path: Path) -> None:
    done = ended("upload_package_to_nowhere", tmp_path / "absent-1.0-0.conda")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"upload_package_to_nowhere" in done.stderr
    assert b"a secret" not in done.stderr
