#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

if [[ "${CHANNEL_SOURCES}" == debian ]]; then
  # copied, not moved: a build that continues after a failure compares its folder with the recipe's sources
  cp -aT debian/kineto-*/ third_party/kineto
  cp -aT debian/pocketfft-*/ third_party/pocketfft
  # PyTorch asks whether submodules that this build leaves out are there, too; CMake wants the folder of one's headers
  mkdir -p third_party/{fbgemm/third_party/asmjit,cutlass,opentelemetry-cpp/api/include}
  touch third_party/{fbgemm,fbgemm/third_party/asmjit,cutlass}/CMakeLists.txt
  export USE_SYSTEM_PYBIND11=1
  # upstream has it among its headers, with which extensions are compiled
  pybind11="$("${PYTHON}" -c 'import pybind11; print(pybind11.get_include())')/pybind11"
  mkdir -p torch/include
  cp -rT "${pybind11}" torch/include/pybind11
  find "${SP_DIR}"/pybind11-*.dist-info -iname 'LICENSE*' -exec install -D -m 644 {} third-party-licenses/pybind11/LICENSE ';'
  [[ -f third-party-licenses/pybind11/LICENSE ]] || { echo "pybind11 has no licence text" >&2; exit 1; }
fi

# The libraries in third_party are compiled in.
find third_party -type f \( -iname 'LICENSE*' -o -iname 'COPYING*' -o -iname 'NOTICE*' \) ! -iname '*.py' \
  -exec install -D -m 644 {} third-party-licenses/{} \;
[[ -d third-party-licenses ]] || { echo "no licence text below third_party" >&2; exit 1; }

