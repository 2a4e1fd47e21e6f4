# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import importlib
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from channel_tools.mirror.exporting.extras import own_requirements
from channel_tools.requests.publish import PublishRequest
from channel_tools.system.errors import CommandError
from channel_tools.system.extras import MODULES, needs_extra
from channel_tools.system.progress import SilentProgress
from channel_tools.workflow.publish import copy_to_bucket
from tests.support.processes import TEST_TIMEOUT_S

CORE = """\
import sys

for name in sys.argv[1].split():
    sys.modules[name] = None
import channel_tools.cli.build, channel_tools.cli.channel, channel_tools.cli.environment, channel_tools.cli.pins
import channel_tools.cli.publish, channel_tools.cli.validate, channel_tools.cli.launch, channel_tools.cli.doctor
import channel_tools.workflow.build, channel_tools.workflow.environment, channel_tools.workflow.pins
import channel_tools.workflow.publish, channel_tools.workflow.attest, channel_tools.workflow.rebuild
import channel_tools.workflow.launch, channel_tools.workflow.doctor, channel_tools.workflow.channel_page
from channel_tools.publish.target import open_target
for address in ("/there", "https://there.example/channel", "anaconda://there"):
    open_target(address, environ={})
"""


def test_a_missing_module_of_an_extra_is_an_error_that_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tuf", None)
    with (
        pytest.raises(CommandError, match=r"^tuf: not installed; it is required for mirroring") as caught,
        needs_extra("mirror", "mirroring"),
    ):
        importlib.import_module("tuf")
    hint = r"install the extra mirror into this program's environment: pip install 'tuf[<>=,.0-9]+'"
    assert re.fullmatch(hint, str(caught.value.hint))


def test_another_module_that_is_missing_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rattler", None)
    with pytest.raises(ModuleNotFoundError), needs_extra("mirror", "mirroring"):
        importlib.import_module("rattler")


def test_publishing_to_a_bucket_names_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "channel_tools.publish.bucket", raising=False)
    for name in ["boto3", *(name for name in sys.modules if name.startswith("boto3."))]:
        monkeypatch.setitem(sys.modules, name, None)
    request = PublishRequest(target="s3://bucket/channel", source=tmp_path)
    with pytest.raises(CommandError, match=r"^boto3: not installed; it is required for publishing to s3://"):
        copy_to_bucket(None, request, environ={}, progress=SilentProgress())


def test_building_installing_and_publishing_need_no_extra() -> None:
    blocked = " ".join(sorted({module for modules in MODULES.values() for module in modules}))
    subprocess.run([sys.executable, "-c", CORE, blocked], check=True, timeout=TEST_TIMEOUT_S)


def test_the_modules_are_those_that_the_extras_install() -> None:
    providers = importlib.metadata.packages_distributions()
    stated = [Requirement(text) for text in importlib.metadata.requires("channel-tools") or ()]
    always = [item for item in stated if item.marker is None or item.marker.evaluate({"extra": ""})]
    for extra, modules in MODULES.items():
        of_extra = {
            canonicalize_name(item.name)
            for item in stated
            if item not in always and item.marker is not None and item.marker.evaluate({"extra": extra})
        }
        assert of_extra == {canonicalize_name(providers[module][0]) for module in modules}
        assert of_extra.isdisjoint(canonicalize_name(item.name) for item in always)


def test_a_bundle_brings_what_its_bootstrap_installs() -> None:
    names = {Requirement(text).name for text in own_requirements()}
    assert {"tuf", "boto3", "starlette", "msgspec"} <= names
    assert {"pytest", "snakemake", "cyclonedx-python-lib"}.isdisjoint(names)
    assert not any(";" in text for text in own_requirements())
