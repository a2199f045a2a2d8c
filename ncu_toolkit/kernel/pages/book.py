"""A run laid out as a book: which launches and timings are one rung at one size, what each is
compared with, and the name of its page."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from ncu_toolkit.base.core.errors import ToolkitError
from ncu_toolkit.base.core.safe import slug, visible
from ncu_toolkit.base.document.card import Card
from ncu_toolkit.base.document.views import shown_size
from ncu_toolkit.base.model import Context, Diagnosis, Profile, Timing
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.kernel.analysis.analyze import typical
from ncu_toolkit.kernel.diagnosis.compare import Launches
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.time_model import NOISE
from ncu_toolkit.kernel.explain.verdict import card
from ncu_toolkit.kernel.ladder.catalogue import code_digest, load_families, split
from ncu_toolkit.kernel.ladder.problems import Problem, problem_for
from ncu_toolkit.kernel.ladder.rung import Rung
from ncu_toolkit.kernel.pages import charts
from ncu_toolkit.kernel.pages.roofline import DeviceRoof, roofs
from ncu_toolkit.kernel.report import reader

#: The fact of a run that only launches of some kernels were chosen.
FILTER: Final = "Filter"
#: A rung of the trunk is faster than the one before it by this part at least.
TRUNK: Final = 0.1
Diagnose = Callable[[Profile], Diagnosis]
Across = Callable[["Book"], Card | None]


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

    book: Book = field(repr=False, compare=False)
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
    def launches(self) -> Launches:
        return Launches(self.profiles, self.timing, visible(self.label))

    @property
    def kind(self) -> str:
        return self.info.kind if self.info else "step"

    @property
    def ladder(self) -> Ladder:
        return self.book.families[self.family][self.variant]

    @property
    def page(self) -> str:
        """Name of the page of its longest launch; empty where it was not profiled."""
        return self.book.page(self.main)

    @property
    def colour(self) -> str:
        """The same in every chart."""
        return self.book.colours[self.family][self.label]

    @property
    def order(self) -> int:
        """The rung's place in its ladder; last where its header is not known."""
        return self.info.order if self.info else 10**6

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
        return self._work("flops")

    @property
    def compulsory_bytes(self) -> float | None:
        """Fewest bytes the whole rung must move through device memory."""
        return self._work("compulsory_bytes")

    @property
    def by_flops(self) -> bool:
        """Whether its family is ranked by FLOP/s, by B/s otherwise."""
        return self.book.by_flops[self.family]

    @property
    def unit(self) -> str:
        """Of its rate."""
        return "FLOP/s" if self.by_flops else "B/s"

    @property
    def rate(self) -> float | None:
        """Useful FLOP/s or compulsory B/s at the median unprofiled time; None where not timed."""
        if self.timing is None:
            return None
        return self.timing.flop_rate if self.by_flops else self.timing.byte_rate

    @property
    def before(self) -> Entry | None:
        """The entry this one is compared with, at the same variant; None for the first rung or where
        that one is not in the run."""
        if self.info is None or not self.info.compared_with:
            return None
        return self.book.find(self.info.compared_with, self)

    @property
    def way(self) -> list[Entry]:
        """The entries of the family that lead to this one by their comparisons, which is the last."""
        way = [self]
        while (before := way[0].before) and before.family == self.family:
            way.insert(0, before)
        return way

    @property
    def shown_kind(self) -> str:
        """The rung's kind, and `slower` for a step that takes longer than the rung it is compared
        with."""
        before = self.before if self.kind == "step" else None
        gain = achieved(before, self) if before else None
        return "slower" if gain is not None and gain < 1 - NOISE else self.kind

    @property
    def baseline(self) -> Entry | None:
        """The library or rung that the rate is a percentage of, at the same variant."""
        problem = problem_of(self.family)
        own = self.info.baseline if self.info else ""
        return self.book.find(own or (problem.baseline if problem else ""), self)

    @property
    def baseline_us(self) -> float | None:
        """Time of the baseline: as interleaved with these repeats, else its own timing."""
        if self.timing and self.timing.baseline_us:
            return self.timing.baseline_us
        base = self.baseline
        return base.timing.median_us if base and base.timing else None

    def _work(self, name: str) -> float | None:
        contexts = [profile.context for profile in self.profiles if profile.context]
        known = [
            value
            for of in ([self.timing] if self.timing else contexts)
            if (value := getattr(of, name)) is not None
        ]
        return sum(known) if known else None


