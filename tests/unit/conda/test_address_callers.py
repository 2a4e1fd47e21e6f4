# SPDX-License-Identifier: BSD-3-Clause
"""One table of addresses for everything that takes one: whoever reads an address reads the same in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import rattler

from channel_tools.build.settle import machine_texts
from channel_tools.conda.addresses import (
    channel_address,
    channel_name,
    host_of,
    local_path,
    path_of,
    without_credentials,
)
from channel_tools.conda.clients import make_client, make_http_client, split_credential
from channel_tools.conda.package import PackageKey, split_package_address
from channel_tools.pins.choice import package_of_address
from channel_tools.publish.folder import open_folder
from channel_tools.publish.server.target import ServerConnection, server_address
from channel_tools.publish.target import open_target
from channel_tools.publish.third_party import parse_service_address
from channel_tools.system.errors import UsageError
from channel_tools.workflow.mirror import source_channels


@dataclass(frozen=True, kw_only=True)
class Case:
    """An address as given; the channel's address, and that without secrets; what else is in it."""

    given: str
    address: str
    plain: str
    name: str = "ours"
    host: str = "host.example"
    secret: str | None = None


BASIC = "Basic bWU6c2VAcmV0"  # me:se@ret
BEARER = "Bearer se@ret"
CASES = {
    "plain": Case(
        given="https://host.example/ours", address="https://host.example/ours", plain="https://host.example/ours"
    ),
    "slash": Case(
        given="https://host.example/ours//", address="https://host.example/ours", plain="https://host.example/ours"
    ),
    "case": Case(
        given="HTTPS://Host.Example/ours", address="https://host.example/ours", plain="https://host.example/ours"
    ),
    "port": Case(
        given="https://host.example:443/ours", address="https://host.example/ours", plain="https://host.example/ours"
    ),
    "other-port": Case(
        given="http://host.example:8080/ours",
        address="http://host.example:8080/ours",
        plain="http://host.example:8080/ours",
    ),
    "user": Case(
        given="https://me:se%40ret@host.example/ours",
        address="https://me:se%40ret@host.example/ours",
        plain="https://host.example/ours",
        secret=BASIC,
    ),
    "token": Case(
        given="https://host.example/t/se%40ret/ours/",
        address="https://host.example/t/se%40ret/ours",
        plain="https://host.example/ours",
        secret=BEARER,
    ),
    "ipv6": Case(
        given="http://[::1]:8080/ours", address="http://[::1]:8080/ours", plain="http://[::1]:8080/ours", host="[::1]"
    ),
    "ipv6-user": Case(
        given="http://me:se%40ret@[::1]/ours",
        address="http://me:se%40ret@[::1]/ours",
        plain="http://[::1]/ours",
        host="[::1]",
        secret=BASIC,
    ),
    "idna": Case(
        given="https://bücher.example/ours",
        address="https://xn--bcher-kva.example/ours",
        plain="https://xn--bcher-kva.example/ours",
        host="xn--bcher-kva.example",
    ),
    "space": Case(
        given="https://host.example/my%20ours",
        address="https://host.example/my%20ours",
        plain="https://host.example/my%20ours",
        name="my ours",
    ),
    "umlaut": Case(
        given="https://me:se%40ret@host.example/äöü",
        address="https://me:se%40ret@host.example/%C3%A4%C3%B6%C3%BC",
        plain="https://host.example/%C3%A4%C3%B6%C3%BC",
        name="äöü",
        secret=BASIC,
    ),
    "dots": Case(
        given="https://host.example/a/../ours/.", address="https://host.example/ours", plain="https://host.example/ours"
    ),
    "file": Case(given="file:///srv/ours/", address="file:///srv/ours", plain="file:///srv/ours", host=""),
    "file-space": Case(
        given="FILE:///srv/my%20ours",
        address="file:///srv/my%20ours",
        plain="file:///srv/my%20ours",
        name="my ours",
        host="",
    ),
    "localhost": Case(given="file://localhost/srv/ours", address="file:///srv/ours", plain="file:///srv/ours", host=""),
    "bucket": Case(given="s3://bucket/ours/", address="s3://bucket/ours", plain="s3://bucket/ours", host="bucket"),
    "bucket-alone": Case(
        given="S3://bucket/", address="s3://bucket", plain="s3://bucket", name="bucket", host="bucket"
    ),
}
WEB = [name for name, case in CASES.items() if case.address.startswith("http")]
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_web_case = pytest.mark.parametrize("case", [CASES[name] for name in WEB], ids=WEB)


