# SPDX-License-Identifier: BSD-3-Clause
# Puts back what the activation of this level changed. What the user has changed since then stays the user's.
__cray_mpich=CONDA_CRAY_MPICH_${CONDA_SHLVL:-0}
eval "__cray_mpich_folders=\${$__cray_mpich:-} __cray_mpich_after=\${${__cray_mpich}_AFTER:-}"
if [ -n "$__cray_mpich_folders" ]; then
  if [ "${LD_LIBRARY_PATH:-}" = "$__cray_mpich_after" ]; then
    if eval "[ -n \"\${${__cray_mpich}_BEFORE+set}\" ]"; then
      eval "export LD_LIBRARY_PATH=\"\$${__cray_mpich}_BEFORE\""
    else
      unset LD_LIBRARY_PATH
    fi
  else
    # others have added theirs: only our folders go
    case ":${LD_LIBRARY_PATH:-}:" in
      *":$__cray_mpich_folders:"*)
        __cray_mpich_rest=":$LD_LIBRARY_PATH:"
        __cray_mpich_head=${__cray_mpich_rest%%":$__cray_mpich_folders:"*}
        __cray_mpich_rest=$__cray_mpich_head:${__cray_mpich_rest#*":$__cray_mpich_folders:"}
        __cray_mpich_rest=${__cray_mpich_rest#:}
        export LD_LIBRARY_PATH="${__cray_mpich_rest%:}"
        ;;
    esac
  fi
  if eval "[ -n \"\${${__cray_mpich}_GTL+set}\" ]"; then unset CHANNEL_CRAY_MPICH_GTL; fi
  if eval "[ -n \"\${${__cray_mpich}_GPU+set}\" ]" && [ "${MPICH_GPU_SUPPORT_ENABLED:-}" = 1 ]; then
    unset MPICH_GPU_SUPPORT_ENABLED
  fi
  unset "$__cray_mpich" "${__cray_mpich}_AFTER" "${__cray_mpich}_BEFORE" "${__cray_mpich}_GTL" "${__cray_mpich}_GPU"
fi
unset __cray_mpich __cray_mpich_folders __cray_mpich_after __cray_mpich_head __cray_mpich_rest
