# SPDX-License-Identifier: BSD-3-Clause
# Lets the programs of this environment run on the site's libfabric. What is changed here is kept per level of activation
# in CONDA_LIBFABRIC_<level>*, so that environments stacked on each other are taken down one by one.
__libfabric=CONDA_LIBFABRIC_${CONDA_SHLVL:-0}
__libfabric_folder=$("${CONDA_PREFIX:-}/bin/libfabric-external-check" --folder) || :
case $__libfabric_folder in
  # the loader knows the system's folders, and in front they would hide this environment's libraries
  "" | /usr/*) ;;
  *)
    if [ -n "${LD_LIBRARY_PATH+set}" ]; then export "${__libfabric}_BEFORE=$LD_LIBRARY_PATH"; fi
    export LD_LIBRARY_PATH="$__libfabric_folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export "$__libfabric=$__libfabric_folder" "${__libfabric}_AFTER=$LD_LIBRARY_PATH"
    ;;
esac
unset __libfabric __libfabric_folder
