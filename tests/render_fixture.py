"""A made-up run for tests of the report: every figure here is invented, only plausible, and says so
in its title. Never shipped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ncu_toolkit.base.document.tables import Table
from ncu_toolkit.base.document.views import Fact, FindingView, PageView
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import (
    Context,
    Device,
    Diagnosis,
    Evidence,
    Finding,
    Instruction,
    InstructionMix,
    Launch,
    Location,
    NoFinding,
    Origin,
    Presence,
    Profile,
    Reading,
    RuleMessage,
    StallStack,
    Timing,
)
from ncu_toolkit.base.model.run import Ceilings, Run, Skipped
from ncu_toolkit.kernel.pages import html
from ncu_toolkit.kernel.pages.book import Book
from ncu_toolkit.kernel.pages.index_view import index_part

DEVICE = Device(
    name="Imaginary GPU (test fixture)",
    cc=(9, 0),
    sm_count=132,
    l2_bytes=60 << 20,
    memory_bytes=141 << 30,
    max_sm_hz=1.98e9,
    max_memory_hz=3.2e9,
    memory_bus_bits=6144,
    max_warps_per_sm=64,
)

#: rung -> (TFLOP/s at 4096, registers, theoretical occupancy, stall stack in cycles per
#: instruction, LDS, LDS.128, STS, STS.128, LDGSTS in millions)
RUNGS: dict[str, tuple[float, int, float, dict[str, float], tuple[float, ...]]] = {
    "naive": (
        0.5,
        32,
        1.0,
        {"lg_throttle": 88.0, "long_scoreboard": 30.0, "wait": 1.2, "selected": 1.0},
        (0, 0, 0, 0, 0),
    ),
    "coalesced": (
        6.2,
        32,
        1.0,
        {
            "long_scoreboard": 22.0,
            "lg_throttle": 6.5,
            "wait": 1.5,
            "selected": 1.0,
            "not_selected": 0.7,
        },
        (0, 0, 0, 0, 0),
    ),
    "b_transposed": (
        0.95,
        32,
        1.0,
        {"lg_throttle": 70.0, "long_scoreboard": 33.0, "selected": 1.0},
        (0, 0, 0, 0, 0),
    ),
    "flat_index": (
        6.3,
        32,
        1.0,
        {"long_scoreboard": 21.5, "lg_throttle": 6.4, "wait": 1.6, "selected": 1.0},
        (0, 0, 0, 0, 0),
    ),
    "smem_tiled": (
        9.1,
        37,
        1.0,
        {
            "mio_throttle": 20.4,
            "long_scoreboard": 7.0,
            "barrier": 6.1,
            "short_scoreboard": 3.2,
            "wait": 1.4,
            "selected": 1.0,
            "not_selected": 1.0,
        },
        (4295, 0, 268, 0, 0),
    ),
    "thread_tile_1d": (
        17.0,
        48,
        0.75,
        {
            "mio_throttle": 7.9,
            "short_scoreboard": 3.9,
            "barrier": 2.2,
            "wait": 1.2,
            "selected": 1.0,
            "not_selected": 1.2,
        },
        (2416, 0, 67, 0, 0),
    ),
    "mini_tile": (
        21.0,
        56,
        0.5,
        {
            "short_scoreboard": 4.4,
            "mio_throttle": 4.1,
            "barrier": 1.6,
            "long_scoreboard": 1.1,
            "selected": 1.0,
            "not_selected": 1.1,
        },
        (1074, 0, 67, 0, 0),
    ),
    "thread_tile_2d": (
        25.9,
        120,
        0.25,
        {
            "short_scoreboard": 2.1,
            "mio_throttle": 1.1,
            "wait": 0.9,
            "barrier": 0.8,
            "selected": 1.0,
            "not_selected": 0.6,
        },
        (537, 0, 34, 0, 0),
    ),
    "vectorized": (
        31.4,
        124,
        0.25,
        {
            "short_scoreboard": 1.3,
            "wait": 0.8,
            "barrier": 0.7,
            "math_pipe_throttle": 0.5,
            "selected": 1.0,
            "not_selected": 0.8,
        },
        (134, 134, 17, 17, 0),
    ),
    "conflict_free": (
        33.6,
        126,
        0.25,
        {
            "wait": 0.8,
            "math_pipe_throttle": 0.9,
            "barrier": 0.6,
            "selected": 1.0,
            "not_selected": 0.9,
        },
        (134, 134, 17, 17, 0),
    ),
    "warp_tiled": (
        36.3,
        128,
        0.25,
        {
            "math_pipe_throttle": 1.1,
            "wait": 0.7,
            "barrier": 0.4,
            "selected": 1.0,
            "not_selected": 1.1,
        },
        (134, 134, 17, 17, 0),
    ),
    "async_copy_broken": (
        24.0,
        128,
        0.25,
        {"barrier": 3.1, "long_scoreboard": 0.9, "wait": 0.6, "selected": 1.0, "not_selected": 0.5},
        (134, 134, 0, 0, 17),
    ),
    "async_copy": (
        42.0,
        128,
        0.25,
        {
            "math_pipe_throttle": 1.2,
            "wait": 0.6,
            "short_scoreboard": 0.3,
            "selected": 1.0,
            "not_selected": 1.2,
        },
        (134, 134, 0, 0, 17),
    ),
    "register_blocked": (
        51.2,
        232,
        0.125,
        {"math_pipe_throttle": 0.5, "wait": 0.4, "selected": 1.0, "not_selected": 0.6},
        (101, 101, 0, 0, 12),
    ),
    "cublas": (
        50.8,
        202,
        0.125,
        {"math_pipe_throttle": 0.5, "wait": 0.5, "selected": 1.0, "not_selected": 0.5},
        (101, 101, 0, 0, 12),
    ),
}
SIZES = (512, 1024, 2048, 4096, 8192)
PROFILED = (1024, 4096)
SOURCE = "\n".join(
    ["// invented source of a test fixture"]
    + [f"float line_{n} = a[{n}] * b[{n}];  // step {n}" for n in range(2, 60)]
)


def reading(name: str, value: float | None, presence: Presence = Presence.PRESENT) -> Reading:
    return Reading(name, value, registry.REGISTRY[name].unit, presence)


def rate(rung: str, size: int) -> float:
    """FLOP/s of the made-up machine: small sizes do not fill it."""
    return RUNGS[rung][0] * 1e12 * (1 - math.exp(-size / 900)) / (1 - math.exp(-4096 / 900))


def instructions(count: int = 160, file: str = "vectorized.cu") -> tuple[Instruction, ...]:
    """A loop with a hot middle: samples follow a bell around two thirds of the way."""
    rows = []
    for n in range(count):
        opcode = (
            "FFMA",
            "LDS.128",
            "FFMA",
            "FFMA",
            "IMAD.WIDE",
            "LDG.E.128",
            "STS.128",
            "BAR.SYNC",
        )[n % 8]
        heat = int(400 * math.exp(-(((n - 0.66 * count) / (0.08 * count + 1)) ** 2)))
        samples = (
            {"short_scoreboard": heat // 2, "wait": heat // 4, "selected": heat // 5}
            if heat
            else {}
        )
        rows.append(
            Instruction(
                n,
                0x7F0000 + 16 * n,
                f"{opcode} R{n % 64}, R{(n + 1) % 64}, R{(n + 7) % 64}, R{n % 64}",
                opcode,
                file,
                2 + n * 56 // count,
                executed=8192 * (1 + heat),
                threads=8192 * 32 * (1 + heat),
                samples={reason: v for reason, v in samples.items() if v},
                counters={"shared_wavefronts": 4.0 * heat} if opcode == "LDS.128" else {},
            )
        )
    return tuple(rows)


def profile(rung: str, size: int, action: int = 0) -> Profile:
    tflops, registers, occupancy, stalls, (lds, lds128, sts, sts128, ldgsts) = RUNGS[rung]
    scale = (size / 4096) ** 3
    flops = 2.0 * size**3
    compulsory = 4.0 * 3 * size**2
    time_us = flops / rate(rung, size) * 1e6 * 1.06
    dram = compulsory * (1.1 + 4 / max(tflops, 0.5))
    l2 = compulsory * (3 + 400 / max(tflops, 0.5))
    values = {
        "duration": time_us,
        "sm_cycles": time_us * 1755,
        "sm_clock": 1.755e9,
        "dram_clock": 2.6e9,
        "registers_per_thread": registers,
        "theoretical_occupancy": occupancy,
        "achieved_occupancy": occupancy * 0.96,
        "issue_active": min(0.95, tflops / 55),
        "instructions": 6e9 * scale * 20 / (tflops + 8),
        "eligible_warps": min(3.0, tflops / 15),
        "active_warps": 16 * occupancy,
        "warp_latency": sum(stalls.values()) * 1.002,
        "lanes_per_instruction": 32.0,
        "fma_pipe_active": min(0.96, tflops / 54),
        "dram_read_bytes": dram * 0.8,
        "dram_write_bytes": dram * 0.2,
        "dram_total_bytes": dram,
        "dram_utilization": dram / (time_us * 1e-6) / 4.8e12,
        "l2_utilization": min(0.9, l2 / (time_us * 1e-6) / 9e12),
        "l2_sectors": l2 / 32,
        "l2_sectors_from_sm": l2 / 32,
        "l2_hit_rate": 0.83,
        "l1_hit_rate": 0.42,
        "l1_data_pipe_active": min(0.97, 0.2 + 4 / tflops),
        "global_load_sectors": l2 / 32 * 1.7,
        "global_load_requests": l2 / 32 * 1.7 / (16.5 if rung in ("naive", "b_transposed") else 4),
        "global_store_sectors": size * size / 8,
        "global_store_requests": size * size / 32,
        "shared_wavefronts": 1e6 * scale * (lds + 3 * lds128 + sts) * 1.15,
        "shared_load_wavefronts": 1e6 * scale * (lds + 3 * lds128) * 1.12,
        "shared_store_wavefronts": 1e6 * scale * sts * 1.3,
        "shared_load_conflicts": 1e6 * scale * lds * 0.12,
        "shared_store_conflicts": 1e6 * scale * sts * 0.3,
        "local_load_sectors": 0.0,
        "local_store_sectors": 0.0,
        "waves": 7.8,
        "block_limit_registers": max(1, 65536 // (registers * 256)),
        "block_limit_shared": 6,
        "block_limit_warps": 8,
        "block_limit_blocks": 32,
        "passes": 14,
    }
    values |= {f"stall_{reason}": value for reason, value in stalls.items()}
    readings = {
        name: Reading(name, None, entry.unit, Presence.NOT_COLLECTED)
        for name, entry in registry.REGISTRY.items()
    }
    readings |= {name: reading(name, float(value)) for name, value in values.items()}
    readings["tensor_pipe_active"] = Reading(
        "tensor_pipe_active", None, "fraction", Presence.UNDEFINED
    )
    readings["fp16_pipe_active"] = Reading(
        "fp16_pipe_active", None, "fraction", Presence.NOT_AVAILABLE
    )
    warp_ffma = size**3 // 32
    opcodes = {
        "FFMA": warp_ffma,
        "IMAD.WIDE": int(warp_ffma * 0.04),
        "IADD3": int(warp_ffma * 0.03),
        "LDG.E.128" if lds128 else "LDG.E": int(2e7 * scale),
        "BAR.SYNC": int(1e6 * scale) or 1,
    }
    shared = {
        "LDS": lds - lds128,
        "LDS.128": lds128,
        "STS": sts - sts128,
        "STS.128": sts128,
        "LDGSTS.E.BYPASS.128": ldgsts,
    }
    opcodes |= {name: int(n * 1e6 * scale) for name, n in shared.items() if n}
    context = Context(
        "gemm_fp32",
        rung,
        str(size),
        "float32",
        {"M": size, "N": size, "K": size},
        {"BM": 128, "BN": 128, "BK": 8},
        flops=flops,
        compulsory_bytes=compulsory,
    )
    return Profile(
        origin=Origin("gemm_fp32.ncu-rep.xz", 0, action, "2025.3.1"),
        device=DEVICE,
        launch=Launch(
            f"{rung}(const float *, const float *, float *, int, int, int)",
            rung,
            (size // 128 or 1, size // 128 or 1, 1),
            (256, 1, 1),
            registers,
            shared_static=8192 if lds else 0,
        ),
        readings=readings,
        stalls=StallStack(
            tuple(sorted(stalls.items(), key=lambda item: -item[1])), sum(stalls.values()) * 1.002
        ),
        mix=InstructionMix(opcodes, {name: n * 32 for name, n in opcodes.items()}),
        instructions=instructions(),
        sources={"vectorized.cu": SOURCE},
        rules=(
            RuleMessage(
                "SOLBottleneck",
                "Bottleneck",
                "Invented message of a rule of the profiler.",
                "optimization",
                12.5,
                "global",
            ),
        ),
        context=context,
    )


def timing(rung: str, size: int) -> Timing:
    median = 2.0 * size**3 / rate(rung, size) * 1e6
    repeats = tuple(median * (1 + 0.01 * math.sin(7 * n) * (1 + 300 / size)) for n in range(21))
    baseline = 2.0 * size**3 / rate("cublas", size) * 1e6
    dims = {"M": size, "N": size, "K": size}
    return Timing(
        "gemm_fp32",
        rung,
        str(size),
        "float32",
        dims,
        {"BM": 128, "BN": 128, "BK": 8},
        repeats,
        "flushed",
        2.0 * size**3,
        12.0 * size**2,
        0.31,
        baseline_us=baseline,
        sm_clock_mhz=1755.0,
        memory_clock_mhz=2619.0,
        power_w=504.0,
        temperature_c=54.0,
        kernels=(f"invented_sgemm_{128 if size > 512 else 64}x64_kernel",)
        if rung == "cublas"
        else (),
    )


def run() -> Run:
    """The whole invented ladder."""
    profiles = tuple(
        profile(rung, size, n)
        for n, (size, rung) in enumerate((s, r) for s in PROFILED for r in RUNGS)
    )
    return Run(
        id="20250101-000000-fixture",
        title="Test fixture: an invented FP32 matrix-product ladder",
        created="2025-01-01T12:00:00Z",
        live=False,
        device=DEVICE,
        environment={
            "Driver": "580.00",
            "CUDA": "13.0",
            "Nsight Compute": "2025.3.1",
            "Clocks": "not locked",
            "ncu-toolkit": "0.0",
        },
        commands=(
            "ncu --clock-control none --import-source yes --section-folder sections "
            "--set ladder -o gemm_fp32 python -m ncu_toolkit.kernel.gpu.target plan.json",
        ),
        profiles=profiles,
        timings=tuple(timing(rung, size) for size in SIZES for rung in RUNGS),
        ceilings=Ceilings(copy=4.24e12, fp32=6.1e13, tensor=None),
        skipped=(
            Skipped("triple_buffered at 8192", "an invented reason: the profiler was interrupted"),
        ),
        report_files=("gemm_fp32.ncu-rep.xz",),
        costs={"build": 41.0, "allocation": 0.8, "initialisation": 1.9, "profiling": 212.0},
    )


def diagnosis(subject: Profile) -> Diagnosis:
    """An invented verdict in the diagnosis' own types: the largest stall names it."""
    reason, cycles = subject.stalls.reasons[0] if subject.stalls else ("selected", 1.0)
    bottleneck = {
        "mio_throttle": "shared-instruction-pressure",
        "long_scoreboard": "memory-latency",
        "lg_throttle": "uncoalesced-global-access",
        "short_scoreboard": "shared-bank-conflict",
        "barrier": "async-copy-wait",
    }.get(reason, "fp32-pipe")
    good = bottleneck == "fp32-pipe"
    evidence = (
        Evidence(
            f"stall_{reason}",
            f"Stall: {reason.replace('_', ' ')}",
            cycles,
            "cycles/inst",
            registry.STALL_REASONS[reason],
            0.3 * (subject.stalls.total if subject.stalls else 1),
            ">",
            "30 % of the stack",
        ),
        Evidence(
            "issue_active",
            "Issue slots busy",
            subject.value("issue_active") or 0.0,
            "fraction",
            "Fraction of active scheduler cycles that issued an instruction.",
            0.6,
            "<",
            "Nsight Compute's own threshold",
        ),
    )
    finding = Finding(
        bottleneck,
        f"Invented for a test: warps spend most of their time on {reason.replace('_', ' ')}.",
        "high",
        evidence,
        1.0 if good else 2.2,
        ("time now 100", "time without it 45", "100 / 45 = 2.2"),
        ("Read wider: 16 bytes per lane.", "Give each thread more results per load."),
        "LDS turns into LDS.128",
        (Location("vectorized.cu", 24, 0x7F0500, "LDS.128 R1, [R2]", 0.61, "samples"),),
        good,
    )
    second = Finding(
        "low-occupancy",
        "Invented: few warps are resident.",
        "low",
        evidence[1:],
        1.1,
        ("100 / 91 = 1.1",),
        ("Use fewer registers.",),
    )
    considered = (
        NoFinding(
            "warp-divergence",
            "ruled out",
            "32 of 32 lanes are active",
            (
                Evidence(
                    "lanes_per_instruction",
                    "Active lanes per instruction",
                    32.0,
                    "lanes",
                    "32 is full.",
                    24,
                    "<",
                    "ncu",
                ),
            ),
        ),
        NoFinding(
            "tail-effect",
            "abstained",
            "the report does not hold what the rule needs",
            missing=("waves",),
        ),
    )
    return Diagnosis(
        (finding, second),
        considered,
        {"issue": 900.0, "fma": 2050.0, "shared": 1500.0, "dram": 130.0},
        ("Invented note.",),
    )


def write_front(reports: Path, books: Mapping[str, Book]) -> Path:
    """Write the front page over runs by folder name; returns it."""
    return html.write_front(reports, [(name, index_part(book)) for name, book in books.items()])


def parts(page: PageView, *names: str) -> list[Any]:
    """What the sections of a launch's page hold, by the names of their parts; all without one."""
    found = [part for fold in page.folds for part in fold.parts]
    return [value for name, value in found if not names or name in names]


def page_tables(page: PageView) -> dict[str, Table]:
    """The tables of a launch's page by key."""
    found: dict[str, Table] = {}
    for value in parts(page):
        for each in value if isinstance(value, list | tuple) else (value,):
            shown = each.evidence if isinstance(each, FindingView) else each
            if isinstance(shown, Table):
                found[shown.key] = shown
    return found


def page_facts(page: PageView) -> dict[str, Fact]:
    """The facts of a launch's page by label."""
    known = [fact for facts in parts(page, "facts", "claim") for fact in facts]
    return {fact.label: fact for fact in (*known, *page.measured)}
