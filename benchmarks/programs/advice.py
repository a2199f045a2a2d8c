"""Does the answer make programs faster? Programs before their fix are changed by coding agents, under
several conditions, and all versions run on one GPU in turns.

    python -m benchmarks.programs.advice prepare WORK    tasks for agents: sources and evidence, in batches
    python -m benchmarks.programs.advice collect WORK    their versions into benchmarks/programs/advised
    python -m benchmarks.programs.advice run OUT         needs a GPU: every version in turns
    python -m benchmarks.programs.advice fixes OUT       needs a GPU: before and `all` in turns; OUT/times.json
                                                         is kept as benchmarks/programs/advised/all.json
    python -m benchmarks.programs.advice score OUT       no GPU: what each condition gained, into docs/advice.md,
                                                         and the rules' records, into the package

Conditions: `source` (the program alone), `nsys` (and the tables of `nsys stats`, computed here from
the recording that the answer is from), `answer` (and what `ncu-toolkit analyze` prints of that recording
and its report), `followed` (the same, with the task to follow the first cause's advice as written),
`wrong` (the answer with another program's first cause instead of its own).

`all` is no condition: no agent wrote it. It is `after` with the other causes that the answer names
fixed too, and nothing else; savings.py compares it with the simulation of all fixes.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from benchmarks.field.scoring import update
from benchmarks.programs.run import close
from benchmarks.programs.score import read_labels

HERE: Final = Path(__file__).resolve().parent
PAIRS, RECORDINGS, ADVISED = HERE / "pairs", HERE / "recordings", HERE / "advised"
CONDITIONS: Final = ("source", "nsys", "answer", "followed", "wrong")
#: The same programs under each of these.
COMPARED: Final = CONDITIONS[:3]
VARIANTS: Final = ("before", *CONDITIONS, "after")
#: Versions in which all causes are fixed, and their times, which are none of the conditions'.
ALL: Final = "all"
ALL_TIMES: Final = ADVISED / "all.json"
#: A version is faster from here on: two runs of one program differ by less.
FASTER: Final = 1.05
#: Part of the gain that is known to be possible, below which advice did not do what it should.
HALF: Final = 0.5
PAGE: Final = HERE.parents[1] / "docs" / "advice.md"
#: The records, as the package has them.
SHIPPED: Final = HERE.parents[1] / "ncu_toolkit" / "data" / "followed.json"
WORDS: Final = {
    "source": "the source",
    "nsys": "source and nsys statistics",
    "answer": "source and our answer",
    "followed": "our answer, to be followed as written",
    "wrong": "another program's cause",
    "after": "the program's own fix",
}
#: Programs, those of the control with another program's cause, and programs in one agent's batch.
PROGRAMS, CONTROL, BATCH = 42, 10, 4
#: Programs whose fix gains less, or that run longer, are left out: seconds of a GPU.
LEAST_GAIN, LONGEST = 1.1, 9.9
TASK: Final = """# Task

In this folder lie {count} programs, each in a folder of its own. Work on one after another, independently.
Each folder has `before.py` or `before.cu`{evidence}.

Make the program's step faster on one NVIDIA H200 (PyTorch 2.11, CUDA 13.0, CuPy 14.2, JAX, Triton 3.6, Numba).
Write the changed program as `changed.py` (or `changed.cu`) beside it. Rules:

- It must compute the same results: the final line of JSON (keys program, steps, us, result) stays, with
  `result` equal within a relative tolerance of {tolerance}. The same number of steps is run and timed, each
  does the same work on the same data, warm-up steps are kept, and nothing that a step has to compute is moved
  out of the timed part unless it is the same in each step.
- No new packages; one file; no command-line options. Existing packages of the program's framework are fine.
- You have no GPU, and one attempt. Check syntax with `{python} -m py_compile changed.py`; a .cu with
  `{nvcc} -arch=sm_90 -O3 -std=c++17 -o /tmp/x.out changed.cu`. Run nothing else that is heavy.
- Spend about five minutes on a program at most. Change what you think limits the step; not everything.
{how}
For each program write `note.json` beside it: {{"limits": "what you think limits the step, one sentence",
"change": "what you changed, one sentence"{keys}}}.

