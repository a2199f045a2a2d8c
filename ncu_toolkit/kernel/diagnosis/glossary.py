"""The glossary: every stall reason, figure, unit, bottleneck, kind of instruction and chart term,
one paragraph each.

What a figure is comes from the registry, a bottleneck from its rule, so that neither is written twice;
how to read it is in data/glossary.toml. The report shows the paragraphs where a term appears
and as a page, docs/glossary.md holds the same."""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.tables import Definition, Definitions
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.kernel.diagnosis import achieved, figures
from ncu_toolkit.kernel.diagnosis.kernel import capital
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.diagnosis.rules.reference import page, rules

#: Groups in the order of the page, with their headings.
GROUPS: Final[Mapping[str, str]] = {
    "concept": "Terms in charts, tables and headers",
    "bottleneck": "Bottlenecks",
    "cause": "Causes of a program's step",
    "stall": "Stall reasons",
    "metric": "Metrics of the profiler",
    "derived": "Metrics computed from others",
    "kind": "Kinds of instructions",
    "unit": "Units",
}


#: Columns of a bar in a drawing, and what letters of a track are drawn as, in the legend's order.
_BAR: Final = 30
_SHADES: Final = "█▒░▚"
#: Titles that an unknown name is answered with.
_NEAR: Final = 4
#: Titles of one word that are terms wherever they stand.
_SINGLE: Final = frozenset({"Headroom", "Lane", "Occupancy", "Roofline", "SASS", "Sector", "Spill", "Warp", "Wavefront"})  # fmt: skip
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


def lookup(name: str) -> Definition:
    """The entry that a name means: an id, a word of a card, or a title as a card shows it. Case,
    punctuation and a plural's s do not matter; what follows a name is ignored.

    Raises:
        UsageProblem: no entry has that name; names the nearest.
    """
    names, asked = _names(), _words_of(name)
    roof = re.sub(r"^at the (.+) roof$", r"\1", asked)
    for form in (asked, asked.removesuffix("s"), f"{asked}s", f"{roof} bandwidth", f"{roof} pipe"):
        if form in names:
            return names[form]
    longer = [known for known in names if " " in known and asked.startswith(f"{known} ")]
    if longer:
        return names[max(longer, key=len)]
    near = difflib.get_close_matches(asked, names, 12, 0.6)
    titles = list(dict.fromkeys(names[each].title for each in near))[:_NEAR]
    hint = f"Similar: {', '.join(titles)}" if titles else "`ncu-toolkit explain` lists all names"
    raise UsageProblem(f"the glossary has no entry '{visible(name, 80)}'", hint)


@lru_cache(maxsize=1)
def _names() -> Mapping[str, Definition]:
    """Every entry by its names in plain words; where two share one, a cause is before a unit."""
    entries = sorted(definitions().terms.values(), key=lambda each: not each.page)
    found = {_words_of(each.words[0]): each for each in entries if each.page}
    for each in entries:
        short = re.split(r": | \(", each.title)[0]
        for word in (each.title, short, each.key, *each.words):
            found.setdefault(_words_of(word), each)
    return found


def _words_of(name: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", name.lower()))


def used_in(term: Definition) -> list[Definition]:
    """Entries of the terms that an entry uses; of a stall reason or a unit first the bottlenecks that
    show as it."""
    known = definitions()
    text = " ".join((term.text, *(body for _, body, language in term.page if not language)))
    names = {word.removeprefix("resource:").replace(" ", "_") for word in term.words}
    keys = [
        known.find(name)
        for name, rule in load_rules().items()
        if term.group in ("stall", "concept") and names & {*rule.WAITS, *rule.UNITS}
    ]
    keys += [known.find(name) for name in _in_text().findall(text)]
    return [known.terms[key] for key in dict.fromkeys(keys) if key and key != term.key]


@lru_cache(maxsize=1)
def _in_text() -> re.Pattern[str]:
    """Titles and words that name an entry in a sentence: of one word only those that mean nothing
    else."""
    words = {
        word
        for term in definitions().terms.values()
        for word in (term.title, *term.words)
        if re.fullmatch(r"[A-Za-z0-9/ -]{4,}", word) and (" " in word or word in _SINGLE)
    }
    ordered = sorted(map(re.escape, words), key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(ordered)})(?=s?\b)", re.IGNORECASE)


