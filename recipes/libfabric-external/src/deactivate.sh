# SPDX-License-Identifier: BSD-3-Clause
# Puts back what the activation of this level changed. What the user has changed since then stays the user's.
__libfabric=CONDA_LIBFABRIC_${CONDA_SHLVL:-0}
eval "__libfabric_folder=\${$__libfabric:-} __libfabric_after=\${${__libfabric}_AFTER:-}"
if [ -n "$__libfabric_folder" ]; then
  if [ "${LD_LIBRARY_PATH:-}" = "$__libfabric_after" ]; then
    if eval "[ -n \"\${${__libfabric}_BEFORE+set}\" ]"; then
      eval "export LD_LIBRARY_PATH=\"\$${__libfabric}_BEFORE\""
    else
      unset LD_LIBRARY_PATH
    fi
  fi
  unset "$__libfabric" "${__libfabric}_AFTER" "${__libfabric}_BEFORE"
fi
unset __libfabric __libfabric_folder __libfabric_after
