# SPDX-License-Identifier: BSD-3-Clause
# Activates and deactivates under `set -eu` from every state that the variables can be in.
on=$CONDA_PREFIX/etc/conda/activate.d/activate-mpich-external-cray.sh
off=$CONDA_PREFIX/etc/conda/deactivate.d/deactivate-mpich-external-cray.sh
folders=$CHOSEN:$GTL

same() { # WHAT FOUND EXPECTED
  if [ "$2" != "$3" ]; then
    echo "$1: found '$2', expected '$3'" >&2
    exit 1
  fi
}

names() { env | sed 's/=.*//' | grep -E 'CRAY_MPICH|__cray' | sort; }

unset LD_LIBRARY_PATH MPICH_GPU_SUPPORT_ENABLED CHANNEL_CRAY_MPICH_GTL
before=$(names)

# unset before, unset after
. "$on"
same "path, unset before" "$LD_LIBRARY_PATH" "$folders"
same "GPU support" "$MPICH_GPU_SUPPORT_ENABLED" 1
same "GTL" "$CHANNEL_CRAY_MPICH_GTL" "$GTL/libmpi_gtl_cuda.so.0"
mpich-external-check > "$WORK/again"
. "$off"
same "path, restored to unset" "${LD_LIBRARY_PATH-unset}" unset
same "GPU support, restored to unset" "${MPICH_GPU_SUPPORT_ENABLED-unset}" unset
same "names left" "$(names)" "$before"

# empty before, empty after
export LD_LIBRARY_PATH=
. "$on"
same "path, empty before" "$LD_LIBRARY_PATH" "$folders"
. "$off"
same "path, restored to empty" "${LD_LIBRARY_PATH-unset}" ""

# a value before; what the user decided stays
export LD_LIBRARY_PATH="/a b:/c" MPICH_GPU_SUPPORT_ENABLED=0
. "$on"
same "path, value before" "$LD_LIBRARY_PATH" "$folders:/a b:/c"
same "GPU support, decided" "$MPICH_GPU_SUPPORT_ENABLED" 0
. "$off"
same "path, restored" "$LD_LIBRARY_PATH" "/a b:/c"
same "GPU support, still decided" "$MPICH_GPU_SUPPORT_ENABLED" 0

# a module loaded in between stays
. "$on"
export LD_LIBRARY_PATH="/module:$LD_LIBRARY_PATH"
. "$off"
same "path, with a module" "$LD_LIBRARY_PATH" "/module:/a b:/c"

# stacked environments are taken down one by one
unset LD_LIBRARY_PATH MPICH_GPU_SUPPORT_ENABLED
CONDA_SHLVL=1 && . "$on"
outer=$LD_LIBRARY_PATH
CONDA_SHLVL=2 && . "$on"
same "path, stacked" "$LD_LIBRARY_PATH" "$folders:$folders"
. "$off"
same "path, inner gone" "$LD_LIBRARY_PATH" "$outer"
same "GPU support, inner gone" "$MPICH_GPU_SUPPORT_ENABLED" 1
CONDA_SHLVL=1 && . "$off"
same "path, both gone" "${LD_LIBRARY_PATH-unset}" unset
same "names left after stacking" "$(names)" "$before"

# no Cray MPICH: one message, nothing changed, the shell goes on
export CHANNEL_CRAY_MPICH_DIR="$WORK/none"
. "$on" 2> "$WORK/message"
same "path, nothing found" "${LD_LIBRARY_PATH-unset}" unset
same "messages" "$(grep -c '^mpich-external-check:' "$WORK/message")" 1
. "$off"
same "path, nothing to restore" "${LD_LIBRARY_PATH-unset}" unset
