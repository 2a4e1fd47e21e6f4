# SPDX-License-Identifier: BSD-3-Clause
# Puts back what the activation of this level changed. What the user has changed since then stays the user's.
__rocm=CONDA_ROCM_${CONDA_SHLVL:-0}
eval "__rocm_root=\${$__rocm:-} __rocm_after=\${${__rocm}_AFTER:-}"
if [ -n "$__rocm_root" ]; then
  if [ "${LD_LIBRARY_PATH:-}" = "$__rocm_after" ]; then
    if eval "[ -n \"\${${__rocm}_BEFORE+set}\" ]"; then
      eval "export LD_LIBRARY_PATH=\"\$${__rocm}_BEFORE\""
    else
      unset LD_LIBRARY_PATH
    fi
  fi
  if [ "${ROCM_PATH:-}" = "$__rocm_root" ]; then
    if eval "[ -n \"\${${__rocm}_ROOT_BEFORE+set}\" ]"; then
      eval "export ROCM_PATH=\"\$${__rocm}_ROOT_BEFORE\""
    else
      unset ROCM_PATH
    fi
  fi
  unset "$__rocm" "${__rocm}_AFTER" "${__rocm}_BEFORE" "${__rocm}_ROOT_BEFORE"
fi
unset __rocm __rocm_root __rocm_after
