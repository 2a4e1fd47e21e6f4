# SPDX-License-Identifier: BSD-3-Clause
# Lets the programs of this environment run on the site's ROCm. What is changed here is kept per level of activation in
# CONDA_ROCM_<level>*, so that environments stacked on each other are taken down one by one.
__rocm=CONDA_ROCM_${CONDA_SHLVL:-0}
__rocm_answer=$("${CONDA_PREFIX:-}/bin/rocm-external-check" --folder) || :
if [ -n "$__rocm_answer" ]; then
  __rocm_root=${__rocm_answer%%
*}
  __rocm_lib=${__rocm_answer#*
}
  if [ -n "${LD_LIBRARY_PATH+set}" ]; then export "${__rocm}_BEFORE=$LD_LIBRARY_PATH"; fi
  if [ -n "${ROCM_PATH+set}" ]; then export "${__rocm}_ROOT_BEFORE=$ROCM_PATH"; fi
  export ROCM_PATH="$__rocm_root"
  case $__rocm_root in
    # the loader knows the system's folders, and in front they would hide this environment's libraries
    /usr) ;;
    *) export LD_LIBRARY_PATH="$__rocm_lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ;;
  esac
  export "$__rocm=$__rocm_root" "${__rocm}_AFTER=${LD_LIBRARY_PATH:-}"
fi
unset __rocm __rocm_answer __rocm_root __rocm_lib
