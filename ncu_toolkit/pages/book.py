"""A run laid out as a book: which launches and timings are one rung at one size, what each is
compared with, and the name of its page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from ncu_toolkit.core.errors import ToolkitError
from ncu_toolkit.core.safe import slug, visible
from ncu_toolkit.document.card import Card
from ncu_toolkit.explain.verdict import card
from ncu_toolkit.ladder.catalogue import load_families
from ncu_toolkit.ladder.header import code_digest, split
from ncu_toolkit.ladder.problems import Problem, problem_for
from ncu_toolkit.ladder.rung import Rung
from ncu_toolkit.model import Diagnosis, Profile, Timing
from ncu_toolkit.model.run import Run
from ncu_toolkit.pages import palette

#: A rung of the trunk is faster than the one before it by this part at least.
TRUNK: Final = 0.1
Diagnose = Callable[[Profile], Diagnosis]


@dataclass(frozen=True)
class Variant:
    """What makes figures of one ladder comparable: the size and the element type."""

    size: str
    dtype: str
    volume: float
    """Product of the extents, to sort sizes by."""


@dataclass(frozen=True)
class Entry:
    """One rung at one variant: its launches in order, and its timing. `parameters` tell apart the
    same rung compiled in two ways."""

    family: str
    rung: str
    variant: Variant
    parameters: tuple[tuple[str, int], ...]
    profiles: tuple[Profile, ...]
    timing: Timing | None
    warm: Timing | None
    info: Rung | None
    label: str

    @property
    def main(self) -> Profile | None:
        """The launch that takes longest: the one a table row speaks of."""
        complete = [profile for profile in self.profiles if profile.launch.complete]
        return max(
            complete or self.profiles, key=lambda profile: profile.duration_us or 0.0, default=None
        )

    @property
    def kind(self) -> str:
        return self.info.kind if self.info else "step"

    @property
    def outdated(self) -> bool:
        """Whether the kernel's code is no longer what it was recorded from, as far as the report
        embeds that. Blocks, comments and white space do not count."""
        if self.info is None:
            return False
        file = f"/{self.info.family}/{self.info.path.name}"
        texts = (
            text
            for profile in self.profiles
            for path, text in profile.sources.items()
            if path.endswith(file)
        )
        recorded = {code_digest(text) for text in texts if split(text)[0]}  # none if blanked
        return bool(recorded - {code_digest(self.info.text)})

    @property
    def flops(self) -> float | None:
        """Useful operations of the whole rung."""
        if self.timing:
            return self.timing.flops
        return _total(
            profile.context.flops if profile.context else None for profile in self.profiles
        )

    @property
    def compulsory_bytes(self) -> float | None:
        """Fewest bytes the whole rung must move through device memory."""
        if self.timing:
            return self.timing.compulsory_bytes
        return _total(
            profile.context.compulsory_bytes if profile.context else None
            for profile in self.profiles
        )


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


@dataclass(frozen=True)
class Book:
    """A run with what the ladders and the diagnosis know of it."""

    run: Run
    diagnose_profile: Diagnose
    rungs: Mapping[tuple[str, str], Rung]
    _verdicts: dict[int, Diagnosis] = field(default_factory=dict)
    _cards: dict[int, Card] = field(default_factory=dict)

    def diagnosis(self, profile: Profile) -> Diagnosis:
        """The verdict on a profile, computed once."""
        key = id(profile)
        if key not in self._verdicts:
            self._verdicts[key] = self.diagnose_profile(profile)
        return self._verdicts[key]

    def card(self, profile: Profile) -> Card:
        """The card of a profile, computed once."""
        key = id(profile)
        if key not in self._cards:
            self._cards[key] = card(profile, self.diagnosis(profile))
        return self._cards[key]

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every rung at every variant: by family, then size, then the rung's place in its
        ladder."""
        groups: dict[
            tuple[str, str, str, str, tuple[tuple[str, int], ...]],
            tuple[list[Profile], list[Timing]],
        ] = {}
        for profile in self.run.profiles:
            if c := profile.rung:
                groups.setdefault(
                    (c.family, c.size, c.dtype, c.rung, tuple(sorted(c.parameters.items()))),
                    ([], []),
                )[0].append(profile)
        for timing in self.run.timings:
            groups.setdefault(
                (
                    timing.family,
                    timing.size,
                    timing.dtype,
                    timing.rung,
                    tuple(sorted(timing.parameters.items())),
                ),
                ([], []),
            )[1].append(timing)
        # told apart by name where both are of one size: of another size a rung may run as tuned for
        # it
        spellings: dict[tuple[str, str, str, str], set[tuple[tuple[str, int], ...]]] = {}
        for family, size, dtype, rung, parameters in groups:
            spellings.setdefault((family, size, dtype, rung), set()).add(parameters)
        entries = []
        for (family, size, dtype, rung, parameters), (profiles, timings) in groups.items():
            dims = profiles[0].context.dims if profiles and profiles[0].context else timings[0].dims
            volume = 1.0
            for extent in dims.values():
                volume *= extent
            flushed = next((t for t in timings if t.cache == "flushed"), None)
            warm = next((t for t in timings if t.cache == "warm"), None)
            others = spellings[family, size, dtype, rung]
            label = rung if len(others) == 1 else f"{rung} ({_differing(parameters, others)})"
            ordered = tuple(
                sorted(
                    profiles,
                    key=lambda p: (
                        p.context.launch_index if p.context else 0,
                        p.origin.range_index,
                        p.origin.action_index,
                    ),
                )
            )
            entries.append(
                Entry(
                    family,
                    rung,
                    Variant(size, dtype, volume),
                    parameters,
                    ordered,
                    flushed or warm,
                    warm if flushed else None,
                    self.rungs.get((family, rung)),
                    label,
                )
            )
        families = {
            name: i for i, name in enumerate(dict.fromkeys(entry.family for entry in entries))
        }
        return tuple(
            sorted(
                entries,
                key=lambda e: (
                    families[e.family],
                    e.variant.volume,
                    e.variant.dtype,
                    e.info.order if e.info else 10**6,
                ),
            )
        )

    @cached_property
    def families(self) -> dict[str, dict[Variant, list[Entry]]]:
        """Entries by family and variant, smallest size first."""
        found: dict[str, dict[Variant, list[Entry]]] = {}
        for entry in self.entries:
            found.setdefault(entry.family, {}).setdefault(entry.variant, []).append(entry)
        return found

    @cached_property
    def strangers(self) -> tuple[Profile, ...]:
        """Launches that are no rung: anybody's report."""
        return tuple(profile for profile in self.run.profiles if profile.rung is None)

    @cached_property
    def slugs(self) -> dict[int, str]:
        """Page name (without suffix) by identity of the profile; no two alike, nothing in them from
        outside but letters and digits."""
        names: dict[int, str] = {}
        taken: set[str] = {"index"}
        many = {
            entry.family: len({e.variant.dtype for e in self.entries if e.family == entry.family})
            > 1
            for entry in self.entries
        }
        for entry in self.entries:
            for index, profile in enumerate(entry.profiles):
                parts = (
                    [entry.family, entry.label, entry.variant.size]
                    + ([entry.variant.dtype] if many[entry.family] else [])
                    + ([f"launch{index + 1}"] if index else [])
                )
                names[id(profile)] = _free(slug("-".join(parts)), taken)
        for index, profile in enumerate(self.strangers):
            names[id(profile)] = _free(
                slug(f"launch-{index:04d}-{profile.launch.function}", 60), taken
            )
        return names

    @cached_property
    def places(self) -> dict[int, tuple[int, int]]:
        """Which launch of its file each profile is, from 1, and how many there are; by identity."""
        files: dict[str, list[Profile]] = {}
        for profile in self.run.profiles:
            files.setdefault(profile.origin.file, []).append(profile)
        return {
            id(profile): (place, len(held))
            for held in files.values()
            for place, profile in enumerate(held, 1)
        }

    def entry_of(self, profile: Profile) -> Entry | None:
        """The rung a launch belongs to."""
        return self._by_profile.get(id(profile))

    @cached_property
    def _by_profile(self) -> dict[int, Entry]:
        return {id(profile): entry for entry in self.entries for profile in entry.profiles}

    def before(self, entry: Entry) -> Entry | None:
        """The entry this one is compared with, at the same variant; None for the first rung or where
        that one is not in the run."""
        if entry.info is None or not entry.info.compared_with:
            return None
        family, _, rung = entry.info.compared_with.rpartition("/")
        return self._find(family or entry.family, rung, entry.variant)

    def page(self, entry: Entry) -> str:
        """Name of the page of the entry's longest launch; empty where it was not profiled."""
        return f"{self.slugs[id(entry.main)]}.html" if entry.main else ""

    def pending(self, family: str) -> list[str]:
        """Rungs of a ladder that the run did not try, such as one whose file is newer."""
        tried = self.run.tried
        return [name for of, name in self.rungs if of == family and (of, name) not in tried]

    def pages(self, entries: Iterable[Entry]) -> dict[str, str]:
        """The pages of a chart's rungs by label."""
        return {visible(entry.label): page for entry in entries if (page := self.page(entry))}

    @cached_property
    def colours(self) -> dict[str, dict[str, str]]:
        """The colour of each rung by family and label: the same in every chart."""
        found = {}
        for family, variants in self.families.items():
            kinds = {e.label: e for entries in variants.values() for e in entries}
            ordered = sorted(kinds.values(), key=lambda e: e.info.order if e.info else 10**6)
            count = sum(entry.kind not in ("baseline", "roof") for entry in ordered)
            found[family] = {
                entry.label: palette.rung_colour(place, count, entry.kind)
                for place, entry in enumerate(ordered)
            }
        return found

    def trunk(self, entries: Sequence[Entry]) -> frozenset[str]:
        """Labels of the rungs on the way to the fastest one of each ladder, of those that gain: a
        learner climbs these, all others are variants of them. Empty where steps were not timed."""
        best: dict[str, tuple[float, list[Entry]]] = {}
        for entry in entries:
            if entry.kind != "step" or entry.timing is None:
                continue
            way = [entry]
            while (before := self.before(way[-1])) and before.family == entry.family:
                way.append(before)
            root, time = way[-1].rung, entry.timing.median_us
            if root not in best or time < best[root][0]:
                best[root] = time, way[::-1]
        found: set[str] = set()
        for _, way in best.values():
            last = math.inf
            for entry in way:
                time = entry.timing.median_us if entry.timing else math.inf
                if entry.kind == "step" and (entry is way[-1] or time * (1 + TRUNK) < last):
                    found.add(entry.label)
                    last = time
        return frozenset(found)

    def baseline(self, entry: Entry) -> Entry | None:
        """The library or rung that the entry's rate is a percentage of, at the same variant."""
        named = entry.info.baseline if entry.info else ""
        family, _, rung = named.rpartition("/")
        problem = problem_of(entry.family)
        return self._find(
            family or entry.family, rung or (problem.baseline if problem else ""), entry.variant
        )

    def _find(self, family: str, rung: str, variant: Variant) -> Entry | None:
        alike = [e for e in self.families.get(family, {}).get(variant, []) if e.rung == rung]
        return next((e for e in alike if e.timing), alike[0] if alike else None)

    def baseline_us(self, entry: Entry) -> float | None:
        """Time of the baseline: as interleaved with the entry's repeats, else its own timing."""
        if entry.timing and entry.timing.baseline_us:
            return entry.timing.baseline_us
        base = self.baseline(entry)
        return base.timing.median_us if base and base.timing else None


