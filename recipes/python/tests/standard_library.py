# SPDX-License-Identifier: BSD-3-Clause
"""What this build of Python promises: its version, its modules, and where it says things are."""

import ctypes
import hashlib
import importlib
import os
import sqlite3
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import zoneinfo
from pathlib import Path

MODULES = ("bz2", "curses", "decimal", "lzma", "multiprocessing", "readline", "uuid", "venv", "xml.dom", "zlib")


def main() -> None:
    prefix = Path(os.environ["PREFIX"]).resolve()
    assert sys.version.split()[0] == sys.argv[1], sys.version
    assert Path(sys.prefix).resolve() == prefix, sys.prefix
    for name in MODULES:
        importlib.import_module(name)
    assert (
        Path(sysconfig.get_path("purelib")).resolve() == prefix / f"lib/python3.{sys.version_info.minor}/site-packages"
    )
    assert sysconfig.get_config_var("CC").split()[0] == "gcc", sysconfig.get_config_var("CC")
    assert "prefix-map" not in sysconfig.get_config_var("CFLAGS")
    assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")
    assert ssl.OPENSSL_VERSION_INFO >= (1, 1, 1), ssl.OPENSSL_VERSION
    assert sqlite3.connect(":memory:").execute("select 6 * 7").fetchone() == (42,)
    assert ctypes.pythonapi.Py_IsInitialized() == 1
    assert zoneinfo.TZPATH, "no folder of time zones"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([f"{folder}/bin/pip", "--version"], check=True)


main()
