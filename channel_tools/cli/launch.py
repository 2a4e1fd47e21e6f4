# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools launch``: runs a script as the ranks of a stack."""

from __future__ import annotations

import contextlib
import os

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, interrupted_code, print_line, print_note, write_result
from channel_tools.cli.options import asks
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.launch import ScriptRequest
from channel_tools.requests.options import words_of


@handled
@asks(ScriptRequest)
def launch(request: ScriptRequest, *, root: options.Root = None) -> None:
    """Run SCRIPT as the ranks of a stack, with the variables and programs that the stack needs.

    Without --stack, it is the stack that the environment was made for.
    """
    from channel_tools.ranks.watch import watch_folder
    from channel_tools.workflow.launch import check_script, plan_script, watch_of, write_job

    if request.image is not None:
        from channel_tools.workflow.images import run_in_image

        given = words_of(request, omit={"image", "local_scratch", "words"})
        before = ["launch", *options.root_words(root), *given, "--prefix"]
        with shown_progress() as progress:
            run_in_image(
                request.image,
                lambda prefix: [*before, prefix, *request.words],
                local_scratch=request.local_scratch,
                ranks=request.ranks,
                environ=os.environ,
                progress=progress,
            )
    is_named = request.stack is not None
    with contextlib.ExitStack() as stack:
        with options.settings_for_stacks(root, None, prefix=request.prefix, is_named=is_named) as settings:
            if request.emit is not None:
                write_result(write_job(settings, request, environ=os.environ), request.to)
                return
            watch_in = None if request.watch is None else stack.enter_context(watch_folder(request.folder))
            plan = plan_script(settings, request, environ=os.environ, watch_in=watch_in)
        if not request.dry_run:
            check_script(request)
        for line in plan.lines():
            (print_line if request.dry_run else print_note)(line)
        if request.dry_run:
            return
        from channel_tools.ranks.run import run_with_services

        try:
            with shown_progress() as progress:
                watch = None if watch_in is None else watch_of(request, plan, watch_in, progress)
                code = run_with_services(plan, progress=progress, watch=watch)
        except KeyboardInterrupt as err:
            print_note("interrupted: all ranks have been ended; what they had not saved themselves is lost")
            raise typer.Exit(interrupted_code(err)) from None
        raise typer.Exit(code)
