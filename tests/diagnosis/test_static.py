"""Static analysis: regions and what they cost, each diagnosis on code that shows it and on code
that does not, and the whole on real kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ncu_toolkit.base.core import cache
from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, UsageProblem
from ncu_toolkit.base.hardware import specs
from ncu_toolkit.base.hardware.specs import SPECS
from ncu_toolkit.kernel.build import nvcc, toolchain
from ncu_toolkit.kernel.build.nvcc import Resources
from ncu_toolkit.kernel.diagnosis.engine import diagnose_code, unknowns
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts
from ncu_toolkit.kernel.diagnosis.static import analyse_cubin, analyse_rung, analyse_source
from ncu_toolkit.kernel.ladder.catalogue import find_rung
from ncu_toolkit.kernel.sass.cost import dependency_cycles, regions_of, unit_cycles
from ncu_toolkit.kernel.sass.opcodes import Function, SassInstruction


def have(tool: str) -> bool:
    try:
        toolchain.find_tool(tool)
    except EnvironmentProblem:
        return False
    return True


needs_toolchain = [
    pytest.mark.toolchain,
    pytest.mark.skipif(
        not all(map(have, ("nvcc", "nvdisasm", "cuobjdump"))),
        reason="no nvcc, nvdisasm or cuobjdump here",
    ),
]
HOPPER = (9, 0)


def function(body: str, loop: bool = True) -> Function:
    """Code of one instruction a line; as a loop, it is closed by a conditional branch to its start
    and an EXIT."""
    code = []
    for n, line in enumerate(body.strip().splitlines()):
        words = line.strip()
        predicate, _, words = words.partition(" ") if words.startswith("@") else ("", "", words)
        opcode, _, operands = words.partition(" ")
        code.append(SassInstruction(16 * n, opcode, operands, predicate, "/src/k.cu", n + 1))
    if loop:
        code.append(SassInstruction(16 * len(code), "BRA", "`(.L_x_0)", "@P0", targets=(0,)))
    code.append(SassInstruction(16 * len(code), "EXIT"))
    return Function("k", tuple(code))


def facts(
    body: str, loop: bool = True, resources: Resources | None = None, **known: Any
) -> KernelFacts:
    code = function(body, loop)
    return KernelFacts(
        "k", HOPPER, resources or Resources(32), code, regions_of(code, HOPPER), **known
    )


def found(body: str, loop: bool = True, **known: Any) -> dict[str, str]:
    return {
        finding.bottleneck: finding.certainty
        for finding in diagnose_code(facts(body, loop, **known))
    }


def many(count: int, line: Callable[[int], str]) -> str:
    return "\n".join(line(n) for n in range(count))


#: What decides over another pass is the same for all lanes.
TURNS = "LDC R9, c[0x0][0x220]\nISETP.NE.AND P0, PT, R9, RZ, PT\n"
MULTIPLY = many(64, lambda n: f"FFMA R{100 + n}, R8, R12, R{100 + n}")
"""64 independent multiply-adds: 16 cycles of a Hopper SM's FP32 pipe."""


def test_cycles_of_each_unit() -> None:
    """An 8x8 patch a thread: 64 FFMA at 4 warps per cycle tie with 4 LDS.128 at 128 bytes per cycle."""
    code = function(
        MULTIPLY + "\n" + many(4, lambda n: f"LDS.128 R{8 + 4 * n}, [R3]"), loop=False
    ).instructions[:-1]
    assert unit_cycles(code, HOPPER) == {"issue": 17.0, "shared": 16.0, "fma": 16.0}
    assert unit_cycles(code, (8, 0))["fma"] == 32.0  # half the FP32 lanes
    assert unit_cycles(code, (11, 0)) == {
        "issue": 17.0,
        "shared": 16.0,
    }  # rates not known: not guessed
    padding = [SassInstruction(0, "LDS", "RZ, [RZ]", "@!PT")]
    assert unit_cycles(padding, HOPPER) == {"issue": 0.25}
    special = [
        SassInstruction(0, "MUFU.EX2", "R0, R1"),
        SassInstruction(16, "HGMMA.64x128x16.F32.BF16"),
        SassInstruction(32, "DFMA", "R0, R2, R4, R6"),
    ]
    assert unit_cycles(special, HOPPER) == {
        "issue": 0.75,
        "special": 2.0,
        "fp64": 0.5,
        "tensor": 16.0,
    }


