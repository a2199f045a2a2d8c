"""What limits a kernel, without counters: from its shape, its time, and how much it slows down
beside stressors (docs/probe.md)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.base.hardware.specs import BLOCK_STARTS, Occupancy
from ncu_toolkit.base.metrics.registry import REGISTRY
from ncu_toolkit.base.model import Device, Diagnosis, Evidence, Finding, Profile
from ncu_toolkit.base.model.profile import InstructionMix, Origin, Presence, Reading
from ncu_toolkit.base.model.trace import HALF, KINDS, PLAIN, KernelTrace
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.figures import occupancy_of_launch
from ncu_toolkit.kernel.diagnosis.rules import Rule, load_rules
from ncu_toolkit.kernel.diagnosis.time_model import RESOURCES

Regime = Literal["DRAM", "L2", "on-chip memory", "arithmetic", "latency", "launch or idle"]
REGIMES: Final[tuple[Regime, ...]] = get_args(Regime)
#: Resource of the time model -> regime.
OF_RESOURCE: Final[Mapping[str, Regime]] = {
    "dram": "DRAM", "l2": "L2", "fill": "L2", "atomic": "L2",
    "l1_data": "on-chip memory", "l1_tag": "on-chip memory", "l1_writeback": "on-chip memory",
    "l1": "on-chip memory", "lsu": "on-chip memory", "constant": "on-chip memory",
    "issue": "arithmetic", "fma": "arithmetic", "fmaheavy": "arithmetic", "alu": "arithmetic",
    "fp64": "arithmetic", "fp16": "arithmetic", "xu": "arithmetic", "tensor": "arithmetic",
    "uniform": "arithmetic", "blocks": "launch or idle",
}  # fmt: skip
#: Share of its time from which a unit limits a launch: Nsight Compute's SpeedOfLight rule calls a
#: launch limited by compute or memory above, and by latency below.
LIMITS: Final = 0.6
#: Runs of a condition below which it says nothing.
LEAST_RUNS: Final = 4


def _median(values: Iterable[float]) -> float:
    """The median, without `statistics`, which the Python inside ncu cannot import."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def of_counters(profile: Profile, diagnosis: Diagnosis) -> Regime:
    """The regime of a verdict from counters: by the rule's unit, its shape or latency. Where the
    rule names none, by the busiest unit from LIMITS on."""
    rule = load_rules()[diagnosis.primary.bottleneck]
    if rule.FROM_SHAPE:
        return "launch or idle"
    if rule.UNITS:
        return OF_RESOURCE[rule.UNITS[0]]
    if rule.LIMIT == "latency":
        return "latency"
    duration = profile.duration_us or 0.0
    shares = {name: bound / duration for name, bound in diagnosis.bounds.items() if duration}
    known = {name: share for name, share in shares.items() if name in OF_RESOURCE}
    busiest = max(known, key=lambda name: known[name], default="")
    return OF_RESOURCE[busiest] if busiest and known[busiest] >= LIMITS else "latency"


def agrees(rule: Rule, regime: Regime) -> bool:
    """Whether a rule can be the cause of a regime; one of memory without units, of any memory's."""
    if rule.FROM_SHAPE or regime == "launch or idle":
        return rule.FROM_SHAPE and regime == "launch or idle"
    if rule.UNITS:
        return regime in {OF_RESOURCE.get(unit) for unit in rule.UNITS}
    if rule.LIMIT == "memory":
        return regime in ("DRAM", "L2", "on-chip memory")
    return regime == ("arithmetic" if rule.LIMIT == "compute" else "latency")


@dataclass(frozen=True)
class Response:
    """How much longer a kernel runs alongside a stressor than beside its control: by `slope` (a
    fraction); `spread` is the half-width of its 95 % interval, by the medians' errors."""

    slope: float
    spread: float


def responses(conditions: Mapping[str, Sequence[float]]) -> dict[str, Response]:
    """Responses by kind of pressure. Controls are compared with plain runs, the others with their
    control. Kinds with too few runs are left out."""
    found = {}
    for name in (*KINDS, HALF):
        control = KINDS[name].control if name in KINDS else ""
        runs, base = conditions.get(name, ()), conditions.get(control or PLAIN, ())
        if len(runs) < LEAST_RUNS or len(base) < LEAST_RUNS:
            continue
        ratio = _median(runs) / _median(base)
        error = math.hypot(_error(runs), _error(base))
        found[name] = Response(ratio - 1, 1.96 * ratio * error)
    return found