Read nothing outside this folder (no other folder of this machine, no network). When all have `changed.*`
and `note.json`, answer with one line: "done", and what you could not do.
"""
_ANSWER: Final = (
    ", and `answer.txt`: what a profiler's analysis says of its step, recorded on an NVIDIA GPU"
)
HOW: Final = {
    "source": ("", "", ""),
    "nsys": (
        ", and `statistics.txt`: the tables of `nsys stats` of some of its steps, recorded on an NVIDIA GPU",
        "- Look at the statistics first.\n",
        "",
    ),
    "answer": (
        _ANSWER,
        "- Look at the answer first.\n",
        "",
    ),
    "followed": (
        _ANSWER,
        "- Read the answer first, and follow its advice as it is written where it applies. If an advice cannot\n"
        "  be followed, say so in the note, and do what you think is best.\n",
        ', "followed": "yes, partly or no: whether the advice of the FIRST cause was followed", '
        '"possible": "yes, partly or no: whether it could be followed as written", '
        '"why": "if not wholly, why, one sentence"',
    ),
}  # fmt: skip


def chosen() -> list[str]:
    """Programs by a hash of their names, among those that a fix is known to make faster."""
    times = json.loads((RECORDINGS / "times.json").read_text(encoding="utf-8"))
    names = []
    for path in PAIRS.iterdir():
        before, after = (times.get(path.name, {}).get(side, {}) for side in ("before", "after"))
        if not (before.get("us") and after.get("us")):
            continue
        gain = statistics.median(before["us"]) / statistics.median(after["us"])
        recorded = (RECORDINGS / f"{path.name}.before.ncu-trace").is_file()
        if recorded and gain >= LEAST_GAIN and before["seconds"] <= LONGEST:
            names.append(path.name)
    return sorted(names, key=lambda name: sha256(f"advice{name}".encode()).digest())[:PROGRAMS]


def answer(name: str) -> tuple[str, str]:
    """What `analyze` prints of a program's recording, with its report where there is one; and the rule
    of its first cause."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(RECORDINGS / f"{name}.before.ncu-trace")]
        packed = RECORDINGS / f"{name}.before.ncu-rep.xz"
        if packed.is_file():
            report = Path(folder) / f"{name}.ncu-rep"
            report.write_bytes(lzma.decompress(packed.read_bytes()))
            files.append(str(report))
        said = []
        for form in ("text", "json"):
            words = [sys.executable, "-m", "ncu_toolkit", "analyze", "--format", form, *files]
            environment = {**os.environ, "COLUMNS": "100"}
            said.append(subprocess.check_output(words, text=True, env=environment))
        findings = json.loads(said[1])["programs"][0]["findings"]
        return said[0], findings[0]["rule"] if findings else ""


def table(title: str, unit: str, rows: Mapping[str, Sequence[float]]) -> str:
    """One table of `nsys stats`: rows by their total."""
    everything = sum(map(sum, rows.values())) or 1
    lines = [f" ** {title}:", "",
             f" {'Time (%)' if unit == 'ns' else 'Share (%)':>9} {f'Total ({unit})':>15} {'Count':>8} {f'Avg ({unit})':>13} {f'Med ({unit})':>13} "
             f"{f'Min ({unit})':>12} {f'Max ({unit})':>12}  Name"]  # fmt: skip
    for name, values in sorted(rows.items(), key=lambda row: -sum(row[1])):
        lines.append(
            f" {100 * sum(values) / everything:9.1f} {sum(values):15,.0f} {len(values):8,d} "
            f"{statistics.mean(values):13,.1f} {statistics.median(values):13,.1f} "
            f"{min(values):12,.0f} {max(values):12,.0f}  {name}"
        )
    return "\n".join([*lines, "", ""])


def nsys_statistics(name: str) -> str:
    """The sums of `nsys stats` over a recording: calls, kernels, copies by time and by size."""
    from ncu_toolkit.program.traces.files import read_trace

    trace = read_trace(RECORDINGS / f"{name}.before.ncu-trace")
    calls, kernels, copies, sizes = (defaultdict[str, list[float]](list) for _ in range(4))
    for call in trace.calls:
        calls[trace.names[call.name]].append(call.end - call.start)
    for op in trace.ops:
        if op.kind == "kernel":
            kernels[trace.shapes[op.shape].kernel].append(op.end - op.start)
        else:
            what = "[CUDA memset]" if op.kind == "set" else f"[CUDA memcpy {op.path}]"
            copies[what].append(op.end - op.start)
            sizes[what].append((op.size or 0) / 1e6)
    return (
        table("CUDA API Summary (cuda_api_sum)", "ns", calls)
        + table("CUDA GPU Kernel Summary (cuda_gpu_kern_sum)", "ns", kernels)
        + table("CUDA GPU MemOps Summary (by Time) (cuda_gpu_mem_time_sum)", "ns", copies)
        + table("CUDA GPU MemOps Summary (by Size) (cuda_gpu_mem_size_sum)", "MB", sizes)
    )


