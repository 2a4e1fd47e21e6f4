# SPDX-License-Identifier: BSD-3-Clause
"""What the ranks of a test do: `python scenarios.py NAME` runs one function of the modules scenarios_of_*.

A scenario that ends leaves its return value, as JSON, in the test's folder.

Most of a rank's processor time goes into the end of its interpreter, which takes apart all of PyTorch. Where ends are
not what is tested, one rank shows that it ends well (`ranks.rank_that_shows_its_end`) and the others leave once their
exit functions have run.
"""

import atexit
import importlib
import os
import sys

from scenario import leave

ENDS_OF_ALL = "scenarios_of_endings"

if __name__ == "__main__":
    modules = [importlib.import_module(f"scenarios_of_{what}") for what in ("checks", "groups", "endings", "failures")]
    (scenario,) = {vars(module)[sys.argv[1]] for module in modules if sys.argv[1] in vars(module)}
    leave(scenario())
    if scenario.__module__ != ENDS_OF_ALL and "SCENARIO_LEAVES_EARLY" in os.environ:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