def _all() -> Iterator[Definition]:
    own = words()
    readings, meant_by = own["metrics"], own["aliases"]
    for name, (title, text, source, others) in own["concepts"].items():
        yield _entry(
            "concept", name, title, text, source, (f"resource:{name.replace('_', ' ')}", *others)
        )
    for name, rule in rules().items():
        about = page(name)
        group = "bottleneck" if name in load_rules() else "cause"
        text = f"{about.summary} {' '.join(about.sections['What it is'].split())}"
        yield _entry(
            group, name, about.title, text, " ".join(about.sections["Source"].split()),
            (name, *getattr(rule, "ALSO_CALLED", ())),
            page=tuple(_page(name, about.sections)),
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


def picture(name: str) -> Mapping[str, Any]:
    """What data/bottlenecks declares of a bottleneck: a drawing (docs/drawings.py lists its keys) and,
    in `before_code` and `after_code` of its table [excerpt], code (in `language`, "cuda" where it is
    left out). Empty where there is nothing."""
    path = resources.files("ncu_toolkit").joinpath("data", "bottlenecks", f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _page(name: str, sections: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """The parts of `Definition.page`."""
    about = picture(name)
    excerpt = about.get("excerpt", {})
    for heading, body in sections.items():
        if heading not in ("What it is", "Source"):
            yield heading, " ".join(body.split()), ""
        if heading == "What to change":
            if drawing := "\n".join(_drawn(about)):
                yield "Sketch", drawing, "text"
            for side in ("before", "after"):
                if code := excerpt.get(f"{side}_code"):
                    yield side.title(), code.strip(), excerpt.get("language", "cuda")
    if known := record(name):
        yield "What the advice did in tests", known, ""


def record(name: str) -> str:
    """What became of test programs in which a cause's advice was followed; empty for no such programs."""
    programs, faster, median = achieved.FOLLOWED.get(name, (0, 0, 0.0))
    who = {1: "it", 2: "both"}.get(programs, "all") if programs == faster else faster
    known = (
        f"In {units.counted(programs, 'short test program')} with one known slow part, coding agents followed this advice, wholly or "
        f"in part: {who} became faster, {'median ' * (programs > 1)}speedup {units.ratio(median)}. "
        "Real programs have more than one slow part, so expect less. docs/advice.md has all programs."
    )
    return known if programs else ""


def _drawn(about: Mapping[str, Any]) -> Iterator[str]:
    """A drawing as text. Of lanes each cell of memory is a digit: how many lanes touch it; `|` parts
    sectors or banks. Of a timeline `|` is where the next begins."""
    for panel in (about[side] for side in ("before", "after") if side in about):
        yield panel["title"]
        rows: Sequence[tuple[str, Any]] = panel.get("tracks") or panel.get("bars") or ()
        wide = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            if about["kind"] == "bars":
                yield f"  {name:{wide}}  {'█' * round(value * _BAR):{_BAR}} {value:4.0%}"
            else:
                track = re.sub(r"\|.", "|", value).replace(".", " ")
                shades = {ord(a): b for a, b in zip(about["legend"], _SHADES, strict=False)}
                yield f"  {name:{wide}}  {track.translate(shades)}".rstrip()
        if about["kind"] == "lanes":
            spans = range(panel.get("span", 1))
            touched = [place + i for place in panel["touches"] for i in spans]
            cells = [str(touched.count(cell) or ".") for cell in range(panel["cells"])]
            parts = range(0, len(cells), panel["group"])
            yield f"  |{'|'.join(''.join(cells[at : at + panel['group']]) for at in parts)}|"
        yield f"  {panel['note']}"
    if about.get("kind") == "lanes":
        yield f"A digit is how many of the drawn lanes touch that {about.get('cell', 'cell of memory')}."
    if legend := about.get("legend"):
        yield "  ".join(f"{a} {b}" for a, b in zip(_SHADES, legend.values(), strict=False))


def _entry(
    group: str,
    name: str,
    title: str,
    text: str,
    source: str,
    words: tuple[str, ...],
    unit: str = "",
    page: tuple[tuple[str, str, str], ...] = (),
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
