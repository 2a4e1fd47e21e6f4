# SPDX-License-Identifier: BSD-3-Clause
"""What comes to the server: sets of packages, checked before they are shown."""
