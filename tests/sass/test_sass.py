"""Disassembly: what is read from nvdisasm's text, and what follows from it about widths, work,
loops and loads in flight."""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path

import pytest
from sass_signature import Code, check_signature

from ncu_toolkit.base.core import cache
from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem
from ncu_toolkit.base.model import matches_opcode
from ncu_toolkit.kernel.build import nvcc, toolchain
from ncu_toolkit.kernel.ladder.rung import SassExpectation
from ncu_toolkit.kernel.sass import branches, disassembly, opcodes
from ncu_toolkit.kernel.sass.cost import loads_in_flight, loops_of, regions_of
from ncu_toolkit.kernel.sass.disassembly import parse_disassembly
from ncu_toolkit.kernel.sass.opcodes import flops, width, width_classes


def have(tool: str) -> bool:
    try:
        toolchain.find_tool(tool)
    except EnvironmentProblem:
        return False
    return True


needs_toolchain = [
    pytest.mark.toolchain,
    pytest.mark.skipif(
        not (have("nvcc") and have("nvdisasm")),
        reason="no nvcc or nvdisasm here: pip install '.[toolchain]'",
    ),
]


def listing(body: str, name: str = "k") -> str:
    """nvdisasm's text for a function: one instruction a line, `label:` lines, `# file:line` lines,
    addresses filled in."""
    rows = [
        f"//--------------------- .text.{name} --------------------------",
        f'\t.section\t.text.{name},"ax",@progbits',
        f".text.{name}:",
    ]
    address = 0
    for line in body.strip().splitlines():
        text = line.strip()
        if text.endswith(":"):
            rows.append(text)
        elif text.startswith("#"):
            file, _, number = text[1:].strip().rpartition(":")
            rows.append(f'\t//## File "{file}", line {number}')
        elif text.startswith("//##"):
            rows.append("\t" + text)
        else:
            predicate, _, rest = text.partition(" ") if text.startswith("@") else ("", "", text)
            rows.append(f"        /*{address:04x}*/  {predicate:>16} {rest} ;")
            address += 16
    return "\n".join(rows) + "\n"


def function(body: str) -> opcodes.Function:
    (parsed,) = parse_disassembly(listing(body))
    return parsed


def test_instructions_are_read() -> None:
    parsed = function(
        """
        # /src/kernels/a.cu:12
        LDC R1, c[0x0][0x28]
        //## File "/src/kernels/common/c.cuh", line 7 inlined at "/src/kernels/a.cu", line 13
        //## File "/src/kernels/a.cu", line 13
        @!P0 LDG.E.128.CONSTANT R4, desc[UR6][R4.64+-0x100]
        .L_x_1:
        @UP0 UIADD3 UR4, UR4, 0x4, URZ
        BRA `(.L_x_1)
        """
    )
    assert parsed.name == "k"
    first, load, uniform, jump = parsed.instructions
    assert (first.address, first.opcode, first.operands) == (0, "LDC", "R1, c[0x0][0x28]")
    assert (first.file, first.line) == ("/src/kernels/a.cu", 12)
    assert (load.predicate, load.base, load.modifiers) == ("@!P0", "LDG", ("E", "128", "CONSTANT"))
    assert load.operands == "R4, desc[UR6][R4.64+-0x100]"
    assert (load.file, load.line) == ("/src/kernels/common/c.cuh", 7)
    assert (uniform.predicate, uniform.address) == ("@UP0", 32)
    assert jump.targets == (32,)
    assert load.sass == "@!P0 LDG.E.128.CONSTANT R4, desc[UR6][R4.64+-0x100]"


@pytest.mark.parametrize(
    ("opcode", "pattern", "expected"),
    [
        ("LDS.U.128", "LDS.128", True),
        ("LDS.128", "LDS.128", True),
        ("LDS.64", "LDS.128", False),
        ("LDS.128", "LDS", True),
        ("LDSM.16.M88.4", "LDS", False),
        ("LDG.E.LTC128B.128.CONSTANT", "LDG.E.128", True),
        ("LDG.E.LTC128B.CONSTANT", "LDG.E.128", False),
        ("REDG.E.ADD", "RED|REDG", True),
        ("STS.128", "LDS.128|STS.128", True),
    ],
)
def test_patterns(opcode: str, pattern: str, expected: bool) -> None:
    assert matches_opcode(opcode, pattern) is expected


@pytest.mark.parametrize(
    ("opcode", "size"),
    [
        ("LDG.E", 4), ("LDG.E.128.CONSTANT", 16), ("LDG.E.U8", 1), ("LDG.E.U16", 2), ("LDS.64", 8), ("STS.128", 16), ("STL", 4), ("LDL.64", 8),
        ("LDGSTS.E.BYPASS.128", 16), ("LDGSTS.E", 4), ("LDSM.16.M88.4", 16), ("LDSM.16.M88.2", 8), ("LDSM.16.M88", 4), ("LDSM.16.MT88.4", 16),
        ("REDG.E.ADD.F32.FTZ.RN", 4), ("ATOMS.ADD", 4), ("LDG.E.LTC128B", 4), ("UTMALDG.2D", 0), ("LDC.64", 8), ("FFMA", 0), ("STG.E.64", 8),
    ],
)  # fmt: skip
def test_bytes_of_an_access(opcode: str, size: int) -> None:
    assert width(opcode) == size


