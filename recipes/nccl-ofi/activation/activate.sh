# SPDX-License-Identifier: BSD-3-Clause
# What NCCL over libfabric needs on Slingshot, on machines that have a Slingshot NIC. A variable that is set, be it empty,
# is the user's decision. What is set here is kept in CONDA_NCCL_OFI_<level>*, for the deactivation of that level.
__nccl_ofi_set() {
  if eval "[ -z \"\${$1+set}\" ]"; then
    export "$1=$2"
    export "${__nccl_ofi}_$1=$2" "$__nccl_ofi=$__nccl_ofi_names $1"
    __nccl_ofi_names="$__nccl_ofi_names $1"
  fi
}

# Whether this runs in a job of several nodes. On one, Slingshot gives no VNI, without which the plugin cannot start.
__nccl_ofi_has_several_nodes() {
  if [ -n "${FLUX_JOB_NNODES-}" ]; then  # first, for Flux also runs within other schedulers' jobs
    [ "$FLUX_JOB_NNODES" -gt 1 ] 2>/dev/null
  elif [ -n "${SLURM_JOB_ID-}" ]; then
    case ${SLURM_STEP_ID-} in
      # Slurm numbers batch scripts and interactive shells, steps of one node of the job, from 2^32 downwards
      "" | 42949672??) [ "${SLURM_JOB_NUM_NODES:-${SLURM_NNODES-}}" -gt 1 ] 2>/dev/null ;;
      *) [ "${SLURM_STEP_NUM_NODES:-${SLURM_JOB_NUM_NODES:-${SLURM_NNODES-}}}" -gt 1 ] 2>/dev/null ;;
    esac
  elif [ -r "${PBS_NODEFILE-}" ]; then  # a node has a line for each of its ranks
    __nccl_ofi_first=
    while read -r __nccl_ofi_node || [ -n "$__nccl_ofi_node" ]; do
      if [ "$__nccl_ofi_node" != "${__nccl_ofi_first:=$__nccl_ofi_node}" ]; then return 0; fi
    done < "$PBS_NODEFILE"
    return 1
  else
    case ${LSB_MCPU_HOSTS-} in  # NODE SLOTS NODE SLOTS ...
      *[!\ ]\ *[!\ ]*\ [!\ ]*) return 0 ;;
      *) return 1 ;;
    esac
  fi
}

# CHANNEL_CXI_CLASS is where the kernel lists the NICs, for tests
if [ -d "${CHANNEL_CXI_CLASS:-/sys/class/cxi}" ] && [ -n "$(command ls "${CHANNEL_CXI_CLASS:-/sys/class/cxi}")" ]; then
  __nccl_ofi=CONDA_NCCL_OFI_${CONDA_SHLVL:-0}
  __nccl_ofi_names=
  # with the plugin named, NCCL stops where it cannot use it, and does not fall back to sockets
  if __nccl_ofi_has_several_nodes; then __nccl_ofi_set NCCL_NET "@NET_NAME@"; fi
  __nccl_ofi_set NCCL_CROSS_NIC 1
  __nccl_ofi_set NCCL_SOCKET_IFNAME hsn
  __nccl_ofi_set FI_CXI_DEFAULT_CQ_SIZE 131072
  __nccl_ofi_set FI_CXI_DISABLE_HOST_REGISTER 1
  __nccl_ofi_set FI_MR_CACHE_MONITOR userfaultfd
  unset __nccl_ofi __nccl_ofi_names __nccl_ofi_first __nccl_ofi_node
fi
unset -f __nccl_ofi_set __nccl_ofi_has_several_nodes