def parts(text: str) -> tuple[str, str, str, str, str]:
    """An answer's heading, its first cause's title and evidence, the account of the step, where and what
    to do, and what follows."""
    heading, _, rest = text.partition("\n\n")
    claim, mark, rest = rest.partition("\n\nwhere the step goes")
    account, where, rest = rest.partition("\nwhere   ")
    ending = re.search(r"\n(then|also)    |\n\n", rest)
    at = ending.start() if ending else len(rest)
    return heading, claim, mark + account, where + rest[:at], rest[at:]


def swapped(text: str, other: str) -> str:
    """An answer with the first cause of another in its place, at this program's own lines."""
    heading, _, account, own, following = parts(text)
    _, claim, _, advice, _ = parts(other)
    place = re.compile(r"before\.\w+:\d+")
    if places := place.findall(own) or place.findall(account + following):
        advice = place.sub(places[0], advice)
    following = following[max(following.find("\n\n"), 0) :]  # what comes second would give it away
    end = following.find("\nStep: ")
    return f"{heading}\n\n{claim}{account}{advice}\n{following[end:] if end >= 0 else ''}"


def has(name: str, condition: str) -> bool:
    """Whether an agent's version is in `advised`."""
    return any((ADVISED / name).glob(f"{condition}.*[yu]"))


def prepare(work: Path) -> None:
    """Write the batches of what `advised` does not have; programs of a batch are drawn anew for each
    condition."""
    known = read_labels(HERE)
    names = chosen()
    found = {name: answer(name) for name in names}
    answers = {name: text for name, (text, _) in found.items()}
    work.mkdir(parents=True, exist_ok=True)
    (work / "rules.json").write_text(
        json.dumps({name: rule for name, (_, rule) in found.items()}, indent=1) + "\n"
    )
    nvcc = next(Path(sys.prefix).glob("lib/python*/site-packages/nvidia/*/bin/nvcc"), Path("nvcc"))
    controls = [name for name in names if has(name, "wrong") or answers[name].count("\n") > 12]
    controls = sorted(controls, key=lambda name: not has(name, "wrong"))[:CONTROL]
    for condition in CONDITIONS:
        every = controls if condition == "wrong" else names
        some = [name for name in every if not has(name, condition)]
        random.Random(condition).shuffle(some)
        for number, first in enumerate(range(0, len(some), BATCH)):
            batch, members = work / f"{condition}{number:02d}", some[first : first + BATCH]
            for name in members:
                folder = batch / name
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(next((PAIRS / name).glob("before.*[yu]")), folder)
                if condition == "nsys":
                    (folder / "statistics.txt").write_text(nsys_statistics(name))
                if condition in ("answer", "followed"):
                    (folder / "answer.txt").write_text(answers[name])
                if condition == "wrong":
                    others = [
                        other for other in names
                        if known[other]["cause"] != known[name]["cause"] and other[:3] == name[:3]
                        and answers[other].split("\n\n")[1][:30] != answers[name].split("\n\n")[1][:30]
                    ]  # fmt: skip
                    other = random.Random(name).choice(others)
                    (folder / "answer.txt").write_text(swapped(answers[name], answers[other]))
            evidence, how, keys = HOW["answer" if condition == "wrong" else condition]
            (batch / "TASK.md").write_text(
                TASK.format(
                    count=len(members), evidence=evidence, how=how, keys=keys,
                    tolerance="; ".join(
                        f"{name}: {known[name].get('tolerance', 1e-3):g}" for name in members
                    ),
                    python=sys.executable, nvcc=nvcc,
                )
            )  # fmt: skip


