"""What settings gained on programs of benchmarks/programs, as tables, from docs/data/try.json: what
benchmarks/programs/try_all.py wrote on a GPU, a row a program.

`python docs/switch_tables.py OUT/try.json` takes new results, and rewrites the tables of docs/try.md and
docs/lab/calibration.md."""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

if __name__ == "__main__":  # the package of this checkout
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.programs import cases, score
from ncu_toolkit.base.core import units
from ncu_toolkit.program.explain.trial import measured
from ncu_toolkit.program.model import ProgramTrial, Tried
from ncu_toolkit.program.switches import switches

DATA = Path(__file__).resolve().parent / "data" / "try.json"
_OUTCOMES = {
    "faster": "", "slower": "slower", "same": "no difference", "broke": "fails", "not applied": "changes nothing",
    "other step": "not comparable",
}  # fmt: skip
#: Where cases come from, as the table says it.
_SOURCES = {"benchmark": "fixed and timed", "published": "published", "tried": "by a setting"}


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


def trials() -> list[tuple[str, ProgramTrial]]:
    return [
        (row["name"], msgspec.convert(row["trial"], ProgramTrial))
        for row in rows()
        if "trial" in row
    ]


def of_switch(tried: Tried) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition(":")[0] for name in tried.switches))


def outcome(tried: Tried) -> str:
    """`2.6×`, or why there is none."""
    label = _OUTCOMES[tried.outcome]
    times = units.ratio(1 / tried.left) if tried.after_us and tried.outcome != "other step" else ""
    return " ".join(filter(None, (times, label and f"({label})" if times else label)))


def results(tried: Tried) -> str:
    if not tried.after_us:
        return tried.description.rstrip(".")
    if tried.results == "equal":
        return "the same"
    return tried.compared.rstrip(".") if tried.results != "not compared" else "not compared"


def table() -> str:
    """Each setting of each program: predicted, measured, results."""
    lines = [
        "| program | setting | runs | simulated saving | step | gain | results |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for name, trial in trials():
        for at, tried in enumerate(trial.tried):
            most = units.duration(tried.ceiling_us) if tried.ceiling_us is not None else "–"
            first = f"`{name.partition('.')[0].partition(' ')[0]}`" if at == 0 else ""
            which = " + ".join(f"`{each}`" for each in tried.switches)
            runs = f"{len(tried.before_us)} + {len(tried.after_us)}"
            cells = (
                first,
                which,
                runs,
                most,
                measured(tried) or "–",
                outcome(tried),
                results(tried),
            )
            lines.append("| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |")
    return "\n".join(lines) + "\n"


def causes() -> str:
    """By cause of a step: in how many programs it was found, and what fixes
    saved of what they could (benchmarks/programs/cases.py), by where the case comes from."""
    programs = score.development(score.FOLDER / "recordings", score.read_labels(score.FOLDER))
    found = Counter(each.rule for program in programs for each in program.found.costly)
    known: dict[str, list[cases.Achieved]] = defaultdict(list)
    for case in cases.cases(programs, trials=DATA):
        known[case.cause].append(case)
    lines = [
        f"| cause | found in | {' | '.join(_SOURCES.values())} | saved of what could be |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for cause in sorted({*found, *known}):
        alike = known[cause]
        counts = Counter(case.source for case in alike)
        saved = spread([case.share for case in alike])
        cells = [cause, *(str(n or "") for n in (found[cause], *(counts[s] for s in _SOURCES)))]
        lines.append(f"| {' | '.join([*cells, saved])} |")
    return "\n".join(lines) + "\n"


def spread(shares: Sequence[float]) -> str:
    """`86 % (78 % to 94 %)`: median, lowest, highest."""
    if not shares:
        return ""
    low, middle, high = (
        units.percent(each, 2) for each in (min(shares), statistics.median(shares), max(shares))
    )
    return middle if len(shares) == 1 else f"{middle} ({low} to {high})"


def sentence() -> str:
    """How many settings were tried, and what came of them."""
    tried = [each for _, trial in trials() for each in trial.tried if len(each.switches) == 1]
    count = {name: sum(each.outcome == name for each in tried) for name in _OUTCOMES}
    differ = sum(each.results == "differ" for each in tried)
    gain = [1 / each.left for each in tried if each.good]
    best = f", by {units.ratio(min(gain))} to {units.ratio(max(gain))}" if gain else ""
    gpu = next((trial.gpu for _, trial in trials()), "")
    labels = {
        "same": "made no difference", "slower": "made it slower", "broke": "broke it", "not applied": "found nothing to change",
        "other step": "could not be compared",
    }  # fmt: skip
    rest = [f"{count[name]} {what}" for name, what in labels.items() if count[name]]
    rest += [f"{differ} changed results by more than allowed"] * bool(differ)
    return (
        f"{units.counted(len(trials()), 'program')} on an {gpu}, {units.counted(len(tried), 'setting')}. "
        f"{len(gain)} made their program faster, with "
        f"results that they may have{best}{''.join(f'; {each}' for each in rest)}.\n"
    )


def switch_table() -> str:
    """All settings, with what may differ."""
    lines = ["| setting | what it does | for | results | to keep it |", "|---|---|---|---|---|"]
    for each in switches().values():
        causes = ", ".join((*each.causes[:3], *(f"{name} kernels" for name in each.classes)))
        keep = next(iter(each.keep.values())).replace("{}", "N")
        lines.append(
            f"| `{each.id}` | {each.title} | {causes} | {each.differs.rstrip('.')} | `{keep}` |"
        )
    return "\n".join(lines) + "\n"


def blocks() -> dict[str, str]:
    """The generated parts of docs/try.md by name."""
    known = {"switches": switch_table()}
    if DATA.is_file():
        known |= {"sentence": sentence(), "try": table()}
    return known


def take(path: Path, into: Path = DATA) -> list[str]:
    """Take what try_all.py wrote: its programs replace those of the same name. Returns what each program
    without a trial says.

    Raises OSError, ValueError, msgspec.ValidationError."""
    new = json.loads(path.read_text(encoding="utf-8"))
    old = json.loads(into.read_text(encoding="utf-8")) if into.is_file() else []
    known = {row["name"]: row for row in (*old, *new) if "trial" in row}
    kept = [
        {key: row[key] for key in ("name", "switches", "trial")}
        for row in known.values()
        if msgspec.convert(row["trial"], ProgramTrial)
    ]
    into.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return [f"{row['name']}: {row['error']}" for row in new if "error" in row]


def put(text: str, made: dict[str, str]) -> str:
    """A document with its generated parts."""
    for name, block in made.items():
        marks = rf"(<!-- generated: {name} -->\n).*?(<!-- end: {name} -->)"
        text = re.sub(marks, lambda m, block=block: m[1] + block + m[2], text, flags=re.DOTALL)
    return text


def main() -> None:
    """`python docs/switch_tables.py OUT/try.json`: take a GPU's results into data and documents."""
    print("\n".join(take(Path(sys.argv[1]))))
    for name, made in (("try.md", blocks()), ("lab/calibration.md", {"steps": causes()})):
        page = DATA.parents[1] / name
        page.write_text(put(page.read_text(encoding="utf-8"), made), encoding="utf-8")


if __name__ == "__main__":
    main()
