# SPDX-License-Identifier: BSD-3-Clause
"""Writes a profile (TOML) as what an environment has of it: profile.json for programs, two files for the activation.

``python write.py PROFILE.toml FOLDER``. Of a file that is no profile it says what is wrong with it, and exits with 1.

``device`` has its word. A line of ``variables`` is CONDITIONS NAME VALUE; commas join the conditions, ``-`` is for
none.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
import tomllib
from pathlib import Path

_KEYS = {"name": str, "summary": str, "source": list, "reviewed": dt.date, "device": str, "variables": list}
_DEVICES = ("cxi", "efa")
_CONDITIONS = {"nodes": ("several",), "rendezvous": ("alternative",), "gpu": ("nvidia", "amd")}
_PLUGIN = re.compile(r"(<|>=)\d+\.\d+")
_NAME = re.compile(r"(NCCL|RCCL|FI|OFI_NCCL|MPICH|HSA)_[A-Z0-9_]+")
# a line's last word: the shell reads it to the end of the line, without the blanks around it
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")


def fault_in(profile: dict[str, object], stem: str) -> str | None:
    """What is wrong with a profile of the file STEM.toml, None if nothing is."""
    if unknown := sorted(profile.keys() - _KEYS.keys()):
        return f"unknown key {unknown[0]!r}; a profile has {', '.join(_KEYS)}"
    for key, kind in _KEYS.items():
        if type(profile.get(key)) is not kind:
            return f"{key} is {profile.get(key)!r}, expected {'a date' if kind is dt.date else kind.__name__}"
    if profile["name"] != stem or not re.fullmatch(r"[a-z0-9_]+", stem):
        return f"name is {profile['name']!r}, expected the file's own without .toml: lower case, digits, underscores"
    if not profile["source"] or not all(isinstance(text, str) and text for text in profile["source"]):
        return "source names nothing: say where the values are from"
    if profile["device"] not in _DEVICES:
        return f"device is {profile['device']!r}, expected one of {', '.join(_DEVICES)}"
    seen = set()
    for number, variable in enumerate(profile["variables"], 1):
        where = f"variable {number}"
        if not isinstance(variable, dict):
            return f"{where} is {variable!r}, expected a table with name and value"
        if unknown := sorted(variable.keys() - {"name", "value", *_CONDITIONS, "plugin"}):
            return f"{where}: unknown key {unknown[0]!r}; expected name, value, {', '.join(_CONDITIONS)}, plugin"
        name, value = variable.get("name"), variable.get("value")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return f"{where}: name is {name!r}, expected NCCL_, RCCL_, FI_, OFI_NCCL_, MPICH_ or HSA_ and more"
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            return f"{where}: the value of {name} is {value!r}, expected text in one line without blanks around it"
        for key, values in _CONDITIONS.items():
            if key in variable and variable[key] not in values:
                return f"{where}: {key} of {name} is {variable[key]!r}, expected {' or '.join(values)}"
        plugin = variable.get("plugin", "<1.0")
        if not isinstance(plugin, str) or not _PLUGIN.fullmatch(plugin):
            return f"{where}: plugin of {name} is {plugin!r}, expected <MAJOR.MINOR or >=MAJOR.MINOR"
        if "rendezvous" in variable and profile["device"] != "cxi":
            return f"{where}: rendezvous of {name} is Slingshot's, and the device is {profile['device']!r}"
        if name in seen:
            return f"{where}: {name} is in the profile twice"
        seen.add(name)
    return None


def line_of(variable: dict[str, str]) -> str:
    """The line of the activation's table."""
    words = [variable[key] for key in _CONDITIONS if key in variable]
    words += [f"plugin{variable['plugin']}"] if "plugin" in variable else []
    return f"{','.join(words) or '-'} {variable['name']} {variable['value']}\n"


def main(file: Path, folder: Path) -> int:
    """Write the profile of ``file`` to ``folder``; returns the exit code."""
    try:
        profile = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        print(f"{file}: cannot be read: {err}", file=sys.stderr)
        return 1
    if fault := fault_in(profile, file.stem):
        print(f"{file}: {fault}", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema": 1, **profile, "reviewed": profile["reviewed"].isoformat()}, indent=1)
    (folder / "profile.json").write_text(text + "\n", encoding="utf-8")
    (folder / "device").write_text(f"{profile['device']}\n", encoding="utf-8")
    (folder / "variables").write_text("".join(map(line_of, profile["variables"])), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