def collect(work: Path) -> None:
    """Put the versions that agents wrote beside their notes and the answers that they had. A program's rule
    stays the one whose advice was followed."""
    ADVISED.mkdir(exist_ok=True)
    rules = ADVISED / "rules.json"
    kept = json.loads(rules.read_text(encoding="utf-8")) if rules.is_file() else {}
    found = json.loads((work / "rules.json").read_text(encoding="utf-8"))
    rules.write_text(json.dumps({**found, **kept}, indent=1) + "\n", encoding="utf-8")
    for batch in sorted(path for path in work.iterdir() if path.is_dir()):
        condition = batch.name.rstrip("0123456789")
        for folder in sorted(path for path in batch.iterdir() if path.is_dir()):
            to = ADVISED / folder.name
            to.mkdir(parents=True, exist_ok=True)
            notes_at = to / "notes.json"
            notes = json.loads(notes_at.read_text()) if notes_at.is_file() else {}
            for changed in folder.glob("changed.*[yu]") if (folder / "note.json").is_file() else ():
                shutil.copy(changed, to / f"{condition}{changed.suffix}")
                notes[condition] = json.loads((folder / "note.json").read_text(encoding="utf-8"))
            if condition in ("answer", "wrong"):
                shutil.copy(folder / "answer.txt", to / f"{condition}.txt")
            notes_at.write_text(
                json.dumps(notes, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
            )


def run_all(
    out: Path, seconds: float, rounds: int, sides: Sequence[str], needed: Sequence[str]
) -> None:
    """The versions `sides` of every program that has those `needed`, one after another on one GPU; `rounds`
    times while `seconds` last. What compiles for long runs once before, several at once: its compiled code is kept for the runs
    that are timed."""
    sys.path[:0] = [str(HERE)]
    import lanes
    import record
    import run

    end = time.monotonic() + seconds
    work = Path(tempfile.mkdtemp(prefix="advice-"))
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(work / "inductor")
    plans = {}
    names = [
        path.name
        for path in sorted(ADVISED.iterdir())
        if all(has(path.name, side) for side in needed)
    ]
    for name in names:
        for side in sides:
            home = PAIRS / name if side in ("before", "after") else ADVISED / name
            plan = run.plan_side(home, side, (work / f"{name}.{side}").resolve())
            if plan is not None:
                plans[name, side] = plan
    with lanes.limited(seconds - lanes.GRACE):
        runs = record.Runs(out, work, plans, end)
        for (name, side), problem in run.build_all(plans, lanes.STOPPED.is_set).items():
            kept = runs.found.setdefault(name, {}).setdefault(side, {"us": []})
            kept["code"], kept["error"] = 1, f"build: {problem[-600:]}"
            del plans[name, side]
        lane = lanes.lanes()[0]
        _, environment = runs.on(lane)

        def warm(key: tuple[str, str]) -> None:
            source = Path(str(plans[key]["command"][-1]))
            if (
                runs.missing(*key, False, rounds - 1)
                and source.suffix == ".py"
                and "torch.compile" in source.read_text()
                and not runs.over(60)
            ):
                words = [sys.executable, str(source)]
                code, _, _ = record.bounded(words, plans[key]["folder"], 150.0, environment)
                print(
                    f"{end - time.monotonic():6.0f} s left  {key} compiled, code {code}", flush=True
                )

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(warm, plans))
        for turn in range(rounds):
            groups = [
                [(name, side, turn) for side in sides if (name, side) in plans] for name in names
            ]

            def one(lane: lanes.Lane, task: tuple[str, str, int]) -> None:
                name, side, turn = task
                failed = runs.found.get(name, {}).get(side, {}).get("code")
                if not failed and runs.missing(name, side, False, turn):
                    runs.run(lane, name, side, False)

            record.spread(groups, [lane], 6, one)


class Versions:
    """The time of a step of each version of a program; `times` has those whose result is right."""

    def __init__(self, name: str, found: Mapping[str, Any], tolerance: float) -> None:
        self.name = name
        before = found["before"]
        self.times, self.problems = {}, {}
        for side, kept in found.items():
            if kept.get("code") or not kept.get("us"):
                lines = (kept.get("error") or "did not run").strip().splitlines()
                self.problems[side] = f"failed: {lines[-1][:110]}"
            elif kept["steps"] != before["steps"]:
                self.problems[side] = f"runs {kept['steps']} steps, not {before['steps']}"
            elif not close(before["result"], kept["result"], tolerance):
                self.problems[side] = "another result"
            else:
                self.times[side] = statistics.median(kept["us"])
        self.has = frozenset(found)
        self.best = min(self.times.values())

    def speedup(self, side: str) -> float:
        """How many times as fast; 1 where the version is wrong or slower, as its author goes back then."""
        return max(self.times["before"] / self.times.get(side, self.times["before"]), 1.0)

    def share(self, side: str) -> float:
        """The part of the time that can be saved (by the fastest version known) that a version saves."""
        before = self.times["before"]
        return (before - before / self.speedup(side)) / (before - self.best)

    def faster(self, side: str) -> bool:
        """Whether a version is right, and faster by more than runs differ."""
        return self.speedup(side) >= FASTER