# PyTorch writes the compilers' flags into its libraries (torch.__config__), so those that hold a path of this build go
# into wrappers, and out of what the activation of the compilers put into the environment.
#
# A compilation has the environment's folder below the sources, and the folder it runs in, as that is below the sources:
# what a compiler cache compares, and what it makes of paths below CCACHE_BASEDIR, is then the same in each work folder,
# whatever the length of its name, and the objects are the same with and without a cache.
wrappers="${SRC_DIR}/.compilers"
mkdir -p "${wrappers}"
ln -sfn "${PREFIX}" "${SRC_DIR}/.host"
maps="-ffile-prefix-map=${SRC_DIR}=pytorch -ffile-prefix-map=${PREFIX}=host -ffile-prefix-map=${BUILD_PREFIX}=build"
wrapper() {
  printf '#!/bin/bash\nreal=%q src=%q prefix=%q\nmaps="%s"\n' "$1" "${SRC_DIR}" "${PREFIX}" "${maps}"
  cat <<'END'
for argument in "$@"; do
  if [[ "${argument}" == -c ]]; then
    set -- "${@//"${prefix}"/"${src}/.host"}"
    case "${PWD}" in
      "${src}") maps+=" -ffile-prefix-map=./=pytorch/" ;;
      "${src}"/*)
        here="pytorch/${PWD#"${src}/"}"
        maps+=" -ffile-prefix-map=./=${here}/ -ffile-prefix-map=..=${here%/*}"
        ;;
    esac
    export CCACHE_BASEDIR="${src%/*}"
    # shellcheck disable=SC2086 # several words
    exec "${real}" ${maps} "$@"
  fi
done
# a link: CMake gives those libraries alone an rpath to the environment that name a library of it by its path, and the
# C++ runtime is there for all; the engine makes of it what holds in every environment
# shellcheck disable=SC2086
exec "${real}" ${maps} "-Wl,-rpath,${prefix}/lib" "$@"
END
}
for name in CC CXX; do
  real="$(command -v "${!name}")"
  wrapper "${real}" > "${wrappers}/$(basename "${real}")"
  chmod +x "${wrappers}/$(basename "${real}")"
  export "${name}=$(basename "${real}")"
done
export PATH="${wrappers}:${PATH}"
without_paths() {
  local flag kept=()
  for flag in $1; do
    case "${flag}" in
      *"${PREFIX}"* | *"${SRC_DIR}"* | *"${BUILD_PREFIX}"*) ;;
      -isystem) ;;
      # upstream's inlines are called across its libraries, and its libraries hold each other in cycles
      -fvisibility-inlines-hidden | -Wl,--as-needed) ;;
      *) kept+=("${flag}") ;;
    esac
  done
  echo "${kept[*]}"
}
CFLAGS="$(without_paths "${CFLAGS:-}")"
# GCC 15 no longer brings it along by chance (pytorch/pytorch#153933)
CXXFLAGS="$(without_paths "${CXXFLAGS:-}") -include cstdint"
CPPFLAGS="$(without_paths "${CPPFLAGS:-}")"
LDFLAGS="$(without_paths "${LDFLAGS:-}") -Wl,-rpath-link,${PREFIX}/lib"
export CFLAGS CXXFLAGS CPPFLAGS LDFLAGS

# Every exported variable named BUILD_*, USE_* or CMAKE_* becomes an option of CMake, these two also.
export -n BUILD_PREFIX CMAKE_ARGS
# The place for an rpath is as long as the first one, which has the build's folder: relative, it is the same everywhere.
export CMAKE_BUILD_RPATH_USE_ORIGIN=ON
export CMAKE_PREFIX_PATH="${PREFIX}" CMAKE_POLICY_VERSION_MINIMUM=3.5 CMAKE_GENERATOR=Ninja CMAKE_BUILD_TYPE=Release

# What the machine has, or the container. A compiler takes up to 2.5 GiB (torch/csrc/distributed/c10d/init.cpp) and with
# CUDA more, so each job gets 4; the link of libtorch_cpu.so comes last, and would end hours of work if it had too little.
memory_mib="$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)"
for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
  if [[ -r "${limit}" && "$(< "${limit}")" =~ ^[0-9]{1,15}$ ]]; then
    limit_mib="$(($(< "${limit}") / 1048576))"
    memory_mib="$((limit_mib < memory_mib ? limit_mib : memory_mib))"
  fi
done
jobs="$((memory_mib / 4096))"
MAX_JOBS="$((jobs < ${CPU_COUNT:-1} ? jobs : ${CPU_COUNT:-1}))"
MAX_JOBS="$((MAX_JOBS < 1 ? 1 : MAX_JOBS))"
export MAX_JOBS
echo "${MAX_JOBS} jobs for ${CPU_COUNT:-1} cores and ${memory_mib} MiB of memory"
if ((memory_mib < 4096)); then
  echo "warning: PyTorch takes 4 GiB to compile and link, and this machine or container has ${memory_mib} MiB" >&2
fi
export PYTORCH_BUILD_NUMBER=0 PACKAGE_TYPE=conda _GLIBCXX_USE_CXX11_ABI=1
export BUILD_TEST=0 INSTALL_TEST=0 BUILD_CAFFE2=0 BUILD_CAFFE2_OPS=0

# Said either way: where it is not, PyTorch decides by what it happens to find.
export USE_DISTRIBUTED=1 USE_GLOO=1 USE_MPI=1 USE_NUMPY=1 USE_OPENMP=1
export USE_NUMA=0 USE_ITT=0 USE_ROCM=0 USE_XPU=0 USE_CUSPARSELT=0 USE_MIMALLOC=0 USE_MAGMA=0
export MPI_HOME="${PREFIX}"
# What setup.py would not hand on. PyTorch calls MPI in C: without MPI's C++ library it loads on an MPI that has none.
options="${SRC_DIR}/.options.cmake"
printf 'set(MPI_CXX_COMPILER "%s" CACHE FILEPATH "" FORCE)\n' "${PREFIX}/bin/mpicc" > "${options}"
export CMAKE_PROJECT_INCLUDE="${options}"
if [[ "${CHANNEL_PROFILE}" == lean ]]; then
  export BLAS=OpenBLAS OpenBLAS_HOME="${PREFIX}" BUILD_CUSTOM_PROTOBUF=OFF
  export USE_TENSORPIPE=0 USE_KINETO=0 USE_MKLDNN=0 USE_FBGEMM=0 USE_MKL=0
  export USE_NNPACK=0 USE_QNNPACK=0 USE_PYTORCH_QNNPACK=0 USE_XNNPACK=0
  # it would clone a repository
  printf 'set(SLEEF_ENABLE_TLFLOAT OFF CACHE BOOL "" FORCE)\n' >> "${options}"
else
  export BUILD_CUSTOM_PROTOBUF=ON USE_TENSORPIPE=1 USE_KINETO=1 USE_MKLDNN=1 USE_NNPACK=1
  case "$(uname -m)" in
    x86_64) export BLAS=MKL USE_FBGEMM=1 ;;
    *) export BLAS=OpenBLAS OpenBLAS_HOME="${PREFIX}" USE_FBGEMM=0 ;;
  esac
fi

if [[ "${CHANNEL_CUDA}" == None ]]; then
  export USE_CUDA=0 USE_CUDNN=0 USE_NCCL=0
else
  export USE_CUDA=1 USE_CUDNN=1 USE_NCCL=1 USE_SYSTEM_NCCL=1 USE_STATIC_NCCL=0 USE_STATIC_CUDNN=0
  export NCCL_ROOT="${PREFIX}" NCCL_ROOT_DIR="${PREFIX}" NCCL_INCLUDE_DIR="${PREFIX}/include" NCCL_LIB_DIR="${PREFIX}/lib"
  export CUDNN_INCLUDE_DIR="${PREFIX}/include" CUDA_TOOLKIT_ROOT_DIR="${PREFIX}"
  export TORCH_CUDA_ARCH_LIST="${TORCH_CUDA_ARCH_LIST:-5.0;6.0;7.0;7.5;8.0;8.6;9.0+PTX}"
  # warnings of upstream's device code, by the thousand
  export CUDAFLAGS="${CUDAFLAGS:-} -Xcudafe --diag_suppress=20012"
fi

"${PYTHON}" setup.py --cmake-only build
# torch.__config__ names the compiler: without its folder
if grep -q '"CXX_COMPILER", "/' build/caffe2/core/macros.h; then
  sed -i -E 's#("CXX_COMPILER", ")[^"]*/#\1#' build/caffe2/core/macros.h
