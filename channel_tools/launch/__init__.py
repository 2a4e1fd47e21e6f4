# SPDX-License-Identifier: BSD-3-Clause
"""Runs a user's script as the ranks of a stack, with the launcher, the variables and the programs that it needs."""

from channel_tools.launch.jobs import JobOptions, job_script
from channel_tools.launch.plan import LaunchPlan, LaunchRequest, plan_launch
from channel_tools.launch.run import run_launch

__all__ = ["JobOptions", "LaunchPlan", "LaunchRequest", "job_script", "plan_launch", "run_launch"]