def test_dependencies_of_a_warp() -> None:
    chain = [SassInstruction(16 * n, "FFMA", "R0, R1, R2, R0") for n in range(8)]
    assert dependency_cycles(chain) == 32
    four = [SassInstruction(16 * n, "FFMA", f"R{n % 4}, R8, R9, R{n % 4}") for n in range(8)]
    assert dependency_cycles(four) == 8
    assert (
        dependency_cycles(
            [
                SassInstruction(0, "LDG.E", "R2, desc[UR4][R4.64]"),
                SassInstruction(16, "STG.E", "desc[UR4][R4.64], R2"),
            ]
        )
        == 2
    )


def test_regions_put_work_first() -> None:
    """The loop with the arithmetic leads, also where a smaller loop lies within it; of two versions
    of one loop the shorter leads."""
    code = [
        SassInstruction(0x00, "FFMA", "R0, R1, R2, R0"), SassInstruction(0x10, "LDG.E", "R4, desc[UR4][R6.64]"),
        SassInstruction(0x20, "STS", "[R8], R4"), SassInstruction(0x30, "BRA", "`(.L)", "@P1", targets=(0x10,)),
        SassInstruction(0x40, "HMMA.16816.F32", "R12, R16, R20, R12"),
        SassInstruction(0x50, "BRA", "`(.L)", "@P0", targets=(0x00,)), SassInstruction(0x60, "EXIT"),
    ]  # fmt: skip
    outer, inner = regions_of(Function("k", tuple(code)), HOPPER)
    assert (outer.depth, outer.instructions, outer.flops, outer.global_load_bytes) == (
        1,
        3,
        130.0,
        0,
    )
    assert (
        inner.depth,
        inner.instructions,
        inner.global_load_bytes,
        inner.shared_store_bytes,
        inner.loads_in_flight,
    ) == (2, 3, 4, 4, 1)
    straight = regions_of(function(MULTIPLY, loop=False), HOPPER)
    assert [region.depth for region in straight] == [0]


def test_what_a_pass_can_branch_around_counts_half() -> None:
    """A tile stored in one of several passes: half its cycles, all of its instructions and bytes.
    Both sides of a branch together count once."""
    stores = [
        SassInstruction(0x10 + 16 * n, "STS.128", "[R8], R4", "", "/src/k.cu", 2) for n in range(4)
    ]
    code = [
        SassInstruction(0x00, "BRA", "`(.L_join)", "@P1", targets=(0x60,)), *stores, SassInstruction(0x50, "LDG.E", "R4, desc[UR4][R6.64]"),
        SassInstruction(0x60, "LDS.128", "R12, [R3]"), SassInstruction(0x70, "BRA", "`(.L_top)", "@P0", targets=(0x00,)),
        SassInstruction(0x80, "EXIT"),
    ]  # fmt: skip
    (region,) = regions_of(Function("k", tuple(code)), HOPPER)
    assert region.conditional == {0x10, 0x20, 0x30, 0x40, 0x50}
    assert (
        region.instructions,
        region.opcodes["STS.128"],
        region.shared_store_bytes,
        region.global_load_bytes,
    ) == (8, 4, 64, 4)
    assert region.cycles == {"issue": (3 + 5 / 2) / 4, "shared": 4 + 16 / 2}
    assert region.memory_cycles == pytest.approx(4 / 2 * 32 / SPECS[HOPPER].sheet.bytes_per_cycle)
    sides = [
        SassInstruction(0x00, "BRA", "`(.L_else)", "@P1", targets=(0x30,)), SassInstruction(0x10, "LDS", "R4, [R3]"),
        SassInstruction(0x20, "BRA", "`(.L_join)", targets=(0x40,)), SassInstruction(0x30, "LDS", "R4, [R5]"),
        SassInstruction(0x40, "BRA", "`(.L_top)", "@P0", targets=(0x00,)), SassInstruction(0x50, "EXIT"),
    ]  # fmt: skip
    (region,) = regions_of(Function("k", tuple(sides)), HOPPER)
    assert region.cycles["shared"] == 1.0
    again = [
        SassInstruction(0x00, "LDS", "R4, [R3]"), SassInstruction(0x10, "BRA", "`(.L_top)", "@P1", targets=(0x00,)),
        SassInstruction(0x20, "STS", "[R3], R4"), SassInstruction(0x30, "BRA", "`(.L_top)", "@P0", targets=(0x00,)), SassInstruction(0x40, "EXIT"),
    ]  # fmt: skip
    assert regions_of(Function("k", tuple(again)), HOPPER)[0].conditional == {
        0x20,
        0x30,
    }  # `continue`: two branches back


