# ruff: noqa: E501 - the table at the end holds one figure a line
"""Figures computed from several metrics: one `value(profile, name)` for registry and derived names
alike.

A derived figure is None where any input it needs is not there; nothing substitutes a constant for a
missing metric."""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from ncu_toolkit.base.core.cache import remembered
from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.hardware.specs import BLOCK_STARTS, Occupancy, occupancy, spec
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import Device, Instruction, Launch, Presence, Profile
from ncu_toolkit.kernel.sass import attribution
from ncu_toolkit.kernel.sass.opcodes import BULK, WARP_SIZE, flops

#: Stall reasons whose names are not just words.
_REASONS: Final[Mapping[str, str]] = {
    "lg_throttle": "LG throttle", "mio_throttle": "MIO throttle", "tex_throttle": "TEX throttle",
    "imc_miss": "constant cache miss", "gmma": "GMMA", "membar": "memory barrier",
    "selected": "issuing",
}  # fmt: skip
#: Longest name of a stall reason that this version does not know.
_LONGEST: Final = 60

Compute = Callable[[Profile], float | None]
SECTOR_BYTES: Final = 32
WARP: Final = 32
#: Sectors of one 128-byte L1 line: what one tag lookup serves at most.
SECTORS_PER_TAG: Final = 4


def reason_name(reason: str) -> str:
    """A stall reason in words: `long scoreboard`, `LG throttle`, `issuing`."""
    return _REASONS.get(reason, visible(reason.replace("_", " "), _LONGEST))


@dataclass(frozen=True)
class Derived:
    """A registry entry for a computed figure; `inputs` are the registry names or tables it is
    computed from."""

    name: str
    unit: str
    label: str
    meaning: str
    inputs: tuple[str, ...]
    compute: Compute


@dataclass(frozen=True)
class Executed:
    """Executions of one opcode: warps, and threads that were active and predicated on (estimated
    from the mean where not counted)."""

    opcode: str
    warps: float
    threads: float

    @property
    def base(self) -> str:
        return attribution.base(self.opcode)

    @property
    def kind(self) -> str:
        return attribution.kind(self.opcode)


class LaunchFact(NamedTuple):
    """A value of a launch by its name, or why it is absent."""

    name: str
    value: float | None
    unit: str
    label: str
    meaning: str
    why: str = ""


def value(profile: Profile, name: str) -> float | None:
    """The metric's or derived figure's value, None where it cannot be had. Raises KeyError for a
    name that does not exist."""
    if name in registry.REGISTRY:
        return profile.value(name)
    return _computed(profile, name)


@remembered(1024)
def _computed(profile: Profile, name: str) -> float | None:
    """A figure that is not in the registry: rules and pages ask for the same ones many times."""
    computed = DERIVED[name].compute(profile) if name in DERIVED else _family(profile, name)
    return computed if computed is None or math.isfinite(computed) else None


def fact(profile: Profile, name: str) -> LaunchFact:
    """What is known of a name: its value, or why there is none. Raises KeyError for a name that does
    not exist."""
    unit, label, meaning = describe(name)
    found = value(profile, name)
    if found is not None:
        return LaunchFact(name, found, unit, label, meaning)
    needs, presence = inputs(name), profile.reading(name).presence
    if name not in needs:
        why = f"{label}: its inputs ({', '.join(needs)}) were not collected"
    elif presence is Presence.NOT_AVAILABLE:
        why = f"{label} is not available on this architecture"
    elif presence is Presence.UNDEFINED:
        why = f"{label} was collected, but its denominator is zero"
    else:
        why = f"{label} was not collected in this report"
    return LaunchFact(name, None, unit, label, meaning, why)


def describe(name: str) -> tuple[str, str, str]:
    """(unit, label, meaning) of a registry or derived name. Raises KeyError for a name that does
    not exist."""
    entry = registry.REGISTRY.get(name) or DERIVED.get(name)
    if entry is not None:
        return entry.unit, entry.label, entry.meaning
    prefix, _, rest = name.partition(":")
    if prefix == "stall_share" and rest in registry.STALL_REASONS:
        return (
            "fraction",
            f"Stall share: {reason_name(rest)}",
            f"Part of a warp's time. {registry.STALL_REASONS[rest]}",
        )
    if prefix == "kind_share" and (rest in attribution.KINDS or rest == "other"):
        return (
            "fraction",
            f"Instructions: {rest}",
            f"Part of the executed warp instructions that are {rest} instructions.",
        )
    raise KeyError(name)


