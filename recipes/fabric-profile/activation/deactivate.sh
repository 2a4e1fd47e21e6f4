# SPDX-License-Identifier: BSD-3-Clause
# Unsets what the activation of this level set; what the user has changed since then stays the user's.
__fabric=CONDA_FABRIC_PROFILE_${CONDA_SHLVL:-0}
eval "__fabric_names=\${$__fabric:-}"
while [ -n "$__fabric_names" ]; do
  __fabric_names=${__fabric_names# }
  __fabric_name=${__fabric_names%% *}
  __fabric_names=${__fabric_names#"$__fabric_name"}
  if eval "[ \"\${$__fabric_name-}\" = \"\${${__fabric}_$__fabric_name-}\" ]"; then
    unset "$__fabric_name"
  fi
  unset "${__fabric}_$__fabric_name"
done
unset "$__fabric" __fabric __fabric_name __fabric_names
