# SPDX-License-Identifier: BSD-3-Clause
"""Bills of materials, held to the validator of CycloneDX, and licences."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from channel_tools.conda.archive import read_index_json
from channel_tools.provenance.components import Component, Inventory, read_component
from channel_tools.provenance.licenses import license_row, spdx_expression
from channel_tools.requests.inventory import InventoryRequest
from channel_tools.system.errors import CommandError, IntegrityError, UsageError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.progress import ignore
from channel_tools.workflow.inventory import make_document, take_inventory
from tests.support.packages import make_conda
from tests.unit.environments.toychannel import served

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
MARKUP = "</script><b>&\"'"
SOURCE = {"url": ["https://upstream.test/a b/toy-1.0.tar.gz"], "sha256": "5" * 64}
COMMIT = {"git": ["https://upstream.test/toy.git"], "rev": "6" * 40}
OURS = {"inputs": {"file:../../patches/toy/0001-fix.patch": "7" * 64}, "sources": [SOURCE, COMMIT]}
TAKEN = [
    {"kind": "deb", "name": "zlib1g", "version": "1:1.2.13", "sha256": "8" * 64},
    {"kind": "wheel", "name": "zlib-py", "version": "1.0+cpu", "sha256": "9" * 64},
]


def assert_valid_cyclonedx(document: str) -> None:
    """By CycloneDX's own validator, which takes a second to import: every worker imports this file, one runs it."""
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document) is None


@pytest.fixture
def environment(tmp_path: Path) -> Inventory:
    """Three packages: ours with patched sources, the foundation's, and one whose metadata is markup."""
    ours = make_conda(
        tmp_path,
        "toy",
        index={"depends": ["zlib >=1.2", "odd"]},
        about={"license": "BSD-3-Clause AND LicenseRef-Toy", "home": MARKUP, "extra": {"channel_tools": OURS}},
    )
    foundation = make_conda(tmp_path, "zlib", about={"license": "Zlib", "extra": {"channel_tools": {"taken": TAKEN}}})
    odd = make_conda(tmp_path, "odd", about={"license": MARKUP, "summary": MARKUP, "home": "https://odd.example/<b>"})
    components = tuple(sorted(map(read_component, (ours, foundation, odd)), key=lambda one: one.name))
    return Inventory(name=f"stack {MARKUP}", platform="linux-64", components=components)


def test_cyclonedx_documents_pass_its_own_validator(environment: Inventory) -> None:
    text = make_document(environment, created_at=NOW)
    assert_valid_cyclonedx(text)
    document = json.loads(text)
    odd, toy, zlib = sorted(document["components"], key=lambda one: str(one["name"]))
    assert odd["licenses"] == [{"license": {"name": MARKUP}}]
    assert odd["description"] == MARKUP
    assert toy["pedigree"]["patches"] == [{"type": "unofficial", "diff": {"url": "../../patches/toy/0001-fix.patch"}}]
    hashes = [one.get("hashes", [{}])[0].get("content") for one in toy["pedigree"]["ancestors"]]
    assert sorted(hashes, key=str) == ["5" * 64, None]
    assert [one["purl"] for one in zlib["pedigree"]["ancestors"]] == [
        "pkg:pypi/zlib-py@1.0%2Bcpu",
        "pkg:deb/debian/zlib1g@1:1.2.13",
    ]
    [graph] = [one["dependsOn"] for one in document["dependencies"] if one["ref"] == toy["bom-ref"]]
    assert graph == [odd["bom-ref"], zlib["bom-ref"]]


def test_a_single_package_has_a_document_of_its_own(environment: Inventory) -> None:
    single = Inventory(name="toy", platform=None, components=environment.components[1:2])
    text = make_document(single, created_at=NOW)
    assert_valid_cyclonedx(text)
    assert json.loads(text)["metadata"]["component"]["name"] == "toy"


def test_documents_of_the_same_packages_are_equal(environment: Inventory) -> None:
    assert make_document(environment, created_at=NOW) == make_document(environment, created_at=NOW)
    other = replace(environment, components=environment.components[:2])
    assert other.uuid != environment.uuid