def small(label: str) -> str:
    """A label within a sentence: abbreviations keep their capitals."""
    return label if label[1:2].isupper() or label[1:2].isdigit() else label[:1].lower() + label[1:]


def inputs(name: str) -> tuple[str, ...]:
    """What a name is computed from: itself for a registry metric."""
    if name in DERIVED:
        return DERIVED[name].inputs
    if name.startswith("stall_share:"):
        return (f"stall_{name.partition(':')[2]}",)
    return ("opcodes",) if name.startswith("kind_share:") else (name,)


def origins(name: str) -> frozenset[str]:
    """The metrics and tables that a name goes back to, and the names in between, its own included."""
    below = (found for part in inputs(name) if part != name for found in origins(part))
    return frozenset({name, *below})


def _family(profile: Profile, name: str) -> float | None:
    describe(name)
    prefix, _, rest = name.partition(":")
    if prefix == "stall_share":
        shares = stall_shares(profile)
        # A reason that the stall stack lacks was not collected; one without samples has none.
        return shares.get(rest, None if profile.stalls else 0.0) if shares else None
    total = sum(row.warps for row in rows(profile))
    return (
        sum(row.warps for row in rows(profile) if attribution.kind(row.opcode) == rest) / total
        if total
        else None
    )


#: Fewest PC samples from which shares are taken where the stall stack was not collected: the
#: standard error of a 30% share is then 3 points.
MINIMUM_SAMPLES: Final = 256


def stall_shares(profile: Profile) -> dict[str, float]:
    """Shares (0-1) of a warp's time by stall reason: from the stall stack, else from PC samples,
    else empty."""
    if profile.stalls is not None and profile.stalls.total > 0:
        return {reason: cycles / profile.stalls.total for reason, cycles in profile.stalls.reasons}
    samples = profile.samples
    total = sum(samples.values())
    return {reason: n / total for reason, n in samples.items()} if total >= MINIMUM_SAMPLES else {}


#: The largest stall reasons that a card shows.
REASONS: Final = 3


def ranked_stalls(profile: Profile, *without: str) -> list[tuple[str, float]]:
    """`stall_shares` above zero, the largest first, without some reasons."""
    found = ((k, v) for k, v in stall_shares(profile).items() if v > 0 and k not in without)
    return sorted(found, key=lambda item: (-item[1], item[0]))


@remembered(4)
def rows(profile: Profile) -> tuple[Executed, ...]:
    """Executed instructions by opcode, warp and thread level. Nothing where the mix was not
    collected."""
    lanes = (
        profile.value("lanes_predicated_on")
        or profile.value("lanes_per_instruction")
        or float(WARP)
    )
    threads = profile.mix.thread_opcodes
    return tuple(
        Executed(
            opcode, float(warps), float(threads[opcode]) if opcode in threads else warps * lanes
        )
        for opcode, warps in profile.mix.opcodes.items()
        if warps
    )


def executed(profile: Profile, kinds: Iterable[str]) -> float | None:
    """Warp instructions of the given kinds (attribution.KINDS), or None where the mix was not
    collected."""
    if not profile.mix.collected:
        return None
    wanted = set(kinds)
    return sum(row.warps for row in rows(profile) if attribution.kind(row.opcode) in wanted)


def _of(formula: Callable[..., float | None], *names: str) -> Compute:
    """A formula of figures: None where one of them is missing, or it divides by zero."""

    def compute(profile: Profile) -> float | None:
        given = [value(profile, name) for name in names]
        try:
            return None if None in given else formula(*given)
        except ZeroDivisionError:
            return None

    return compute


_ratio: Final = partial(_of, operator.truediv)
_sum: Final = partial(_of, lambda *values: sum(values))


def _counter(name: str) -> Compute:
    def compute(profile: Profile) -> float | None:
        found = [row.counters[name] for row in profile.instructions if name in row.counters]
        return sum(found) if found else None

    return compute


#: Of the slices' mean what the busiest takes at most where all take alike, and of the lanes those with a
#: sector of their own: 1.01 and 1.00 of a hash table and a histogram of 20 MB, where a few addresses
#: are updated 5 and more.
EVEN: Final = 1.25
OWN: Final = 0.9


@remembered(4)
def placed(profile: Profile) -> list[Instruction]:
    """Instructions whose passes depend on where lanes point alone. Those of atomic updates also
    come from updates that meet at one address, unless they are apart."""
    apart = updates_apart(profile)
    return [
        row for row in profile.instructions if apart or attribution.kind(row.opcode) != "atomic"
    ]


