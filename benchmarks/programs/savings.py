"""python -m benchmarks.programs.savings docs/program.md: put the tables of predicted and achieved savings
of the recorded programs into a page, between its marks. Needs no GPU."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from benchmarks.field import half
from benchmarks.field.scoring import update
from benchmarks.programs.advice import ADVISED, ALL, ALL_TIMES, Versions
from benchmarks.programs.cases import TRIALS
from benchmarks.programs.score import (
    FOLDER,
    RecordedProgram,
    cases,
    ours,
    read,
    read_labels,
)
from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import EXIT_OK
from ncu_toolkit.program.model import ProgramTrial

#: Programs with a version that was written to fix all causes that we name, and nothing else.
WRITTEN: Final = (
    "cuda_sph_fluid",
    "cupy_phase_retrieval",
    "lightning_glacier_mixer",
    "torch_birdsong_moco",
    "torch_crowd_evacuation",
    "torch_ecg_tcn",
    "torch_lamb_speech",
    "torch_mean_teacher",
    "torch_neutron_slab",
    "torch_recsys_ctr",
    "torch_traffic_mixer",
    "torch_weather_lion",
)
#: Programs of several causes with a version in which all that we name are fixed, by reading both: its
#: name (of `advised` where it is not "after"), and what else it changes.
ALL_FIXED: Final = {
    **dict.fromkeys(WRITTEN, (ALL, "")),
    "cupy_kmeans": ("after", ""),
    "cupy_ocean_ensemble": ("after", ""),
    "jax_molecule_gnn": ("after", ""),
    "jax_nbody_eager": ("after", ""),
    "torch_segment_empty_cache": ("after", ""),
    "torch_vit_finetune": ("followed", ""),
    "cupy_hyperspectral_rx": ("followed", "a triangular solve instead of an inverse"),
    "torch_radar_cube": (
        "followed",
        "sums along each axis instead of a convolution, FFTs of real input",
    ),
}


_HEAD: Final = (
    "**All fixes at once.** Programs in which we name several causes, with a version in which all of these are fixed: the simulated saving "
    "of the first alone, that of all together, and what that version saved of the step. Its fix is the benchmark's own; or the benchmark's own "
    "and those of the other causes, mostly a CUDA graph (`all.py` in `benchmarks/programs/advised`); or that of an agent that was to "
    "follow our answer (`followed` in [advice](advice.md)); settings were [tried](try.md) at once. In the other programs of several "
    "causes the fix is of one."
)


class Together(NamedTuple):
    """All fixes at once: parts (0-1) of the step."""

    name: str
    causes: str
    first: float
    """What the first of them saves by the simulation, alone."""
    most: float
    """What all do."""
    saved: float
    """What the version with all of them saved, and what else that changes."""
    also: str = ""


def table(programs: Sequence[RecordedProgram]) -> str:
    """A row for each program whose first cause is its label's: the simulated saving of its
    fix, and what its fix saved, by medians of steps that nobody recorded."""
    given = cases(programs, ours)
    first = {case.name for case in given if case.rank == 1}
    lines = [
        "| program | first cause | step before | simulated saving | step after | saved |",
        "|---|---|---:|---:|---:|---:|",
    ]
    within = 0
    for each in programs:
        if each.name not in first:
            continue
        before, after = (statistics.median(each.times[side]["us"]) for side in ("before", "after"))
        cause, wall = each.found.costly[0], each.found.account.wall_us
        most = cause.ceiling_us / wall * before
        times = map(units.duration, (before, most, after, before - after))
        lines.append(f"| {' | '.join((each.name, cause.title, *times))} |")
        within += before - after <= most
    others = [case.name for case in given if case.name not in first]
    lines += [
        "",
        f"Of {len(given)} programs these are the {len(first)} whose cause we name first; not so of {', '.join(others) or 'none'}. "
        f"{within} of the {len(first)} saved no more than simulated; the fix of any other removed more than that cause.",
    ]
    return "\n".join(lines)


def has_right(program: RecordedProgram, times: Mapping[str, Any]) -> bool:
    """Whether the version with all fixes ran, and its result is that of the program before."""
    if not times.get("before", {}).get("us"):
        return False
    tolerance = float(program.label.get("tolerance", 1e-3))
    return ALL in Versions(program.name, times, tolerance).times


def fixed(programs: Sequence[RecordedProgram]) -> Iterator[Together]:
    """Those of ALL_FIXED whose version ran and is right, and trials of several settings at once."""
    advised = json.loads((ADVISED / "times.json").read_text(encoding="utf-8"))
    written = json.loads(ALL_TIMES.read_text(encoding="utf-8")) if ALL_TIMES.is_file() else {}
    for each in programs:
        version, also = ALL_FIXED[each.name]
        if version == ALL:
            times = written.get(each.name, {})
            if not has_right(each, times):
                continue
        else:
            times = each.times if version == "after" else advised[each.name]
        saved = replace(each, times={**times, "after": times[version]}).achieved
        found, wall = each.found, each.found.account.wall_us
        causes = units.listed([x.rule for x in found.costly])
        yield Together(
            each.name, causes, found.costly[0].ceiling_us / wall, found.together_us / wall, saved, also
        )  # fmt: skip
    for row in json.loads(TRIALS.read_text(encoding="utf-8")):
        if "trial" not in row:
            continue
        trial = msgspec.convert(row["trial"], ProgramTrial)
        alone = {x.switches: (x.ceiling_us or 0.0) / (x.before or 1.0) for x in trial.tried}
        for x in trial.tried:
            if len(x.switches) > 1 and x.ceiling_us:
                first = max(alone.get((switch,), 0.0) for switch in x.switches)
                name = row["name"].partition(" ")[0].removesuffix(".py")
                causes = units.listed([f"`{switch}`" for switch in x.switches])
                yield Together(name, causes, first, x.ceiling_us / x.before, 1 - x.left)


def together(given: Sequence[Together]) -> str:
    """A row for each program whose causes were all fixed, and how far off the simulation of all fixes is."""
    lines = [
        "| program | causes | the first alone | all | saved | also changed |",
        "|---|---|---:|---:|---:|---|",
    ]
    lines += [
        f"| {x.name} | {x.causes} | {x.first:.0%} | {x.most:.0%} | {x.saved:.0%} | {x.also} |"
        for x in sorted(given, key=lambda x: (bool(x.also), x.name))
    ]
    lines.append("")
    for those, what in (
        ([x for x in given if not x.also], "nothing else was changed"),
        (given, ""),
    ):
        off = [100 * (x.most - x.saved) for x in those]
        if off:
            of = f"Of the {len(off)} in which {what}" if what else f"Of all {len(off)}"
            error, bias = statistics.fmean(map(abs, off)), statistics.fmean(off)
            alone = statistics.fmean(abs(100 * (x.first - x.saved)) for x in those)
            lines.append(
                f"{of}, the simulation of all fixes is {error:.1f} points of the step off in the mean, with a bias of {bias:+.1f}; "
                f"the first fix alone is {alone:.1f} off."
            )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    labels = read_labels(FOLDER)
    several = [
        each
        for name in ALL_FIXED
        for each in read(
            FOLDER / "recordings", {name: labels[name]}, labels[name].get("set", half(name))
        )[0]
    ]
    developed, _ = read(FOLDER / "recordings", labels, "development")
    made = f"{table(developed)}\n\n{_HEAD}\n\n{together([*fixed(several)])}"
    for page in arguments:
        update(Path(page), made)
    if not arguments:
        print(made)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