def _differing(
    parameters: tuple[tuple[str, int], ...], others: set[tuple[tuple[str, int], ...]]
) -> str:
    return ", ".join(
        f"{name} {value}"
        for name, value in parameters
        if any(dict(other).get(name) != value for other in others)
    )


def _free(name: str, taken: set[str]) -> str:
    candidate, n = name, 2
    while candidate in taken:
        candidate, n = f"{name}-{n}", n + 1
    taken.add(candidate)
    return candidate


def problem_of(family: str) -> Problem | None:
    """The family's problem, or None for a family this version does not know."""
    try:
        return problem_for(family)
    except ToolkitError:
        return None


def known_rungs(families: Iterable[str]) -> dict[tuple[str, str], Rung]:
    """Headers of the named families' rungs. A broken or absent file leaves its rung out: the
    measurements are shown without its story."""
    try:
        ladders = load_families()
    except ToolkitError:
        return {}
    found = {}
    for family in ladders.values():
        for name in family.rung_names if family.name in families else ():
            try:
                found[family.name, name] = family.rung(name)
            except ToolkitError:
                continue
    return found


def open_book(
    run: Run,
    diagnose_profile: Diagnose,
    rungs: Mapping[tuple[str, str], Rung] | None = None,
    verdicts: Iterable[tuple[Profile, Diagnosis]] = (),
) -> Book:
    """Lay out a run. `rungs` default to the shipped ladders; `verdicts` are those that are known
    already."""
    names = {p.rung.family for p in run.profiles if p.rung} | {t.family for t in run.timings}
    return Book(
        run,
        diagnose_profile,
        known_rungs(names) if rungs is None else rungs,
        {id(profile): verdict for profile, verdict in verdicts},
    )
