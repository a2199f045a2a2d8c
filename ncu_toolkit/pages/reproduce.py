"""How to make a page's figures again: commands as somebody else types them, and how to open the
report they came from."""

from __future__ import annotations

import re
import shlex
from typing import Final

from ncu_toolkit.core.safe import visible
from ncu_toolkit.document.views import Command
from ncu_toolkit.model.run import Run

#: A section folder of which scrubbing left the last component. Ours is always given first, Nsight
#: Compute's own behind it.
_SECTIONS: Final = re.compile(r"(?<=--section-folder )sections(?=\s|$)")
#: The list of cases that a ladder's run writes beside its report. A recording comes without it.
_PLAN: Final = re.compile(r"(?<=\.target )[\w.-]+\.json(?=\s|$)")
_MEANT: Final = {
    "$NCU_TOOLKIT": "$NCU_TOOLKIT is the folder of ncu-toolkit's checkout",
    "$NSIGHT_COMPUTE": "$NSIGHT_COMPUTE the folder of Nsight Compute, such as /opt/nvidia/nsight-compute/2025.3.1",
    "$PLAN": "$PLAN the list of kernels and sizes, which `ncu-toolkit profile` writes beside its report",
}


def commands(run: Run, rung: str = "", size: str = "") -> tuple[Command, ...]:
    """How to profile a rung again (where one is named), and what was run."""
    found = (
        [
            Command(
                "Profile it again, on a machine with a GPU:",
                f"ncu-toolkit profile --kernel {rung} --size {size}",
            )
        ]
        if rung
        else []
    )
    for command in run.commands:
        typed = command if run.live else _typed(command)
        meant = "; ".join(
            words for name, words in _MEANT.items() if name in typed and name not in command
        )
        what = (
            "Nsight Compute was run like this"
            if command.split(" ", 1)[0].rsplit("/", 1)[-1] == "ncu"
            else "This was run"
        )
        words = f"{what}. {meant[:1].upper()}{meant[1:]}." if meant else f"{what}:"
        found.append(
            Command(
                "Then:" if words in (before.what for before in found) else words,
                visible(typed, keep="\n"),
            )
        )
    return tuple(found)


def _typed(command: str) -> str:
    """A recorded command with what scrubbing took from its paths put back by name."""
    folders = iter(
        (
            "$NCU_TOOLKIT/sections",
            *["$NSIGHT_COMPUTE/sections"] * command.count("--section-folder "),
        )
    )
    return _PLAN.sub("$PLAN", _SECTIONS.sub(lambda _: next(folders), command))


def beside(run: Run, name: str) -> bool:
    """Whether a raw report lies beside the pages; a name from a report never becomes a path."""
    return (
        name in run.report_files
        and "/" not in name
        and "\\" not in name
        and not name.startswith(".")
    )


def opening(run: Run, name: str) -> tuple[Command, ...]:
    """How to open a report in the Nsight Compute GUI, which reads no packed files. Nothing where it
    does not lie beside the pages."""
    if not beside(run, name):
        return ()
    packed = name.endswith(".xz")
    opened = f"ncu-ui {shlex.quote(visible(name.removesuffix('.xz')))}"
    if not packed:
        return (Command("Open the report in the Nsight Compute GUI:", opened),)
    unpack = f"xz --decompress --keep {shlex.quote(visible(name))}"
    return (
        Command(
            "Unpack the report (this keeps the packed one), and open it in the Nsight Compute GUI:",
            f"{unpack}\n{opened}",
        ),
    )
