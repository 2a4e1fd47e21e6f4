# SPDX-License-Identifier: BSD-3-Clause
"""Solves the build and host environments of one package, and determines its run requirements.

This does the same as the engine when it builds (variant pins, then strong run_exports of build into host, then
run_exports and pins into run), so a plan has the same environments as the build. An evaluated recipe has pins as
mappings that the engine cannot read: they are written as template text again, which the engine resolves when it builds.
The MatchSpecs made here are for planning, and for pins between the outputs of one recipe.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from rattler import Version

from channel_tools.conda.package import RunExports
from channel_tools.matrix.expand import read_requirements
from channel_tools.matrix.model import Pin, requirement_name
from channel_tools.plan.environments import UnsatisfiableError, pin_by_variant
from channel_tools.plan.model import OwnPin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from channel_tools.matrix.model import RenderedPackage, Requirement
    from channel_tools.plan.environments import EnvironmentSolver
    from channel_tools.plan.model import EnvironmentName
    from channel_tools.plan.own import OwnPackage, Resolved
    from channel_tools.system.yamlfile import YamlValue

    FindSibling = Callable[[RenderedPackage, str], OwnPackage | None]

_EXPRESSION = re.compile(r"x(\.x)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedEnvironments:
    """A package's environments, its run requirements, and the own packages that it pins."""

    build: tuple[Resolved, ...]
    host: tuple[Resolved, ...]
    depends: tuple[str, ...]
    own_pins: tuple[OwnPin, ...]
    siblings: Mapping[Pin, OwnPackage]


async def resolve_environments(
    rendered: RenderedPackage, solver: EnvironmentSolver, find_sibling: FindSibling
) -> ResolvedEnvironments:
    """Solve build and host, and determine the run requirements.

    ``find_sibling`` returns the planned output for a ``pin_subpackage``. Raises UnsatisfiableError if the foundation
    cannot serve an environment, ConfigError for a ``pin_compatible`` of a package that is in no environment.
    """
    siblings: dict[Pin, OwnPackage] = {}
    for pin in _pins_in(rendered.recipe):
        if pin.function != "pin_subpackage" or pin.name == rendered.name:
            continue
        sibling = find_sibling(rendered, pin.name)
        if sibling is None:
            message = f"{pin.name}: {rendered.name} pins this output of its recipe, which cannot be built"
            raise UnsatisfiableError(message)
        siblings[pin] = sibling
    exports = _Exports(rendered)
    build = await solver.solve(_specs(rendered, rendered.build, {}, siblings))
    from_build = exports.of(build, rendered.build, ("strong",))
    versions = {record.name: record for record in build}
    host = await solver.solve([*_specs(rendered, rendered.host, versions, siblings), *from_build])
    versions |= {record.name: record for record in host}
    kinds = ("noarch",) if rendered.subdir == "noarch" else ("weak", "strong")
    from_host = exports.of(host, rendered.host, kinds)
    run = [_text_of(rendered, item, versions, siblings) for item in rendered.run]
    return ResolvedEnvironments(
        build=tuple(build),
        host=tuple(host),
        depends=tuple(dict.fromkeys([*run, *(from_build if rendered.subdir != "noarch" else ()), *from_host])),
        own_pins=(*_own_pins("build", rendered.build, build), *_own_pins("host", rendered.host, host)),
        siblings=siblings,
    )


def own_run_exports(rendered: RenderedPackage, build_string: str) -> RunExports:
    """The run_exports of the recipe, with pins on itself resolved."""
    section = _requirements_of(rendered).get("run_exports")
    kinds = section if isinstance(section, dict) else {}
    return RunExports(
        **{
            kind: tuple(
                item if isinstance(item, str) else resolve_pin(item, rendered.version, build_string)
                for item in read_requirements(kinds.get(kind))
                if isinstance(item, str) or item.name == rendered.name
            )
            for kind in ("weak", "strong", "noarch")
        }
    )


class _Exports:
    """Collects run_exports as the recipe's ``ignore_run_exports`` allows."""

    def __init__(self, rendered: RenderedPackage) -> None:
        ignored = _requirements_of(rendered).get("ignore_run_exports")
        lists = cast("Mapping[str, list[str]]", ignored if isinstance(ignored, dict) else {})
        self._names = frozenset(lists.get("by_name") or ())
        self._packages = frozenset(lists.get("from_package") or ())
        self._own_name = rendered.name

    def of(self, records: Iterable[Resolved], asked: Sequence[Requirement], kinds: Sequence[str]) -> list[str]:
        """The exports of the packages that are requirements; those of their dependencies do not count."""
        direct = {requirement_name(item) for item in asked}
        specs = []
        for record in records:
            if record.name in direct and record.name not in self._packages and record.run_exports is not None:
                specs += [spec for kind in kinds for spec in cast("tuple[str, ...]", getattr(record.run_exports, kind))]
        return [spec for spec in specs if requirement_name(spec) not in {*self._names, self._own_name}]


