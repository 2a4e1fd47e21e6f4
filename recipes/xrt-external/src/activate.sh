# SPDX-License-Identifier: BSD-3-Clause
# Lets the programs of this environment run on the site's XRT. What is changed here is kept per level of activation in
# CONDA_XRT_<level>*, so that environments stacked on each other are taken down one by one.
__xrt=CONDA_XRT_${CONDA_SHLVL:-0}
__xrt_answer=$("${CONDA_PREFIX:-}/bin/xrt-external-check" --folder) || :
if [ -n "$__xrt_answer" ]; then
  __xrt_root=${__xrt_answer%%
*}
  __xrt_lib=${__xrt_answer#*
}
  if [ -n "${LD_LIBRARY_PATH+set}" ]; then export "${__xrt}_BEFORE=$LD_LIBRARY_PATH"; fi
  if [ -n "${XILINX_XRT+set}" ]; then export "${__xrt}_ROOT_BEFORE=$XILINX_XRT"; fi
  export XILINX_XRT="$__xrt_root"
  case $__xrt_root in
    # the loader knows the system's folders, and in front they would hide this environment's libraries
    /usr) ;;
    *) export LD_LIBRARY_PATH="$__xrt_lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ;;
  esac
  export "$__xrt=$__xrt_root" "${__xrt}_AFTER=${LD_LIBRARY_PATH:-}"
fi
unset __xrt __xrt_answer __xrt_root __xrt_lib
