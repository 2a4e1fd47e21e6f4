# SPDX-License-Identifier: BSD-3-Clause
"""Plans with further channels: who has priority, what a lock keeps, which addresses cannot be used."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from channel_tools.channel import Foundation, create_channel, open_channel
from channel_tools.conda import answers
from channel_tools.plan.further_channels import require_here
from channel_tools.plan.lock import read_lock
from channel_tools.requests.foundation import LockRequest
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import NetworkError, UsageError
from channel_tools.system.http.pace import Timeouts
from channel_tools.system.settings import Settings, make_settings
from channel_tools.workflow.foundation_lock import change_lock
from channel_tools.workflow.plan import plan_request
from tests.support.endless_server import endless
from tests.unit.matrix.toytree import FILES, FOUNDATION, PLATFORM, write_foundation, write_tree

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.plan import Plan

_LIBTOY = "recipes/libtoy/recipe.yaml"
_WITH_LAB = FILES[_LIBTOY].replace("    - libwire\n", "    - libwire\n    - liblab\n")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A tree with a recipe that needs liblab, and a registry foundation that does not have it."""
    write_tree(tmp_path / "tree", {_LIBTOY: _WITH_LAB})
    made = make_settings(root=tmp_path / "tree", output=tmp_path / "output", environ={}, cwd=tmp_path)
    write_foundation(made.foundation)
    return made


def lab(folder: Path, *versions: str, more: tuple[str, ...] = ()) -> str:
    """A further channel that has liblab, and other packages in a version that no foundation has."""
    records = [("liblab", version, "h1_0", ()) for version in versions] + [(name, "99.0", "h1_0", ()) for name in more]
    return str(write_foundation(folder, records))


def plan(settings: Settings, *further: str) -> Plan:
    return plan_request(settings, PlanRequest(stack="udp", further=further, packages=("libtoy",)))


def given(plan: Plan) -> dict[str, str]:
    """The packages in libtoy's environments, with their versions."""
    [libtoy] = [package for package in plan.packages if package.name == "libtoy"]
    rows = {key: value for key, value in libtoy.inputs.items() if key.startswith("foundation:")}
    return {key.rpartition("/")[2]: value.split()[0] for key, value in rows.items()}


def fill_lock(settings: Settings, *further: str, update: bool = False) -> list[str]:
    return [
        one.name
        for one in change_lock(settings, LockRequest(update=update, foundation="registry", further=further)).moved
    ]


def test_what_the_foundation_lacks_comes_from_a_further_channel_and_nothing_else(
    settings: Settings, tmp_path: Path
) -> None:
    [lacking] = {one.reason for one in plan(settings).unsatisfiable if one.rendered.name == "libtoy"}
    assert lacking == "liblab: the registry foundation has no package of this name"
    known = {record[0] for record in FOUNDATION}
    found = given(plan(settings, lab(tmp_path / "lab", "1.0", more=tuple(known))))
    assert found["liblab"] == "1.0"
    assert "99.0" not in found.values()


def test_of_two_further_channels_the_first_has_priority(settings: Settings, tmp_path: Path) -> None:
    first, second = lab(tmp_path / "first", "1.0"), lab(tmp_path / "second", "2.0")
    assert given(plan(settings, first, second))["liblab"] == "1.0"
    assert given(plan(settings, second, first))["liblab"] == "2.0"


def test_a_further_channel_stands_above_a_foundation_at_an_address(settings: Settings, tmp_path: Path) -> None:
    versions = {"libwire": "1.82.0", "gcc_linux-64": "15.1.0"}
    records = [(name, versions.get(name, version), build, depends) for name, version, build, depends in FOUNDATION]
    address = str(write_foundation(tmp_path / "conda-forge", [*records, ("liblab", "3.0", "h1_0", ())]))
    request = PlanRequest(stack="udp", packages=("libtoy",), foundation="conda-forge", address=address)
    assert given(plan_request(settings, request))["liblab"] == "3.0"
    request = PlanRequest(
        stack="udp",
        packages=("libtoy",),
        foundation="conda-forge",
        address=address,
        further=(lab(tmp_path / "lab", "1.0"),),
    )
    assert given(plan_request(settings, request))["liblab"] == "1.0"


