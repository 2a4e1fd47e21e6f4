# SPDX-License-Identifier: BSD-3-Clause
"""Channels in an OCI registry: what arrives there, who can read it, and what becomes of faults."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.conda.package import PackageKey
from channel_tools.publish.model import PublishReport
from channel_tools.publish.oci.layout import CONFIG, CONFIG_TYPE, REPODATA_TYPE, Descriptor, manifest_of
from channel_tools.publish.oci.reading import RegistryChannel, open_registry_channel
from channel_tools.publish.oci.target import RegistryTarget, open_registry
from channel_tools.system.errors import ChannelError, ChannelToolsError, IntegrityError, NetworkError, UsageError
from channel_tools.system.http.pace import Retry
from channel_tools.system.progress import SilentProgress
from tests.support.certificates import Authority, make_authority
from tests.support.command_line import run_tool
from tests.support.oci_registry import PASSWORD, USER, RunningRegistry, as_host, relay, running_registry, token_server
from tests.support.packages import make_conda, old_format
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted
from tests.support.toy_tree import write_toy_tree
from tests.unit.publish.sets import make_set

pytestmark = pytest.mark.integration

_ROOT = Path(__file__).parents[3]
_QUICK = Retry(attempts=3, first_wait_s=0.01, longest_wait_s=0.01)
_BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user without settings and credentials."""
    home = tmp_path / "home"
    home.mkdir()
    return {"HOME": str(home), "CHANNEL_TOOLS_USER_SETTINGS": "no"}


def target_at(address: str, environ: Mapping[str, str]) -> RegistryTarget:
    target = open_registry(address, environ)
    return replace(target, registry=replace(target.registry, retry=_QUICK))


def registry_at(address: str, environ: Mapping[str, str]) -> RegistryChannel:
    found = open_registry_channel(address, environ)
    return replace(found, registry=replace(found.registry, retry=_QUICK))


def publish(target: RegistryTarget, *paths: Path, label: str = "main") -> PublishReport:
    return target.publish(target.plan(make_set(list(paths)), label=label), progress=SilentProgress())


def listed(registry: RunningRegistry, subdir: str, path: str = "ours") -> dict[str, dict[str, object]]:
    """The records of the index, of which the three forms must be the same."""
    manifest = registry.manifest(f"{path}/{subdir}/repodata.json", "latest")
    layers = {layer["mediaType"]: layer["digest"] for layer in manifest["layers"]}  # type: ignore[attr-defined]
    contents = {
        kind: registry.get(f"/v2/{path}/{subdir}/repodata.json/blobs/{digest}")[1] for kind, digest in layers.items()
    }
    plain = contents["application/vnd.conda.repodata.v1+json"]
    assert gzip.decompress(contents["application/vnd.conda.repodata.v1+json+gzip"]) == plain
    index = json.loads(plain)
    assert index["info"]["subdir"] == subdir
    return {**index["packages"], **index["packages.conda"]}


def test_packages_and_indexes_are_laid_out_as_clients_read_them(
    registry: RunningRegistry, tmp_path: Path, environ: dict[str, str]
) -> None:
    toy = make_conda(tmp_path, "toy", version="1!2.0+cu", index={"depends": ["_lib"]}, info={"LICENSE": b"words"})
    lib = make_conda(tmp_path, "_lib", subdir="noarch", index={"noarch": "generic"})
    old = old_format(make_conda(tmp_path, "old"))
    report = publish(target_at(registry.address, environ), toy, lib, old)
    assert report.uploaded == (
        "linux-64/old-1.0-0.tar.bz2", "linux-64/toy-1!2.0+cu-0.conda", "noarch/_lib-1.0-0.conda",
    )  # fmt: skip
    assert listed(registry, "linux-64").keys() == {"toy-1!2.0+cu-0.conda", "old-1.0-0.tar.bz2"}
    assert listed(registry, "noarch").keys() == {"_lib-1.0-0.conda"}
    assert registry.manifest("ours/noarch/zzz_lib", "1.0-0")["annotations"] == {
        "org.conda.package.name": "_lib", "org.conda.package.version": "1.0", "org.conda.package.build": "0",
    }  # fmt: skip
    assert _types(registry.manifest("ours/linux-64/old", "1.0-0"))[0] == "application/vnd.conda.package.v1"
    manifest = registry.manifest("ours/linux-64/toy", "1__e__2.0__p__cu-0")
    assert _types(manifest) == [
        "application/vnd.conda.package.v2",
        "application/vnd.conda.info.v1.tar+gzip",
        "application/vnd.conda.info.index.v1+json",
    ]
    package, info, index_json = (
        registry.get(f"/v2/ours/linux-64/toy/blobs/{layer['digest']}")[1]
        for layer in manifest["layers"]  # type: ignore[attr-defined]
    )
    assert package == toy.read_bytes()
    assert json.loads(index_json)["depends"] == ["_lib"]
    with tarfile.open(fileobj=io.BytesIO(info), mode="r:gz") as tar:
        licence = tar.extractfile("info/LICENSE")
        assert licence is not None
        assert licence.read() == b"words"


