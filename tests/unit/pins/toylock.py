# SPDX-License-Identifier: BSD-3-Clause
"""A lock of two packages, the same at every run."""

from __future__ import annotations

from channel_tools.pins import Lock, LockedPackage, PlatformLock

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
