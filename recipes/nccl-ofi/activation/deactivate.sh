# SPDX-License-Identifier: BSD-3-Clause
# Unsets what the activation of this level set; what the user has changed since then stays the user's.
__nccl_ofi=CONDA_NCCL_OFI_${CONDA_SHLVL:-0}
eval "__nccl_ofi_names=\${$__nccl_ofi:-}"
while [ -n "$__nccl_ofi_names" ]; do
  __nccl_ofi_names=${__nccl_ofi_names# }
  __nccl_ofi_name=${__nccl_ofi_names%% *}
  __nccl_ofi_names=${__nccl_ofi_names#"$__nccl_ofi_name"}
  if eval "[ \"\${$__nccl_ofi_name-}\" = \"\${${__nccl_ofi}_$__nccl_ofi_name-}\" ]"; then
    unset "$__nccl_ofi_name"
  fi
  unset "${__nccl_ofi}_$__nccl_ofi_name"
done
unset "$__nccl_ofi" __nccl_ofi __nccl_ofi_name __nccl_ofi_names
