"""The glossary: every stall reason, figure, unit, bottleneck, kind of instruction and chart term,
one paragraph each.

What a figure is comes from the registry, a bottleneck from its rule, so that neither is written twice;
how to read it is in data/glossary.toml. The report shows the paragraphs where a term appears
and as a page, docs/glossary.md holds the same."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from ncu_toolkit.base.document.tables import Definition, Definitions
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.kernel import capital
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.diagnosis.rules.reference import page, rules

#: Groups in the order of the page, with their headings.
GROUPS: Final[Mapping[str, str]] = {
    "concept": "Terms in charts, tables and headers",
    "bottleneck": "Bottlenecks",
    "cause": "Causes of a program's step",
    "stall": "Stall reasons",
    "metric": "Figures of the profiler",
    "derived": "Figures computed from others",
    "kind": "Kinds of instructions",
    "unit": "Units",
}


#: Parts of the names of stall reasons and of kinds of instructions that are no words.
_ABBREVIATION: Final = re.compile(r"\b(?:gmma|imc|lg|mio|tex|fp\d\d)\b")


@lru_cache(maxsize=1)
def words() -> dict[str, Any]:
    """The tables of data/glossary.toml by name."""
    file = resources.files("ncu_toolkit").joinpath("data", "glossary.toml")
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    for reason in found["stalls"]:
        entry = f"stall-{reason.replace('_', '-')}"
        found["headings"]["stalls-data"][reason.replace("_", " ")] = entry
    return found


@lru_cache(maxsize=1)
def definitions() -> Definitions:
    """Every entry. A metric without its own paragraph has its meaning alone."""
    return Definitions({term.key: term for term in _all()}, words()["headings"], GROUPS)


def _all() -> Iterator[Definition]:
    own = words()
    readings, meant_by = own["metrics"], own["aliases"]
    for name, (title, text, source, others) in own["concepts"].items():
        yield _entry(
            "concept", name, title, text, source, (f"resource:{name.replace('_', ' ')}", *others)
        )
    for name in rules():
        about = page(name)
        group = "bottleneck" if name in load_rules() else "cause"
        text = f"{about.summary} {' '.join(about.sections['What it is'].split())}"
        yield _entry(
            group, name, about.title, text, " ".join(about.sections["Source"].split()), (name,),
            page=tuple(
                (heading, " ".join(body.split()))
                for heading, body in about.sections.items()
                if heading not in ("What it is", "Source")
            ),
        )  # fmt: skip
    for reason, meaning in registry.STALL_REASONS.items():
        name, shown = reason.replace("_", " "), figures.reason_name(reason)
        yield _entry(
            "stall", reason, _title(name), _joined(meaning, own["stalls"].get(reason)),
            "Nsight Compute documentation, Warp Stall Reasons",
            (name, shown, reason, f"stall_{reason}", f"Stall: {name}", f"stall_share:{reason}", f"Stall share: {shown}"),
            "cycles/inst",
        )  # fmt: skip
    for name, metric in registry.REGISTRY.items():
        if name.startswith("stall_"):
            continue
        aliases = tuple(word for word, meant in meant_by.items() if meant == name)
        text = _joined(metric.meaning, readings.get(name))
        yield _entry(
            "metric", name, metric.label, text, metric.ncu[0], (name, *aliases), metric.unit
        )
    for name, figure in figures.DERIVED.items():
        aliases = tuple(word for word, meant in meant_by.items() if meant == name)
        text = _joined(figure.meaning, readings.get(name))
        yield _entry("derived", name, figure.label, text, "", (name, *aliases), figure.unit)
    for name, text in own["kinds"].items():
        of = f"kind_share:{name}", f"Instructions: {name}"
        yield _entry("kind", name, f"{_title(name)} instructions", text, "", of)
    for unit, (title, text) in own["units"].items():
        yield _entry("unit", title, title, text, "", (unit,) if unit else ())


def _entry(
    group: str,
    name: str,
    title: str,
    text: str,
    source: str,
    words: tuple[str, ...],
    unit: str = "",
    page: tuple[tuple[str, str], ...] = (),
) -> Definition:
    return Definition(_key(group, name), group, title, text, source, words, unit, page)


def _title(words: str) -> str:
    """Words as a title: `MIO throttle`, `FP64`."""
    return capital(_ABBREVIATION.sub(lambda found: found[0].upper(), words))


def _joined(meaning: str, reading: str | None) -> str:
    return f"{meaning} {reading}" if reading else meaning


def _key(group: str, name: str) -> str:
    return f"{group}-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}"


def markdown() -> str:
    """docs/glossary.md."""
    lines = [
        "# Glossary\n",
        "Every term that a report shows. The report has the same text behind each term and on its glossary page.\n",
    ]
    for group, heading in GROUPS.items():
        lines.append(f"## {heading}\n")
        for term in definitions().terms.values():
            if term.group == group:
                name = (
                    f" (`{term.words[0]}`)" if group in ("metric", "derived", "bottleneck") else ""
                )
                unit = f" Unit: {term.unit}." if term.unit else ""
                source = (
                    f" Source: {f'`{term.source}`' if group == 'metric' else term.source.rstrip('.')}."
                    if term.source
                    else ""
                )
                lines.append(f"**{term.title}**{name}. {term.text}{unit}{source}\n")
    return "\n".join(lines)