def updates_apart(profile: Profile) -> bool:
    """Whether atomic updates go to different addresses: each lane's to a sector of its own, and all of
    them to all slices of L2 alike. An address belongs to one slice, which is busier than the others
    where few are updated."""
    mean, busiest = (profile.value(f"l2_atomic_unit_{name}") for name in ("active", "busiest"))
    if not mean or busiest is None or busiest > EVEN * mean:
        return False
    rows = [row for row in profile.instructions if row.base in ("ATOM", "ATOMG", "RED", "REDG")]
    sectors = sum(row.counters.get("l2_sectors", 0.0) for row in rows)
    return sectors >= OWN * sum(row.threads or 0 for row in rows) > 0


def _local_sectors(profile: Profile) -> float | None:
    at_l1 = _sum("local_load_sectors", "local_store_sectors")(profile)
    return at_l1 if at_l1 is not None else _counter("local_sectors")(profile)


def _passes(profile: Profile) -> float | None:
    """Wavefronts over requests, by what the two units take a cycle at most. None below 1: some
    requests then never reach the data stage."""
    passes = profile.value("l1_data_pipe_active")
    requests = profile.value("l1_request_active") or profile.value("lsu_pipe_active")
    each = (
        passes / requests * (spec(profile.device.cc, "request_cycles") or 1)
        if passes is not None and requests
        else 0.0
    )
    return max(1.0, each) if each >= 0.98 else None  # the profiler's own repeats differ by up to 2%


def _excess(ideal: str, actual: str) -> Compute:
    """Sum over instructions of what is beyond the ideal, as a fraction of all; atomic updates aside
    (`placed`)."""

    def compute(profile: Profile) -> float | None:
        pairs = [
            (row.counters[ideal], row.counters[actual])
            for row in placed(profile)
            if ideal in row.counters and actual in row.counters
        ]
        total = sum(actual_value for _, actual_value in pairs)
        if not pairs:
            return None
        return sum(max(0.0, a - i) for i, a in pairs) / total if total else 0.0

    return compute


def _shared_excess(profile: Profile) -> float | None:
    exact = _excess("shared_wavefronts_ideal", "shared_wavefronts")(profile)
    if exact is not None:
        return exact
    conflicts = _sum("shared_load_conflicts", "shared_store_conflicts")(profile)
    wavefronts = _sum("shared_load_wavefronts", "shared_store_wavefronts")(profile)
    if wavefronts is None:
        wavefronts = profile.value("shared_wavefronts")
    if conflicts is None or wavefronts is None:
        return None
    return min(1.0, conflicts / wavefronts) if wavefronts else 0.0


def copied_sectors(profile: Profile) -> float | None:
    """32-byte sectors between L2 and the SMs that bulk copies move: no instruction counts them.
    None where there are such copies, and the sectors of all or of the others are not known."""
    if not any(attribution.base(row.opcode) in BULK and row.warps for row in rows(profile)):
        return 0.0
    whole, others = profile.value("l2_sectors_from_sm"), _counter("l2_sectors")(profile)
    return None if whole is None or others is None else max(0.0, whole - others)


def asked_bytes(profile: Profile) -> float | None:
    """Bytes that lanes and bulk copies ask of global memory."""
    lanes, copied = value(profile, "lane_bytes"), copied_sectors(profile)
    return None if lanes is None or copied is None else lanes + copied * SECTOR_BYTES


def _sector_excess(profile: Profile) -> float | None:
    exact = _excess("l2_sectors_ideal", "l2_sectors")(profile)
    if exact is not None:
        # Bulk copies fetch whole lines. Where they move nearly all, scattered lanes cost nothing.
        counted, copied = _counter("l2_sectors")(profile), copied_sectors(profile)
        return exact * counted / (counted + copied) if copied and counted is not None else exact
    sectors = _sum("global_load_sectors", "global_store_sectors")(profile)
    lane_bytes = value(profile, "lane_bytes")
    if sectors is None:
        return None
    if lane_bytes is None:
        # The widest access, 16 bytes per lane (32 from CC 10.0 on), needs a sector for every other
        # lane: what a request has beyond that no width explains.
        requests = _sum("global_load_requests", "global_store_requests")(profile)
        if requests is None:
            return None
        needed = requests * (WARP if profile.device.cc >= (10, 0) else WARP / 2)
        return 1 - needed / sectors if 0 < needed < sectors else None
    if sectors and not lane_bytes:
        return None  # sectors were moved, so the opcodes that moved them are not known
    # Without per-instruction counts a broadcast's lane bytes overstate its ideal, so this excess is
    # a lower bound.
    return max(0.0, 1 - lane_bytes / (sectors * SECTOR_BYTES)) if sectors else 0.0


