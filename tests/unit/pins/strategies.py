# SPDX-License-Identifier: BSD-3-Clause
"""Any lock that a solve could give."""

from __future__ import annotations

from urllib.parse import quote

from hypothesis import strategies as st

from channel_tools.pins import Lock, LockedPackage, PlatformLock
from channel_tools.pins.records import in_installation_order, locked_package, repodata_record

NAMES = st.from_regex(r"[a-z_][a-z0-9_.-]{0,8}[a-z0-9]", fullmatch=True)
VERSIONS = st.from_regex(
    r"([1-9]!)?[0-9]{1,3}(\.[0-9]{1,2}){0,2}((a|rc|\.post)[0-9])?(\+[0-9]\.[0-9])?", fullmatch=True
)
BUILDS = st.from_regex(r"[a-z0-9]{1,3}(_[a-z0-9]{1,4}){0,2}", fullmatch=True)
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
    return st.text("0123456789abcdef", min_size=length, max_size=length)


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
def platform_locks(draw: st.DrawFn, platform: str) -> PlatformLock:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    records = [repodata_record(draw(packages(platform, name=name))) for name in names]
    return PlatformLock(
        platform=platform,
        virtual_packages=tuple(sorted(draw(st.sets(VIRTUAL)))),
        packages=tuple(locked_package(record) for record in in_installation_order(records)),
    )


@st.composite
def locks(draw: st.DrawFn) -> Lock:
    platforms = draw(st.sets(st.sampled_from(["linux-64", "linux-aarch64"]), min_size=1))
    return Lock(
        stack=draw(st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,6}", fullmatch=True)),
        specs=tuple(draw(st.lists(DEPENDS, min_size=1, max_size=3))),
        channels=tuple(draw(st.lists(CHANNELS, min_size=1, unique=True))),
        platforms=tuple(draw(platform_locks(platform)) for platform in sorted(platforms)),
    )