def achieved(before: Entry, after: Entry) -> float | None:
    """Measured speedup of a step from unprofiled times; None where one is not timed."""
    if before.timing is None or after.timing is None:
        return None
    return before.timing.median_us / after.timing.median_us


@dataclass(frozen=True)
class Ladder:
    """A family at one variant: its entries in order, and what its table, charts and sentences
    share."""

    book: Book
    family: str
    variant: Variant
    entries: tuple[Entry, ...]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    @property
    def key(self) -> str:
        """Where the family's page shows it."""
        return slug(f"{self.family}-{self.variant.size}-{self.variant.dtype}")

    @property
    def title(self) -> str:
        """The family's, in plain text."""
        problem = problem_of(self.family)
        return visible(problem.title if problem else self.family.replace("_", " "))

    @property
    def size(self) -> str:
        return shown_size(self.variant.size)

    @property
    def label(self) -> str:
        """The size, with the element type where the family has several."""
        types = {variant.dtype for variant in self.book.families[self.family]}
        return visible(f"{self.size} · {self.variant.dtype}" if len(types) > 1 else self.size)

    @property
    def links(self) -> dict[str, str]:
        """The pages of a chart's rungs by label."""
        pages = {visible(entry.label): entry.page for entry in self}
        return {label: page for label, page in pages.items() if page}

    @cached_property
    def rates(self) -> dict[str, float]:
        """The rate of each timed rung by label."""
        return {entry.label: rate for entry in self if (rate := entry.rate)}

    @cached_property
    def trunk(self) -> frozenset[str]:
        """Labels of the rungs that a learner climbs: the steps to each ladder's fastest rung that
        gain. All others are variants. Empty where steps were not timed."""
        best: dict[str, tuple[float, list[Entry]]] = {}
        for entry in self:
            if entry.kind != "step" or entry.timing is None:
                continue
            way, time = entry.way, entry.timing.median_us
            root = way[0].rung
            if root not in best or time < best[root][0]:
                best[root] = time, way
        found: set[str] = set()
        for _, way in best.values():
            last = math.inf
            for entry in way:
                time = entry.timing.median_us if entry.timing else math.inf
                if entry.kind == "step" and (entry is way[-1] or time * (1 + TRUNK) < last):
                    found.add(entry.label)
                    last = time
        return frozenset(found)

    @cached_property
    def climbs(self) -> dict[str, list[Entry]]:
        """The timed steps by the rung that their headers' comparisons lead back to, also where rungs
        between were not run: a family may hold several problems, each with its own ladder."""
        found: dict[str, list[Entry]] = {}
        for entry in self:
            if entry.kind == "step" and entry.timing:
                name, info = entry.rung, entry.info
                while info and info.compared_with and "/" not in info.compared_with:
                    name = info.compared_with
                    info = self.book.rungs.get((entry.family, name))
                found.setdefault(name, []).append(entry)
        return found

    @property
    def tops(self) -> list[Entry]:
        """The fastest step of each ladder of several steps, else of the longest."""
        climbs = [*self.climbs.values()]
        return [self.top(steps) for steps in climbs if len(steps) > 1] or [
            self.top(steps) for steps in climbs[:1]
        ]

    def top(self, steps: Sequence[Entry]) -> Entry:
        return max(steps, key=lambda entry: self.rates.get(entry.label, 0.0))

    @cached_property
    def pairs(self) -> list[tuple[float, Entry, Entry]]:
        """(speedup, defect, repair) where the steps fix planted defects one by one and do not
        climb; empty for a ladder."""
        steps = [entry for entry in self if entry.kind == "step"]
        fixed = [
            (before, entry)
            for entry in steps
            if (before := entry.before) and before.kind == "planted"
        ]
        if 2 * len(fixed) <= len(steps):
            return []
        return [(gain, *pair) for pair in fixed if (gain := achieved(*pair))]


