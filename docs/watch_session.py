"""The recorded terminal session of `watch`: the command's own loop and screen, over rungs of the
recorded FP32 ladder instead of what a GPU would measure after each save."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import ladder_report  # tests/ladder_report.py
from rich.console import Console

#: What each save makes of the kernel: its rung in the recording, and what the user did.
SAVES = (
    ("naive", ""),
    ("naive", "a comment is edited"),
    ("coalesced", "threadIdx.x now runs along the columns"),
    ("smem_tiled", "tiles of A and B are kept in shared memory"),
)
SIZE = "4096"
WIDTH = 104


def recorded() -> Console:
    """A console that holds the session."""
    screen = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True,
        color_system="truecolor", highlight=False, legacy_windows=False,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        _play(screen, Path(folder))
    return screen


def svg(screen: Console) -> str:
    """The session as an SVG without fonts from elsewhere."""
    found = screen.export_svg(title="ncu-toolkit watch", unique_id="watch")
    return re.sub(r"\s*@font-face \{.*?\}\n", "\n", found, flags=re.DOTALL) + "\n"


def _play(screen: Console, folder: Path) -> None:
    from ncu_toolkit.guests.watch.command import Screen  # a guest, which may be gone
    from ncu_toolkit.guests.watch.watch import Watched, loop

    view = Screen(screen)
    now = [SAVES[0][0]]

    def saves() -> Iterator[str]:
        for rung, done in SAVES[1:]:
            now[0] = rung
            screen.print(f"\n[dim]# matmul.cu is saved: {done}[/]")
            yield done

    def profile() -> Path:
        (marker,) = (each for each in ladder_report.markers() if f"/{now[0]}:{SIZE}:" in each)
        run = folder / now[0]
        run.mkdir()
        (run / "profile.ncu-rep").write_bytes(ladder_report.report_of([marker]))
        return run

    screen.print("$ ncu-toolkit watch --kernel matmul --build make -- ./matmul\n", markup=False)
    view.line("each save is a round; q or Ctrl-C ends it")
    loop(Watched(), saves(), profile, view, lambda _: now[0])
    screen.print("\n[dim]# q[/]")
    view.line("ended; every round is in reports")