def test_a_tile_stored_now_and_then_is_no_shared_memory_pressure() -> None:
    """As in register blocking: 16 cycles of loads and 12 of stores exceed 24 of arithmetic, but not
    where only some passes store."""
    stores = many(3, lambda n: f"STS.128 [R3+{n}], R4")
    product = (
        MULTIPLY
        + "\n"
        + many(32, lambda n: f"FFMA R{164 + n}, R8, R12, R{164 + n}")
        + "\n"
        + many(4, lambda n: f"LDS.128 R8, [R3+{n}]")
    )
    assert found(product + "\n" + stores)["shared-instruction-pressure"] == "possible"
    code = list(function(product + "\nBRA `(.L_join)\n" + stores).instructions)
    code[100] = SassInstruction(1600, "BRA", "`(.L_join)", "@P1", targets=(1664,))
    branching = Function("k", tuple(code))
    known = KernelFacts("k", HOPPER, Resources(32), branching, regions_of(branching, HOPPER))
    assert known.main.cycles["shared"] == 22.0
    assert "shared-instruction-pressure" not in {
        finding.bottleneck for finding in diagnose_code(known)
    }


@pytest.mark.parametrize(
    ("bottleneck", "bad", "good"),
    [
        ("shared-instruction-pressure", "LDS R4, [R3]\nLDS R5, [R3+0x4]\nFFMA R0, R4, R5, R0", MULTIPLY + "\nLDS.128 R8, [R3]\nLDS.128 R12, [R3]"),
        ("narrow-access", "LDG.E R4, desc[UR4][R6.64]\nLDG.E R5, desc[UR4][R6.64+0x4]\nFADD R0, R5, R4",
         "LDG.E R4, desc[UR4][R6.64]\nFADD R0, R0, R4"),
        ("narrow-access", "LDG.E.U8 R4, desc[UR4][R6.64]\nFADD R0, R0, R4", "LDG.E.128 R4, desc[UR4][R6.64]\nFADD R0, R0, R4"),
        ("shared-bank-conflict", TURNS + "S2R R2, SR_TID.X\nIMAD.SHL.U32 R3, R2, 0x80, RZ\nLDS R4, [R3]",
         TURNS + "S2R R2, SR_TID.X\nIMAD R3, R2, 0x84, RZ\nLDS R4, [R3]"),
        (
            "uncoalesced-global-access",
            TURNS + "S2R R2, SR_TID.X\nLDC.64 R6, c[0x0][0x210]\nIMAD.WIDE R8, R2, 0x80, R6\nLDG.E R4, desc[UR4][R8.64]",
            TURNS + "S2R R2, SR_TID.X\nLDC.64 R6, c[0x0][0x210]\nIMAD.WIDE R8, R2, 0x4, R6\nLDG.E R4, desc[UR4][R8.64]",
        ),
        ("memory-latency", "LDG.E.64 R2, desc[UR4][R2.64]\nIADD3 R5, R5, 0x1, RZ", "LDG.E.64 R2, desc[UR4][R8.64]\nIADD3 R8, R8, 0x8, RZ"),
        ("double-precision", "F2F.F64.F32 R2, R4\nDFMA R6, R2, R8, R6\nDFMA R10, R2, R8, R10", "FFMA R6, R2, R8, R6"),
        ("special-function-pressure", many(6, lambda n: f"MUFU.EX2 R{n}, R{n + 8}") + "\nFFMA R20, R0, R1, R20", MULTIPLY + "\nMUFU.EX2 R0, R1"),
        ("integer-arithmetic", many(9, lambda n: f"IADD3 R{n}, R{n + 16}, R40, RZ") + "\nFADD R30, R30, R1", MULTIPLY + "\nIADD3 R0, R1, R2, RZ"),
        ("constant-cache-divergence", "LDC R2, c[0x3][R4]\nFADD R0, R0, R2", "LDC R2, c[0x3][0x10]\nFADD R0, R0, R2"),
        ("tensor-core-unused", "HFMA2.MMA R2, R3, R4, R2\nLDS.U16 R3, [R5]", "HFMA2.MMA R2, -RZ, RZ, 0, 0\nFADD R3, R3, R4\n" + MULTIPLY),
        (
            "async-copy-wait",
            "LDGSTS.E.128 [R3], desc[UR4][R8.64]\nLDGDEPBAR\nDEPBAR.LE SB0, 0x0\n" + MULTIPLY,
            "LDGSTS.E.128 [R3], desc[UR4][R8.64]\nLDGDEPBAR\n" + MULTIPLY + "\nDEPBAR.LE SB0, 0x0",
        ),
    ],
)  # fmt: skip
def test_a_diagnosis_and_its_opposite(bottleneck: str, bad: str, good: str) -> None:
    assert bottleneck in found(bad)
    assert bottleneck not in found(good)