def test_a_lock_keeps_what_a_further_channel_had_until_it_is_moved(settings: Settings, tmp_path: Path) -> None:
    address = lab(tmp_path / "lab", "1.0")
    before = [package.file_name for package in plan(settings, address).packages]
    assert plan(settings, address).lock_file == "locks/registry-linux-64.json"
    assert fill_lock(settings, address) == ["liblab"]
    lock = read_lock(settings.tree.root, "registry", PLATFORM)
    assert set(lock.records) == {"lab/linux-64/liblab-1.0-h1_0.conda"}
    lab(tmp_path / "lab", "1.0", "2.0")
    planned = plan(settings, address)
    assert [package.file_name for package in planned.packages] == before
    assert planned.locks == ()
    moved = lab(tmp_path / "elsewhere" / "lab", "1.0", "2.0")  # a mirror of it
    assert [package.file_name for package in plan(settings, moved).packages] == before
    assert fill_lock(settings, address, update=True) == ["liblab"]
    assert given(plan(settings, address))["liblab"] == "2.0"


def test_a_registry_foundation_alone_has_no_lock(settings: Settings) -> None:
    with pytest.raises(UsageError, match="the registry foundation has no lock") as raised:
        fill_lock(settings)
    assert "-c" in str(raised.value.hint)


def test_the_local_channel_records_them(settings: Settings, tmp_path: Path) -> None:
    address = lab(tmp_path / "lab", "1.0")
    create_channel(settings.channel, Foundation(kind="registry", further=((tmp_path / "lab").as_uri(),)))
    assert given(plan(settings))["liblab"] == "1.0"
    shutil.move(address, tmp_path / "moved" / "lab")
    assert given(plan(settings, str(tmp_path / "moved" / "lab")))["liblab"] == "1.0"
    assert open_channel(settings.channel).foundation.further == ((tmp_path / "lab").as_uri(),)  # a plan writes nothing


@pytest.mark.parametrize(
    ("further", "words"),
    [
        (("https://us:secret@host.example/lab",), "given with credentials"),
        (("https://host.example/t/secret/lab",), "given with credentials"),
        (("https://host.example/lab", "https://other.example/lab"), "locks would know both as 'lab'"),
        (("https://host.example/noarch",), "locks would know it as 'noarch'"),
        (("https://host.example/a%20b",), "locks would know it as 'a b'"),
        (("output/channel/",), "is the local channel itself"),
    ],
)
def test_an_address_that_cannot_be_recorded_is_an_error(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, further: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words) as raised:
        plan(settings, *further)
    assert "secret" not in f"{raised.value}{raised.value.hint}"
    assert raised.value.hint


@pytest.mark.parametrize(("sent", "more"), [(b"", b""), (b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n", b"x")])
def test_one_whose_server_sends_almost_nothing_is_not_waited_for(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, sent: bytes, more: bytes
) -> None:
    monkeypatch.setattr(answers, "_ASK_AFTER_S", 0.1)
    monkeypatch.setattr(answers, "_TIMEOUTS", Timeouts(connect_s=1.0, read_s=0.2))
    with endless(sent, more, 0.02) as address:
        for ask in (plan, fill_lock):
            with pytest.raises(NetworkError, match="its server sends nothing, or almost nothing") as caught:
                ask(settings, f"{address}/lab")
            assert caught.value.message.startswith(f"{address}/lab/noarch/")


def test_a_build_without_a_network_names_what_it_needs_of_them(settings: Settings, tmp_path: Path) -> None:
    address = lab(tmp_path / "lab", "1.0")
    fill_lock(settings, address)
    far = "http://127.0.0.1:9/lab"
    planned = plan(settings, far)  # from the lock alone
    with pytest.raises(NetworkError, match=r"http://127\.0\.0\.1:9/lab/linux-64/liblab-1\.0-h1_0\.conda [0-9a-f]{64}$"):
        require_here(Foundation(kind="registry", further=(far,)), planned)
    require_here(Foundation(kind="registry", further=((tmp_path / "lab").as_uri(),)), planned)