def interval(
    values: Sequence[float], of: Callable[[Sequence[float]], float]
) -> tuple[float, float]:
    """95 % interval by drawing the programs anew, 4,000 times."""
    draw = random.Random(52)
    found = sorted(of(draw.choices(values, k=len(values))) for _ in range(4000))
    return found[100], found[3899]


def with_interval(
    values: Sequence[float], of: Callable[[Sequence[float]], float], form: str
) -> str:
    low, high = interval(values, of)
    return f"{of(values):{form}} ({low:{form}} to {high:{form}})"


@dataclass(frozen=True)
class Trial:
    """One program: its versions, what agents noted, its label's cause, and what explains a failure."""

    versions: Versions
    notes: Mapping[str, Mapping[str, str]]
    cause: str
    rule: str
    """The first cause that the answer named."""

    @property
    def followed(self) -> bool:
        return self.notes["followed"]["followed"].lower().startswith(("yes", "partly"))


def read(out: Path) -> list[Trial]:
    """The programs of which all versions ran, from OUT/times.json."""
    known, found = read_labels(HERE), []
    rules = json.loads((ADVISED / "rules.json").read_text(encoding="utf-8"))
    for name, sides in sorted(json.loads((out / "times.json").read_text(encoding="utf-8")).items()):
        if not sides.keys() >= {*VARIANTS} - {"wrong"}:
            continue
        notes = json.loads((ADVISED / name / "notes.json").read_text(encoding="utf-8"))
        versions = Versions(name, sides, float(known[name].get("tolerance", 1e-3)))
        found.append(Trial(versions, notes, known[name]["cause"], rules[name]))
    return found


def by_condition(trials: Sequence[Trial], conditions: Iterable[str]) -> Iterator[str]:
    """A row for each condition: what became of its versions."""
    yield "| an agent had | programs | right | faster | speedup, geometric mean | gain reached |"
    yield "|---|---:|---:|---:|---:|---:|"
    for side in conditions:
        ran = [each.versions for each in trials if side in each.versions.has]
        if not ran:
            continue
        right = sum(side in each.times for each in ran)
        faster = sum(each.faster(side) for each in ran)
        mean = with_interval([each.speedup(side) for each in ran], statistics.geometric_mean, ".2f")
        share = with_interval([each.share(side) for each in ran], statistics.fmean, ".0%")
        yield f"| {WORDS[side]} | {len(ran)} | {right} | {faster} | {mean} | {share} |"


def against(trials: Sequence[Trial], side: str, other: str) -> str:
    """Two conditions on the same programs."""
    both = [each.versions for each in trials if {side, other} <= each.versions.has]
    ratios = [each.speedup(side) / each.speedup(other) for each in both]
    better, worse = (sum(x >= FASTER for x in y) for y in (ratios, [1 / x for x in ratios]))
    return (
        f"- {WORDS[side].capitalize()}, compared with {WORDS[other]}: {with_interval(ratios, statistics.geometric_mean, '.2f')} times the speed "
        f"(geometric mean); faster on {better} programs, slower on {worse}, alike on {len(both) - better - worse}."
    )


#: What the labels mean that are not the ids of causes.
_LABELS: Final = (
    "A label is the id of a cause ([list](bottlenecks/README.md)), or what no rule looks for: `kernel:` one kernel's fault, `padding-work` "
    "work on padding, `repeated-work` the same work done again. `spelled-out` is a norm, softmax or loss of one launch per operation."
)


def groups_of(trials: Sequence[Trial], key: Callable[[Trial], str], title: str) -> Iterator[str]:
    """Speedups by a property of the programs."""
    by: dict[str, list[Trial]] = defaultdict(list)
    for each in trials:
        by[key(each)].append(each)
    sides = ("source", "nsys", "answer", "followed", "after")
    yield f"| {title} | programs | " + " | ".join(WORDS[side] for side in sides) + " |"
    yield "|---|" + "---:|" * (1 + len(sides))
    for name, some in sorted(by.items()):
        means = (
            statistics.geometric_mean([each.versions.speedup(side) for each in some])
            for side in sides
        )
        yield f"| {name} | {len(some)} | " + " | ".join(f"{x:.2f}" for x in means) + " |"