def _error(times: Sequence[float]) -> float:
    """Relative standard error of a median, by the median absolute deviation: 1.2533 x 1.4826
    (Rousseeuw and Croux 1993)."""
    middle = _median(times)
    deviation = 1.4826 * _median(abs(time - middle) for time in times)
    return 1.2533 * deviation / math.sqrt(len(times)) / middle if middle else 0.0


def fill_of(kernel: KernelTrace, device: Device) -> Occupancy | None:
    """Theoretical occupancy of a traced kernel; None where that is not known."""
    try:
        return occupancy_of_launch(kernel.launch, device)
    except UsageProblem:
        return None


def profile_of(kernel: KernelTrace, device: Device) -> Profile:
    """A traced kernel as a profile of its time and shape, for the rules."""
    values = {"duration": kernel.median_us}
    fill = fill_of(kernel, device)
    if fill is not None:
        values["theoretical_occupancy"] = fill.fraction
        if kernel.launch.blocks and device.sm_count and fill.active_blocks:
            values["waves"] = fill.waves(kernel.launch.blocks, device.sm_count)
    readings = {
        name: Reading(name, value, REGISTRY[name].unit, Presence.PRESENT)
        for name, value in values.items()
    }
    return Profile(Origin("", 0, 0), device, kernel.launch, readings, None, InstructionMix({}))


def traced(
    profile: Profile, conditions: Mapping[str, Sequence[float]], kept: Mapping[str, float]
) -> KernelTrace:
    """A profiled launch as a kernel alongside stressors. `conditions` are times of all launches of its
    rung in microseconds; `kept` is the part of its speed that each stressor kept."""
    middle = _median(conditions[PLAIN])
    about = profile.rung
    number = max(1, about.launch_count - 1 + about.repeat) if about else 1
    each = middle / number
    return KernelTrace(
        profile.launch, number, middle, each, each, each,
        {name: tuple(times) for name, times in conditions.items()},
        {name: (part,) for name, part in kept.items()},
    )  # fmt: skip


@dataclass(frozen=True)
class Thresholds:
    """The numbers of `Seen` from which on a regime holds. Fitted on one half of the kernels of
    docs/data/probe.json, chosen by a hash of their names (docs/probe.md)."""

    dram: float = 0.65
    """Part of the device memory's rate that the kernel takes."""
    l2: float = 0.5
    l2_used: float = 0.1
    """What the L2 stressor loses of its speed."""
    clogged: float = 0.45
    """What the L2 stressor loses above which it is the L2 whatever the slope: contended atomics
    delay all other traffic, and no stressor delays them."""
    local: float = 0.1
    """Exponent of the time in the number of SMs, below which nothing in them limits the kernel."""
    on_chip: float = 0.5
    """Parts of the rates of shared-memory, constant-memory and FP32 work that it takes."""
    constant: float = 0.7
    issue: float = 0.45
    arithmetic: float = 0.35
    """Slopes of FP32, special-function and integer work. A kernel with lower issue priority slows
    down while the stressor does not."""
    special: float = 0.5
    integer: float = 1.1
    idle: float = 0.15
    """Part of the GPU's time that the launch's shape leaves unused."""
    follows: float = 0.1
    """Exponent of the time in the number of SMs, below which the kernel does not need them; `blind`
    for kernels that were not run with half of their blocks."""
    blind: float = 0.1
    half: float = 0.5
    """Slope with half of the resident blocks, above which its warps wait rather than idle."""
    felt: float = 0.1
    """Part of a unit's rate below which the stressor does not notice the kernel."""
    dram_slope: float = 0.25
    """This, `memory`, `spare` and `shared` count where it is not known what the stressor lost."""
    memory: float = 1.1
    """DRAM stressor's slope over the L2 stressor's, above which it is DRAM: its traffic is in
    both."""
    spare: float = 0.6
    """Exponent of the time in the number of SMs above which it is not DRAM: a kernel that waits for
    memory needs all its warps, one that saturates memory does not."""
    shared: float = 0.15
    near: float = 0.85
    """A regime whose score is this part of the first one's is named beside it."""


FITTED: Final = Thresholds()
_SLOWER: Final = "Slower under pressure: "
#: Kinds that are shown, in words, and how many a card's line names.
_SHORT: Final[Mapping[str, str]] = {
    "dram": "DRAM traffic", "l2": "L2 traffic", "shared": "shared-memory work",
    "constant": "constant-memory work", "fp32": "FP32 work", "special": "special functions",
    "integer": "integer work", "alone": "a quarter of the SMs taken",
}  # fmt: skip
_SHOWN: Final = 3
#: Microseconds of starting and ending a launch, and between two (rules/launch_overhead.py).
_LAUNCH_US: Final = 1.2 + 2.2
#: Clock at which BLOCK_STARTS was measured (an H200's); that of a probed GPU is not known.
_CLOCK_MHZ: Final = 1_980
_ARITHMETIC: Final = ("fp32", "special", "integer")
#: Kinds without which a verdict is not sure, and what they test.
_TESTED: Final = {"dram": "DRAM", "fp32": "arithmetic", "shared": "on-chip memory"}
#: Kinds whose loss of speed counts.
_WEIGHED: Final = ("dram", "l2", "fp32", "shared")
_ON_CHIP: Final = ("shared", "constant")


