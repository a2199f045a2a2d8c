"""What `--cluster local` gains on a machine with two GPUs, in one run of less than ten minutes.

    python benchmarks/two_boards.py --output docs/data/two_boards.json [--budget 540] [--size 2048]

Measures, each part on its own so that one that fails leaves the others:

- settings a minute of a search on one board, on two, on two, on one (the order evens out drift), and
  without --cluster; compilations are cached before;
- whether all searches find the same winner, and how far apart their winners are where not;
- ratios to the baseline of a few settings on both boards, and their spread;
- a search of which one worker is killed half-way;
- two ncu at once, one a GPU: as they are, each with a TMPDIR of its own, each with a /tmp of its own;
  and which files they leave there, to find what they lock.

Writes JSON, one entry a size; an entry of the same size is replaced. What the budget leaves no
time for is listed, not guessed."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from ncu_toolkit.base.core.errors import EnvironmentProblem, ToolkitError  # noqa: E402  (after the path)
from ncu_toolkit.base.core.files import write_atomic  # noqa: E402
from ncu_toolkit.guests.cluster import cluster, schedulers  # noqa: E402
from ncu_toolkit.guests.tune import tune  # noqa: E402
from ncu_toolkit.guests.tune.halving import Search  # noqa: E402
from ncu_toolkit.kernel.gpu import collect, cuda  # noqa: E402
from ncu_toolkit.kernel.gpu.executor import Executor  # noqa: E402
from ncu_toolkit.kernel.gpu.runner import TARGET  # noqa: E402
from ncu_toolkit.kernel.gpu.selection import case_of  # noqa: E402
from ncu_toolkit.kernel.gpu.target import Plan, plan_path, write_plan  # noqa: E402
from ncu_toolkit.kernel.ladder.catalogue import find_rung  # noqa: E402
from ncu_toolkit.kernel.ladder.problems import problem_for  # noqa: E402

KERNEL: Final = "autotuned"
#: Measurements of one setting for its ratio on each board, and runs in each.
SAMPLES, REPEATS = 24, 24
#: Rungs that each ncu profiles.
UNDER_NCU: Final = ("naive", "coalesced", "smem_tiled", "register_blocked")


class Clock:
    """A reporter that notes when compiling and measuring began and how much was measured."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.measuring: float | None = None
        self.measurements = 0
        self.notes: list[str] = []
        self.half = threading.Event()

    def stage(self, title: str, total: int) -> None:
        if title.startswith("Round") and self.measuring is None:
            self.measuring = time.monotonic()

    def step(self, label: str) -> None:
        if self.measuring is not None:
            self.measurements += 1
            if self.measurements == 30:
                self.half.set()

    def doing(self, label: str) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)


