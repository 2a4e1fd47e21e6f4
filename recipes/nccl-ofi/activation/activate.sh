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

# CHANNEL_CXI_CLASS is where the kernel lists the NICs, for tests
__nccl_ofi_nic=
for __nccl_ofi_device in "${CHANNEL_CXI_CLASS:-/sys/class/cxi}"/*; do
  if [ -e "$__nccl_ofi_device" ]; then __nccl_ofi_nic=$__nccl_ofi_device; fi
done
if [ -n "$__nccl_ofi_nic" ]; then
  __nccl_ofi=CONDA_NCCL_OFI_${CONDA_SHLVL:-0}
  __nccl_ofi_names=
  # with the plugin named, NCCL stops where it cannot use it, and does not fall back to sockets
  __nccl_ofi_set NCCL_NET "@NET_NAME@"
  __nccl_ofi_set NCCL_CROSS_NIC 1
  __nccl_ofi_set NCCL_NET_GDR_LEVEL PHB
  __nccl_ofi_set NCCL_SOCKET_IFNAME hsn
  __nccl_ofi_set FI_CXI_DEFAULT_CQ_SIZE 131072
  __nccl_ofi_set FI_CXI_DISABLE_HOST_REGISTER 1
  __nccl_ofi_set FI_MR_CACHE_MONITOR userfaultfd
  unset __nccl_ofi __nccl_ofi_names
fi
unset __nccl_ofi_device __nccl_ofi_nic
unset -f __nccl_ofi_set
