#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

# As conda-forge builds it, without profiles (they need the test suite to run twice) and link-time optimisation (the
# registry foundation's compiler has none).
# the compilers' own names, which are what sysconfig hands on
export CC="${GCC}" CXX="${GXX}"
export CFLAGS="${CFLAGS:-} -fno-semantic-interposition"
# where 3.11's setup.py looks, which does not know -isystem
export CPPFLAGS="${CPPFLAGS:-} -I${PREFIX}/include"
export LDFLAGS="${LDFLAGS:-} -Wl,-rpath,${PREFIX}/lib -L${PREFIX}/lib"

# Python finds its prefix from where it lies; the one that is compiled in is looked at last, and is nowhere, so that no
# binary holds a path of a machine.
compiled_in=/nowhere
./configure \
  --prefix="${compiled_in}" \
  --enable-shared \
  --enable-ipv6 \
  --enable-loadable-sqlite-extensions \
  --with-computed-gotos \
  --with-openssl="${PREFIX}" \
  --with-platlibdir=lib \
  --with-system-expat \
  --without-ensurepip \
  --without-static-libpython \
  --disable-test-modules
make -j"${CPU_COUNT:-1}"
# --help in place of compiling the modules at their staging place, three times over
make install DESTDIR="${SRC_DIR}/_stage" COMPILEALL_OPTS=--help > install.log
# here, where only Python's own files are
find "_stage${compiled_in}" -type f \( -path '*/bin/python*' -o -name '*.so' -o -name 'libpython*.so.*' \) \
  ! -name '*-config' -exec "${STRIP}" --strip-debug {} +
cp -a "_stage${compiled_in}/." "${PREFIX}/"

library="${PREFIX}/lib/python${PYTHON_MINOR}"
# an extension module that a library was missing for is no error to make
for module in _bz2 _ctypes _curses _hashlib _lzma _sqlite3 _ssl _uuid pyexpat readline zlib; do
  if ! compgen -G "${library}/lib-dynload/${module}.*.so" > /dev/null; then
    echo "python was built without ${module}" >&2
    exit 1
  fi
done

ln -s "python${PYTHON_MINOR}" "${PREFIX}/bin/python"
# for building python itself, and what wants Tk, which the foundation lacks
rm -f "${library}"/config-*/*.o "${PREFIX}"/bin/idle*
rm -rf "${library}/idlelib" "${library}/tkinter" "${library}/turtledemo" "${library}/turtle.py"

# What python says about its own build: the prefix, plain names of the tools, no folder and no flag of this build.
triple="${CC##*/}" triple="${triple%-*}"
mapfile -t files < <(grep -rIl --exclude-dir=lib-dynload -e "${compiled_in}" -e "${BUILD_PREFIX}" -e "${SRC_DIR}" \
  "${PREFIX}/bin" "${PREFIX}/lib/pkgconfig" "${library}")
for file in "${files[@]}"; do
  sed -i \
    -e "s#${BUILD_PREFIX}/bin/${triple}-##g" -e "s#${triple}-\(gcc\|g++\|ar\|ranlib\)\b#\1#g" \
    -e "s#-f[a-z]*-prefix-map=[^ '\"]*##g" -e "s#-isystem ${PREFIX}/include##g" \
    -e "s#${BUILD_PREFIX}#${PREFIX}#g" -e "s#${SRC_DIR}#${PREFIX}#g" "${file}"
  # python-config itself replaces the prefix that is compiled in by the one where it lies
  if [[ ${file} != *-config ]]; then
    sed -i -e "s#${compiled_in}#${PREFIX}#g" "${file}"
  fi
done
sed -i "s#^prefix=.*#prefix=\${pcfiledir}/../..#" "${PREFIX}"/lib/pkgconfig/python*.pc

# a module of 3.11 that is a program, too
if [[ -e ${library}/cgi.py ]]; then
  sed -i -e '1s,^#! */usr/local/bin/python.*,#!/usr/bin/env python3,' "${library}/cgi.py"
fi

# Byte code holds the hash of its source (PEP 552): times of installed files are the client's affair. The modules that
# name the prefix have none, for no client replaces the prefix in byte code. What python wrote when it ran during its own
# build names the folders of that. One process compiles all: what a module's byte code refers back to, and what it
# repeats, depends on the modules that the process compiled before.
cd "${PREFIX}"
find lib -type d -name __pycache__ -exec rm -r {} +
LD_LIBRARY_PATH="${PREFIX}/lib" "bin/python${PYTHON_MINOR}" -B -I -S -m compileall -q \
  --invalidation-mode checked-hash -x '_sysconfigdata_|/python-config' "lib/python${PYTHON_MINOR}"