@dataclass(frozen=True)
class Book:
    """A run with what the ladders and the diagnosis know of it."""

    run: Run
    diagnose_profile: Diagnose
    rungs: Mapping[tuple[str, str], Rung]
    across: Across = field(default=lambda book: None, compare=False)
    """What costs most across its launches where they are a program's."""
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
    def roofs(self) -> tuple[DeviceRoof, ...]:
        return roofs(self.run.device, self.run.ceilings, self.run.profiles)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every rung at every variant: by family, then size, then place in the ladder."""
        groups: dict[Any, tuple[list[Profile], list[Timing]]] = {}
        # told apart by name where both are of one size: of another size a rung may run as tuned for
        # it
        spellings: dict[Any, set[tuple[tuple[str, int], ...]]] = {}

        def held(of: Context | Timing) -> tuple[list[Profile], list[Timing]]:
            key, parameters = (of.family, of.size, of.dtype, of.rung), tuple(sorted(of.parameters.items()))  # fmt: skip
            spellings.setdefault(key, set()).add(parameters)
            return groups.setdefault((*key, parameters), ([], []))

        for profile in self.run.profiles:
            if profile.rung:
                held(profile.rung)[0].append(profile)
        for timing in self.run.timings:
            held(timing)[1].append(timing)
        entries = []
        for (family, size, dtype, rung, parameters), (profiles, timings) in groups.items():
            dims = profiles[0].context.dims if profiles and profiles[0].context else timings[0].dims
            flushed, warm = (
                next((t for t in timings if t.cache == state), None)
                for state in ("flushed", "warm")
            )
            others = spellings[family, size, dtype, rung]
            differing = ", ".join(
                f"{name} {value}"
                for name, value in parameters
                if any(dict(other).get(name) != value for other in others)
            )
            label = rung if len(others) == 1 else f"{rung} ({differing})"
            entries.append(
                Entry(
                    self,
                    family,
                    rung,
                    Variant(size, dtype, math.prod(dims.values(), start=1.0)),
                    parameters,
                    tuple(sorted(profiles, key=_place)),
                    flushed or warm,
                    warm if flushed else None,
                    self.rungs.get((family, rung)),
                    label,
                )
            )
        families = list(dict.fromkeys(entry.family for entry in entries))
        return tuple(
            sorted(
                entries,
                key=lambda e: (
                    families.index(e.family), e.variant.volume, e.variant.dtype, e.order,
                ),
            )
        )  # fmt: skip

    @cached_property
    def families(self) -> dict[str, dict[Variant, Ladder]]:
        """Ladders by family and variant, smallest size first."""
        found: dict[str, dict[Variant, list[Entry]]] = {}
        for entry in self.entries:
            found.setdefault(entry.family, {}).setdefault(entry.variant, []).append(entry)
        return {
            family: {
                variant: Ladder(self, family, variant, tuple(entries))
                for variant, entries in variants.items()
            }
            for family, variants in found.items()
        }

    def primary(self, family: str) -> Ladder:
        """The size to show first: that with most rungs both profiled and timed, the largest of
        several; a baseline alone tells no story."""
        ladders = [*self.families[family].values()]
        covered = [sum(bool(e.profiles) and e.timing is not None for e in of) for of in ladders]
        return [of for of, count in zip(ladders, covered, strict=True) if count == max(covered)][-1]

    @cached_property
    def by_flops(self) -> dict[str, bool]:
        """Whether a family is ranked by FLOP/s. The problem says; a family that this version does
        not know goes by FLOPs where it has any."""
        found: dict[str, bool] = {}
        for entry in self.entries:
            problem = problem_of(entry.family)
            own = problem.rate == "flop" if problem else bool(entry.flops)
            found[entry.family] = own or found.get(entry.family, False)
        return found

    @property
    def filtered(self) -> bool:
        """Whether launches were left out by their kernels."""
        skipped = any(reader.by_kernel(each.reason) for each in self.run.skipped)
        return skipped or FILTER in self.run.environment

    @cached_property
    def strangers(self) -> tuple[Profile, ...]:
        """Launches that are no rung: anybody's report."""
        return tuple(profile for profile in self.run.profiles if profile.rung is None)

    @cached_property
    def groups(self) -> list[list[Profile]]:
        """Launches that are no rung by kernel, grid and block: the group with most time first, its
        typical launch in front."""
        groups: dict[Any, list[Profile]] = {}
        for profile in self.strangers:
            of = profile.launch
            key = (profile.origin.file, of.kernel, of.grid, of.block, of.status)
            groups.setdefault(key, []).append(profile)
        for members in groups.values():
            members.insert(0, members.pop(typical([each.duration_us for each in members])))
        return sorted(
            groups.values(), key=lambda members: -sum(each.duration_us or 0.0 for each in members)
        )

    @cached_property
    def slugs(self) -> dict[int, str]:
        """Page name (without suffix) by identity of the profile; no two alike, nothing in them from
        outside but letters and digits."""
        names: dict[int, str] = {}
        taken: set[str] = {"index"}
        for entry in self.entries:
            parts = [entry.family, entry.label, entry.variant.size]
            if len({variant.dtype for variant in self.families[entry.family]}) > 1:
                parts.append(entry.variant.dtype)
            for index, profile in enumerate(entry.profiles):
                which = [f"launch{index + 1}"] if index else []
                names[id(profile)] = _free(slug("-".join([*parts, *which])), taken)
        for index, profile in enumerate(self.strangers):
            names[id(profile)] = _free(
                slug(f"launch-{index:04d}-{profile.launch.function}", 60), taken
            )
        return names

    def page(self, profile: Profile | None) -> str:
        """Name of a launch's page; empty for none."""
        return f"{self.slugs[id(profile)]}.html" if profile else ""

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

    def find(self, rung: str, entry: Entry) -> Entry | None:
        """A rung, named as `family/rung` where it is of another family than the entry, at its
        variant; one that was timed first."""
        family, _, name = rung.rpartition("/")
        ladder = self.families.get(family or entry.family, {}).get(entry.variant, ())
        alike = [other for other in ladder if other.rung == name]
        return next((other for other in alike if other.timing), alike[0] if alike else None)

    def pending(self, family: str) -> list[str]:
        """Rungs of a ladder that the run did not try, such as one whose file is newer."""
        tried = self.run.tried
        return [name for of, name in self.rungs if of == family and (of, name) not in tried]

    @cached_property
    def colours(self) -> dict[str, dict[str, str]]:
        """The colour of each rung by family and label: the same in every chart."""
        found = {}
        for family, ladders in self.families.items():
            kinds = {entry.label: entry for ladder in ladders.values() for entry in ladder}
            ordered = sorted(kinds.values(), key=lambda entry: entry.order)
            count = sum(entry.kind not in ("baseline", "roof") for entry in ordered)
            found[family] = {
                entry.label: charts.rung_colour(place, count, entry.kind)
                for place, entry in enumerate(ordered)
            }
        return found


