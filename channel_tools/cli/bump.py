# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools bump``: another version of a recipe's software."""

from __future__ import annotations

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_note
from channel_tools.cli.options import asks
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.init import BumpRequest
from channel_tools.system.counting import counted


@handled
@asks(BumpRequest)
def bump(
    request: BumpRequest, *, root: options.Root = None, output: options.Output = None, as_json: options.Json = False
) -> None:
    """Write a new version into a recipe: its sources' sha256 and its patches' paths, if all its patches apply."""
    from channel_tools.workflow.bump import bump as bumped

    with shown_progress() as progress:
        change = bumped(options.settings_from(root, output), request, progress)
    if as_json:
        print_json(change.as_json())
        return
    for line in change.lines:
        print_line(f"{line.path}:{line.line}: " + (f"{line.before}  ->  {line.after}" if line.before else line.after))
    for source in change.sources:
        print_line(f"{source.url}: sha256 {source.sha256}" + ("" if source.is_checked else " (as given, not fetched)"))
    for name in change.patches:
        print_line(f"{name}: applies")
    for name in change.unchecked:
        print_line(f"{name}: not tried, since the source is not in the store; builds try it")
    for before, after in change.moved:
        print_line(f"{before}  ->  {after}")
    if change.also:
        print_note(f"the key of the version is also used by {', '.join(change.also)}: see channel_tools plan --why")
    would = "would have" if request.check else "have"
    summary = f"{change.recipe} {', '.join(change.old)} -> {change.new}"
    print_line(
        f"{summary}: {counted(change.variants, 'variant')} {would} it"
        + (", nothing was written" if request.check else "")
    )