@pytest.mark.parametrize(
    ("opcode", "operands", "expected"),
    [
        ("FFMA", "R0, R1, R2, R3", 2), ("FADD.FTZ", "", 1), ("HFMA2.MMA", "R9, R1, R2, R3", 4), ("HFMA2.MMA", "R9, -RZ, RZ, 0, 0", 0),
        ("DFMA", "", 2),
        ("HMMA.16816.F32.BF16", "", 128), ("HMMA.1688.F32", "", 64), ("DMMA.884", "", 16), ("HGMMA.64x128x16.F32.BF16", "", 2048), ("IMAD", "", 0),
        ("HMMA.884.F32.F32.STEP0", "", 16), ("HMMA.884.F16.F16.STEP0", "", 32), ("IMMA.16832.S8.S8", "", 256), ("HMMA.16816.F32.SP", "", 256),
        ("UTCHMMA.2CTA", "", None), ("HADD2.F32", "R0, -RZ, R4.H0_H0", 0), ("HADD2", "R0, R1, R4", 2),
    ],
)  # fmt: skip
def test_work_of_a_thread(opcode: str, operands: str, expected: float | None) -> None:
    assert flops(opcode, operands) == expected


def test_width_classes() -> None:
    counts = {"LDS.128": 3, "LDS.U.128": 1, "LDS": 2, "STS.64": 5, "FFMA": 9, "LDC.64": 1}
    assert width_classes(counts) == {"LDS": {16: 4, 4: 2}, "STS": {8: 5}}


NESTED = """
    MOV R0, RZ
    .L_outer:
    LDG.E R2, desc[UR4][R4.64]
    @!P1 BRA `(.L_skip)
    STS [R6], R2
    .L_skip:
    BAR.SYNC 0x0
    .L_inner:
    LDS.128 R8, [R7]
    FFMA R1, R8, R9, R1
    FFMA R1, R10, R11, R1
    @P0 BRA `(.L_inner)
    BRA.U UP0, `(.L_outer)
    EXIT
"""


def test_basic_blocks() -> None:
    code = function(NESTED)
    blocks = branches.blocks(code.lines, code.targets)
    assert [b.end - b.start for b in blocks] == [1, 2, 1, 1, 4, 1, 1]
    assert [b.successors for b in blocks] == [(1,), (3, 2), (3,), (4,), (4, 5), (1, 6), ()]


def test_loops_nest() -> None:
    outer, inner = loops_of(function(NESTED))
    assert (outer.header, outer.depth, len(outer.instructions)) == (0x10, 1, 9)
    assert (inner.header, inner.depth, len(inner.instructions)) == (0x50, 2, 4)
    first, second = regions_of(function(NESTED), (9, 0))
    assert (first.start, first.flops, first.shared_load_bytes) == (0x50, 4, 16)
    assert (first.flops_per_shared_byte, first.flops_per_global_byte) == (0.25, None)
    assert (second.start, second.global_load_bytes, second.shared_store_bytes) == (0x10, 4, 4)
    assert second.flops_per_global_byte == 0.0, "the inner loop is left out"
    assert Counter(i.opcode for i in inner.instructions) == {"LDS.128": 1, "FFMA": 2, "BRA": 1}


def test_code_after_an_end_is_no_loop() -> None:
    """A subroutine behind EXIT, and a cycle that nothing reaches, are not loops of the kernel."""
    assert loops_of(function("EXIT\n.L_a:\nFADD R0, R0, R1\nBRA `(.L_a)\nEXIT")) == ()
    assert loops_of(opcodes.Function("empty", ())) == ()