def _place(profile: Profile) -> tuple[int, int, int]:
    index = profile.context.launch_index if profile.context else 0
    return index, profile.origin.range_index, profile.origin.action_index


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


def known_rungs(families: Collection[str]) -> dict[tuple[str, str], Rung]:
    """Headers of the named families' rungs. A broken or absent file leaves its rung out: the
    measurements are shown without its story."""
    try:
        ladders = load_families() if families else {}
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
    across: Across | None = None,
) -> Book:
    """Lay out a run. `rungs` default to the shipped ladders; `verdicts` are those that are known
    already; `across`: as in `Book`."""
    names = {p.rung.family for p in run.profiles if p.rung} | {t.family for t in run.timings}
    return Book(
        run,
        diagnose_profile,
        known_rungs(names) if rungs is None else rungs,
        across or (lambda book: None),
        {id(profile): verdict for profile, verdict in verdicts},
    )


#: The last runs laid out: the front page follows the run's own pages, and diagnosing is most of the
#: time.
_recent: deque[tuple[Run, Book]] = deque(maxlen=16)


def book_for(
    run: Run,
    verdicts: Iterable[tuple[Profile, Diagnosis]] = (),
    across: Across | None = None,
) -> Book:
    """The run laid out with the toolkit's own diagnosis and ladders; `verdicts` of its profiles are
    known already; `across`: as in `Book`."""
    for known, book in _recent:
        if known is run:
            return book
    _recent.append((run, open_book(run, diagnose, verdicts=verdicts, across=across)))
    return _recent[-1][1]