def _types(manifest: Mapping[str, object]) -> list[str]:
    return [layer["mediaType"] for layer in manifest["layers"]]  # type: ignore[attr-defined]


def test_names_are_added_once_and_keep_their_bytes(
    registry: RunningRegistry, tmp_path: Path, environ: dict[str, str]
) -> None:
    target = target_at(registry.address, environ)
    toy, lib = make_conda(tmp_path, "toy"), make_conda(tmp_path, "lib")
    publish(target, toy)
    assert publish(target, toy, lib).uploaded == ("linux-64/lib-1.0-0.conda",)
    before = listed(registry, "linux-64")
    plan = target.plan(make_set([toy, lib]), label="main")
    assert (plan.upload, [file.file_name for file in plan.present]) == ((), ["lib-1.0-0.conda", "toy-1.0-0.conda"])
    with pytest.raises(ChannelError, match="other bytes"):
        publish(target, make_conda(tmp_path / "other", "toy", files={"a": b"other"}))
    publish(target, make_conda(tmp_path / "testing", "toy", files={"a": b"other"}), label="testing")
    assert listed(registry, "linux-64") == before
    assert listed(registry, "linux-64", "ours/label/testing").keys() == {"toy-1.0-0.conda"}


def test_an_index_with_entries_that_would_be_lost_is_not_written_again(
    registry: RunningRegistry, tmp_path: Path, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    target = target_at(registry.address, environ)
    index = json.dumps({"packages": {}, "packages.conda": {}, "v3": {"conda": {"new-1.0-0": {"name": "new"}}}}).encode()
    blob = Descriptor.of(index, REPODATA_TYPE, title="repodata.json")
    manifest = manifest_of([blob], {})
    with target.registry.repository("ours/linux-64/repodata.json") as repository:
        repository.send(blob, index)
        repository.send(Descriptor.of(CONFIG, CONFIG_TYPE), CONFIG)
        repository.put_manifest("latest", manifest)
    with pytest.raises(ChannelError, match="latest: lists 1 entry under 'v3', which this program would leave out"):
        publish(target, make_conda(tmp_path, "toy"))
    assert registry.manifest("ours/linux-64/repodata.json", "latest") == json.loads(manifest)
    assert registry_at(registry.address, environ).records("linux-64") == {}
    assert "/ours/linux-64: left out 1 entry under 'v3' in its index" in caplog.text


def test_what_was_cut_off_is_completed_without_sending_packages_again(
    registry: RunningRegistry, tmp_path: Path, environ: dict[str, str]
) -> None:
    toy = make_conda(tmp_path, "toy")

    def without_indexes(asked: Asked) -> Reply | None:
        return (503, {}, b"") if asked.method == "PUT" and "repodata.json/manifests" in asked.path else None

    with scripted(relay(registry, without_indexes)) as server, pytest.raises(NetworkError, match="HTTP status 503"):
        publish(target_at(f"oci+http://127.0.0.1:{server.port}/ours", environ), toy)
    assert registry.get("/v2/ours/linux-64/repodata.json/manifests/latest")[0] == 404
    with scripted(relay(registry, lambda _asked: None)) as server:
        report = publish(target_at(f"oci+http://127.0.0.1:{server.port}/ours", environ), toy)
    assert report.uploaded == ("linux-64/toy-1.0-0.conda",)
    assert [one.path for one in server.asked if one.method == "PUT" and "/linux-64/toy/" in one.path] == []
    assert listed(registry, "linux-64").keys() == {"toy-1.0-0.conda"}


def test_what_another_publisher_adds_meanwhile_stays(
    registry: RunningRegistry, tmp_path: Path, environ: dict[str, str]
) -> None:
    others = iter([make_conda(tmp_path, "other1"), make_conda(tmp_path, "other2")])
    first = make_conda(tmp_path, "first")
    publish(target_at(registry.address, environ), make_conda(tmp_path, "there"))

    def other_first(asked: Asked) -> Reply | None:
        """Another publisher is faster twice: before the index is sent, and between that and the manifest's."""
        is_blob = asked.method == "POST" and asked.path.startswith("/v2/ours/linux-64/repodata.json/blobs/")
        is_manifest = asked.method == "PUT" and asked.path.startswith("/v2/ours/linux-64/repodata.json/manifests/")
        if (is_blob or is_manifest) and (path := next(others, None)) is not None:
            publish(target_at(registry.address, environ), path)
        return None

    with scripted(relay(registry, other_first)) as server:
        publish(target_at(f"oci+http://127.0.0.1:{server.port}/ours", environ), first)
    assert {"there-1.0-0.conda", "first-1.0-0.conda", "other1-1.0-0.conda"} <= listed(registry, "linux-64").keys()


_OTHER_MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:0", "size": 0},
        "layers": [],
    }
).encode()