fi
"${PYTHON}" -m pip install . --no-deps --no-build-isolation --no-index --no-compile -v

# Of what is installed, one file looks for ROCm in the host's folders, and is included with USE_ROCM=1 alone, and one
# names the folder of the sources. RECORD lists what is there.
"${PYTHON}" - "${SP_DIR}" <<'END'
import base64, hashlib, re, sys
from pathlib import Path

site_packages = Path(sys.argv[1])
(record,) = site_packages.glob("torch-*.dist-info/RECORD")
rows = record.read_text()


def row_of(name):
    (row,) = re.findall(rf"^{re.escape(name)},.*\n", rows, re.MULTILINE)
    return row


hip = "torch/share/cmake/Caffe2/public/LoadHIP.cmake"
(site_packages / hip).unlink()
rows = rows.replace(row_of(hip), "")

aten = "torch/share/cmake/ATen/ATenConfig.cmake"
text, count = re.subn(
    r'(?<=set\(ATEN_INCLUDE_DIR ").*(?="\))', "${CMAKE_CURRENT_LIST_DIR}/../../../include", (site_packages / aten).read_text()
)
if count != 1:
    raise SystemExit(f"{aten}: sets ATEN_INCLUDE_DIR {count} times, expected once")
(site_packages / aten).write_text(text)
digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
rows = rows.replace(row_of(aten), f"{aten},sha256={digest},{len(text.encode())}\n")
record.write_text(rows)
END
