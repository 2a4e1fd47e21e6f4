# SPDX-License-Identifier: BSD-3-Clause
"""The method ``switchml``: gloo scripts whose allreduces a SwitchML switch must have carried."""