def test_local_memory() -> None:
    assert (
        found("STL [R1], R2\nLDL R3, [R1]", resources=Resources(255, 64, 32, 32))[
            "local-memory-traffic"
        ]
        == "certain"
    )
    assert (
        found("STL [R1], R2\nLDL R3, [R1]", resources=Resources(64, 64))["local-memory-traffic"]
        == "likely"
    )
    assert "local-memory-traffic" not in found("LDG.E R3, desc[UR4][R2.64]")


def test_occupancy_and_launch() -> None:
    small = specs.occupancy(HOPPER, 128, 255, 0)
    shape = {"occupancy": small, "resources": Resources(255)}
    assert found(MULTIPLY, **shape)["low-occupancy"] == "possible"
    assert (
        found(MULTIPLY, occupancy=specs.occupancy(HOPPER, 1024, 255, 0))["low-occupancy"]
        == "certain"
    )  # no block fits
    full = specs.occupancy(HOPPER, 256, 32, 0)
    assert (
        found(MULTIPLY, occupancy=full, grid_blocks=100, sm_count=132)["grid-too-small"]
        == "certain"
    )
    assert (
        found(MULTIPLY, occupancy=full, grid_blocks=132 * 8 + 1, sm_count=132)["tail-effect"]
        == "possible"
    )
    assert not found(MULTIPLY, occupancy=full, grid_blocks=132 * 8, sm_count=132)
    for blocks, message in (
        (1, "The grid has 1 block for 132 SMs"),
        (132 * 8 + 1, "The grid is just over 1 wave (1 block more) and takes as long as 2."),
        (132 * 9, "The grid is 1.12 waves and takes as long as 2."),
    ):
        known = facts(MULTIPLY, occupancy=full, grid_blocks=blocks, sm_count=132)
        assert any(each.summary.startswith(message) for each in diagnose_code(known))


def test_a_chain_is_hidden_by_enough_warps() -> None:
    chain = many(16, lambda n: "FFMA R0, R1, R2, R0")
    assert "instruction-dependency" in found(
        chain, occupancy=specs.occupancy(HOPPER, 64, 32, 100_000)
    )
    assert "instruction-dependency" not in found(chain, occupancy=specs.occupancy(HOPPER, 256, 32))
    assert "instruction-dependency" not in found(chain)  # block size not known: nothing is claimed


def test_reuse_is_held_against_the_problem() -> None:
    naive = "LDG.E R4, desc[UR4][R6.64]\nLDG.E R5, desc[UR4][R8.64]\nFFMA R0, R4, R5, R0"
    assert "missing-data-reuse" in found(naive, intensity=683.0)
    assert "missing-data-reuse" not in found(naive, intensity=0.5)
    assert "missing-data-reuse" not in found(naive)


def test_what_only_a_profile_tells() -> None:
    hidden = {
        name
        for unknown in unknowns(facts("LDS R4, [R3]\nBAR.SYNC 0x0\nLDG.E R5, desc[UR4][R6.64]"))
        for name in unknown.bottlenecks
    }
    assert {"shared-bank-conflict", "uncoalesced-global-access", "barrier-imbalance"} <= hidden
    assert "atomic-contention" not in hidden


def test_a_library_has_nothing_to_analyse() -> None:
    analysis = analyse_rung(find_rung("cublas"), "sm_90")
    assert analysis.kernels == ()
    assert "runs a library" in analysis.nothing


SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) k(float* a, int n) {
    float v[200];
#pragma unroll
    for (int i = 0; i < 200; ++i) v[i] = a[i * n + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 200; ++i) a[i * n + threadIdx.x] = v[i] * v[(i * 7 + 3) % 200];
}
"""


@pytest.mark.slow
class TestCompiled:
    pytestmark = needs_toolchain

    @pytest.fixture(autouse=True)
    def _own_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))

    def test_the_matrix_product_from_first_to_last(self) -> None:
        """Each rung's own cause is found: scattered lanes for the first, as its report has it, then
        reuse; shared-memory pressure for the tiled one, neither for the last."""
        found = {
            name: analyse_rung(find_rung(name), "sm_90").kernels[0].findings
            for name in ("naive", "smem_tiled", "register_blocked")
        }
        causes = {
            name: [finding.bottleneck for finding in findings] for name, findings in found.items()
        }
        assert causes["naive"][0] == "uncoalesced-global-access"
        assert "missing-data-reuse" in causes["naive"]
        assert causes["smem_tiled"][0] == "shared-instruction-pressure"
        assert not {
            "missing-data-reuse",
            "shared-instruction-pressure",
            "narrow-access",
            "local-memory-traffic",
        } & set(causes["register_blocked"])

    @pytest.mark.parametrize(
        ("name", "bottleneck"),
        [("shared_bank_conflict", "shared-bank-conflict"), ("transpose_smem", "shared-bank-conflict"),
         ("transpose_naive", "uncoalesced-global-access"), ("uncoalesced_global_access", "uncoalesced-global-access")],
    )  # fmt: skip
    def test_what_addresses_show_leads(self, name: str, bottleneck: str) -> None:
        assert (
            analyse_rung(find_rung(name), "sm_90").kernels[0].findings[0].bottleneck == bottleneck
        )

    def test_the_padding_that_is_proposed_ends_the_conflicts(self) -> None:
        """The kernel compiled with it has none."""
        rung = find_rung("shared_bank_conflict")
        first = analyse_rung(rung, "sm_90").kernels[0].findings[0]
        assert "32 wavefronts" in first.summary
        assert (
            "Pad each row of 128 bytes by 4 bytes, or store column c of row r at column c ^ (r % 32)"
            in first.advice
        )
        assert "Swizzle<5, 0, 5>" in first.advice
        padded = analyse_rung(rung, "sm_90", parameters={"PITCH": 33}).kernels[0].findings
        assert "shared-bank-conflict" not in {finding.bottleneck for finding in padded}

    def test_a_sliding_window_is_not_widened(self) -> None:
        findings = analyse_rung(find_rung("missing_data_reuse"), "sm_90").kernels[0].findings
        assert "narrow-access" not in {finding.bottleneck for finding in findings}

    @pytest.mark.parametrize(
        ("element", "columns", "words"), [("float", 32, "4"), ("float4", 8, "16")]
    )
    def test_the_swizzle_that_is_proposed_ends_the_conflicts(
        self, tmp_path: Path, element: str, columns: int, words: str
    ) -> None:
        """The kernel compiled with it has none: its rows are written along and read down."""
        found = []
        for column in ("C", f"C ^ R % {columns}"):
            place = f"{columns} * (R) + (({column}))"
            stored, read = (
                place.replace("R", row).replace("C", column)
                for row, column in (
                    (f"threadIdx.x / {columns}", f"(threadIdx.x % {columns})"),
                    ("threadIdx.x % 32", "(threadIdx.x / 32)"),
                )
            )
            source = tmp_path / "tile.cu"
            source.write_text(f"""__global__ void turn({element} *out, const {element} *in) {{
                __shared__ {element} tile[32 * {columns}];
                for (int n = threadIdx.x; n < 64 * blockDim.x; n += blockDim.x) {{
                    tile[{stored}] = in[n];
                    __syncthreads();
                    out[n] = tile[{read}];
                    __syncthreads();
                }}
            }}""")
            found.append(analyse_source(source, "sm_90", block=32 * columns).kernels[0].findings)
        conflicts, swizzled = (
            [each for each in findings if each.bottleneck == "shared-bank-conflict"]
            for findings in found
        )
        assert (
            f"tore column c of row r at column c ^ (r % {columns}), in elements of {words} bytes"
            in conflicts[0].advice
        )
        assert not swizzled

    def test_a_source_file_and_its_cubin_agree(self, tmp_path: Path) -> None:
        source = tmp_path / "k.cu"
        source.write_text(SPILLING)
        from_source = analyse_source(source, "sm_90", block=1024).kernels[0]
        cubin = nvcc.compile_file(source, "sm_90").path
        from_cubin = analyse_cubin(cubin, block=1024).kernels[0]
        assert from_source.spill_stores
        assert from_cubin.spill_stores is None
        assert from_source.findings[0].bottleneck == "local-memory-traffic"
        assert (from_cubin.registers, from_cubin.shared_static) == (
            from_source.registers,
            from_source.shared_static,
        )
        assert from_cubin.regions == from_source.regions
        assert from_cubin.occupancy == from_source.occupancy

    def test_no_cubin(self, tmp_path: Path) -> None:
        (tmp_path / "x.cubin").write_text("text")
        with pytest.raises(InputProblem, match=r"x\.cubin is not a cubin"):
            analyse_cubin(tmp_path / "x.cubin")
        with pytest.raises(UsageProblem, match="there is no file"):
            analyse_cubin(tmp_path / "y.cubin")
