# SPDX-License-Identifier: BSD-3-Clause
"""The method ``distributed``: any process-group backend under torchrun or mpiexec."""
