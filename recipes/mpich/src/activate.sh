# SPDX-License-Identifier: BSD-3-Clause
# Lets the programs of this environment run on the site's Cray MPICH. What is changed here is kept per level of
# activation in CONDA_CRAY_MPICH_<level>*, so that environments stacked on each other are taken down one by one.
__cray_mpich=CONDA_CRAY_MPICH_${CONDA_SHLVL:-0}
__cray_mpich_answer=$("${CONDA_PREFIX:-}/bin/mpich-external-check" --activate) || :
if [ -n "$__cray_mpich_answer" ]; then
  __cray_mpich_folders=${__cray_mpich_answer%%
*}
  if [ -n "${LD_LIBRARY_PATH+set}" ]; then export "${__cray_mpich}_BEFORE=$LD_LIBRARY_PATH"; fi
  export LD_LIBRARY_PATH="$__cray_mpich_folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  export "$__cray_mpich=$__cray_mpich_folders" "${__cray_mpich}_AFTER=$LD_LIBRARY_PATH"
  case $__cray_mpich_answer in
    *"
"*)
      # MPI works on GPU buffers only through this library
      if [ -z "${CHANNEL_CRAY_MPICH_GTL+set}" ]; then
        export CHANNEL_CRAY_MPICH_GTL="${__cray_mpich_answer#*
}" "${__cray_mpich}_GTL=set"
      fi
      if [ -z "${MPICH_GPU_SUPPORT_ENABLED+set}" ]; then
        export MPICH_GPU_SUPPORT_ENABLED=1 "${__cray_mpich}_GPU=set"
      fi
      ;;
  esac
fi
unset __cray_mpich __cray_mpich_answer __cray_mpich_folders
