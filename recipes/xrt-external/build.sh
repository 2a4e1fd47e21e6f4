#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

install -D -m 755 src/xrt-external-check.sh "${PREFIX}/bin/xrt-external-check"
install -D -m 644 src/activate.sh "${PREFIX}/etc/conda/activate.d/activate-xrt-external.sh"
install -D -m 644 src/deactivate.sh "${PREFIX}/etc/conda/deactivate.d/deactivate-xrt-external.sh"