@contextlib.contextmanager
def boards(cards: list[str], notes: list[str]) -> Iterator[Executor]:
    """A cluster of these GPUs."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(cards)
    try:
        with schedulers.opened("local", notes.append, slow_boards=True) as executor:
            yield executor
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


def request(size: str, settings: int) -> tune.TuneRequest:
    rung = find_rung(KERNEL)
    parsed = problem_for(rung.family).parse_size(size)
    return tune.TuneRequest(rung, parsed, most=settings, restart=True)


def facts(search: Search, clock: Clock, started: float) -> dict[str, Any]:
    """What one search measured and found."""
    spent = time.monotonic() - (clock.measuring or started)
    best = search.ranked()[0]
    return {
        "settings": len(search.timed),
        "measurements": clock.measurements,
        "measuring_seconds": round(spent, 3),
        "seconds": round(time.monotonic() - started, 3),
        "settings_a_minute": round(60 * len(search.timed) / spent, 1),
        "measurements_a_minute": round(60 * clock.measurements / spent, 1),
        "winner": dict(best.parameters),
        "winner_score": round(best.score(), 5),
        "finalists": {t.label: round(t.score(), 5) for t in search.ranked()[:6]},
    }


def search_on(cards: list[str], asked: tune.TuneRequest) -> dict[str, Any]:
    """One search on a cluster of these GPUs."""
    notes: list[str] = []
    began = time.monotonic()
    with boards(cards, notes) as executor:
        up = time.monotonic() - began
        clock, started = Clock(), time.monotonic()
        found = facts(tune.run(asked, clock, executor), clock, started)
        known = [board for board in executor._all.values() if board]
        probes = {b.label: [b.compute_us, b.memory_us, b.throttle] for b in known}
    return {
        "boards": len(cards),
        "start_seconds": round(up, 2),
        **found,
        "probes": probes,
        "notes": notes,
    }


def throughput(cards: list[str], size: str, settings: int) -> dict[str, Any]:
    """Searches on one board and on two. The first, which compiles, is not counted."""
    asked = request(size, settings)
    first = search_on(cards, asked)
    runs = [search_on(cards[:n], asked) for n in (1, 2, 2, 1)]
    rates = {
        n: statistics.mean(r["measurements_a_minute"] for r in runs if r["boards"] == n)
        for n in (1, 2)
    }
    winners = [json.dumps(run["winner"]) for run in (first, *runs)]
    return {
        "with_compilation": first,
        "runs": runs,
        "rates": rates,
        "gain": round(rates[2] / rates[1], 3),
        "same_winner": len(set(winners)) == 1,
    }


_PLAIN: Final = """
import json, sys, time
sys.path.insert(0, {root!r})
from benchmarks.two_boards import Clock, facts, request
from ncu_toolkit.kernel.gpu import tune
clock, started = Clock(), time.monotonic()
print(json.dumps(facts(tune.run(request({size!r}, {settings}), clock), clock, started)))
"""


def plain(card: str, size: str, settings: int) -> dict[str, Any]:
    """The same search without --cluster, in its own process: this one must not hold a GPU."""
    words = [sys.executable, "-c", _PLAIN.format(root=str(ROOT), size=size, settings=settings)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": card}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise EnvironmentProblem(f"the search without --cluster failed: {done.stderr[-500:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def ratios(cards: list[str], size: str, finalists: list[dict[str, int]]) -> dict[str, Any]:
    """Ratio to the baseline of each setting, by board: median, and half the distance of the
    quartiles."""
    rung = find_rung(KERNEL)
    name, dtype = f"{rung.family}/{rung.name}", problem_for(rung.family).dtype(None)
    source = cluster.nvcc.source_digest(rung)
    found: dict[str, Any] = {}
    with boards(cards, []) as executor:
        for parameters in finalists:
            task = (tune.BenchOf(name, size, dtype, source), parameters, REPEATS, None, False)
            seen: dict[str, list[float]] = {}
            for done in executor.run(tune.measure_setting, [task] * SAMPLES):
                if done.error is not None:
                    raise done.error
                runs = zip(done.value.times_us, done.value.beside_us, strict=True)
                seen.setdefault(done.where, []).append(statistics.median(t / b for t, b in runs))
            sides = {
                where: {
                    "samples": len(values),
                    "ratio": round(statistics.median(values), 5),
                    "spread": round(_spread(values), 5),
                }
                for where, values in seen.items()
            }
            medians = [side["ratio"] for side in sides.values()]
            label = " ".join(f"{k}={v}" for k, v in parameters.items())
            differ = round(max(medians) / min(medians) - 1, 5)
            within = differ <= 2 * max(side["spread"] for side in sides.values())
            found[label] = {"boards": sides, "differ": differ, "within_twice_the_spread": within}
    return found


def _spread(values: list[float]) -> float:
    if len(values) < 4:
        return max(values) / min(values) - 1
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / statistics.median(values)


def killed(cards: list[str], size: str, settings: int) -> dict[str, Any]:
    """A search of which one of two workers gets SIGKILL after 30 measurements."""
    notes: list[str] = []
    with boards(cards, notes) as executor:
        client = executor._client
        processes = client.run(os.getpid)
        clock, started = Clock(), time.monotonic()

        def kill() -> None:
            if clock.half.wait(300):
                os.kill(next(iter(processes.values())), signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()
        search = tune.run(request(size, settings), clock, executor)
        found = facts(search, clock, started)
    rounds = sum(len(trial.rounds) for trial in search.trials)
    return {
        **found,
        "finished": search.finished,
        "killed": clock.half.is_set(),
        "stored_rounds": rounds,
        "rounds_stored_twice": clock.measurements - rounds - _failed(search),
        "notes": notes,
    }


def _failed(search: Search) -> int:
    return sum(trial.state == "failed" for trial in search.trials)


def _ncu(card: str, folder: Path, temporary: Path | None, own_tmp: bool) -> subprocess.Popen[str]:
    """An ncu over a few rungs on one GPU."""
    cases = tuple(
        case_of(find_rung(name), problem_for("gemm_fp32").parse_size("1024"), "float32")
        for name in UNDER_NCU
    )
    folder.mkdir()
    write_plan(Plan(cases), plan_path(folder, "profile"))
    ncu = collect.find_ncu()
    asked = collect.Request(
        output=folder / "profile",
        command=(sys.executable, *TARGET, str(plan_path(folder, "profile"))),
        section_folders=collect.section_folders(ncu, "ladder"),
        set_name="ladder",
        ranges_only=True,
    )
    words = collect.argv(ncu, asked)
    packages = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": card, "PYTHONPATH": packages}
    if temporary is not None:
        temporary.mkdir(exist_ok=True)
        environment["TMPDIR"] = str(temporary)
    if own_tmp:
        script = 'mount -t tmpfs none /tmp && exec "$@"'
        words = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", *words]
    with (folder / "log").open("w") as sink:
        return subprocess.Popen(
            words, stdout=sink, stderr=sink, env=environment, text=True, cwd=ROOT
        )


def _both(cards: list[str], where: Path, temporary: bool, own_tmp: bool) -> dict[str, Any]:
    """Seconds until every ncu has ended."""
    before = _lock_files()
    started = time.monotonic()
    runs = []
    for n, card in enumerate(cards):
        folder = where / f"run-{len(list(where.glob('run-*')))}"
        runs.append(
            (folder, _ncu(card, folder, where / f"tmp-{n}" if temporary else None, own_tmp))
        )
    during: set[str] = set()
    while any(process.poll() is None for _, process in runs):
        during |= _lock_files() - before
        if time.monotonic() - started > 120:
            for _, process in runs:
                process.kill()
        time.sleep(0.05)
    seconds = time.monotonic() - started
    ok = [process.returncode == 0 and (f / "profile.ncu-rep").is_file() for f, process in runs]
    logs = [
        "" if good else (f / "log").read_text()[-300:]
        for good, (f, _) in zip(ok, runs, strict=True)
    ]
    return {"seconds": round(seconds, 2), "ok": ok, "logs": logs, "files_in_tmp": sorted(during)}


def _lock_files() -> set[str]:
    """Files of ncu in the usual folder for temporary files."""
    return {
        p.name
        for p in Path(tempfile.gettempdir()).iterdir()
        if "nsight" in p.name.lower() or "lock" in p.name.lower()
    }


def two_ncu(cards: list[str]) -> dict[str, Any]:
    """Two ncu at once in each arrangement, beside each by itself. Gain: time of both one after the
    other over time at once; 1 is serialised, 2 is free."""
    # Not under /tmp: one arrangement puts an empty folder there.
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".two-boards-") as name:
        where = Path(name)
        _both(cards[:1], where, False, False)  # compiles
        alone = [_both([card], where, False, False) for card in cards]
        found: dict[str, Any] = {"alone": alone}
        total = sum(each["seconds"] for each in alone)
        for label, temporary, own_tmp in (
            ("default", False, False),
            ("own TMPDIR", True, False),
            ("own /tmp, and so a lock file each", False, True),
        ):
            made = _both(cards, where, temporary, own_tmp)
            found[label] = {**made, "gain": round(total / made["seconds"], 3)}
    return found


def table(documents: list[dict[str, Any]]) -> str:
    """The figures as Markdown."""
    lines = [
        "| size | measurements a minute without `--cluster` | one board | two boards | gain over one board | winner of all searches |",
        "|---:|---:|---:|---:|---:|---|",
    ]
    for each in documents:
        runs, rates = each["throughput"], each["throughput"]["rates"]
        lines.append(
            f"| {each['size']} | {each['plain']['measurements_a_minute']:.0f} | {rates['1']:.0f} | {rates['2']:.0f} | "
            f"{runs['gain']:.2f} | {'the same' if runs['same_winner'] else 'not the same'} |"
        )
    lines.append("")
    for each in documents:
        for setting, sides in each.get("ratios", {}).items():
            if setting == "part_seconds":
                continue
            spread = max(side["spread"] for side in sides["boards"].values())
            lines.append(
                f"- Time over the baseline's at {each['size']}, {setting}: the boards differ by {sides['differ']:.2%}, "
                f"their own runs spread by {spread:.2%}."
            )
        if killed := each.get("killed"):
            ended = "finished" if killed["finished"] else "did not finish"
            lines.append(
                f"- A worker killed after 30 of {killed['measurements']} measurements at {each['size']}: the search {ended}, "
                f"{killed['rounds_stored_twice']} results measured twice."
            )
        for how, both in each.get("ncu", {}).items():
            if isinstance(both, dict):
                one = statistics.mean(run["seconds"] for run in each["ncu"]["alone"])
                lines.append(
                    f"- Two ncu at once, {how}: {both['seconds']:.1f} s, where one alone takes {one:.1f} s."
                )
    return "\n".join(lines) + "\n"


def _merged(path: Path, document: dict[str, Any]) -> str:
    """JSON of this size and of others that the file has. Boards are numbered: UUIDs and host names
    tell which machine it was."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    kept = [each for each in known if each["size"] != document["size"]]
    found = sorted([*kept, document], key=lambda each: int(each["size"]))
    text = json.dumps(found, indent=1)
    uuids = dict.fromkeys(re.findall(r"GPU-[0-9a-f-]{36}", text))
    for number, uuid in enumerate(uuids, 1):
        text = re.sub(f'{uuid}( on [^\\s"]+)?', f"board {number}", text)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--output", type=Path, default=Path("docs/data/two_boards.json"))
    parser.add_argument("--budget", type=float, default=540.0, help="begin no part after this long")
    parser.add_argument("--size", default="2048")
    parser.add_argument("--settings", type=int, default=120)
    parser.add_argument("--parts", default="throughput,ncu,killed,ratios,plain")
    given = parser.parse_args()
    cards = cuda.cards()[:2]
    if len(cards) < 2:
        print("error: this machine has fewer than two GPUs", file=sys.stderr)
        return 3
    started = time.monotonic()
    document: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "kernel": KERNEL,
        "size": given.size,
        "left_out": [],
    }
    size, settings = given.size, given.settings

    def finalists() -> list[dict[str, int]]:
        own = find_rung(KERNEL).with_parameters()
        best = document.get("throughput", {}).get("runs", [{}])[0].get("winner", own)
        return [own, best] if best != own else [own]

    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "throughput": lambda: throughput(cards, size, settings),
        "ncu": lambda: two_ncu(cards),
        "killed": lambda: killed(cards, size, settings),
        "ratios": lambda: ratios(cards, size, finalists()),
        "plain": lambda: plain(cards[0], size, settings),
    }
    for name in given.parts.split(","):
        at = time.monotonic() - started
        if at > given.budget:
            document["left_out"].append(name)
            continue
        try:
            document[name] = parts[name]()
        except (ToolkitError, OSError, subprocess.SubprocessError, ValueError) as error:
            document[name] = {"failed": f"{type(error).__name__}: {error}"}
        document[name]["part_seconds"] = round(time.monotonic() - started - at, 1)
        print(f"{time.monotonic() - started:5.0f} s  {name}", flush=True)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(given.output, (_merged(given.output, document) + "\n").encode())
    document["environment"] = cuda.environment()  # last: it makes a context on a board
    write_atomic(given.output, (_merged(given.output, document) + "\n").encode())
    print(_merged(given.output, document))
    return 0


if __name__ == "__main__":
    # Dask's workers import this file again.
    sys.exit(main())
