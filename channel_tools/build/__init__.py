# SPDX-License-Identifier: BSD-3-Clause
"""The build stage: one child process per package, in the plan's order, into the channel.

Nothing is imported here, so a worker process starts without loading modules that only the scheduler needs.
"""
