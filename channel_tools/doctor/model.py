# SPDX-License-Identifier: BSD-3-Clause
"""What is examined (an ExaminedStack), and what is found (Diagnoses)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from channel_tools.conda.specs import read_spec, specs_on

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Level = Literal["ok", "warning", "fault"]
"""``fault``: with this the fabric would not carry the data. ``warning``: it would, but slower or only in some cases."""
ROOT = Path("/")


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """One thing that was examined, what was found and, unless that is ``ok``, the command that fixes it."""

    subject: str
    level: Level
    found: str
    fix: str = ""


_OF_PACKAGES = {"libswitchml": "switchml", "mpich": "mpi"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ExaminedStack:
    """A stack and the place where it is to run.

    ``backend`` is the process group's name, ``switchml`` for SwitchML's stacks, whose ``transport`` is libswitchml's.
    ``settings`` are the stack's own variables. If ``prefix`` is None, no environment is examined and ``variables`` are
    the caller's, else those of the activated environment. ``starts_switch``: the caller will start a switch.
    """

    stack: str
    backend: str
    transport: str = ""
    settings: Mapping[str, str]
    prefix: Path | None
    variables: Mapping[str, str]
    installed: Mapping[str, str]
    device: str = "cpu"
    starts_switch: bool = False
    root: Path = ROOT
    """The folder that has /sys, /proc and /dev."""

    @property
    def prefix_word(self) -> str:
        """The prefix as a word of a command that is printed; in quotes, where a shell would split it."""
        return "PREFIX" if self.prefix is None else shlex.quote(str(self.prefix))

    def variable(self, name: str) -> str:
        """What a rank would find: the user's value, else the stack's; "" if it is not set."""
        return self.variables.get(name) or self.settings.get(name, "")


def subject_of(
    stack: str,
    backend: str,
    options: Mapping[str, object],
    specs: Sequence[str],
    *,
    prefix: Path | None,
    variables: Mapping[str, str],
    installed: Mapping[str, str],
    starts_switch: bool = False,
    root: Path = ROOT,
) -> ExaminedStack:
    """The subject of a stack, by the options of its validation and its install list.

    The list names the transport if no environment does. ``backend`` is the validation method's, "" for a stack that is
    not validated.
    """
    if not backend:  # such a stack is not validated, but what it installs shows what it is for
        backend = next((kind for name, kind in _OF_PACKAGES.items() if specs_on({name}, specs)), "")
    build = installed.get("libswitchml", "").partition(" ")[2]
    wanted = next((read_spec(spec).build or "" for spec in specs_on({"libswitchml"}, specs)), "")
    settings = options.get("environment")
    return ExaminedStack(
        stack=stack,
        backend=backend,
        transport=(build or wanted).partition("_h")[0].removesuffix("*") if backend == "switchml" else "",
        settings={str(name): str(value) for name, value in settings.items()} if isinstance(settings, dict) else {},
        prefix=prefix,
        variables=variables,
        installed=installed,
        device=str(options.get("device", "cpu")),
        starts_switch=starts_switch,
        root=root,
    )


def uses_fabric(findings: Sequence[Diagnosis]) -> bool:
    """Whether the fabric would carry the data: no finding is a fault."""
    return not any(finding.level == "fault" for finding in findings)
