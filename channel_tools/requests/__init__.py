# SPDX-License-Identifier: BSD-3-Clause
"""What commands are asked for: a class for each, its fields the command's options, handed on as it is to every stage.

A module has the name of its command. Nothing slow is imported here: ``--help`` is made from these classes.
"""
