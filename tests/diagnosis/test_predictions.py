"""What a prediction counts on, where a plain count of instructions would mislead: literals,
reciprocals, constants, integers that are the work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import diagnosis_cases as cases
import pytest

from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.build.nvcc import compile_file
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.rules.double_precision import SHORTER
from ncu_toolkit.kernel.sass.disassembly import disassemble


def outcome(bottleneck: str, case: dict[str, Any]) -> Any:
    profile = cases.build(case)
    return cases.outcome(bottleneck, profile)


def found(bottleneck: str, case: dict[str, Any]) -> Finding:
    result = outcome(bottleneck, case)
    assert isinstance(result, Finding), result.reason
    return result


def test_divisions_and_roots_are_shorter_in_floats() -> None:
    """Issue slots are the limit, and a tenth of the instructions begins a division or a root."""

    def saved(start: str) -> float:
        case = {
            "metrics": {"issue_active": 0.9, "fp64_pipe_active": 0.5},
            "stalls": {"selected": 1.0, "not_selected": 8.0, "math_pipe_throttle": 4.0, "wait": 2.0},
            "opcodes": {"DFMA": 40_000_000, "F2F.F64.F32": 5_000_000, start: 5_000_000, "IADD3": 50_000_000},
        }  # fmt: skip
        return found("double-precision", case).saved

    without = saved("F2F.F32.F64")
    assert saved("MUFU.RCP64H") == pytest.approx(without + 4 * 0.05, abs=0.03)
    assert saved("MUFU.RSQ64H") == pytest.approx(without + 7 * 0.05, abs=0.05)


def test_literals_of_doubles_go_with_the_doubles() -> None:
    """Issue slots are the limit, and two fifths of the instructions bring literals for DFMA: in
    floats they are part of the instruction."""
    case: dict[str, Any] = {
        "metrics": {"issue_active": 0.85, "fp64_pipe_active": 0.62},
        "stalls": {"selected": 1.0, "not_selected": 8.0, "math_pipe_throttle": 4.0, "wait": 2.0},
        "opcodes": {"DFMA": 40_000_000, "UMOV": 40_000_000, "F2F.F64.F32": 1_000_000, "LDG.E": 1_000_000, "IADD3": 10_000_000},
    }  # fmt: skip
    without = (
        found("double-precision", case)
        if isinstance(outcome("double-precision", case), Finding)
        else None
    )
    rows = [
        {"sass": "UMOV UR4, 0x652b82fe", "executed": 40_000_000},
        {"sass": "DFMA R2, R4, UR4, R6", "executed": 40_000_000},
    ]
    saved = found("double-precision", {**case, "instructions": rows}).saved
    assert saved > (without.saved if without else 0.0) + 0.2
    many = [{"sass": "UMOV UR4, 0x652b82fe", "executed": 400_000_000}]
    assert found("double-precision", {**case, "instructions": many}).saved <= 0.95, (
        "at most one pair for each FP64 instruction"
    )


MODULO = {"I2F.U32.RP": 4_000_000, "MUFU.RCP": 4_000_000, "F2I.FTZ.U32.TRUNC.NTZ": 4_000_000, "IMAD": 30_000_000, "IADD3": 20_000_000,
          "ISETP.GE.U32.AND": 10_000_000, "LDG.E": 4_000_000, "STG.E": 500_000}  # fmt: skip
DIVIDING = {"metrics": {"issue_active": 0.7, "xu_pipe_active": 0.7, "fmaheavy_pipe_active": 0.5}, "opcodes": MODULO,
            "stalls": {"selected": 1.0, "not_selected": 4.0, "mio_throttle": 5.0, "wait": 3.0}}  # fmt: skip


def test_numbers_from_memory_are_still_divided_but_by_reciprocals() -> None:
    on_indices = [{"sass": "IMAD R4, R5, R6, R7", "executed": 30_000_000}]
    on_data = [
        {"sass": "LDG.E R4, [R2.64]", "executed": 1_000_000},
        {"sass": "IMAD R4, R4, R6, R7", "executed": 30_000_000},
    ]
    indices, data = (
        found("integer-arithmetic", {**DIVIDING, "instructions": rows})
        for rows in (on_indices, on_data)
    )
    assert indices.saved > data.saved + 0.1
    assert "reciprocals instead of divisions" in " ".join(data.arithmetic).lower()
    assert "reciprocal" in " ".join(data.advice)


def test_integer_work_at_its_pipe_is_a_roof() -> None:
    case = {
        "metrics": {"issue_active": 0.5, "fmaheavy_pipe_active": 0.85, "alu_pipe_active": 0.2},
        "stalls": {"selected": 1.0, "math_pipe_throttle": 6.0, "wait": 3.0, "not_selected": 4.0},
        "opcodes": {"IMAD.WIDE.U32": 20_000_000, "IMAD": 8_000_000, "LDG.E": 2_000_000},
        "instructions": [
            {"sass": "LDG.E R4, [R2.64]", "executed": 1_000_000},
            {"sass": "IMAD R4, R4, R6, R7", "executed": 28_000_000},
        ],
    }
    finding = found("integer-arithmetic", case)
    assert (finding.speedup, finding.good) == (1.0, False)
    assert "computes with integers" in finding.summary
    assert "addresses" not in finding.summary


def test_integers_that_are_stored_are_the_work() -> None:
    """An alignment with idle lanes: its scores are no overhead, and the lanes are what can be gained."""
    case = {
        "metrics": {"issue_active": 0.63, "alu_pipe_active": 0.92, "lanes_per_instruction": 11.0, "branch_uniformity": 0.9},
        "stalls": {"selected": 1.0, "math_pipe_throttle": 4.0, "wait": 1.0, "not_selected": 4.0},
        "opcodes": {"VIMNMX": 20_000_000, "IADD3": 8_000_000, "BRA": 8_000_000, "LDG.E": 400_000},
    }  # fmt: skip
    work = ("VIMNMX R4, R4, R6, !PT", "IADD3 R4, R4, 0x1, RZ")
    ends = {"STG.E [R2.64], R4": "computes with integers", "LDG.E R5, [R4.64]": "overhead"}
    for end, message in ends.items():
        rows = [{"sass": sass, "executed": 14_000_000} for sass in work]
        rows.append({"sass": end, "executed": 100_000})
        seen = {**case, "instructions": rows}
        assert message in found("integer-arithmetic", seen).summary
        first = diagnose(cases.build(seen)).primary.bottleneck
        assert (first == "warp-divergence") == (end.startswith("STG"))


@pytest.mark.parametrize(("busy", "late"), [(0.79, True), (0.83, False)])
def test_memory_that_loads_wait_for_is_named(busy: float, late: bool) -> None:
    """Between 80% and what only moving data reaches, loads wait for bandwidth: memory latency is
    ruled out for that. Below, it is behind the roof that it comes from."""
    case = {
        "metrics": {"dram_utilization": busy, "dram_read_bytes": 3e8, "dram_write_bytes": 1e6, "issue_active": 0.1},
        "stalls": {"selected": 1.0, "long_scoreboard": 30.0},
        "opcodes": {"LDG.E.128": 600_000, "FFMA": 1_000_000},
    }  # fmt: skip
    names = [finding.bottleneck for finding in diagnose(cases.build(case)).findings]
    assert names == ["dram-bandwidth", "memory-latency"][: 1 + late]
    assert not any(finding.good for finding in diagnose(cases.build(case)).findings)


@pytest.mark.parametrize(("barriers", "named"), [(0, True), (1_600_000, False)])
def test_loads_between_barriers_are_not_narrow(barriers: int, named: bool) -> None:
    """Each pass of a loop loads one element between two barriers: no width brings more under way."""
    case = cases.read("narrow-access")
    opcodes = {**case["opcodes"], "BAR.SYNC.DEFER_BLOCKING": barriers}
    names = [x.bottleneck for x in diagnose(cases.build({**case, "opcodes": opcodes})).findings]
    assert ("narrow-access" in names) is named


def test_a_chain_that_brings_in_a_constant_at_each_step() -> None:
    case = {
        "metrics": {"issue_active": 0.4, "fma_pipe_active": 0.2},
        "stalls": {"selected": 1.0, "imc_miss": 2.0, "wait": 1.0},
        "opcodes": {"FFMA": 10_000_000, "ULDC": 10_000_000, "LDG.E": 100_000},
    }
    finding = found("instruction-dependency", case)
    assert "for constants" in finding.summary
    assert "each constant" in finding.advice[0].lower()
    assert "stall_share:imc_miss" in [evidence.metric for evidence in finding.evidence]
    walk = {**case, "stalls": {"selected": 1.0, "imc_miss": 8.0, "wait": 1.0}}
    assert "larger than it" in found("constant-cache-divergence", walk).summary
    assert not isinstance(outcome("instruction-dependency", walk), Finding), (
        "the table is the cause"
    )
    short = {
        **case,
        "metrics": {
            **case["metrics"],
            "duration": 5.0,
            "sm_cycles": 8_500,
            "sm_active_cycles": 8_000,
        },
    }  # type: ignore[dict-item]
    result = outcome("instruction-dependency", short)
    assert not isinstance(result, Finding) or "for constants" not in result.summary, (
        "a short launch waits for its parameters"
    )


#: Of each function: a division, a root, an exponential, a logarithm, a sine and a power, by their marks.
FUNCTIONS = {"exp": (0, 0, 1, 0, 0, 0), "log": (1, 0, 0, 1, 0, 0), "sin": (0, 0, 0, 0, 1, 0), "pow": (1, 0, 1, 1, 0, 1)}  # fmt: skip


@pytest.mark.toolchain
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_functions_in_double_are_known_by_one_instruction_each(arch: str, tmp_path: Path) -> None:
    """Compiled code of each architecture holds a function's marks once; in single precision none."""
    kernel = 'extern "C" __global__ void {0}({1}* x) {{ x[threadIdx.x] = {2}; }}\n'
    calls = {name: f"{name}(x[threadIdx.x]{', x[32]' * (name == 'pow')})" for name in FUNCTIONS}
    source = tmp_path / "functions.cu"
    source.write_text(
        "".join(
            kernel.format(f"in_{kind}_{name}", kind, call)
            for name, call in calls.items()
            for kind in ("double", "float")
        )
    )
    code = {each.name: each.lines for each in disassemble(compile_file(source, arch).path)}
    for name, marks in FUNCTIONS.items():
        for kind, expected in {"double": marks, "float": (0,) * len(marks)}.items():
            texts = [row.sass for row in code[f"in_{kind}_{name}"]]
            counts = tuple(sum(bool(re.search(x, text)) for text in texts) for x in SHORTER)
            assert counts == expected, (kind, name)


def test_functions_in_double_are_longer_than_their_constants() -> None:
    """Issue slots are the limit, and a twentieth of the instructions rounds an exponential's argument: in floats
    13 instructions of each go beside literals."""

    def saved(sass: str) -> float:
        rows = [
            {"sass": sass, "executed": 2_500_000},
            {"sass": "IADD3 R1, R2, R3, R4", "executed": 97_500_000},
        ]
        case = {
            "metrics": {"issue_active": 0.9, "fp64_pipe_active": 0.5},
            "stalls": {"selected": 1.0, "not_selected": 8.0, "math_pipe_throttle": 4.0, "wait": 2.0},
            "opcodes": {"DFMA": 40_000_000, "DSETP": 2_500_000, "F2F.F64.F32": 5_000_000, "IADD3": 52_500_000}, "instructions": rows,
        }  # fmt: skip
        return found("double-precision", case).saved

    plain = saved("DFMA R4, R6, R4, R2")
    rounded = saved("DFMA R4, R6, R4, 6.75539944105574400000e+15")
    assert rounded == pytest.approx(plain + 13 * 0.025, abs=0.05)
