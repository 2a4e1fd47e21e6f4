# SPDX-License-Identifier: BSD-3-Clause
# Puts back what the activation of this level changed. What the user has changed since then stays the user's.
__xrt=CONDA_XRT_${CONDA_SHLVL:-0}
eval "__xrt_root=\${$__xrt:-} __xrt_after=\${${__xrt}_AFTER:-}"
if [ -n "$__xrt_root" ]; then
  if [ "${LD_LIBRARY_PATH:-}" = "$__xrt_after" ]; then
    if eval "[ -n \"\${${__xrt}_BEFORE+set}\" ]"; then
      eval "export LD_LIBRARY_PATH=\"\$${__xrt}_BEFORE\""
    else
      unset LD_LIBRARY_PATH
    fi
  fi
  if [ "${XILINX_XRT:-}" = "$__xrt_root" ]; then
    if eval "[ -n \"\${${__xrt}_ROOT_BEFORE+set}\" ]"; then
      eval "export XILINX_XRT=\"\$${__xrt}_ROOT_BEFORE\""
    else
      unset XILINX_XRT
    fi
  fi
  unset "$__xrt" "${__xrt}_AFTER" "${__xrt}_BEFORE" "${__xrt}_ROOT_BEFORE"
fi
unset __xrt __xrt_root __xrt_after
