# SPDX-License-Identifier: BSD-3-Clause
"""A lock of two packages, the same at every run, and a strategy for any lock that a solve could give."""

from __future__ import annotations

import string
from urllib.parse import quote

from hypothesis import strategies as st

from channel_tools.pins import Lock, LockedPackage, PlatformLock
from channel_tools.pins.lock import in_installation_order, locked_package, repodata_record

CHANNEL = "https://channel.example/ours"
SHA256 = "5f" * 32


def toy_package(
    name: str,
    version: str,
    build: str,
    *,
    subdir: str = "linux-64",
    depends: tuple[str, ...] = (),
    sha256: str = SHA256,
) -> LockedPackage:
    file_name = f"{name}-{version}-{build}.conda"
    return LockedPackage(
        name=name,
        version=version,
        build=build,
        build_number=3,
        subdir=subdir,
        file_name=file_name,
        channel=CHANNEL,
        url=f"{CHANNEL}/{subdir}/{file_name}",
        sha256=sha256,
        md5="6a" * 16,
        size_bytes=1234,
        depends=depends,
        constrains=("other <2",) if depends else (),
        noarch="python" if subdir == "noarch" else None,
        license="BSD-3-Clause",
        timestamp_ms=1_700_000_000_000,
    )


TOY_LOCK = Lock(
    stack="udp",
    specs=("app", "data * py*"),
    channels=(CHANNEL,),
    platforms=(
        PlatformLock(
            platform="linux-64",
            virtual_packages=("__cuda=12.9=0", "__glibc=2.28=0", "__linux=4.18=0", "__unix=0=0"),
            packages=(
                toy_package("data", "1.10", "pyhd8_0", subdir="noarch"),
                toy_package("app", "1.0", "udp_h1", depends=("data >=1", "data <2", "__glibc >=2.17,<3.0.a0")),
            ),
        ),
    ),
)


# names, versions and build strings are read off bytes: drawing them character by character took most of the tests' time
_LAST = string.ascii_lowercase + string.digits
_FIRST, _INNER = string.ascii_lowercase + "_", _LAST + "_.-"


def _name(drawn: bytes) -> str:
    """``[a-z_][a-z0-9_.-]{0,8}[a-z0-9]``."""
    first, *inner, last = drawn
    middle = "".join(_INNER[byte % len(_INNER)] for byte in inner)
    return f"{_FIRST[first % len(_FIRST)]}{middle}{_LAST[last % len(_LAST)]}"


def _version(drawn: bytes) -> str:
    """``([1-9]!)?[0-9]{1,3}(\\.[0-9]{1,2}){0,2}((a|rc|\\.post)[0-9])?(\\+[0-9]\\.[0-9])?``."""
    epoch, major, minor, patch, kind, stage, local = drawn
    release = [f"{major * 4 % 1000}", *(f"{part % 100}" for part in (minor, patch))][: 1 + kind % 3]
    suffix = ("", "a", "rc", ".post")[stage % 4]
    return "".join(
        (
            f"{epoch % 10}!" if epoch % 20 in range(1, 10) else "",
            ".".join(release),
            f"{suffix}{stage % 10}" if suffix else "",
            f"+{local % 10}.{local // 10 % 10}" if local % 3 == 0 else "",
        )
    )


def _build(drawn: list[bytes]) -> str:
    """``[a-z0-9]{1,3}(_[a-z0-9]{1,4}){0,2}``."""
    first, *others = ["".join(_LAST[byte % len(_LAST)] for byte in part) for part in drawn]
    return "_".join([first[:3], *others])


def _stack(drawn: bytes) -> str:
    """``[a-z0-9][a-z0-9_.-]{0,6}``."""
    return _LAST[drawn[0] % len(_LAST)] + "".join(_INNER[byte % len(_INNER)] for byte in drawn[1:])


# names with two underscores in front are those of virtual packages (CEP 30), which no lock has as packages
NAMES = st.binary(min_size=2, max_size=10).map(_name).filter(lambda name: not name.startswith("__"))
VERSIONS = st.binary(min_size=7, max_size=7).map(_version)
BUILDS = st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=3).map(_build)
CHANNELS = st.sampled_from(
    ["https://channel.example/ours", "https://channel.example:8443/label/testing", "file:///srv/my%20channel"]
)
DEPENDS = st.one_of(
    NAMES,
    st.builds("{} >={}".format, NAMES, VERSIONS),
    st.builds("{} {}.* *_{}".format, NAMES, st.integers(0, 99), BUILDS),
    st.builds("__{} >={},<3.0.a0".format, st.sampled_from(["glibc", "cuda"]), VERSIONS),
    st.builds("{}>={}".format, NAMES, VERSIONS),
)
VIRTUAL = st.sampled_from(["__cuda=12.9=0", "__glibc=2.28=0", "__linux=4.18=0", "__unix=0=0", "__archspec=1=x86_64_v3"])


def hexadecimal(length: int) -> st.SearchStrategy[str]:
    return st.binary(min_size=length // 2, max_size=length // 2).map(bytes.hex)


@st.composite
def packages(draw: st.DrawFn, platform: str, *, name: str) -> LockedPackage:
    version, build = draw(VERSIONS), draw(BUILDS)
    subdir = draw(st.sampled_from([platform, "noarch"]))
    channel = draw(CHANNELS)
    file_name = f"{name}-{version}-{build}{draw(st.sampled_from(['.conda', '.tar.bz2']))}"
    return LockedPackage(
        name=name,
        version=version,
        build=build,
        build_number=draw(st.integers(0, 300)),
        subdir=subdir,
        file_name=file_name,
        channel=channel,
        url=f"{channel}/{subdir}/{quote(file_name, safe='!+')}",
        sha256=draw(hexadecimal(64)),
        md5=draw(st.none() | hexadecimal(32)),
        size_bytes=draw(st.integers(1, 2**40)),
        depends=tuple(draw(st.lists(DEPENDS, max_size=4))),
        constrains=tuple(draw(st.lists(DEPENDS, max_size=2))),
        noarch=draw(st.sampled_from(["generic", "python"])) if subdir == "noarch" else None,
        python_site_packages_path=draw(st.none() | st.just("lib/python3.13t/site-packages")),
        license=draw(st.none() | st.sampled_from(["MIT", "Apache-2.0 AND Zlib", 'Ünicode: "yes" # no'])),
        timestamp_ms=draw(st.none() | st.integers(10**12, 2 * 10**12)),
    )


@st.composite
def platform_locks(draw: st.DrawFn, platform: str, known: dict[str, LockedPackage]) -> PlatformLock:
    """``known`` holds what other platforms have: one address is one package."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    drawn = [draw(packages(platform, name=name)) for name in names]
    records = [repodata_record(known.setdefault(package.url, package)) for package in drawn]
    return PlatformLock(
        platform=platform,
        virtual_packages=tuple(sorted(draw(st.sets(VIRTUAL)))),
        packages=tuple(locked_package(record) for record in in_installation_order(records)),
    )


@st.composite
def locks(draw: st.DrawFn) -> Lock:
    known: dict[str, LockedPackage] = {}
    platforms = draw(st.sets(st.sampled_from(["linux-64", "linux-aarch64"]), min_size=1))
    return Lock(
        stack=draw(st.binary(min_size=1, max_size=7).map(_stack)),
        specs=tuple(draw(st.lists(DEPENDS, min_size=1, max_size=3))),
        channels=tuple(draw(st.lists(CHANNELS, min_size=1, unique=True))),
        platforms=tuple(draw(platform_locks(platform, known)) for platform in sorted(platforms)),
    )
