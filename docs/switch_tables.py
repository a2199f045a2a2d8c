"""What switches gained on programs of benchmarks/programs, as tables, from docs/data/try.json: what
benchmarks/programs/try_all.py wrote on a GPU, a row a program."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis.switches import switches
from ncu_toolkit.explain.trial import measured
from ncu_toolkit.model.program import ProgramTrial, Tried

DATA = Path(__file__).resolve().parent / "data" / "try.json"
_OUTCOMES = {
    "faster": "", "slower": "slower", "same": "no difference", "broke": "fails", "not applied": "changes nothing",
    "other step": "not comparable",
}  # fmt: skip


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
    said = _OUTCOMES[tried.outcome]
    times = units.ratio(1 / tried.left) if tried.after_us and tried.outcome != "other step" else ""
    return " ".join(filter(None, (times, said and f"({said})" if times else said)))


def results(tried: Tried) -> str:
    if not tried.after_us:
        return tried.said.rstrip(".")
    if tried.results == "equal":
        return "the same"
    return tried.compared.rstrip(".") if tried.results != "not compared" else "not compared"


def table() -> str:
    """Each switch of each program: predicted, measured, results."""
    lines = [
        "| program | switch | runs | saves at most | step | gain | results |",
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
    """Cases by cause: the part of the ceiling that was saved."""
    parts: dict[str, list[float]] = defaultdict(list)
    for _, trial in trials():
        for tried in trial.tried:
            if len(tried.switches) == 1 and tried.ceiling_us and tried.before_us and tried.after_us:
                cause = switches()[of_switch(tried)[0]].causes[0]
                if tried.outcome in ("faster", "same", "slower"):
                    parts[cause].append((tried.before - tried.after) / tried.ceiling_us)
    lines = [
        "| cause | switch | cases | saved of the ceiling: lowest | median | highest |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for cause, found in sorted(parts.items(), key=lambda each: (-len(each[1]), each[0])):
        which = ", ".join(
            f"`{each.id}`" for each in switches().values() if each.causes[:1] == (cause,)
        )
        figures = [
            units.percent(each, 2) for each in (min(found), statistics.median(found), max(found))
        ]
        lines.append(f"| {cause} | {which} | {len(found)} | {' | '.join(figures)} |")
    return "\n".join(lines) + "\n"


def sentence() -> str:
    """How many switches were tried, and what came of them."""
    tried = [each for _, trial in trials() for each in trial.tried if len(each.switches) == 1]
    count = {name: sum(each.outcome == name for each in tried) for name in _OUTCOMES}
    differ = sum(each.results == "differ" for each in tried)
    gain = [1 / each.left for each in tried if each.good]
    best = f", by {units.ratio(min(gain))} to {units.ratio(max(gain))}" if gain else ""
    gpu = next((trial.gpu for _, trial in trials()), "")
    told = {
        "same": "made no difference", "slower": "made it slower", "broke": "broke it", "not applied": "found nothing to change",
        "other step": "could not be compared",
    }  # fmt: skip
    rest = [f"{count[name]} {what}" for name, what in told.items() if count[name]]
    rest += [f"{differ} changed results beyond their word"] * bool(differ)
    return (
        f"{len(trials())} programs on an {gpu}, {len(tried)} switches. {len(gain)} made their program faster, with "
        f"results that they may have{best}{''.join(f'; {each}' for each in rest)}.\n"
    )


def switch_table() -> str:
    """All switches, with what may differ."""
    lines = ["| switch | what it does | for | results | to keep it |", "|---|---|---|---|---|"]
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
        known |= {"sentence": sentence(), "try": table(), "causes": causes()}
    return known