@pytest.mark.parametrize(
    ("where", "reply", "raises"),
    [
        ("repodata.json/manifests", (200, {}, b"<html>"), (ChannelError, "its manifest cannot be read")),
        ("repodata.json/manifests", (200, {}, _OTHER_MANIFEST), (ChannelError, "docker.distribution.manifest.v2")),
        ("repodata.json/manifests", (200, {"Docker-Content-Digest": "sha256:1"}, b"{}"), (IntegrityError, "digest")),
        ("repodata.json/blobs", (200, {}, b"{}"), (IntegrityError, "other bytes")),
        ("repodata.json/manifests", (401, {}, b""), (UsageError, "over https only")),
        (
            "repodata.json/manifests",
            (401, {"WWW-Authenticate": 'Basic realm="x"'}, b""),
            (UsageError, "over https only"),
        ),
        ("repodata.json/manifests", (403, {}, b""), (NetworkError, "asks for credentials, and none are stored")),
        ("repodata.json/manifests", (500, {}, b""), (NetworkError, "HTTP status 500")),
        ("repodata.json/manifests", (429, {"Retry-After": "1000"}, b""), (NetworkError, "HTTP status 429")),
        ("repodata.json/manifests", None, (NetworkError, "cannot be reached")),
        ("/blobs/uploads/", (202, {}, b""), (NetworkError, "not that of an OCI registry")),
        ("/blobs/uploads/", (405, {}, b""), (ChannelError, "read-only")),
        ("/blobs/uploads/", (413, {}, b""), (NetworkError, "HTTP status 413")),
        ("/lib/manifests", (200, {}, _OTHER_MANIFEST), (ChannelError, "docker.distribution.manifest.v2")),
    ],
)
def test_every_fault_is_one_error_and_changes_nothing(
    registry: RunningRegistry,
    tmp_path: Path,
    environ: dict[str, str],
    where: str,
    reply: Reply | None,
    raises: tuple[type[ChannelToolsError], str],
) -> None:
    publish(target_at(registry.address, environ), make_conda(tmp_path, "toy"))
    before = listed(registry, "linux-64")

    def faulty(asked: Asked) -> Reply | None:
        if where not in asked.path:
            return registry.forward(asked.method, asked.path, asked.headers, asked.body)
        return reply

    with scripted(ScriptedServer(faulty)) as server, pytest.raises(raises[0], match=raises[1]) as raised:
        publish(target_at(f"oci+http://127.0.0.1:{server.port}/ours", environ), make_conda(tmp_path, "lib"))
    assert raised.value.hint
    assert listed(registry, "linux-64") == before


def test_a_busy_registry_is_asked_again(registry: RunningRegistry, tmp_path: Path, environ: dict[str, str]) -> None:
    busy = iter([429, 503, 429])

    def sometimes(asked: Asked) -> Reply | None:
        status = next(busy, None) if asked.path.endswith("/blobs/uploads/") else None
        return None if status is None else (status, {"Retry-After": "0"}, b"")

    with scripted(relay(registry, sometimes)) as server:
        target = open_registry(f"oci+http://127.0.0.1:{server.port}/ours", environ)
        target = replace(target, registry=replace(target.registry, retry=replace(_QUICK, attempts=5)))
        publish(target, make_conda(tmp_path, "toy"))
    assert listed(registry, "linux-64").keys() == {"toy-1.0-0.conda"}