@dataclass(frozen=True)
class Seen:
    """Experiments on a kernel and its shape: slopes by condition, the part of its speed that each
    stressor kept (of kinds where that was measured), the exponent of the time in the number of
    multiprocessors, and the part of the GPU that its shape leaves unused."""

    slopes: Mapping[str, float]
    kept: Mapping[str, float]
    follows: float
    unused: float

    def slope(self, kind: str) -> float:
        return self.slopes.get(kind, 0.0)

    def lost(self, kind: str) -> float:
        return 1 - self.kept.get(kind, 1.0)

    def taken(self, kind: str) -> float:
        """Part of a unit's rate that the kernel takes when it runs alone; 0 where it is not known.

        The stressor alone takes all of the unit. So the kernel takes what the stressor loses, for
        its longer time alongside it, and does the same work in its time alone."""
        beside = (1 + self.slope(KINDS[kind].control)) * (1 + self.slope(kind))
        return self.lost(kind) * beside


def seen(answers: Mapping[str, Response], kept: Mapping[str, float], unused: float) -> Seen:
    """The responses as numbers that `scores` compares."""
    alone = answers.get("alone")
    follows = math.log(1 + alone.slope) / -math.log(1 - KINDS["alone"].alone) if alone else 1.0
    return Seen({kind: each.slope for kind, each in answers.items()}, kept, follows, unused)


def scores(found: Seen, at: Thresholds = FITTED) -> dict[Regime, float]:
    """How far each regime is above its threshold (1); latency is what remains below all."""
    dram, l2 = found.taken("dram") / at.dram, found.slope("l2") / at.l2
    if "dram" not in found.kept:
        more = found.slope("dram") >= at.memory * found.slope("l2")
        dram = found.slope("dram") / at.dram_slope if more and found.follows < at.spare else 0.0
        l2 = 0.0 if more else l2
    if "l2" in found.kept:
        l2 = min(l2, found.lost("l2") / at.l2_used)
    arithmetic = max(
        found.taken("fp32") / at.issue,
        found.slope("fp32") / at.arithmetic,
        found.slope("special") / at.special,
        found.slope("integer") / at.integer,
    )
    on_chip = max(found.taken("shared") / at.on_chip, found.taken("constant") / at.constant)
    for kind in _ON_CHIP:
        if kind not in found.kept:
            on_chip = max(on_chip, found.slope(kind) / at.shared)
    waits = found.slope("dram") >= at.dram_slope or found.slope("l2") >= at.l2
    if not {"fp32", "shared"} & found.slopes.keys() and found.follows >= at.spare and not waits:
        arithmetic = 1.01  # It leaves no room, needs its multiprocessors, and waits for no memory.
    inside = found.follows >= at.local
    made: dict[Regime, float] = {
        "DRAM": dram, "L2": l2, "on-chip memory": on_chip * inside,
        "arithmetic": arithmetic * inside, "launch or idle": 0.0, "latency": 1.0,
    }  # fmt: skip
    if found.lost("l2") >= at.clogged:
        made["L2"] = 1.01 * max(made.values())
    most = max(made.values())
    if found.unused >= at.idle:
        made["launch or idle"] = most * found.unused / at.idle * 1.01
    elif most <= 1 and found.slope(HALF) < at.half:
        few = found.follows < (at.follows if HALF in found.slopes else at.blind)
        felt = any(found.taken(kind) >= at.felt for kind in _WEIGHED)
        made["launch or idle"] = 1.01 if few and not felt else 0.0
    return made


def starting_blocks(kernel: KernelTrace) -> float:
    """Part (0-1) of a launch's time that handing out its blocks takes."""
    starts_us, blocks = BLOCK_STARTS * _CLOCK_MHZ * kernel.median_us, kernel.launch.blocks
    return min(1.0, blocks / starts_us) if starts_us and blocks else 0.0


