# SPDX-License-Identifier: BSD-3-Clause
# The installed program knows the channel's stacks in a folder that has no tree of recipes.
set -euo pipefail
cd "$(mktemp -d)"
# the exit code is that of an environment without the stack's packages
channel_tools doctor "$CONDA_PREFIX" | tee found.txt || true
grep -q 'examined as the default stack' found.txt
