#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# xrt-external-check: is there an XRT on this machine that programs of this environment can run on?
#
# Looked at, in this order: CHANNEL_XRT_DIR (then nothing else), XILINX_XRT, /opt/xilinx/xrt, /usr.
set -u

SONAME=libxrt_coreutil.so.2

usage() {
  echo "usage: xrt-external-check [--folder | --help]"
  echo "Says which XRT of this machine this environment uses, and whether it can."
  echo "  --folder  the folder alone, for the activation script; messages only when something is wrong"
  echo "exit codes: 0 usable, 2 wrong usage, 3 none found, 4 found but not usable"
  echo "looked at, in this order: CHANNEL_XRT_DIR (then nothing else), XILINX_XRT, /opt/xilinx/xrt, /usr"
}

# The folder below $1 that holds the library; Debian's and Ubuntu's packages use the architecture's.
library_folder() {
  for below in lib lib64 "lib/$(uname -m)-linux-gnu"; do
    if [ -e "$1/$below/$SONAME" ]; then
      echo "$1/$below"
      return 0
    fi
  done
  return 1
}

# Any other major version there, to say so.
other_library() {
  for below in lib lib64 "lib/$(uname -m)-linux-gnu"; do
    for file in "$1/$below"/libxrt_coreutil.so.*; do
      if [ -e "$file" ]; then
        echo "$file"
        return 0
      fi
    done
  done
  return 1
}

# BUILD_VERSION of version.json, whose one line per key XRT's build writes.
version_of() {
  for file in "$1/version.json" "$1/share/xrt/version.json"; do
    if [ -r "$file" ]; then
      sed -n 's/.*"BUILD_VERSION"[^"]*"\([^"]*\)".*/\1/p' "$file" | head -n 1
      return
    fi
  done
}

looked=
found=
refused=
consider() { # NAME FOLDER
  if [ -z "$2" ]; then
    looked="$looked
    $1: not set"
  elif [ ! -d "$2" ]; then
    looked="$looked
    $1: $2: there is no such folder"
  elif folder=$(library_folder "$2"); then
    found=$2
  elif other=$(other_library "$2"); then
    refused="$refused
    $1: $other"
  else
    looked="$looked
    $1: $2: no $SONAME in lib, lib64 or lib/$(uname -m)-linux-gnu"
  fi
}

mode=report
case "$#:${1:-}" in
  0:) ;;
  1:--folder) mode=folder ;;
  1:--help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

if [ -n "${CHANNEL_XRT_DIR:-}" ]; then
  consider CHANNEL_XRT_DIR "$CHANNEL_XRT_DIR"
else
  consider XILINX_XRT "${XILINX_XRT:-}"
  if [ -z "$found" ]; then consider "the default" /opt/xilinx/xrt; fi
  if [ -z "$found" ]; then consider "the system" /usr; fi
fi

if [ -z "$found" ]; then
  if [ -n "$refused" ]; then
    echo "xrt-external-check: XRT was found, but not one with $SONAME:$refused" >&2
    echo "  Install XRT 2.x, or name its folder in CHANNEL_XRT_DIR." >&2
    exit 4
  fi
  echo "xrt-external-check: no XRT on this machine; looked at:$looked" >&2
  echo "  Install AMD's XRT, or name its folder in CHANNEL_XRT_DIR." >&2
  exit 3
fi

if [ "$mode" = folder ]; then
  echo "$found"
  echo "$folder"
  exit 0
fi
version=$(version_of "$found")
echo "folder:   $found"
echo "library:  $folder/$SONAME"
echo "version:  ${version:-unknown: no version.json}"
if [ -d "$found/include/xrt" ]; then
  echo "headers:  $found/include"
else
  echo "headers:  none; programs run, but nothing can be built on it"
fi
