# SPDX-License-Identifier: BSD-3-Clause
# Sets the variables of the environment's profile, on machines that have its fabric. A variable that is set, be it empty,
# is the user's decision. What is set here is kept in CONDA_FABRIC_PROFILE_<level>*, for the deactivation of that level.
__fabric_set() {
  if eval "[ -z \"\${$1+set}\" ]"; then
    export "$1=$2"
    export "${__fabric}_$1=$2" "$__fabric=$__fabric_names $1"
    __fabric_names="$__fabric_names $1"
  fi
}

# Whether this runs in a job of several nodes. On one, Slingshot gives no VNI, without which the plugin cannot start.
__fabric_has_several_nodes() {
  if [ -n "${FLUX_JOB_NNODES-}" ]; then  # first, for Flux also runs within other schedulers' jobs
    [ "$FLUX_JOB_NNODES" -gt 1 ] 2>/dev/null
  elif [ -n "${SLURM_JOB_ID-}" ]; then
    case ${SLURM_STEP_ID-} in
      # Slurm numbers batch scripts and interactive shells, steps of one node of the job, from 2^32 downwards
      "" | 42949672??) [ "${SLURM_JOB_NUM_NODES:-${SLURM_NNODES-}}" -gt 1 ] 2>/dev/null ;;
      *) [ "${SLURM_STEP_NUM_NODES:-${SLURM_JOB_NUM_NODES:-${SLURM_NNODES-}}}" -gt 1 ] 2>/dev/null ;;
    esac
  elif [ -r "${PBS_NODEFILE-}" ]; then  # a node has a line for each of its ranks
    __fabric_first=
    while read -r __fabric_node || [ -n "$__fabric_node" ]; do
      if [ "$__fabric_node" != "${__fabric_first:=$__fabric_node}" ]; then return 0; fi
    done < "$PBS_NODEFILE"
    return 1
  else
    case ${LSB_MCPU_HOSTS-} in  # NODE SLOTS NODE SLOTS ...
      *[!\ ]\ *[!\ ]*\ [!\ ]*) return 0 ;;
      *) return 1 ;;
    esac
  fi
}

# Whether the driver leaves rendezvous messages to their receivers' software, as alt_read wants: for this job, by
# --network=disable_rdzv_get, or on this node, by the property rdzv_get_en of each NIC.
__fabric_has_alternative_rendezvous() {
  case ,${SLURM_NETWORK-}, in *,disable_rdzv_get,*) return 0 ;; esac
  for __fabric_nic in $(command ls "$__fabric_nics"); do
    __fabric_property=
    if [ -r "$__fabric_nics/$__fabric_nic/device/properties/rdzv_get_en" ]; then
      read -r __fabric_property < "$__fabric_nics/$__fabric_nic/device/properties/rdzv_get_en" || true
    fi
    if [ "$__fabric_property" != 0 ]; then return 1; fi
  done
}

# Whether the environment has a plugin for NCCL or RCCL before a version (<1.7), or of it or later (>=1.7).
__fabric_has_plugin() {
  __fabric_found=
  for __fabric_file in $(command ls "$CONDA_PREFIX/conda-meta" 2>/dev/null); do
    case $__fabric_file in
      nccl-ofi-[0-9]*.json) __fabric_found=${__fabric_file#nccl-ofi-} ;;
      aws-ofi-nccl-[0-9]*.json) __fabric_found=${__fabric_file#aws-ofi-nccl-} ;;
    esac
  done
  case $__fabric_found in *.*) ;; *) return 1 ;; esac
  __fabric_wanted=${1#[<>]} __fabric_minor=${__fabric_found#*.}
  __fabric_wanted=${__fabric_wanted#=}
  __fabric_found=$((${__fabric_found%%.*} * 1000 + ${__fabric_minor%%[!0-9]*}))
  __fabric_wanted=$((${__fabric_wanted%%.*} * 1000 + ${__fabric_wanted#*.}))
  case $1 in
    "<"*) [ "$__fabric_found" -lt "$__fabric_wanted" ] ;;
    *) [ "$__fabric_found" -ge "$__fabric_wanted" ] ;;
  esac
}

__fabric_holds() {
  case ,$1, in
    *,plugin*)
      __fabric_word=${1#*plugin}
      __fabric_has_plugin "${__fabric_word%%,*}" || return 1
      ;;
  esac
  case ,$1, in *,several,*) __fabric_has_several_nodes || return 1 ;; esac
  case ,$1, in *,alternative,*) __fabric_has_alternative_rendezvous || return 1 ;; esac
  case ,$1, in *,nvidia,*) [ -e "${CHANNEL_FABRIC_ROOT-}/proc/driver/nvidia/version" ] || return 1 ;; esac
  case ,$1, in *,amd,*) [ -e "${CHANNEL_FABRIC_ROOT-}/dev/kfd" ] || return 1 ;; esac
}

# Whether the kernel lists a device of the profile's fabric.
__fabric_is_here() {
  [ -d "$__fabric_nics" ] || return 1
  case $__fabric_device in
    cxi) [ -n "$(command ls "$__fabric_nics")" ] ;;
    # beside the addresses of its devices, a driver's folder has files with which they are bound to it
    *) case $(command ls "$__fabric_nics") in *:*) ;; *) return 1 ;; esac ;;
  esac
}

__fabric_device=
if [ -r "$CONDA_PREFIX/share/fabric-profile/device" ]; then
  read -r __fabric_device < "$CONDA_PREFIX/share/fabric-profile/device" || true
fi
# CHANNEL_FABRIC_ROOT has /sys, /proc and /dev, for tests
case $__fabric_device in
  cxi) __fabric_nics=${CHANNEL_FABRIC_ROOT-}/sys/class/cxi ;;
  *) __fabric_nics=${CHANNEL_FABRIC_ROOT-}/sys/bus/pci/drivers/${__fabric_device:-none} ;;
esac
if __fabric_is_here && [ -r "$CONDA_PREFIX/share/fabric-profile/variables" ]; then
  __fabric=CONDA_FABRIC_PROFILE_${CONDA_SHLVL:-0}
  __fabric_names=
  while read -r __fabric_when __fabric_name __fabric_value; do
    if __fabric_holds "$__fabric_when"; then __fabric_set "$__fabric_name" "$__fabric_value"; fi
  done < "$CONDA_PREFIX/share/fabric-profile/variables"
  unset __fabric __fabric_names __fabric_first __fabric_node __fabric_nic __fabric_property __fabric_when
  unset __fabric_name __fabric_value __fabric_found __fabric_file __fabric_wanted __fabric_minor __fabric_word
fi
unset __fabric_nics __fabric_device
unset -f __fabric_is_here __fabric_set __fabric_has_several_nodes __fabric_has_alternative_rendezvous
unset -f __fabric_has_plugin __fabric_holds