def unused_by_shape(kernel: KernelTrace, device: Device) -> float:
    """Part (0-1) of the GPU's time that a launch's shape leaves unused: SMs without a block, the empty
    part of the waves, start and end, and starting its blocks where that takes LIMITS or more."""
    short = _LAUNCH_US / (_LAUNCH_US + kernel.median_us) if kernel.median_us else 0.0
    blocks, fill = kernel.launch.blocks, fill_of(kernel, device)
    if not blocks or not device.sm_count:
        return short
    parts = [short, 1 - blocks / device.sm_count]
    if (starting := starting_blocks(kernel)) >= LIMITS:
        parts.append(starting)
    if fill is not None and fill.active_blocks:
        waves = fill.waves(blocks, device.sm_count)
        parts.append(1 - waves / math.ceil(waves) if waves > 1 else 0.0)
    return max(0.0, *parts)


@dataclass(frozen=True)
class Probe:
    """A probe of one kernel: its regime, a `second` one that it cannot exclude, and the first's rule."""

    first: Regime
    second: Regime | None
    bottleneck: str
    confidence: Literal["medium", "low"]
    evidence: tuple[Evidence, ...] = ()

    @property
    def either(self) -> tuple[Regime, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)


def regime_of(kernel: KernelTrace, device: Device, at: Thresholds = FITTED) -> Probe | None:
    """The regime of a kernel by its experiments; None with too few launches alongside stressors."""
    answers = responses(kernel.conditions)
    if not {"l2", "alone"} <= answers.keys():
        return None
    by_shape = diagnose(profile_of(kernel, device))
    return _read(look(kernel, device), answers, by_shape, at)


def kept(kernel: KernelTrace) -> dict[str, float]:
    """The part of its speed that each stressor with enough runs left the kernel (medians)."""
    return {
        kind: _median(rates)
        for kind, rates in kernel.rates.items()
        if rates and len(kernel.conditions.get(kind, ())) >= LEAST_RUNS
    }


def look(kernel: KernelTrace, device: Device) -> Seen:
    """What a kernel's experiments and shape say."""
    answers = responses(kernel.conditions)
    return seen(answers, kept(kernel), unused_by_shape(kernel, device))


def _read(found: Seen, answers: Mapping[str, Response], shape: Diagnosis, at: Thresholds) -> Probe:
    ranked = sorted(scores(found, at).items(), key=lambda item: -item[1])
    (first, most), (second, next_) = ranked[:2]
    close = next_ >= at.near * most
    rules = load_rules()
    # Warps also wait where the grid is too small to fill the GPU, and no pressure separates the two.
    if first == "latency" and any(rules[each.bottleneck].FROM_SHAPE for each in shape.findings):
        second, close = "launch or idle", True
    sure = not close and answers.keys() >= _TESTED.keys()
    if first == "latency":  # It is what remains: all that pressure lost has to be known.
        sure = sure and found.kept.keys() >= _TESTED.keys()
    kinds: Mapping[Regime, Mapping[str, float]] = {
        "DRAM": {"dram": 1.0},
        "L2": {"l2": 1.0},
        "on-chip memory": {"shared": at.on_chip, "constant": at.constant},
        "arithmetic": {"fp32": at.arithmetic, "special": at.special, "integer": at.integer},
    }

    def above(kind: str) -> float:
        return max(found.slope(kind), found.taken(kind)) / kinds[first][kind]

    kind = max(kinds.get(first, ()), key=above, default="")
    evidence = []
    for name, words in _SHORT.items():
        if name in answers:
            spread = f"± {answers[name].spread:.2g}"
            meaning = f"Time alongside pressure over time alongside its control, minus 1; {spread}."
            slope = answers[name].slope
            evidence.append(
                Evidence(f"pressure_{name}", _SLOWER + words, slope, "fraction", meaning)
            )
    return Probe(
        first,
        second if close else None,
        _rule(first, kind, shape, found.unused >= at.idle),
        "medium" if sure else "low",
        tuple(evidence),
    )


def _rule(regime: Regime, kind: str, shape: Diagnosis, unused: bool) -> str:
    """The id of a regime's rule, by what the rules declare; `unused`: the shape leaves GPU unused."""
    rules = load_rules()

    def first(wanted: Callable[[Rule], bool]) -> str:
        return next(name for name, rule in rules.items() if wanted(rule))

    if regime == "launch or idle":
        if rules[shape.primary.bottleneck].FROM_SHAPE:
            return shape.primary.bottleneck
        if unused:
            return first(lambda rule: "blocks" in rule.UNITS)
        return first(lambda rule: "active_fraction" in rule.REQUIRES)
    if regime == "latency":
        return first(lambda rule: "long_scoreboard" in rule.WAITS)
    resource = KINDS[kind].resource
    name = first(lambda rule: resource in rule.UNITS)
    if OF_RESOURCE[rules[name].UNITS[0]] == regime:
        return name
    # That rule's roof is of another kind: the one that reads the unit's counter says more.
    counters = set(RESOURCES[resource][0])
    inputs = {each: {*rule.REQUIRES, *rule.OPTIONAL} for each, rule in rules.items()}
    return next((each for each, needed in inputs.items() if counters & needed), name)


