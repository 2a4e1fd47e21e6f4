# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to OCI registries."""