def test_a_foreign_host_of_blobs_gets_no_credentials(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry sends readers on to another host, which asks for a password itself."""
    authority = make_authority(tmp_path)
    toy = make_conda(tmp_path, "toy")
    environ |= {"SSL_CERT_FILE": str(authority.certificates), "DOCKER_CONFIG": str(tmp_path)}
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificates))
    foreign = ScriptedServer(
        lambda _asked: (401, {"WWW-Authenticate": 'Basic realm="x"'}, b""), tls=authority.context()
    )
    with scripted(foreign), running_registry(tmp_path / "registry", authority=authority, password=True) as registry:
        (tmp_path / "config.json").write_text(json.dumps({"auths": {f"localhost:{registry.port}": {"auth": _BASIC}}}))
        address = f"oci://localhost:{registry.port}/ours"
        publish(target_at(address, environ), toy)

        def redirecting(asked: Asked) -> Reply | None:
            if asked.headers.get("Authorization") != f"Basic {_BASIC}":
                return 401, {"WWW-Authenticate": 'Basic realm="x"'}, b""
            if "/blobs/" in asked.path:
                return 307, {"Location": f"https://localhost:{foreign.port}{asked.path}"}, b""
            plain = {"schemaVersion": 2, "config": _descriptor(b"{}"), "layers": [_descriptor(b"{}")]}
            return 200, {}, json.dumps(plain).encode()

        with scripted(ScriptedServer(redirecting, tls=authority.context())) as server:
            host = f"localhost:{server.port}"
            (tmp_path / "config.json").write_text(json.dumps({"auths": {host: {"auth": _BASIC}}}))
            with pytest.raises(NetworkError, match="these credentials do not permit it"):
                publish(target_at(f"oci://{host}/ours", environ), toy)
    assert foreign.asked
    assert "authorization" not in {name.lower() for asked in foreign.asked for name in asked.headers}


def _descriptor(content: bytes) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return {"mediaType": "application/vnd.conda.repodata.v1+json", "digest": digest, "size": len(content)}


@pytest.fixture(params=["password", "token"])
def private(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Authority, dict[str, str]]]:
    """A registry for USER at oci://localhost, and the environment in which others reach it."""
    authority = make_authority(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    by_token = request.param == "token"
    with (
        scripted(token_server(authority)) as tokens,
        running_registry(
            tmp_path / "registry", authority=authority, password=not by_token, tokens=tokens if by_token else None
        ) as registry,
        as_host(registry.port) as proxy,
    ):
        variables = {"HTTPS_PROXY": proxy, "https_proxy": proxy, "no_proxy": "", "NO_PROXY": "", "HOME": str(home)}
        yield authority, os.environ | variables | {"SSL_CERT_FILE": str(authority.certificates)}


def run(*words: str, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A program by its module's name; commands of channel_tools without the time that they take to start."""
    if words[0] == "channel_tools":
        return run_tool(*words[1:], cwd=_ROOT, environ=environ)
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=_ROOT, env=environ, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False,
    )  # fmt: skip


def test_clients_install_from_a_private_registry(private: tuple[Authority, dict[str, str]], tmp_path: Path) -> None:
    _authority, environ = private
    lib = make_conda(tmp_path, "_lib", files={"lib/lib.txt": b"lib"})
    toy = make_conda(tmp_path, "toy", version="1+cu", subdir="noarch", index={"depends": ["_lib"], "noarch": "generic"})
    command = ["channel_tools", "publish", str(lib), str(toy), "--to", "oci://localhost/site/ours"]
    command += ["--foundation", "registry"]
    refused = run(*command, environ=environ)
    assert (refused.returncode, "it asks for credentials, and none are stored" in refused.stderr) == (5, True)
    config = tmp_path / "home" / ".docker" / "config.json"
    config.parent.mkdir()
    wrong = base64.b64encode(b"publisher:wrong").decode()
    config.write_text(json.dumps({"auths": {"localhost": {"auth": wrong}}}))
    refused = run(*command, environ=environ)
    assert (refused.returncode, "these credentials do not permit it" in refused.stderr) == (5, True)
    config.write_text(json.dumps({"auths": {"localhost": {"auth": _BASIC}}}))
    published = run(*command, environ=environ)
    assert published.returncode == 0, published.stderr
    again = run(*command, environ=environ)
    assert (again.returncode, PASSWORD in again.stdout + again.stderr) == (0, False), again.stderr

    stored = tmp_path / "rattler.json"
    stored.write_text(json.dumps({"localhost": {"BasicHTTP": {"username": USER, "password": PASSWORD}}}))
    environ = environ | {"RATTLER_AUTH_FILE": str(stored)}
    driver = ["tests.integration.conda.clients", "install"]
    done = run(*driver, "oci://localhost/site/ours", str(tmp_path / "env"), "toy", "sharded", environ=environ)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["_lib-1.0-0.conda", "toy-1+cu-0.conda"]
    assert (tmp_path / "env" / "lib" / "lib.txt").read_bytes() == b"lib"
    ours = ["channel_tools", "env", "create", str(tmp_path / "env2"), "toy", "-c", "oci://localhost/site/ours"]
    done = run(*ours, environ=environ | {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "env2" / "lib" / "lib.txt").read_bytes() == b"lib"


def test_a_registry_is_a_foundation_and_a_source_of_bundles(
    private: tuple[Authority, dict[str, str]], tmp_path: Path
) -> None:
    _authority, environ = private
    stored = tmp_path / "rattler.json"
    stored.write_text(json.dumps({"localhost": {"BasicHTTP": {"username": USER, "password": PASSWORD}}}))
    environ = environ | {"RATTLER_AUTH_FILE": str(stored), "CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")}
    address = "oci://localhost/theirs"
    toy = make_conda(tmp_path, "toy", run_exports={"weak": ["toy >=1"]})
    published = run(
        "channel_tools", "publish", str(toy), "--to", address, "--foundation", "conda-forge", environ=environ
    )
    assert published.returncode == 0, published.stderr
    # of a package whose record does not say it, as in a channel of others
    found = run("tests.integration.conda.clients", "exports", address, str(tmp_path / "index"), environ=environ)
    assert "weak=('toy >=1',)" in found.stdout, found.stderr
    write_toy_tree(tmp_path / "tree")
    recipe = tmp_path / "tree" / "recipes" / "toy" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("name: toy", "name: own") + "requirements: {host: [toy]}\n")
    words = ["channel_tools", "plan", "--root", str(tmp_path / "tree"), "--foundation", "conda-forge"]
    planned = run(*words, "--foundation-channel", address, "--json", environ=environ)
    assert planned.returncode == 0, planned.stderr
    [package] = json.loads(planned.stdout)["packages"]
    assert any(key.endswith("/toy") for key in package["inputs"]), package
    keys = ("--keys", str(tmp_path / "keys"))
    assert run("channel_tools", "mirror", "keys", "create", *keys, environ=environ).returncode == 0
    bundle = ("toy", "-c", address, "--without-tool", *keys, "--to", str(tmp_path / "bundle"))
    created = run("channel_tools", "mirror", "create", *bundle, environ=environ)
    assert created.returncode == 0, created.stderr
    shown = run("channel_tools", "mirror", "keys", "show", *keys, "--json", environ=environ)
    trust = ("--root-sha256", json.loads(shown.stdout)["fingerprint"])
    inside = {name: value for name, value in environ.items() if not name.lower().endswith("_proxy")}
    arguments = ("mirror", "import", str(tmp_path / "bundle"), "--to", str(tmp_path / "air"), *trust)
    imported = run("channel_tools", *arguments, environ=inside)
    assert imported.returncode == 0, imported.stderr
    [arrived] = (tmp_path / "air" / "channels" / "theirs").glob("*/toy-*.conda")
    assert arrived.read_bytes() == toy.read_bytes()


def test_a_mirrored_package_is_the_one_that_is_listed_or_an_error(
    registry: RunningRegistry, tmp_path: Path, environ: dict[str, str]
) -> None:
    """A blob that ends early or has other bytes, and one that arrives at the second attempt."""
    toy = make_conda(tmp_path, "toy")
    publish(target_at(registry.address, environ), toy)
    content, size = toy.read_bytes(), toy.stat().st_size
    record = listed(registry, "linux-64")["toy-1.0-0.conda"]
    wanted = PackageKey("linux-64", "toy-1.0-0.conda").ref(str(record["sha256"]), size)
    replies: list[Reply] = []
    with scripted(
        relay(registry, lambda asked: replies.pop(0) if "/toy/blobs" in asked.path and replies else None)
    ) as server:
        there = registry_at(f"oci+http://127.0.0.1:{server.port}/ours", environ)
        received: list[bytes] = []

        def begin() -> Callable[[bytes], object]:
            received.clear()
            return received.append

        replies += [(503, {}, b""), (200, {}, content)]
        there.copy_package(wanted, begin)
        assert b"".join(received) == content
        for wrong in (content[:-1], content + b"more", bytes(size)):
            replies += [(200, {}, wrong)]
            with pytest.raises(IntegrityError):
                there.copy_package(wanted, begin)
        assert there.records("linux-64") == {"toy-1.0-0.conda": record}
        with pytest.raises(ChannelError, match=r"not a channel: it has no repodata\.json"):
            there.records("osx-64")