_SUMMARY: Final[Mapping[Regime, str]] = {
    "DRAM": "Traffic of other work to device memory slows it most: it is limited by DRAM bandwidth.",
    "L2": "Traffic of other work to the L2 slows it most: it is limited by L2 bandwidth.",
    "on-chip memory": "Other work in shared memory, L1 or constant memory slows it most: it is limited there.",
    "arithmetic": "Other work on the same pipe or issue slots slows it most: it is limited by arithmetic.",
    "latency": "No unit that was put under pressure limits it: its warps wait for results.",
    "launch or idle": "It leaves much of the GPU unused.",
}
_ADVICE: Final[Mapping[Regime, str]] = {
    "DRAM": "Move fewer bytes: fuse neighbouring kernels, use narrower types, reuse what was loaded.",
    "L2": "Reuse data in shared memory or registers, and read whole 128-byte lines.",
    "on-chip memory": "Keep values in registers across iterations, use wider accesses, and avoid bank conflicts.",
    "arithmetic": "Compute less: cheaper instructions, narrower types, tensor cores, values computed once.",
    "latency": "Have more loads in flight: unroll, prefetch, or run more warps.",
    "launch or idle": "Give every multiprocessor work for all of the time: more, smaller or more even blocks, fewer launches.",
}
_SHORT_BLOCKS: Final = (
    "Handing out its many short blocks takes most of its time.",
    "Give each block more work: let a thread compute several elements.",
)


def confirmation(profile: Profile, diagnosis: Diagnosis) -> str:
    """Whether experiments on a profiled launch confirm its counters' verdict; empty without any."""
    about = profile.context
    if about is None or not about.pressure_us:
        return ""
    probed = regime_of(traced(profile, about.pressure_us, about.pressure_kept), profile.device)
    if probed is None:
        return "Undecided: too few runs lay under pressure."
    counters = of_counters(profile, diagnosis)
    strongest = sorted(probed.evidence, key=lambda fact: -fact.value)[:_SHOWN]
    answers = ", ".join(
        f"{fact.label.removeprefix(_SLOWER)} {100 * fact.value:+.0f} %" for fact in strongest
    )
    if counters == probed.first:
        text = f"Confirmed: {probed.first} by experiments too"
    elif counters in probed.either or probed.confidence == "low":
        text = f"Undecided: {' or '.join(probed.either)} by experiments, {counters} by counters"
    else:
        text = f"Contradicted: {probed.first} by experiments, {counters} by counters"
    return f"{text} (time alongside {answers})."


def verdict(kernel: KernelTrace, device: Device) -> tuple[Diagnosis, Probe | None]:
    """What limits a traced kernel: by its experiments, where it has any, else by its shape."""
    by_shape = diagnose(profile_of(kernel, device))
    probed = regime_of(kernel, device)
    if probed is None:
        return by_shape, None
    either = ""
    if probed.second:
        idle = probed.second == "launch or idle"
        other = "it leaves much of the GPU unused" if idle else f"it is limited by {probed.second}"
        either = f" Or {other}: the experiments do not separate the two."
    answers = responses(kernel.conditions)
    untested = [words for kind, words in _TESTED.items() if kind not in answers]
    if untested:
        either += f" There was no room to test {' and '.join(untested)}."
    summary, advice = _SUMMARY[probed.first], _ADVICE[probed.first]
    if probed.first == "launch or idle" and starting_blocks(kernel) >= LIMITS:
        summary, advice = _SHORT_BLOCKS
    finding = Finding(
        probed.bottleneck, summary + either, probed.confidence, probed.evidence, None, (), (advice,)
    )
    slopes = {kind: answer.slope for kind, answer in answers.items()}
    bounds = {
        KINDS[kind].resource: min(1.0, max(0.0, slopes.get(kind, 0.0))) * kernel.median_us
        for kind in ("dram", "l2", *_ON_CHIP, *_ARITHMETIC)
    }
    others = [each for each in by_shape.findings if each.bottleneck != probed.bottleneck]
    of_shape = [each for each in others if load_rules()[each.bottleneck].FROM_SHAPE]
    return Diagnosis((finding, *of_shape), bounds=bounds), probed