def test_the_extra_is_named_where_it_is_missing(environment: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "channel_tools.provenance.cyclonedx", raising=False)
    for name in ["cyclonedx", *(name for name in sys.modules if name.startswith("cyclonedx."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CommandError, match=r"cyclonedx.*: not installed") as caught:
        make_document(environment, created_at=NOW)
    assert "pip install 'cyclonedx-python-lib" in str(caught.value.hint)


def listed(lock: Path, platform: str) -> Inventory:
    request = InventoryRequest(target=lock, platform=platform)
    return take_inventory(None, request, package_cache=lock.parent / "cache", environ={}, note=ignore)


def test_the_packages_of_a_lock_are_those_that_were_locked(tmp_path: Path) -> None:
    package = make_conda(tmp_path / "channel", "toy", about={"license": "MIT", "extra": {"channel_tools": OURS}})
    component = read_component(package)
    lock = tmp_path / "toy.txt"

    def write(sha256: str) -> None:
        lock.write_text(f"# platform: linux-64\n@EXPLICIT\n{package.as_uri()}#sha256:{sha256}\n", encoding="utf-8")

    write(component.sha256)
    inventory = listed(lock, "linux-64")
    assert inventory.components == (component,)
    with pytest.raises(UsageError, match="not for linux-aarch64"):
        listed(lock, "linux-aarch64")
    write("0" * 64)
    with pytest.raises(IntegrityError, match="the lock has"):
        listed(lock, "linux-64")
    package.unlink()
    [known] = listed(lock, "linux-64").components
    assert (known.name, known.sha256, known.license) == ("toy", "0" * 64, None)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("bsd-3-clause", "BSD-3-Clause"),
        ("Expat", "MIT"),
        ("GPL-2+ or LGPL-3+", "GPL-2.0-or-later OR LGPL-3.0-or-later"),
        ("LGPL-2+", "LGPL-2.0-or-later"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("GPL-2+ with OpenSSL exception", None),
        (MARKUP, None),
        ("", None),
        (None, None),
    ],
)
def test_declared_licences_are_read_as_spdx_where_they_mean_it(declared: str | None, expected: str | None) -> None:
    assert spdx_expression(declared) == expected


def component(name: str, declared: str | None) -> Component:
    return Component(
        name=name, version="1.0", build="0", subdir="linux-64", file_name="x.conda", sha256="", license=declared
    )


@pytest.mark.parametrize(
    ("name", "declared", "expected"),
    [
        ("toy", "BSD-3-Clause", "yes"),
        ("toy", "GPL-3.0-only WITH GCC-exception-3.1", "with source"),
        ("toy", "GPL-2.0-only OR MIT", "yes"),
        ("toy", "GPL-2.0-only AND (MIT OR BSD-3-Clause)", "with source"),
        ("toy", "CC-BY-NC-4.0", "no"),
        ("toy", "MIT AND LicenseRef-Own", "not known"),
        ("toy", MARKUP, "not known"),
        ("toy", None, "not known"),
        ("mkl", "LicenseRef-IntelSimplifiedSoftwareOctober2022", "by the vendor's terms"),
        ("cuda-cudart", None, "by the vendor's terms"),
        ("libcublas", "LicenseRef-NVIDIA-End-User-License-Agreement", "by the vendor's terms"),
        ("libcurl", "curl", "yes"),
    ],
)
def test_what_may_be_passed_on(name: str, declared: str | None, expected: str) -> None:
    assert license_row(component(name, declared)).redistribution == expected


RENDERED = {
    "finalized_dependencies": {
        "host": {
            "resolved": [
                {
                    "name": "dpdk",
                    "version": "19.11",
                    "build": "none_h1_0",
                    "subdir": "linux-64",
                    "license": "BSD-3-Clause",
                }
                | {"fn": "dpdk-19.11-none_h1_0.conda", "sha256": "d" * 64},
                {"name": "zlib", "version": "1.3", "build": "0", "subdir": "linux-64", "license": "Zlib"},
            ]
        }
    }
}


def test_what_is_linked_into_a_package_is_a_part_of_it(tmp_path: Path) -> None:
    info = {
        "info/recipe/rendered_recipe.yaml": json.dumps(RENDERED).encode(),
        "info/licenses/compiled-in/dpdk/license/bsd-3-clause.txt": b"text",
    }
    component = read_component(make_conda(tmp_path, "toy", about={"license": "MIT"}, info=info))
    assert [(one.name, one.version) for one in component.contains] == [("dpdk", "19.11")]
    inventory = Inventory(name="toy", platform=None, components=(component,))
    text = make_document(inventory, created_at=NOW)
    assert_valid_cyclonedx(text)
    (part,) = json.loads(text)["metadata"]["component"]["components"]
    assert (part["name"], part["purl"], part["licenses"]) == (
        "dpdk",
        "pkg:conda/dpdk@19.11?build=none_h1_0&subdir=linux-64&type=conda",
        [{"expression": "BSD-3-Clause"}],
    )


@pytest.mark.parametrize("about", [{"license": "MIT"}, None], ids=["about", "without about"])
def test_packages_in_the_old_format_are_read(tmp_path: Path, about: dict[str, str] | None) -> None:
    old = tmp_path / "linux-64" / "old-1.0-0.tar.bz2"
    old.parent.mkdir()
    index = {"name": "old", "version": "1.0", "build": "0", "build_number": 0, "depends": ["zlib"]}
    members = {"share/first": b"payload", "info/index.json": json.dumps(index).encode()}
    if about is not None:
        members["info/about.json"] = json.dumps(about).encode()
    with tarfile.open(old, "w:bz2") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    (component,) = listed(old, "linux-64").components
    assert (component.name, component.license, component.depends) == ("old", about and "MIT", ("zlib",))
    assert component.purl.endswith("type=tar.bz2")
    old.write_bytes(old.read_bytes()[:-40])
    with pytest.raises(IntegrityError, match=r"old-1\.0-0\.tar\.bz2: not a complete conda package"):
        listed(old, "linux-64")


@pytest.mark.parametrize(
    "depends",
    [["libtoy<2", "LIBTOY", "ours::zlib[version='>=1']", "zlib 1.*"], ["zlib", "libtoy"]],
    ids=["odd forms", "plain"],
)
def test_dependencies_are_found_in_every_form(tmp_path: Path, depends: list[str]) -> None:
    assert read_component(make_conda(tmp_path, "toy", index={"depends": depends})).depends == ("libtoy", "zlib")


@pytest.mark.parametrize("depends", [None, []], ids=["null", "empty"])
def test_a_package_without_dependencies_has_none(tmp_path: Path, depends: object) -> None:
    assert read_component(make_conda(tmp_path, "toy", index={"depends": depends})).depends == ()


@pytest.mark.parametrize(
    ("depends", "words"),
    [("zlib", "depends is 'zlib'; expected a list"), (["zlib >="], "'zlib >=' is not a valid MatchSpec")],
)
def test_dependencies_that_cannot_be_read_are_named_with_their_package(
    tmp_path: Path, depends: object, words: str
) -> None:
    with pytest.raises(IntegrityError, match=r"^toy-1\.0-0\.conda: ") as caught:
        read_component(make_conda(tmp_path, "toy", index={"depends": depends}))
    assert words in caught.value.message


def test_the_licences_of_a_lock_of_addresses_are_those_that_its_channel_lists(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    packages = [
        make_conda(channel, name, index={"license": licence})
        for name, licence in (("toy", "MIT"), ("tool", None), ("gone", "X"))
    ]
    records = {
        package.name: {**index, "sha256": sha256_of_file(package)}
        for package in packages
        for index in (read_index_json(package),)
        if "gone" not in package.name
    }
    (channel / "noarch").mkdir()
    (channel / "noarch" / "repodata.json").write_text(json.dumps({"packages": {}, "packages.conda": {}}))
    (channel / "linux-64" / "repodata.json").write_text(json.dumps({"packages": {}, "packages.conda": records}))
    notes: list[str] = []
    with served(channel) as address:
        lines = [f"{address}/linux-64/{package.name}#sha256:{sha256_of_file(package)}" for package in packages]
        lock = tmp_path / "toy.txt"
        lock.write_text("\n".join(["# platform: linux-64", "@EXPLICIT", *lines, ""]), encoding="utf-8")
        request = InventoryRequest(target=lock)
        inventory = take_inventory(None, request, package_cache=tmp_path / "cache", environ={}, note=notes.append)
    assert {one.name: one.license for one in inventory.components} == {"toy": "MIT", "tool": None, "gone": None}
    assert [note for note in notes if "1 package is in no index" in note and "gone-1.0-0.conda" in note] == notes