def records(trials: Sequence[Trial]) -> dict[str, tuple[int, int, float]]:
    """Of each rule whose advice was followed: programs, those made faster, the median speedup."""
    by: dict[str, list[Versions]] = defaultdict(list)
    for each in trials:
        if "followed" in each.versions.has and each.followed:
            by[each.rule].append(each.versions)
    return {
        rule: (len(some), sum(x.faster("followed") for x in some),
               round(statistics.median(x.speedup("followed") for x in some), 2))
        for rule, some in sorted(by.items())
    }  # fmt: skip


def shipped(trials: Sequence[Trial]) -> str:
    """The records as the package has them: of each rule programs, those made faster, median speedup."""
    rows = (f" {json.dumps(rule)}: {json.dumps(each)}" for rule, each in records(trials).items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def page(trials: Sequence[Trial]) -> str:
    """The generated part of docs/advice.md."""
    why = tomllib.loads((ADVISED / "explained.toml").read_text(encoding="utf-8"))
    lines = [*by_condition(trials, (*CONDITIONS[:4], "after")), ""]
    lines += [against(trials, "answer", other) for other in ("source", "nsys")]
    controlled = [each for each in trials if "wrong" in each.versions.has]
    if controlled:
        lines += ["", f"### The control: another program's cause, {len(controlled)} programs", ""]
        lines += [*by_condition(controlled, CONDITIONS), ""]
        lines.append(against(controlled, "answer", "wrong"))
    lines += [
        "",
        "### By cause",
        "",
        _LABELS,
        "",
        *groups_of(trials, lambda each: each.cause, "label"),
    ]
    framework = lambda each: each.versions.name.partition("_")[0]  # noqa: E731
    lines += ["", "### By framework", "", *groups_of(trials, framework, "framework")]
    lines += ["", "### The rules' record", "",
              "| first cause of the answer | followed in | faster | median speedup |", "|---|---:|---:|---:|"]  # fmt: skip
    lines += [
        f"| {rule} | {n} | {faster} | {median:.2f} |"
        for rule, (n, faster, median) in records(trials).items()
    ]
    followed = [each for each in trials if "followed" in each.versions.has and each.followed]
    missed = [each for each in followed if each.versions.share("followed") < HALF]
    lines += ["", f"### Advice that was followed and did not bring half of the gain: {len(missed)} of {len(followed)}"]  # fmt: skip
    if missed:
        lines += ["", "| program | first cause | label | speedup | its own fix | best known | why |", "|---|---|---|---:|---:|---:|---|"]  # fmt: skip
    for each in missed:
        v = each.versions
        problem = v.problems.get("followed", "")
        explained = why.get(v.name, "")
        lines.append(
            f"| {v.name} | {each.rule} | {each.cause} | {v.speedup('followed'):.2f} | {v.speedup('after'):.2f} "
            f"| {v.times['before'] / v.best:.2f} | {f'{problem}. ' if problem else ''}{explained} |"
        )
    lines += ["", "### All programs", "", "| program | " + " | ".join(WORDS[side] for side in VARIANTS[1:]) + " |",
              "|---|" + "---:|" * len(VARIANTS[1:])]  # fmt: skip
    for each in trials:
        cells = []
        for side in VARIANTS[1:]:
            v = each.versions
            text = (
                f"{v.times['before'] / v.times[side]:.2f}"
                if side in v.times
                else v.problems.get(side, "")[:40]
            )
            cells.append(text)
        lines.append(f"| {each.versions.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("action", choices=("prepare", "collect", "run", "fixes", "score"))
    options.add_argument("folder", type=Path)
    options.add_argument("--seconds", type=float, default=1e9)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    if given.action == "prepare":
        prepare(given.folder)
    elif given.action == "collect":
        collect(given.folder)
    elif given.action == "run":
        run_all(given.folder, given.seconds, given.rounds, VARIANTS, COMPARED)
    elif given.action == "fixes":
        run_all(given.folder, given.seconds, given.rounds, ("before", ALL), (ALL,))
    else:
        trials = read(given.folder)
        update(PAGE, page(trials))
        SHIPPED.write_text(shipped(trials), encoding="utf-8")


if __name__ == "__main__":
    main()