@every_case
def test_channel_has_one_address_and_one_name(case: Case) -> None:
    assert channel_address(case.given) == case.address
    assert channel_address(case.address) == case.address
    assert without_credentials(case.address) == case.plain
    assert channel_name(case.given) == channel_name(case.address) == case.name
    assert host_of(case.address) == case.host


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.address.startswith("http")])
def test_channel_is_mirrored_from_its_one_address(case: Case) -> None:
    [channel] = source_channels([case.given])
    assert (channel.address, channel.plain_address) == (case.address, case.plain)


@every_case
def test_address_is_the_one_that_rattler_makes_of_it(case: Case) -> None:
    assert str(rattler.Channel(case.plain).base_url).rstrip("/") == case.plain


@every_case
def test_rattler_gets_no_secret_and_our_client_sends_it(case: Case) -> None:
    (address,), _client = make_client([case.given])
    assert channel_address(address) == case.plain
    plain, credential = split_credential(case.given)
    assert channel_address(plain) == case.plain
    assert (credential.authorization if credential else None) == case.secret
    assert credential is None or (credential.host, credential.path) == (case.host, path_of(case.plain))


@every_case
def test_package_is_found_in_its_channel(case: Case) -> None:
    channel, key = split_package_address(f"{case.address}/linux-64/a-1%211.0-0.conda")
    assert (channel, key) == (case.address, PackageKey("linux-64", "a-1!1.0-0.conda"))
    package = package_of_address(f"{case.plain}/linux-64/a-1%211.0-0.conda", sha256="0" * 64, md5=None)
    assert (package.channel, package.subdir, package.version) == (case.plain, "linux-64", "1!1.0")


@every_case
def test_cleaned_metadata_has_no_secret_and_no_folder(case: Case) -> None:
    replaced = machine_texts({"channels": [case.given]}, {})
    shown = replaced.get(case.given, case.given)
    assert "se%40ret" not in shown
    assert "/srv" not in shown


@every_web_case
def test_server_is_asked_at_its_address(case: Case) -> None:
    address = server_address(case.given, {"HOME": "/nonexistent"})
    assert (address.url, address.authorization) == (case.plain, case.secret)
    assert ServerConnection(address, make_http_client({})).address == case.plain


@every_web_case
@pytest.mark.parametrize("kind", ["artifactory", "quetz"])
def test_third_party_server_is_asked_at_its_address(case: Case, kind: str) -> None:
    scheme, _, rest = case.plain.partition("://")
    parsed = parse_service_address(f"{kind}+{scheme.upper()}://{rest}/")
    assert channel_name(parsed.read) == case.name
    assert host_of(parsed.read) == host_of(parsed.api) == case.host


@pytest.mark.parametrize("given", ["file:///srv/my%20ours/", "FILE:///srv/my%20ours", "file://localhost/srv/my%20ours"])
def test_folder_to_publish_to_is_the_one_named(given: str) -> None:
    assert open_folder(given).root == local_path(given) == Path("/srv/my ours")
    assert open_target(given, environ={}).address == "file:///srv/my%20ours"


@pytest.mark.parametrize(
    "address", ["https://host.example/ours?signature=secret", "s3://bucket/ours?endpoint=x", "file:///srv/a#b"]
)
def test_channel_with_a_query_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="query") as caught:
        channel_address(address)
    assert "secret" not in str(caught.value)


def test_dots_in_a_folder_mean_what_they_mean_to_the_system(tmp_path: Path) -> None:
    (tmp_path / "real" / "below").mkdir(parents=True)
    (tmp_path / "real" / "channel").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "below")
    assert channel_address(f"{tmp_path}/link/../channel") == (tmp_path / "real" / "channel").as_uri()


@pytest.mark.parametrize("name", ["..%2F..%2Fa-1-0.conda", "a%2Fb-1-0.conda", "a-1%2F2-0.conda", "a-1-0.conda%2F"])
def test_file_name_with_a_slash_names_no_package(name: str) -> None:
    with pytest.raises(UsageError, match="not the address of a package"):
        split_package_address(f"https://host.example/ours/noarch/{name}")
    with pytest.raises(ValueError, match="not the address of a package"):
        package_of_address(f"https://host.example/ours/noarch/{name}", sha256="0" * 64, md5=None)
