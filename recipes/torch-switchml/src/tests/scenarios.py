# SPDX-License-Identifier: BSD-3-Clause
"""What the ranks of a test do: `python scenarios.py NAME` runs one function of the modules scenarios_of_*.

A scenario that ends leaves its return value, as JSON, in the test's folder.
"""

import importlib
import sys

from scenario import leave

if __name__ == "__main__":
    modules = [importlib.import_module(f"scenarios_of_{what}") for what in ("checks", "groups", "endings", "failures")]
    (scenario,) = {vars(module)[sys.argv[1]] for module in modules if sys.argv[1] in vars(module)}
    leave(scenario())
