# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

from channel_tools.build.remote import Failure, Outcome, read_outcome, results_of, write_outcome
from channel_tools.system.errors import BuildError


def test_an_error_of_another_machine_is_the_same_error_here(tmp_path: Path) -> None:
    error = BuildError("toy: failed", hint="read the log")
    path = tmp_path / "results" / "toy.failed"
    write_outcome(path, Outcome(seconds=1.5, failure=Failure.of(error), notes=("slow",)))
    outcome = read_outcome(path)
    assert outcome.failure is not None
    found = outcome.failure.as_error()
    assert (type(found), found.message, found.hint) == (BuildError, error.message, error.hint)
    assert (outcome.seconds, outcome.notes, outcome.package) == (1.5, ("slow",), None)


def test_each_state_of_a_package_has_a_file_of_its_own(tmp_path: Path) -> None:
    results = results_of(tmp_path / "builds.json", "toy-1.0-h1_0")
    paths = [results.built, results.admitted, results.failed]
    assert {path.parent for path in paths} == {tmp_path / "results"}
    assert len({*paths}) == len(paths)
