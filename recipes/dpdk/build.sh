#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

case "${target_platform}" in
  linux-64)
    template=x86_64-conda-linux-gcc target=x86_64-default-linux-gcc tune="-mtune=haswell"
    # not -march, which would take back what a program's own flags allow
    consumers="-msse4.2"
    ;;
  linux-aarch64)
    template=arm64-conda-linux-gcc target=arm64-armv8a-linux-gcc tune=""
    consumers="-march=armv8-a+crc -DRTE_MACHINE_CPUFLAG_NEON -DRTE_MACHINE_CPUFLAG_CRC32"
    ;;
  *) echo "no configuration for ${target_platform}" >&2; exit 1 ;;
esac
case "${DPDK_DRIVERS}" in
  none) drivers=() ibverbs="" ;;
  mlx5) drivers=(CONFIG_RTE_LIBRTE_MLX5_PMD=y) ibverbs="-lmlx5 -libverbs" ;;
  mlx4) drivers=(CONFIG_RTE_LIBRTE_MLX4_PMD=y) ibverbs="-lmlx4 -libverbs" ;;
  *) echo "dpdk_drivers is '${DPDK_DRIVERS}'; there are none, mlx5 and mlx4, one per package" >&2; exit 1 ;;
esac

cp conda/conda_common "conda/defconfig_${template}" config/
printf '%s\n' "${drivers[@]}" >>"config/defconfig_${template}"

# Anything of the environment that DPDK's rules would take up, beside what they are given here.
unset CFLAGS CXXFLAGS LDFLAGS ARCH MACHINE
export CPPFLAGS="-isystem ${PREFIX}/include"

maps="-ffile-prefix-map=${SRC_DIR}=dpdk -ffile-prefix-map=${PREFIX}=host -ffile-prefix-map=${BUILD_PREFIX}=build"
# gnu11: before gcc 15 the default was gnu17, from 15 on it is gnu23, in which () declares no arguments.
# common: before gcc 10 the default; headers of some drivers define variables.
# Errors: what gcc 14 and later refuse, refused by all.
flags="-fPIC -fcommon -std=gnu11 -g0 ${tune} ${maps}"
flags+=" -Werror=implicit-function-declaration -Werror=implicit-int"
flags+=" -Werror=int-conversion -Werror=incompatible-pointer-types"

make_dpdk() {
  # without kernel modules and programs; the archives are whole before those.
  # CROSS gives the rest of the toolchain its names; the host's compiler builds pmdinfogen, which runs in the build
  make O=build V=1 ROOTDIRS-y="buildtools lib drivers" CROSS="${HOST}-" CC="${CC}" CXX="${CXX}" AR="${AR}" LD="${LD}" HOSTCC="${CC_FOR_BUILD:-${CC}}" \
    EXTRA_CFLAGS="${flags}" HOST_EXTRA_CFLAGS="-std=gnu11 -g0 ${maps}" "$@"
}

make_dpdk config T="${template}" >config.log
make_dpdk -j "${CPU_COUNT}" >build.log 2>&1 || {
  grep -n -B 2 -A 12 -m 5 -E "(error:|Error [0-9]|undefined reference)" build.log || tail -n 60 build.log
  exit 1
}
grep -c "warning:" build.log | sed 's/$/ warnings/' || true

# Archives, headers and the make rules; the upstream target's own symbolic links are relative.
make_dpdk install-sdk T= RTE_TARGET="${target}" prefix="${PREFIX}" DESTDIR= >install.log
cp build/lib/*.a "${PREFIX}/lib/"
install -d "${PREFIX}/bin"
sed '1 s|^.*$|#!/usr/bin/env python3|' usertools/dpdk-devbind.py >"${PREFIX}/bin/dpdk-devbind.py"
chmod 755 "${PREFIX}/bin/dpdk-devbind.py"

# Linked as a whole: drivers and buses announce themselves in constructors, which nothing refers to, and the libraries
# below them. Those that a program calls by name come after them, users before used.
on_demand=(flow_classify pipeline table port pdump distributor ip_frag fib rib lpm acl latencystats bitratestats
  metrics jobstats efd bpf ipsec rcu meter)
whole="" plain=""
for library in build/lib/librte_*.a; do
  name=$(basename "${library}" .a)
  [[ " ${on_demand[*]/#/librte_} " == *" ${name} "* ]] || whole+=",\${libdir}/${name}.a"
done
for name in "${on_demand[@]}"; do
  [[ -e "build/lib/librte_${name}.a" ]] || { echo "librte_${name}.a was not built" >&2; exit 1; }
  plain+=" -lrte_${name}"
done

install -d "${PREFIX}/lib/pkgconfig"
cat >"${PREFIX}/lib/pkgconfig/libdpdk.pc" <<EOF
# SPDX-License-Identifier: BSD-3-Clause
# Only archives are installed, so this is the whole of a link, with and without --static. What has to be linked as a
# whole is one word: tools that sort or merge words cannot take it apart.
prefix=\${pcfiledir}/../..
libdir=\${prefix}/lib
includedir=\${prefix}/include/dpdk
drivers=${DPDK_DRIVERS}
rte_sdk=\${prefix}/share/dpdk
rte_target=${target}

Name: DPDK
Description: Data Plane Development Kit: libraries and drivers for packets in user space
Version: ${PKG_VERSION}
Cflags: -include rte_config.h -I\${includedir} ${consumers} -pthread
Libs: -L\${libdir} -Wl,--whole-archive${whole},--no-whole-archive${plain} ${ibverbs} -lnuma -ldl -lm -lrt -pthread
EOF