def _ideal_tags(profile: Profile) -> float | None:
    """Tag lookups the same global accesses would need if each warp's bytes lay together: one a line
    of four sectors, at least one an instruction."""
    rows_with = [
        row for row in placed(profile) if "l2_sectors_ideal" in row.counters and row.executed
    ]
    if not rows_with:
        return None
    return sum(
        max(float(row.executed or 0), row.counters["l2_sectors_ideal"] / SECTORS_PER_TAG)
        for row in rows_with
    )


def _tag_excess(profile: Profile) -> float | None:
    counted = [
        row.counters["l1_tag_requests"]
        for row in placed(profile)
        if "l1_tag_requests" in row.counters
    ]
    ideal, actual = _ideal_tags(profile), sum(counted)
    if ideal is None or not counted:
        return None
    return max(0.0, 1 - ideal / actual) if actual else 0.0


def _data_stage(profile: Profile) -> float | None:
    """The counter over where it ends on this generation."""
    end = spec(profile.device.cc, "data_stage") or 1.0
    return _of(lambda counted: min(1.0, counted / end), "l1_data_pipe_active")(profile)


def _lanes_known(profile: Profile) -> bool:
    """Whether the mix tells of threads: counted, or estimated from a mean that was."""
    means = (profile.value("lanes_predicated_on"), profile.value("lanes_per_instruction"))
    return profile.mix.collected and (bool(profile.mix.thread_opcodes) or means != (None, None))


def _lane_bytes(*opcodes: str) -> Compute:
    def compute(profile: Profile) -> float | None:
        if not _lanes_known(profile):
            return None
        return sum(
            row.threads * attribution.width(row.opcode)
            for row in rows(profile)
            if attribution.base(row.opcode) in opcodes
        )

    return compute


def _mean_width(*opcodes: str) -> Compute:
    def compute(profile: Profile) -> float | None:
        found = [row for row in rows(profile) if attribution.base(row.opcode) in opcodes]
        total = sum(row.warps for row in found)
        return (
            sum(row.warps * attribution.width(row.opcode) for row in found) / total
            if total
            else None
        )

    return compute


def _dram_bytes(profile: Profile) -> float | None:
    whole = _sum("dram_read_bytes", "dram_write_bytes")(profile)
    return profile.value("dram_total_bytes") if whole is None else whole


def _dram_owed(profile: Profile) -> float | None:
    """Bytes written that device memory had not got when the launch ended: at most what L2 holds."""
    written, stored = profile.value("dram_write_bytes"), _lane_bytes(*_STORES)(profile)
    if written is None or stored is None or not profile.device.l2_bytes:
        return None
    return min(max(0.0, stored - written), float(profile.device.l2_bytes))


def _fp16(profile: Profile) -> float | None:
    """Half-precision operations, without the HFMA2 of two zero registers by which compilers move
    constants where the SASS tells them apart."""
    moves = sum(
        float(row.threads or 0) * (flops(row.opcode) or 0.0)
        for row in profile.instructions
        if row.opcode.startswith("HFMA2") and not flops(row.opcode, row.sass)
    )
    total = _flops("fp16")(profile)
    return None if total is None else max(0.0, total - moves)


def _flops(precision: str) -> Compute:
    """Operations of one kind of instruction; None where the mix was not collected, or a name does
    not say how many."""

    def compute(profile: Profile) -> float | None:
        if not _lanes_known(profile) if precision != "tensor" else not profile.mix.collected:
            return None
        total = 0.0
        for row in rows(profile):
            if attribution.kind(row.opcode) == precision:
                each = flops(row.opcode)
                if each is None:
                    return None
                # a matrix instruction is the whole warp's, whatever lanes are active
                total += each * (row.warps * WARP_SIZE if precision == "tensor" else row.threads)
        return total

    return compute


def _uniform_branches(profile: Profile) -> float | None:
    """Nsight's own share is 0 where no branch was executed, as where every one diverged."""
    share, divergent = profile.value("uniform_branches"), profile.value("divergent_branches")
    if divergent is None:
        return share or None
    return 1.0 if not divergent else share


def _block_rate(profile: Profile) -> float | None:
    """Where cycles were not collected, by the GPU's highest clock: at least so many."""
    cycles, blocks = profile.value("sm_cycles"), profile.launch.blocks
    if not cycles:
        hertz = profile.value("sm_clock") or profile.device.max_sm_hz
        cycles = (profile.duration_us or 0.0) * 1e-6 * (hertz or 0.0)
    return min(1.0, blocks / cycles) if cycles and blocks and profile.launch.complete else None


