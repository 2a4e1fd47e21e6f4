# SPDX-License-Identifier: BSD-3-Clause
"""Everything that decides a package's content, as one flat mapping, and the digest over it.

Keys are ``kind:name``: ``recipe:tests``, ``file:src/udp.cc``, ``source:<address>``, ``variant:python``,
``package:libswitchml`` and ``foundation:host/libgrpc``. Values are a hash, or text short enough to show. The mapping
travels in the package's metadata, so that a later plan can name what changed.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from channel_tools.plan.model import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from channel_tools.matrix.model import RenderedPackage
    from channel_tools.plan.environments import Resolved
    from channel_tools.plan.model import BuildFile, EnvironmentName
    from channel_tools.yamlfile import YamlValue

HASH_DIGITS = 7
_HASH_PLACE = "{hash}"


def build_string_template(rendered: RenderedPackage) -> str:
    """The engine's build string with ``{hash}`` in the hash's place.

    A recipe that gives a build string without a hash gets one before its build number, since a file name must say what
    is inside: ``external_0`` becomes ``external_h{hash}_0``.
    """
    text, engine_hash = rendered.engine_build_string, rendered.engine_hash
    before, found, after = text.rpartition(engine_hash) if engine_hash else ("", "", text)
    if found:
        return f"{before}{_HASH_PLACE}{after}"
    number = f"_{rendered.build_number}"
    return f"{text.removesuffix(number)}_h{_HASH_PLACE}{number if text.endswith(number) else ''}"


def final_build_string(rendered: RenderedPackage, digest: str) -> str:
    """The build string with the first digits of our digest in place of the engine's hash."""
    return build_string_template(rendered).replace(_HASH_PLACE, digest[:HASH_DIGITS])


def recipe_inputs(rendered: RenderedPackage) -> dict[str, str]:
    """The evaluated recipe by section, its variant and its sources."""
    sections = {key: value for key, value in rendered.recipe.items() if key != "source"}
    build = sections["build"]
    if isinstance(build, dict):
        sections["build"] = {**build, "string": build_string_template(rendered)}
    sources = {f"source:{source.location}": _hash_of(source.entry) for source in rendered.sources}
    return {
        **{f"recipe:{key}": _hash_of(value) for key, value in sections.items()},
        **{f"variant:{key}": str(value) for key, value in rendered.variant.items()},
        **sources,
    }


def file_inputs(files: Iterable[BuildFile]) -> dict[str, str]:
    """The files that go into the build; being executable counts as content."""
    return {f"file:{file.name}": file.sha256 + (" executable" if file.executable else "") for file in files}


def environment_inputs(environment: EnvironmentName, records: Iterable[Resolved]) -> dict[str, str]:
    """What an environment resolves to: own packages by digest, those of the foundation by build and sha256."""
    inputs = {}
    for record in records:
        if record.digest is not None:
            inputs[f"package:{record.name}"] = record.digest
        else:
            inputs[f"foundation:{environment}/{record.name}"] = f"{record.version} {record.build} {record.sha256}"
    return inputs


def digest_of(inputs: Mapping[str, str]) -> str:
    """The sha256 over the inputs in canonical form; the same everywhere for the same content."""
    return _hash_of({"schema": SCHEMA_VERSION, "inputs": dict(inputs)})


def _hash_of(value: YamlValue | Mapping[str, YamlValue] | Mapping[str, object]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