def test_indirect_branches_go_where_nvdisasm_says() -> None:
    text = listing(
        ".L_top:\nBRX R10 -0x260 @@\n.L_a:\nFADD R0, R0, R1\nBRA `(.L_top)\n.L_b:\nEXIT"
    ).replace("@@", '(*"BRANCH_TARGETS .L_a,.L_b"*)')
    (parsed,) = parse_disassembly(text)
    assert parsed.instructions[0].targets == (0x10, 0x30)
    assert parsed.instructions[0].operands == "R10 -0x260"
    assert [loop.header for loop in loops_of(parsed)] == [0]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "LDG.E R2, desc[UR4][R8.64]\nLDG.E R3, desc[UR4][R8.64+0x4]\nFADD R0, R2, R3",
            (2, 8),
        ),
        (
            "LDG.E R2, desc[UR4][R8.64]\nFADD R0, R0, R2\nLDG.E R3, desc[UR4][R8.64+0x4]\nFADD R0, R0, R3",
            (1, 4),
        ),
        # a pointer chase: the address is the last load's result
        ("LDG.E.64 R2, desc[UR4][R2.64]\nIADD3 R5, R5, 0x1, RZ", (1, 8)),
        # loaded for the next iteration, used at its start
        ("STS.128 [R20], R4\nLDG.E.128 R4, desc[UR4][R8.64]\nFFMA R0, R1, R2, R0", (1, 16)),
        # the second half of a vector is a use, too
        (
            "LDG.E.128 R4, desc[UR4][R8.64]\nFADD R0, R0, R7\nLDG.E.128 R12, desc[UR4][R8.64]\nFADD R0, R0, R15",
            (1, 16),
        ),
        (
            "LDG.E R5, desc[UR4][R8.64]\nSTS.128 [R20], R4\nLDG.E R6, desc[UR4][R8.64]\nSTS.128 [R20], R4",
            (1, 4),
        ),
        # three stages: two groups stay pending, a third is issued before the wait
        ("LDGSTS.E.128 [R3], desc[UR4][R8.64]\nLDGDEPBAR\nDEPBAR.LE SB0, 0x2", (3, 48)),
        ("LDGSTS.E.128 [R3], desc[UR4][R8.64]\nLDGDEPBAR\nDEPBAR.LE SB0, 0x0", (1, 16)),
        # with mbarriers the code does not say how far ahead the copies run
        (
            "LDGSTS.E [R3], desc[UR4][R8.64]\nARRIVES.LDGSTSBAR.64 [R9]\nSYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R9], R2",
            (1, 4),
        ),
        ("FFMA R0, R1, R2, R0", (0, 0)),
    ],
)
def test_loads_in_flight(body: str, expected: tuple[int, int]) -> None:
    assert loads_in_flight(function(body).instructions) == expected


def test_signature_says_what_was_found() -> None:
    code = {"k": Code({"LDS": 2, "STL": 1, "EXIT": 1}, 32)}
    assert check_signature(SassExpectation(("LDS",), ("LDG",), 32), code) == []
    assert check_signature(SassExpectation(("LDS.128", "HMMA"), ("LDL", "STL"), 30), code) == [
        "LDS.128 is promised, but the code has none; nearest are 2 x LDS",
        "HMMA is promised, but the code has none; nearest are none",
        "STL must be absent, but the code has 1 x STL",
        "k uses 32 registers, at most 30 are promised",
    ]


KERNEL = """
extern "C" __global__ void sum(const float4* __restrict__ a, float* out, int n) {
    float s = 0.f;
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += 32) { float4 v = a[i]; s += v.x * v.y + v.z * v.w; }
    out[threadIdx.x] = s;
}
"""


class TestRealDisassembly:
    pytestmark = needs_toolchain

    @pytest.fixture(autouse=True)
    def _own_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))

    @pytest.mark.parametrize(
        "arch",
        [
            "sm_90",
            *(pytest.param(each, marks=pytest.mark.slow) for each in ("sm_80", "sm_86", "sm_89")),
        ],
    )
    def test_a_loop_we_know(self, tmp_path: Path, arch: str) -> None:
        source = tmp_path / "sum.cu"
        source.write_text(KERNEL)
        cubin = nvcc.compile_file(source, arch)
        (parsed,) = disassembly.disassemble(cubin.path)
        assert parsed.name == "sum"
        (loop,) = loops_of(parsed)
        assert sum(matches_opcode(i.opcode, "LDG.E.128") for i in loop.instructions) == 1
        (region,) = regions_of(parsed, (9, 0))
        moved = region.global_load_bytes, region.loads_in_flight, region.bytes_in_flight
        assert moved == (16, 1, 16)
        assert region.flops in (4, 5)  # mul, fma, add; or the compiler fuses differently
        assert {line for file, line, _ in region.lines if file == source.name} == {5}
        again = disassembly.disassemble(cubin.path)
        assert again == (parsed,)
        (kept,) = (cache.cache_folder() / "sass").iterdir()
        other = zlib.compress(
            (zlib.decompress(cache.unsealed(kept) or b"")).replace(b"LDG", b"STG")
        )
        for content in (kept.read_bytes()[:-9], kept.read_bytes()[:32] + other):
            kept.write_bytes(content)
            assert disassembly.disassemble(cubin.path) == (parsed,)

    def test_a_file_that_is_no_cubin(self, tmp_path: Path) -> None:
        (tmp_path / "x.cubin").write_text("text")
        with pytest.raises(InputProblem, match=r"x\.cubin cannot be disassembled"):
            disassembly.disassemble(tmp_path / "x.cubin")
        with pytest.raises(InputProblem, match=r"y\.cubin cannot be read"):
            disassembly.disassemble(tmp_path / "y.cubin")

    def test_no_nvdisasm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(toolchain, "tool_folders", lambda: iter([tmp_path]))
        with pytest.raises(EnvironmentProblem, match="nvdisasm was not found"):
            disassembly.disassemble(tmp_path / "x.cubin")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("_Z6colsumiPKdPd", "colsum"),
        ("_Z4scanIfLi4EEvPT_", "scan<float, 4>"),
        ("naive", "naive"),
        ("_Zbroken", "_Zbroken"),
    ],
)
def test_kernels_are_named_as_in_the_source(name: str, shown: str) -> None:
    assert disassembly.readable(name) == shown