def _block_start_active(profile: Profile) -> float | None:
    most = spec(profile.device.cc, "block_starts") or BLOCK_STARTS
    return _of(lambda rate: min(1.0, rate / most), "block_rate")(profile)


def _blocks_per_sm(profile: Profile) -> float | None:
    """The smallest limit; None where one is missing that every ncu reports (barriers came later)."""
    limits = block_limits(profile)
    missing = BLOCK_LIMITS.keys() - limits.keys() - {"block_limit_barriers"}
    return None if missing else min(limits.values())


def block_limits(profile: Profile) -> dict[str, float]:
    """Blocks that an SM can hold by each resource, by names of BLOCK_LIMITS; what was not collected
    is left out.

    The profiler counts shared memory as the driver split it for this launch, which is as much as
    the other resources let it use. What limits is the block's need of the most there can be, unless
    a smaller split was asked for."""
    found = {n: v for n in BLOCK_LIMITS if (v := profile.value(n)) is not None and v > 0}
    by_split = found.get("block_limit_shared")
    others = [v for name, v in found.items() if name != "block_limit_shared"]
    if by_split is None or not others or by_split < min(others):
        return found
    need = occupancy_of(profile)
    if need is None:
        return found
    return {**found, "block_limit_shared": max(by_split, float(need.limits["shared memory"]))}


def occupancy_of(profile: Profile) -> Occupancy | None:
    """What the launch's need of each resource allows; None where that or the limits of the
    architecture are not known."""
    try:
        return occupancy_needed(profile)
    except UsageProblem:
        return None


def occupancy_needed(profile: Profile) -> Occupancy:
    """As `occupancy_of`. Raises UsageProblem where it is not known."""
    return occupancy_of_launch(profile.launch, profile.device)


def occupancy_of_launch(used: Launch, device: Device) -> Occupancy:
    """As `occupancy_needed`, of a launch without a report."""
    threads, registers, shared = used.threads_per_block, used.registers, used.shared
    if threads is None or registers is None or shared is None:
        raise UsageProblem("block, registers or shared memory of the launch are not recorded")
    return occupancy(device.cc, threads, registers, shared)


#: Registry name -> what limits the resident blocks, in words.
BLOCK_LIMITS: Final = {
    "block_limit_registers": "registers", "block_limit_shared": "shared memory", "block_limit_warps": "the block size (warps)", "block_limit_blocks": "block slots", "block_limit_barriers": "barriers",
}  # fmt: skip


def occupancy_limiters(profile: Profile) -> tuple[str, ...]:
    """Names of BLOCK_LIMITS that allow the fewest blocks per SM; empty where none was collected."""
    limits = block_limits(profile)
    return tuple(name for name, blocks in limits.items() if blocks == min(limits.values()))


def _reuse(profile: Profile) -> float | None:
    """How often each byte that device memory must deliver is asked for by loads at L1."""
    asked = profile.value("global_load_sectors")
    compulsory = profile.context.compulsory_bytes if profile.context else None
    read = profile.value("dram_read_bytes")
    floor = compulsory if compulsory else read
    return asked * SECTOR_BYTES / floor if asked is not None and floor else None


def _cycles_per_constant_load(profile: Profile) -> float | None:
    """Cycles the indexed constant cache is busy for one warp's LDC: 1 where all lanes read one
    address, up to 32."""
    busy = profile.value("constant_cache_active")
    cycles = profile.value("sm_cycles")
    loads = executed(profile, ("constant",))
    sms = profile.device.sm_count
    return busy * cycles * sms / loads if busy is not None and cycles and loads and sms else None


def _tag_active(profile: Profile) -> float | None:
    sms = profile.device.sm_count
    return _of(lambda tags, cycles: tags / sms / cycles, "l1_tags", "sm_active_cycles")(profile)


def _host_bytes(profile: Profile) -> float | None:
    """Sectors by their own counter, else L2's fills over its slices' cycles."""
    sectors = profile.value("host_sectors")
    if sectors is None:
        sectors = _of(operator.mul, "host_fill_active", "l2_slice_cycles")(profile)
    return None if sectors is None else sectors * SECTOR_BYTES


def _host_part(profile: Profile) -> float | None:
    """By L2's fills, which count alike; else by the bytes that device memory moved."""
    host, device = profile.value("host_fill_active"), profile.value("device_fill_active")
    if host is None or device is None:
        host, device = _host_bytes(profile), _dram_bytes(profile)
    return host / (host + device) if host is not None and device is not None and host else host


