# SPDX-License-Identifier: BSD-3-Clause
"""The build engine's messages without the advice that only users of its own command line can follow.

py-rattler-build has the messages of the program rattler-build, some of which name options of that program. Each that is
known is replaced by what can be done here; the sources of rattler-build 0.73 name those below (crates/*, src/lib.rs).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_EXPERIMENTAL = (
    "write the recipe without it: only what CEP 13 and CEP 14 describe can be built by every program that reads recipes"
)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """A message of the engine in words that hold here, and what to do ("" where the engine has no advice)."""

    message: str
    hint: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Advice:
    """What the engine says (a pattern), what to say instead (see re.sub), and what to do."""

    engine: re.Pattern[str]
    ours: str
    hint: str


def _advice(engine: str, ours: str, hint: str) -> _Advice:
    return _Advice(engine=re.compile(engine), ours=ours, hint=hint)


_ADVICE = (
    _advice(
        r"\s*To allow symlinks, use the --allow-symlinks-on-windows flag\.",
        "",
        "a noarch package is installed on Windows, too: add __unix to requirements.run, copy the files instead of "
        "linking them, or remove build.noarch",
    ),
    _advice(
        r"\s*To allow this, remove the --error-prefix-in-binary flag\.",
        "",
        "compile with -ffile-prefix-map=${PREFIX}=. and let the program find its files relative to itself; text files "
        "may contain the prefix, which installation replaces",
    ),
    _advice(
        r"Absolute paths in license_file are not allowed\. Use --allow-absolute-license-paths to enable\.",
        "about.license_file names an absolute path.",
        "have the build script copy the text into ${SRC_DIR}, or keep it beside the recipe; name it relative to that",
    ),
    _advice(
        r"Please use the '--target-platform' command-line flag to specify the target platform\.",
        "The command decides it.",
        "remove target_platform from the variant file",
    ),
    _advice(
        r"is an experimental feature: provide the `--experimental` flag to enable it",
        "is an experimental feature of rattler-build, which is not enabled here",
        _EXPERIMENTAL,
    ),
    _advice(
        r"Experimental feature: provide the `--experimental` flag to enable this feature",
        "an experimental feature of rattler-build, which is not enabled here",
        _EXPERIMENTAL,
    ),
    _advice(r"(requires?) the --v3 flag", r"\1 the format V3 of packages, which is not enabled here", _EXPERIMENTAL),
    _advice(
        r"Enable --v3 to use ([\w.]+( MatchSpec keys such as extras, flags, or when)?)\.?", r"No \1.", _EXPERIMENTAL
    ),
    _advice(
        r"To automatically migrate your recipe, run:\s*rattler-build migrate-recipe --recipe \S*",
        "",
        "describe the shared part as an output of its own",
    ),
    _advice(
        r"failed to find `(patchelf|install_name_tool|codesign)` \(cannot find binary path\)",
        r"\1, which has to lengthen the rpath of a program or library, is not among the build's tools",
        "link with the rpath that the file needs ($LDFLAGS of the compiler packages has one), or "
        "add the program to requirements.build",
    ),
    _advice(r"the argument --test=(\w+) was set", r"the tests are set to \1", ""),
)


def explained(message: str) -> Explained:
    """The engine's message (of an exception, not a log) without advice that cannot be followed, and what to do.

    An option that is named in it and is not known here is said to be another program's.
    """
    hints = [advice.hint for advice in _ADVICE if advice.hint and advice.engine.search(message)]
    text = in_our_words(message)
    if not hints and (options := _OPTION.findall(text)):
        hints = [f"{', '.join(options)}: options of the program rattler-build, which this command cannot pass on"]
    return Explained(message=text, hint=hints[0] if hints else "")


def in_our_words(text: str) -> str:
    """A line or a message with the engine's advice replaced; everything else is unchanged."""
    if "--" not in text and "failed to find" not in text:
        return text
    for advice in _ADVICE:
        text = advice.engine.sub(advice.ours, text)
    return text
