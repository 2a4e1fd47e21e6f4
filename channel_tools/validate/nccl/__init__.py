# SPDX-License-Identifier: BSD-3-Clause
"""The method ``nccl``: NCCL with a network plugin."""
