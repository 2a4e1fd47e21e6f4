#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A copy of the environment at another path works, and a program that embeds python links there.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "${work}"' EXIT
cp -a "${PREFIX}" "${work}/copy"
found=$(env -u PYTHONHOME "${work}/copy/bin/python" -c 'import sys, ssl, ctypes; print(sys.prefix)')
[[ "${found}" == "${work}/copy" ]] || { echo "the copy says its prefix is ${found}" >&2; exit 1; }
found=$("${work}/copy/bin/python3-config" --prefix --includes)
[[ "${found}" == "${work}/copy"*"-I${work}/copy/include/"* ]] || { echo "the copy's python-config says ${found}" >&2; exit 1; }

cat > "${work}/embed.c" <<'C'
#include <Python.h>
int main(void) {
    Py_Initialize();
    return PyRun_SimpleString("import math; assert math.sqrt(49) == 7") + Py_FinalizeEx();
}
C
minor=$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"${CC}" "${work}/embed.c" -o "${work}/embed" -I"${PREFIX}/include/python${minor}" -L"${PREFIX}/lib" \
  -Wl,-rpath,"${PREFIX}/lib" "-lpython${minor}"
PYTHONHOME="${PREFIX}" "${work}/embed"
