# SPDX-License-Identifier: BSD-3-Clause
# Activates and deactivates under `set -eu`, without and with a Slingshot NIC, from every state of the variables.
on=$CONDA_PREFIX/etc/conda/activate.d/activate-fabric-profile.sh
off=$CONDA_PREFIX/etc/conda/deactivate.d/deactivate-fabric-profile.sh

same() { # WHAT FOUND EXPECTED
  if [ "$2" != "$3" ]; then
    echo "$1: found '$2', expected '$3'" >&2
    exit 1
  fi
}

state() { env | grep -E '^(NCCL_|FI_CXI|FI_MR|CONDA_FABRIC|__fabric)' | sort; }

unset NCCL_NET NCCL_CROSS_NIC NCCL_NET_GDR_LEVEL NCCL_SOCKET_IFNAME
unset FI_CXI_DEFAULT_CQ_SIZE FI_CXI_DISABLE_HOST_REGISTER FI_MR_CACHE_MONITOR
# the job that this runs in, if it does
unset FI_CXI_RDZV_PROTO FI_CXI_RDZV_GET_MIN FI_CXI_RX_MATCH_MODE
unset SLURM_NETWORK FLUX_JOB_NNODES SLURM_STEP_ID SLURM_STEP_NUM_NODES SLURM_NNODES PBS_NODEFILE LSB_MCPU_HOSTS
export SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2
before=$(state)

# no Slingshot: nothing
export CHANNEL_FABRIC_ROOT="$WORK/none"
. "$on"
same "without a NIC" "$(state)" "$before"
. "$off"
same "without a NIC, off" "$(state)" "$before"
export CHANNEL_FABRIC_ROOT="$WORK/absent"
. "$on"
. "$off"
same "without the class" "$(state)" "$before"

# Slingshot: everything, and nothing afterwards
export CHANNEL_FABRIC_ROOT="$WORK/nic"
. "$on"
same "NCCL_NET" "$NCCL_NET" "AWS Libfabric"
same "NCCL_SOCKET_IFNAME" "$NCCL_SOCKET_IFNAME" hsn
same "FI_MR_CACHE_MONITOR" "$FI_MR_CACHE_MONITOR" userfaultfd
same "FI_CXI_DEFAULT_CQ_SIZE" "$FI_CXI_DEFAULT_CQ_SIZE" 131072
same "others" "$NCCL_CROSS_NIC $FI_CXI_DISABLE_HOST_REGISTER" "1 1"
# depends on where a node has its GPUs and NICs
same "NCCL_NET_GDR_LEVEL" "${NCCL_NET_GDR_LEVEL-unset}" unset
. "$off"
same "with a NIC, off" "$(state)" "$before"

# alternative rendezvous: of the job, or of every NIC of the node
same "FI_CXI_RDZV_PROTO" "${FI_CXI_RDZV_PROTO-unset}" unset
export SLURM_NETWORK=job_vni,disable_rdzv_get
. "$on"
same "FI_CXI_RDZV_PROTO of the job" "$FI_CXI_RDZV_PROTO $FI_CXI_RDZV_GET_MIN" "alt_read 0"
same "FI_CXI_RX_MATCH_MODE without an AMD GPU" "${FI_CXI_RX_MATCH_MODE-unset}" unset
. "$off"
unset SLURM_NETWORK
same "alternative rendezvous, off" "$(state)" "$before"
mkdir -p "$WORK/nic/sys/class/cxi/cxi0/device/properties"
echo 0 > "$WORK/nic/sys/class/cxi/cxi0/device/properties/rdzv_get_en"
. "$on"
same "FI_CXI_RDZV_PROTO of the node" "$FI_CXI_RDZV_PROTO" alt_read
. "$off"
rm -r "$WORK/nic/sys/class/cxi/cxi0/device"
same "the node's, off" "$(state)" "$before"

# one node: the rest, and nothing afterwards
export SLURM_JOB_NUM_NODES=1
. "$on"
same "NCCL_NET on one node" "${NCCL_NET-unset}" unset
same "NCCL_SOCKET_IFNAME on one node" "$NCCL_SOCKET_IFNAME" hsn
. "$off"
same "one node, off" "$(state)" "$before"
export SLURM_JOB_NUM_NODES=2

# what the user has set stays, an empty value too, also afterwards
export NCCL_NET='' FI_MR_CACHE_MONITOR=memhooks
mine=$(state)
. "$on"
same "NCCL_NET, empty" "$NCCL_NET" ""
same "FI_MR_CACHE_MONITOR, mine" "$FI_MR_CACHE_MONITOR" memhooks
same "NCCL_CROSS_NIC beside it" "$NCCL_CROSS_NIC" 1
. "$off"
same "mine, off" "$(state)" "$mine"
unset NCCL_NET FI_MR_CACHE_MONITOR

# what the user changes in between stays
. "$on"
NCCL_CROSS_NIC=0
. "$off"
same "changed in between" "$NCCL_CROSS_NIC" 0
same "the rest" "${NCCL_NET-unset}" unset
unset NCCL_CROSS_NIC

# stacked environments: the inner one's end leaves the outer one as it was
CONDA_SHLVL=1 && . "$on"
outer=$(state)
CONDA_SHLVL=2 && . "$on"
same "stacked" "$(state)" "$outer"
. "$off"
same "inner gone" "$(state)" "$outer"
CONDA_SHLVL=1 && . "$off"
same "both gone" "$(state)" "$before"