def _requirements_of(rendered: RenderedPackage) -> Mapping[str, YamlValue]:
    value = rendered.recipe.get("requirements")
    return value if isinstance(value, dict) else {}


def _specs(
    rendered: RenderedPackage,
    requirements: Iterable[Requirement],
    versions: Mapping[str, Resolved],
    siblings: Mapping[Pin, OwnPackage],
) -> list[str]:
    pinned = [pin_by_variant(item, rendered.variant) for item in requirements]
    return [_text_of(rendered, item, versions, siblings) for item in pinned]


def _text_of(
    rendered: RenderedPackage, item: Requirement, versions: Mapping[str, Resolved], siblings: Mapping[Pin, OwnPackage]
) -> str:
    if isinstance(item, str):
        return item
    if item.function == "pin_subpackage":
        sibling = siblings.get(item)
        return item.name if sibling is None else resolve_pin(item, sibling.version, sibling.build_string)
    record = versions.get(item.name)
    if record is None:
        message = (
            f"{rendered.name} has pin_compatible('{item.name}'), but its build and host environments lack {item.name}"
        )
        hint = f"add {item.name} to requirements.host"
        raise rendered.recipe_file.document.error(message, "requirements", "run", hint=hint)
    return resolve_pin(item, record.version, record.build)


def _pins_in(recipe: Mapping[str, YamlValue]) -> Iterable[Pin]:
    requirements = recipe.get("requirements")
    groups = requirements.values() if isinstance(requirements, dict) else ()
    for group in groups:
        lists = group.values() if isinstance(group, dict) else (group,)
        yield from (item for items in lists for item in read_requirements(items) if isinstance(item, Pin))


def _own_pins(
    environment: EnvironmentName, asked: Iterable[Requirement], records: Iterable[Resolved]
) -> Iterable[OwnPin]:
    own = {record.name: record for record in records if record.digest is not None}
    for name in dict.fromkeys(requirement_name(item) for item in asked if isinstance(item, str)):
        if (record := own.get(name)) is not None:
            yield OwnPin(environment=environment, name=name, spec=f"{name} =={record.version} {record.build}")


def pin_expression(pin: Pin) -> str:
    """The template text for ``pin``, with every bound written out.

    >>> from channel_tools.matrix.expand import read_pin
    >>> pin_expression(read_pin({"pin_compatible": {"name": "mpich", "lower_bound": "x.x", "upper_bound": "x"}}))
    "${{ pin_compatible('mpich', lower_bound='x.x', upper_bound='x') }}"
    """
    arguments = [_quote(pin.name)]
    if pin.exact:
        arguments.append("exact=True")
    else:
        arguments += [f"lower_bound={_quote(pin.lower_bound)}", f"upper_bound={_quote(pin.upper_bound)}"]
        arguments += [f"build={_quote(pin.build)}"] if pin.build is not None else []
    return f"${{{{ {pin.function}({', '.join(arguments)}) }}}}"


def resolve_pin(pin: Pin, version: str, build_string: str) -> str:
    """The MatchSpec of ``pin`` for a package with this version and build string.

    >>> from channel_tools.matrix.expand import read_pin
    >>> pin = read_pin({"pin_compatible": {"name": "mpich", "lower_bound": "x.x", "upper_bound": "x"}})
    >>> resolve_pin(pin, "4.1.2", "h1_0")
    'mpich >=4.1,<5.0a0'
    """
    if pin.exact:
        return f"{pin.name} =={version} {build_string}"
    bounds = [
        *([f">={_lower(pin.lower_bound, version)}"] if pin.lower_bound is not None else []),
        *([f"<{_upper(pin.upper_bound, version)}"] if pin.upper_bound is not None else []),
    ]
    text = f"{pin.name} {','.join(bounds) or '*'}"
    return text if pin.build is None else f"{text} {pin.build}"


def _lower(bound: str, version: str) -> str:
    if not _EXPRESSION.fullmatch(bound):
        return bound
    parsed = Version(version).remove_local()
    return str(parsed.with_segments(0, min(bound.count("x"), parsed.segment_count)))


def _upper(bound: str, version: str) -> str:
    if not _EXPRESSION.fullmatch(bound):
        return bound
    segments = bound.count("x")
    parsed = Version(version).remove_local().extend_to_length(segments)
    return str(parsed.with_segments(0, segments).bump_segment(segments - 1).with_alpha())


def _quote(value: str | None) -> str:
    return "None" if value is None else f"'{value}'"
