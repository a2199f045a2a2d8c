"""Shell completion of kernels, families and runs."""

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from ncu_toolkit.base.core.errors import ToolkitError


def kernels(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Rungs by name, or family/name once there is a slash; the last of a comma-separated list."""
    from ncu_toolkit.kernel.ladder.catalogue import load_families

    try:
        rungs = [rung for family in load_families().values() for rung in family.rungs]
    except ToolkitError:
        return []
    in_family = "/" in incomplete.rpartition(",")[2]
    names = ((f"{r.family}/{r.name}" if in_family else r.name, r.title) for r in rungs)
    return _matching(incomplete, names)


def kernel_or_file(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Rungs, else files."""
    return kernels(ctx, _, incomplete) or [CompletionItem(incomplete, type="file")]


def families(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ladders by name; the last of a list separated by commas."""
    from ncu_toolkit.kernel.ladder.problems import families as known

    return _matching(incomplete, ((name, "") for name in known()))


def runs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Unfinished runs in the folder of reports."""
    from ncu_toolkit.kernel.gpu.runner import unfinished_runs

    try:
        found = unfinished_runs(Path(ctx.params.get("reports") or "reports"))
    except (ToolkitError, OSError):
        return []
    return _matching(incomplete, ((folder.name, "") for folder in found))


def _matching(incomplete: str, names: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    head, comma, last = incomplete.rpartition(",")
    return [
        CompletionItem(head + comma + name, help=title)
        for name, title in dict(names).items()
        if name.startswith(last)
    ]
