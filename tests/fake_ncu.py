"""An ncu that is none, for ladders: plays the program under it as well, and writes its report when
it ends, as ncu does.

In the folder $FAKE_NCU lie `base.ncu-rep`, from which reports are cut, and what it is to do: `at`,
a marker, and `what` happens there: hang, crash (the program ends with 139), kill (ncu itself),
say:TEXT (ncu says TEXT and ends with 1), cut (the report loses its end). As ncu 2026.3 it packs the
report where the export has no suffix. `ran` collects the markers
of all cases it began."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

HERE = Path(os.environ["FAKE_NCU"])


def main(words: list[str]) -> int:
    if words == ["--version"]:
        print(
            "NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 1) (public-release)"
        )
        return 0
    import ladder_report
    import recorded

    from ncu_toolkit.base.core import files
    from ncu_toolkit.kernel.gpu.target import add_step, read_plan, stop_path

    recorded.report_bytes = lambda: (HERE / "base.ncu-rep").read_bytes()  # type: ignore[assignment]
    output = Path(words[words.index("--export") + 1])
    if not output.suffix:
        output = output.with_suffix(".ncu-repz")
    path = Path(words[-1])
    plan = read_plan(path)
    at, what = (
        (HERE / name).read_text() if (HERE / name).is_file() else "" for name in ("at", "what")
    )
    done, began, code, cut = [], time.monotonic(), 0, False
    for index, case in enumerate(plan.cases):
        if stop_path(path).exists():
            add_step(path, index, "stopped")
            break
        if index and plan.seconds is not None and time.monotonic() - began > plan.seconds:
            add_step(path, index, "paused")
            break
        add_step(path, index, "started")
        with (HERE / "ran").open("a") as sink:
            sink.write(case.marker + "\n")
        if case.marker == at:
            if what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "hang":
                (HERE / "hangs").write_text(str(os.getpid()))
                while not stop_path(path).exists():
                    time.sleep(0.02)
            if what == "crash":
                code = 139
                break
            if what.startswith("say:"):
                print(what.removeprefix("say:"))
                return 1
            if what == "cut":
                cut = True
                (HERE / "at").unlink()  # once
        time.sleep(0.1)
        done.append(case.marker)
        add_step(path, index, "profiled")
        print(f'==PROF== Profiling "{case.rung}": 0%....50%....100% - 16 passes')
    if done:
        data = ladder_report.report_of(done)
        output.write_bytes(files.packed(output.name, data[:-1000] if cut else data))
    else:
        print("==WARNING== No kernels were profiled.")
    if code:
        print(f"==ERROR== The application returned an error code ({code}).")
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
