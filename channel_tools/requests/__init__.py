# SPDX-License-Identifier: BSD-3-Clause
"""What a command is asked for, as one value: its fields are the command's options, and every stage takes it as it is.

A module has the name of the command, or says which commands share it. Nothing slow is imported here: ``--help`` is made
from these classes.
"""
