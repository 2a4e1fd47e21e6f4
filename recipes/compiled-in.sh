#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Collects the licence texts of packages of the host environment whose archives or headers end up in the package that is
# being built, in compiled-in/NAME; the recipe has  about.license_file: compiled-in/  and names this file as a source.
# usage, at the start of build.sh: bash compiled-in.sh NAME...   A NAME that is not installed is left out: foundations
# and variants differ. Licence texts are not in environments, only in the clients' unpacked packages.
set -euo pipefail

for name in "$@"; do
  for record in "${PREFIX}/conda-meta/${name}"-[0-9]*.json; do
    [[ -e ${record} ]] || continue
    unpacked=$(sed -n 's/^ *"extracted_package_dir": *"\(.*\)",\{0,1\}$/\1/p' "${record}")
    if [[ ! -d ${unpacked}/info/licenses ]]; then
      echo "${name}: is compiled in, but its package has no licence text in info/licenses" >&2
      exit 1
    fi
    mkdir -p "compiled-in/${name}"
    cp -R "${unpacked}/info/licenses/." "compiled-in/${name}/"
  done
done