def _host_lookups(profile: Profile) -> float | None:
    """Both counters take a sector a cycle and slice for the peak."""
    pairs = (("host_fill_active", "l2_utilization"), ("host_sectors", "l2_sectors"))
    return next((found for pair in pairs if (found := _ratio(*pair)(profile)) is not None), None)


def _host_rate(profile: Profile) -> float | None:
    seconds = (profile.duration_us or 0.0) * 1e-6
    return _of(lambda moved: moved / seconds, "host_bytes")(profile)


def _dram_ratio(profile: Profile) -> float | None:
    compulsory = (profile.context.compulsory_bytes if profile.context else None) or 0.0
    return _of(lambda moved: moved / compulsory, "dram_bytes")(profile)


_LOADS: Final = ("LDG", "LDGSTS", "LD")
_STORES: Final = ("STG", "ST")

_ALL: Final = (
    Derived("ld_sectors_per_request", "sectors", "Sectors per global load", "32-byte sectors per warp load: 4 for 32 contiguous floats, 32 if every lane is elsewhere.", ("global_load_sectors", "global_load_requests"), _ratio("global_load_sectors", "global_load_requests")),
    Derived("st_sectors_per_request", "sectors", "Sectors per global store", "32-byte sectors per warp store.", ("global_store_sectors", "global_store_requests"), _ratio("global_store_sectors", "global_store_requests")),
    Derived("global_sector_excess", "fraction", "Sectors beyond the ideal", "Part of the global-access sectors that coalesced accesses would not need.", ("l2_sectors", "l2_sectors_ideal"), _sector_excess),
    Derived("global_sectors", "sectors", "Global sectors", "Sectors that global accesses request, summed over instructions.", ("l2_sectors",), _counter("l2_sectors")),
    Derived("global_sectors_ideal", "sectors", "Ideal global sectors", "Sectors that the same accesses would need if coalesced.", ("l2_sectors_ideal",), _counter("l2_sectors_ideal")),
    Derived("l1_tags", "count", "L1 tag lookups", "128-byte lines that global accesses look up in L1, one per cycle.", ("l1_tag_requests",), _counter("l1_tag_requests")),
    Derived("l1_tag_excess", "fraction", "Tag lookups beyond the ideal", "Part of the L1 tag lookups caused by lanes that spread over more lines than needed.", ("l1_tag_requests", "l2_sectors_ideal", "executed"), _tag_excess),
    Derived("l1_tag_active", "fraction", "L1 tag stage busy", "Tag lookups of global accesses per cycle, at most one.", ("l1_tag_requests", "sm_active_cycles"), _tag_active),
    Derived("shared_conflict_excess", "fraction", "Wavefronts beyond the ideal", "Part of the shared-memory wavefronts that come from bank conflicts.", ("shared_wavefronts", "shared_wavefronts_ideal"), _shared_excess),
    Derived("dram_bytes", "B", "DRAM bytes", "Bytes read from and written to device memory.", ("dram_read_bytes", "dram_write_bytes"), _dram_bytes),
    Derived("host_bytes", "B", "Host bytes", "Bytes of host memory that L2 fetched.", ("host_sectors",), _host_bytes),
    Derived("host_part", "fraction", "Part from host memory", "Part of what L2 fetched that came from the host's memory, the rest from device memory.", ("host_fill_active", "device_fill_active"), _host_part),
    Derived("host_lookups", "fraction", "L2 lookups for host memory", "Part of the sectors looked up in L2 that came from the host's memory.", ("host_fill_active", "l2_utilization"), _host_lookups),
    Derived("host_rate", "B/s", "Rate of host memory", "Bytes of host memory a second over the whole launch.", ("host_sectors", "duration"), _host_rate),
    Derived("dram_owed_bytes", "B", "Written bytes still in L2", "Stored bytes still in L2 when the launch ended.", ("dram_write_bytes", "opcodes"), _dram_owed),
    Derived("dram_per_compulsory", "ratio", "DRAM traffic over compulsory", "Device-memory bytes over the fewest the problem allows.", ("dram_read_bytes", "dram_write_bytes", "compulsory_bytes"), _dram_ratio),
    Derived("l2_bytes", "B", "L2 bytes", "Bytes that the SMs read from or wrote to L2.", ("l2_sectors_from_sm",), _of(lambda sectors: sectors * SECTOR_BYTES, "l2_sectors_from_sm")),
    Derived("l1_global_bytes", "B", "L1 global bytes", "Bytes in the sectors that global loads and stores request from L1.", ("global_load_sectors", "global_store_sectors"), _of(lambda loaded, stored: SECTOR_BYTES * (loaded + stored), "global_load_sectors", "global_store_sectors")),
    Derived("local_sectors", "sectors", "Local sectors", "Sectors of local memory read or written: spills and indexed arrays.", ("local_load_sectors", "local_store_sectors"), _local_sectors),
    Derived("l1_data_active", "fraction", "L1 data stage busy", "Wavefronts through the L1 data stage (shared and global), of the most that this generation moves: one per cycle, on Turing one every other cycle.", ("l1_data_pipe_active",), _data_stage),
    Derived("passes_per_request", "ratio", "Wavefronts per memory request", ("Wavefronts through the L1 data stage per request: 1 for contiguous 4-byte lanes, 4 for 16-byte lanes, up to 32 for "
"scattered lanes or bank conflicts."), ("l1_data_pipe_active", "l1_request_active"), _passes),
    Derived("lane_load_bytes", "B", "Bytes loaded by lanes", "Lanes times bytes, summed over global loads.", ("opcodes",), _lane_bytes(*_LOADS)),
    Derived("lane_shared_load_bytes", "B", "Bytes loaded from shared memory", "Lanes times bytes, summed over shared-memory loads.", ("opcodes",), _lane_bytes("LDS")),
    Derived("lane_store_bytes", "B", "Bytes stored by lanes", "Lanes times bytes, summed over global stores.", ("opcodes",), _lane_bytes(*_STORES)),
    Derived("lane_bytes", "B", "Bytes moved by lanes", "Lanes times bytes, summed over global loads and stores.", ("opcodes",), _lane_bytes(*_LOADS, *_STORES)),
    Derived("load_bytes_per_lane", "B", "Width of global loads", "Mean bytes per lane and load instruction. 16 is the widest on most GPUs.", ("opcodes",), _mean_width(*_LOADS)),
    Derived("store_bytes_per_lane", "B", "Width of global stores", "Mean bytes per lane and store instruction.", ("opcodes",), _mean_width(*_STORES)),
    Derived("shared_load_bytes_per_lane", "B", "Width of shared loads", "Mean bytes per lane and shared-memory load.", ("opcodes",), _mean_width("LDS")),
    Derived("shared_store_bytes_per_lane", "B", "Width of shared stores", "Mean bytes per lane and shared-memory store.", ("opcodes",), _mean_width("STS")),
    Derived("flops_fp32", "FLOP", "FP32 operations", "Executed single-precision operations, FMA as two, active lanes only.", ("opcodes",), _flops("fp32")),
    Derived("flops_fp64", "FLOP", "FP64 operations", "Executed double-precision operations, FMA as two, active lanes only.", ("opcodes",), _flops("fp64")),
    Derived("flops_fp16", "FLOP", "FP16 operations", "Executed half-precision operations outside the tensor cores.", ("opcodes",), _fp16),
    Derived("flops_tensor", "FLOP", "Tensor operations", "Operations of matrix instructions, by the shape in their names.", ("opcodes",), _flops("tensor")),
    Derived("lane_fraction", "fraction", "Useful lanes", "Lanes active and not predicated off, of 32.", ("lanes_predicated_on",), lambda p: None if (lanes := p.value("lanes_predicated_on")) is None else lanes / WARP),
    Derived("branch_uniformity", "fraction", "Uniform branches", "Executed branches whose active lanes all went the same way.", ("uniform_branches", "divergent_branches"), _uniform_branches),
    Derived("active_fraction", "fraction", "SMs busy", "Mean part of the launch in which an SM had work.", ("sm_active_cycles", "sm_cycles"), _of(lambda active, elapsed: min(1.0, active / elapsed), "sm_active_cycles", "sm_cycles")),  # of different passes, so it may be above 1
    Derived("imbalance", "ratio", "Busiest SM over mean", "Active cycles of the busiest SM over the mean.", ("sm_active_cycles_max", "sm_active_cycles"), _of(lambda largest, mean: max(1.0, largest / mean), "sm_active_cycles_max", "sm_active_cycles")),
    Derived("block_rate", "count", "Blocks started per cycle", "Blocks over elapsed cycles. An H100 or H200 starts at most 0.84 per cycle, a T4 0.5.", ("sm_cycles",), _block_rate),
    Derived("block_start_active", "fraction", "Block launch busy", "Blocks started per cycle, of the most that this GPU starts.", ("block_rate",), _block_start_active),
    Derived("tail_fraction", "fraction", "Empty part of the last wave", "Part of all waves that the last, partial wave leaves unused.", ("waves",), _of(lambda waves: 1 - waves / math.ceil(waves), "waves")),
    Derived("occupancy_fill", "fraction", "Achieved over theoretical occupancy", "Achieved over theoretical occupancy.", ("achieved_occupancy", "theoretical_occupancy"), _of(lambda achieved, allowed: min(1.0, achieved / allowed), "achieved_occupancy", "theoretical_occupancy")),
    Derived("blocks_per_sm", "count", "Blocks an SM can hold", "The smallest of the block limits.", tuple(BLOCK_LIMITS), _blocks_per_sm),
    Derived("load_reuse", "ratio", "Loads per compulsory byte", ("Bytes that global loads request from L1, over the bytes that device memory must deliver (compulsory bytes if known, "
"else bytes read)."), ("global_load_sectors", "dram_read_bytes"), _reuse),
    Derived("cycles_per_constant_load", "cycles", "Cycles per constant load", "Constant-cache cycles per warp load: one for each different address among the lanes.", ("constant_cache_active", "sm_cycles", "opcodes"), _cycles_per_constant_load),
)  # fmt: skip

DERIVED: Final[dict[str, Derived]] = {entry.name: entry for entry in _ALL}

#: What rules compute themselves: (unit, label, meaning) by name, as in `Derived`.
STATED: Final[Mapping[str, tuple[str, str, str]]] = {
    "mov_share": ("fraction", "Executed copies", "Part of the executed instructions that copy one register to another (MOV, R2UR)."),
    "errbar": ("count", "Executed ERRBAR", "Error barriers: each warp of a debug build ends with one."),
    "static:copies": ("fraction", "Copies in the code", "Part of the kernel's instructions that copy one register to another (MOV, R2UR). How often they run was not counted."),
    "static:errbar": ("count", "ERRBAR in the code", "Error barriers: a debug build has one before each exit."),
    "conversions": ("fraction", "Conversions", "Part of the executed warp instructions that convert between double and float."),
    "block_size": ("count", "Threads per block", "A block takes whole warps of 32 lanes."),
    "grid_size": ("count", "Blocks", "Blocks of the launch."),
    "hot_code_bytes": ("B", "Hot code", "Code executed at least half as often as the hottest instruction."),
    "integer_overhead": ("fraction", "Integer instructions around the work", "Part of the executed warp instructions that are integer arithmetic on indices."),
    "launches": ("count", "Launches", "Kernel launches of one job."),
    "host_updates": ("fraction", "Atomics on host memory one after another", "Part of the time that returning atomics on the host's memory take at a microsecond each."),
    "local_part": ("fraction", "Local sectors", "Part of the sectors of local and global memory that are local."),
    "local_addresses": ("fraction", "Instructions for local addresses", "Part of the executed instructions that only compute addresses of local memory."),
    "waiting_for_results": ("fraction", "Waiting that more warps overlap", "Part of a warp's time in scoreboard, fixed-latency and similar stalls, without barriers and full queues."),
    "warps_at_work": ("fraction", "Warps at work", "Warps that execute the code where most of the remaining time is spent. The others skip it."),
    "blocks_at_work": ("fraction", "Blocks at work", "Blocks that read or write memory, if the warps that do are full."),
    "shared_waiting": ("fraction", "Waiting for shared memory", "Share of MIO throttle and short scoreboard stalls that shared-memory instructions cause, from samples and dependencies."),
    "lane_reuse": ("ratio", "Loads by lanes per compulsory byte", "Bytes that lanes load from global memory, over the bytes that device memory must deliver. Scattered sectors do not count."),
    "accumulators": ("count", "Independent accumulators", "Registers in which the inner loop sums, those that are added to one another counted once."),
    "divisions": ("fraction", "FP64 instructions of divisions", "Part of the executed FP64 instructions that belong to divisions, eight for each MUFU.RCP64H."),
    "retries": ("ratio", "Passes of the loop", "Executions of the atomic over entries into its loop: for each update, or for each wait."),
    "product_bytes": ("B", "Bytes of the product's matrices", "Operands and results, each once, by what the tiles load and how they lie in the grid."),
    "tile_intensity": ("ratio", "Matrix operations per byte into the SM", "Grows with the side of the tile that a block computes."),
    "queued_sector_excess": ("fraction", "Sectors beyond the ideal in the queue", "Part of the sectors beyond the ideal, weighted by each access's LG throttle samples."),
}  # fmt: skip
