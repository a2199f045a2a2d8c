"""What a finding says to change is not what the profile shows as done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import diagnosis_cases as cases
import pytest

from ncu_toolkit.base.model import Finding, Instruction
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, language
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.diagnosis.rules._launch import loads_in_flight
from ncu_toolkit.kernel.diagnosis.rules.shared_instruction_pressure import patch_side

QUEUE = {"selected": 1.0, "mio_throttle": 4.0, "short_scoreboard": 2.0, "wait": 1.0}


def found(bottleneck: str, case: dict[str, Any]) -> Finding:
    profile = cases.build(case)
    outcome = cases.outcome(bottleneck, profile)
    assert isinstance(outcome, Finding), outcome.reason
    return outcome


def shared(opcodes: dict[str, int]) -> str:
    """Advice of the rule on shared-memory instructions for an executed mix."""
    metrics = {
        "lsu_pipe_active": 0.9,
        "l1_data_pipe_active": 0.9,
        "issue_active": 0.4,
        "fma_pipe_active": 0.3,
    }
    return " ".join(
        found(
            "shared-instruction-pressure", {"metrics": metrics, "stalls": QUEUE, "opcodes": opcodes}
        ).advice
    )


@pytest.mark.parametrize(
    ("opcodes", "advised", "not_advised"),
    [
        (
            {"LDS": 20_000_000, "STS": 500_000, "FFMA": 10_000_000},
            ("Compute a tile of results per thread (4x4, then 8x8)", "16 bytes at a time", "Keep the operand that does not change"), (),
        ),
        # four values of each operand for 16 multiply-adds: a patch of 4 x 4, read by two LDS.128
        (
            {"LDS.128": 2_000_000, "STS.128": 100_000, "FFMA": 16_000_000},
            ("about a 4x4 tile",), ("16 bytes at a time", "4x4, then", "Keep the operand"),
        ),
        # differences, squares and a root for each pair of particles: no product
        (
            {"LDS": 8_000_000, "FFMA": 10_000_000, "FADD": 5_000_000, "FMUL": 4_000_000, "MUFU": 2_000_000},
            ("feeds about 1.25 multiply-adds", "two to four results"), ("tile",),
        ),
        ({"LDS.128": 2_000_000, "STS": 400_000, "FFMA": 32_000_000}, ("Write shared memory 16 bytes at a time", "about a 8x8 tile"), ()),
        ({"LDS": 5_000_000, "STS": 5_000_000, "IADD3": 10_000_000}, ("shuffles",), ("tile",)),
        ({"LDS": 20_000_000, "STS": 20_000_000, "SHFL.DOWN": 1_000_000, "IADD3": 1_000_000}, (), ("__shfl_sync",)),
    ],
)  # fmt: skip
def test_advice_on_shared_memory_follows_the_executed_mix(
    opcodes: dict[str, int], advised: tuple[str, ...], not_advised: tuple[str, ...]
) -> None:
    text = shared(opcodes)
    assert all(words in text for words in advised)
    assert not any(words in text for words in not_advised)


@pytest.mark.parametrize(
    ("loads", "fused", "side"), [("LDS", 8, 2), ("LDS.64", 8, 1), ("LDS.128", 128, 8)]
)
def test_patch_side(loads: str, fused: int, side: float) -> None:
    profile = cases.build({"opcodes": {loads: 8, "FFMA": fused}})
    assert patch_side(Kernel.of(profile)) == pytest.approx(side)


def test_no_patch_is_larger_than_the_registers_of_a_thread() -> None:
    """Few values of a product come from shared memory: the others come from elsewhere."""
    assert patch_side(Kernel.of(cases.build({"opcodes": {"LDS": 8, "FFMA": 4096}}))) is None


def waiting(*code: str, at: int) -> dict[str, Any]:
    """Straight code whose long-scoreboard samples are all at one instruction."""
    rows = [
        {"sass": sass, "executed": 1000, "samples": {"long_scoreboard": 500} if i == at else {}}
        for i, sass in enumerate(code)
    ]
    return {
        "instructions": rows,
        "stalls": {"selected": 1.0, "long_scoreboard": 20.0},
        "metrics": {"issue_active": 0.1},
    }


LOAD = "LDG.E R{}, [R{}.64]"
ONE_BY_ONE = (LOAD.format(4, 2), "FADD R8, R8, R4", LOAD.format(4, 6), "FADD R8, R8, R4")
TWO = (LOAD.format(4, 2), LOAD.format(5, 6), "FADD R8, R8, R4", "FADD R8, R8, R5")
NINE = (*(LOAD.format(20 + i, 2) for i in range(9)), "FADD R8, R8, R20")


@pytest.mark.parametrize(
    ("code", "at", "expected"), [(ONE_BY_ONE, 3, 1.0), (TWO, 2, 2.0), (TWO, 3, 1.0), (NINE, 9, 9.0)]
)
def test_loads_in_flight(code: tuple[str, ...], at: int, expected: float) -> None:
    assert loads_in_flight(Kernel.of(cases.build(waiting(*code, at=at)))) == expected


def test_memory_latency_counts_what_is_under_way() -> None:
    one, two = (
        found("memory-latency", waiting(*code, at=at)) for code, at in ((ONE_BY_ONE, 3), (TWO, 2))
    )
    assert "before using the first" in one.advice[0]
    assert (
        "already has 2.0 loads in flight" in two.advice[0]
        or "already has 2 loads in flight" in two.advice[0]
    )
    assert not any("before using the first" in text for text in two.advice)
    assert one.saved > two.saved, (
        "four loads where there was one save more than four where there were two"
    )
    nine = diagnose(cases.build(waiting(*NINE, at=9))).findings
    names = [f.bottleneck for f in nine if f.speedup is not None]
    assert "memory-latency" not in names


SCATTERED = {
    "sass": "LDG.E R4, desc[UR4][R2.64]",
    "executed": 1_600_000,
    "counters": {"l2_sectors": 51.2e6, "l2_sectors_ideal": 6.4e6, "l1_tag_requests": 51.2e6},
}


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"file": "/src/app/gather.cu", "line": 12}, " at gather.cu:12."),
        ({"file": "C:\\work\\gather.cu", "line": 12}, " at gather.cu:12."),
        ({"file": "", "line": 0}, " at +0x0 (LDG.E R4)."),
    ],
)
def test_advice_names_the_line(place: dict[str, Any], words: str) -> None:
    case = {
        "stalls": {"selected": 1.0, "wait": 1.0, "lg_throttle": 6.0},
        "instructions": [{**SCATTERED, **place}],
    }
    finding = found("uncoalesced-global-access", case)
    assert finding.advice[0].endswith(words)
    assert finding.locations[0].sass == SCATTERED["sass"]


QUEUED = {"selected": 1.0, "wait": 1.0, "lg_throttle": 6.0}


def apart(*code: str, executed: int = 337_920, waits: int = -1, **more: Any) -> dict[str, Any]:
    """Code whose global loads touch a sector for each lane; samples of a wait at one instruction."""
    rows = []
    for i, sass in enumerate(code):
        load = {"l2_sectors": 32.0 * executed, "l2_sectors_ideal": 4.0 * executed}
        samples = {"long_scoreboard": 500} if i == waits else {}
        counters = load if "LDG" in sass else {}
        rows.append({"sass": sass, "executed": executed, "samples": samples, "counters": counters})
    launch = {"grid": [1320, 1, 1]}
    return {"stalls": QUEUED, "instructions": rows, "launch": launch, **more}


def scattered(case: dict[str, Any]) -> tuple[str, ...]:
    return found("uncoalesced-global-access", case).advice


GATHER = ("LDG.E R2, [R4.64]", "IMAD.WIDE R6, R2, 0x4, R8", "LDG.E R3, [R6.64]", "FADD R3, R3, R3")
FIELDS = tuple(f"LDG.E R{20 + i}, [R2.64+{4 * i:#x}]" for i in range(1, 6))


def test_a_gather_is_no_column_walk() -> None:
    """The addresses come from another load: no order of the lanes fixes them."""
    first, second = scattered(apart(*GATHER, waits=3))[:2]
    assert "Sort or bin the requests" in first
    assert "small enough for L2" in second


def test_fields_of_a_structure_go_apart() -> None:
    first, second = scattered(apart(*FIELDS))
    assert "its own array (structure of arrays)" in first
    assert "16-byte loads" in second


def test_lanes_a_line_apart_are_swapped_first() -> None:
    """Plain arrays whose lanes lie a row apart look like structures but for the lines that they touch."""
    for lines, message in ((32, "128 bytes or more apart"), (8, "are 32 bytes apart")):
        case = apart(*FIELDS)
        for row in case["instructions"]:
            row["counters"]["l1_tag_requests"] = float(lines) * row["executed"]
            row["threads"] = 32 * row["executed"]
        first = scattered(case)[0]
        assert message in first
        assert ("threadIdx.x" in first) == (lines == 32)


def test_updates_of_one_address_are_reduced_and_others_counted_in_copies() -> None:
    case = cases.read("atomic-contention")
    update = {
        "sass": "RED.E.ADD.STRONG.GPU [R2.64], R5",
        "executed": 1_600_000,
        "threads": 51_200_000,
    }
    for sectors, message in ((1, "Reduce within the warp"), (20, "Count in a copy per block")):
        counters = {"l2_sectors": sectors * 1.6e6, "l2_sectors_ideal": 1.6e6}
        finding = found(
            "atomic-contention", {**case, "instructions": [{**update, "counters": counters}]}
        )
        assert finding.advice[0].startswith(message)
        assert "grid-stride" in finding.advice[1]
    place = {**update, "sass": "ATOMG.E.ADD.STRONG.GPU PT, R4, desc[UR4][R2.64], R7"}
    place["counters"] = {"l2_sectors": 5e6, "l2_sectors_ideal": 5e6}
    finding = found("atomic-contention", {**case, "instructions": [place]})
    assert finding.advice[0].startswith("The old value gives each thread its place")


def test_rows_of_lanes_go_to_warps() -> None:
    """The same loads, again and again, most of them served by L1: each lane walks a row."""
    walked = apart(*FIELDS, executed=33_792_000, metrics={"l1_hit_rate": 0.8})
    assert "give each row to a warp" in scattered(walked)[0]


def test_columns_keep_their_advice() -> None:
    """Loads that lie a row apart are no structure. Misaligned neighbours are in order already."""
    rows = tuple(f"LDG.E R{20 + i}, [R2.64+{0x1000 * i:#x}]" for i in range(1, 6))
    assert scattered(apart(*rows))[0].startswith("Let threadIdx.x run along")
    beside = apart(*FIELDS)
    for row in beside["instructions"]:
        row["counters"]["l2_sectors"] = 5.0 * row["executed"]
    advised = scattered(beside)
    assert "Pad the rows to a multiple of 32 bytes" in advised[0]
    assert "run along" not in " ".join(advised)
    outcome = found("uncoalesced-global-access", beside)
    assert "scattered" not in outcome.summary
    assert "4-byte" not in outcome.look_for


def test_two_strides_are_not_averaged() -> None:
    """Loads of 64-byte structures and stores of 32-byte ones have no mean that an array has."""
    case = apart(*FIELDS)
    for at, row in enumerate(case["instructions"]):
        row["counters"]["l1_tag_requests"] = (16.0, 8.0)[at % 2] * row["executed"]
        row["threads"] = 32 * row["executed"]
    first = scattered(case)[0]
    assert "are 32 to 64 bytes apart" in first


def test_bytes_stored_are_those_of_lanes() -> None:
    """Stores of 8 lanes a row fill half of the sectors that they touch."""
    metrics = {
        "dram_read_bytes": 3e9,
        "dram_write_bytes": 4e9,
        "l2_sectors_from_sm": 1.2e8,
        "global_store_sectors": 8e7,
    }
    case = apart(*FIELDS, metrics=metrics)
    case["opcodes"] = {**case.get("opcodes", {}), "STG.E": 10_000_000}
    summary = found("uncoalesced-global-access", case).summary
    assert "3.17× the bytes that are stored" in summary
    del case["opcodes"]["STG.E"]
    assert "1.56× the sectors that stores touch" in found("uncoalesced-global-access", case).summary


NUMBA = "app::add[abi:v1,cw51cXTLSUwv1s](Array<float, (int)1, C, mutable, aligned>)"
PYTORCH = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::AddFunctor>(int)"


@pytest.mark.parametrize(
    ("kernel", "file", "expected"),
    [
        ("matmul_kernel", "/src/matmul.py", "triton"),
        ("matmul_kernel", "/src/matmul.cu", "cuda"),
        ("matmul_kernel", "", "cuda"),
        ("matmul_kernel(const float *, float *)", "/src/generated.py", "cuda"),
        ("kernel_cutlass_gemm___main__", "/src/gemm.py", "cuda"),
        (NUMBA, "/src/app.py", "numba"),
        ("__main__::add[abi:v1](Array<double, (int)2, C, mutable, aligned>)", "", "numba"),
        ("app::add[abi:cxx11](float *)", "", "cuda"),
        ("tagged[abi:v2,wide](float *, int)", "names.cu", "cuda"),
        ("triton_softmax_2", "", "xla"),
        ("triton_softmax_2", "/src/softmax.py", "triton"),
        ("loop_fusion", "/src/loops.cu", "cuda"),
        ("walk_6b1fb25a_cuda_kernel_forward", "/src/app.py", "warp"),
        ("cupy_subtract__float32_float32_float32", "", "cupy"),
        ("cupy_less__uint32_int_bool", "", "cupy"),
        ("cupy_particles", "", "cuda"),
        ("fmha_cutlassB_f32_aligned_64x64_k64_sm80(PyTorchMemEffAttention::Params)", "", "torch"),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Traits<64>>(int)", "", "torch"),
        (PYTORCH, "", "torch"),
        ("void scale<at::native::AddFunctor>(c10::Half *)", "", "cuda"),
        ("triton_poi_fused_add_0", "/tmp/torchinductor/ab.py", "torch"),
        ("input_reduce_fusion_1", "", "xla"),
        ("loop_subtract_fusion", "", "xla"),
        ("wrapped_exponential", "", "xla"),
        ("loop_fusion(float *)", "", "cuda"),
        ("wrapped_mine", "", "cuda"),
        ("void cub::CUB_300102_SM_900::DeviceReduceKernel<float>(float *)", "", "library"),
        ("void sum<cub::Sum>(float *)", "", "cuda"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)", "", "library"),
        ("void cutlass::Kernel<cutlass::gemm::kernel::Gemm<int>>(T1::Params)", "", "cuda"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_cublas", "", "library"),
        ("nvjet_sm90_tst_64x8_64x16_2x4_h_bz_NNT", "", "library"),
        ("regular_fft<128u, EPT<16u>, 32u, 4u, (twiddle_t)0, (loadstore_modifier_t)2, (layout_t)1, float>", "", "library"),
        ("void vector_fft_r2c<(unsigned int)512, (loadstore_modifier_t)2, double>(kernel_arguments_t<T9>)", "", "library"),
        ("void regular_fft<256>(float2 *)", "", "cuda"),
        ("scal_kernel_val<float, float>", "", "library"),
        ("scal_kernel<float, float, 1, true, 6, 5, 5, 3>", "", "library"),
        ("void scal_kernel<float>(float, float *)", "", "cuda"),
        ("std::enable_if<true, void>::type internal::gemvx::kernel<int, float, 9, false, cublasGemvParamsEx<int, float> >", "", "library"),
        ("void batch_trsm_left_kernel<float, (int)64, (int)4, (bool)0>(cublasTrsmBatchParams2<T1>, T1)", "", "library"),
        ("batch_trsm_left_kernel<float, 64, 4, 3, false, false, true>", "", "library"),
        ("getrf_pivot<getrf_params_<float, 32, 1, 32, 32, 1> >", "", "library"),
        ("potrf_alg2_reset_info", "", "library"),
        ("laswp_kernel<float, false>", "", "cuda"),
        ("void mine(cublasLtEpilogue_t, float *)", "", "cuda"),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_16x4_nhwc_align4>(T1::Params)", "", "library"),
        ("tensorTransformGeneric<float, float, float, true, false, false, (cudnnKernelDataType_t)2>", "", "library"),
        ("precomputed_convolve_sgemm<__half, 1024, 5, 5, 4, 3, 3, 1, false>", "", "library"),
        ("wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>", "", "library"),
        ("void wgrad_engine<float>(float *)", "", "cuda"),
        ("range of sm80_xmma_gemm_kernel__5x_cublas ×3, mine ×9", "", "cuda"),
        ("at_cuda_detail::cub::detail::scan::DeviceScanInitKernel<int>", "", "torch"),
        ("execute_dist<random_uniform_functor, curand_pseudo_state<curandStateXORWOW>, double>", "", "cupy"),
        ("cupy_cub_sum_pass1", "", "cupy"),
        ("gemm_fusion_dot_general_3", "", "xla"),
        ("wrapped_dynamic_slice", "", "xla"),
        ("void thrust::cuda_cub::core::_kernel_agent<for_each_f<It, wrapped_function<work()::[lambda(long) (instance 2)], void>>>(T2)", "", "cuda"),
        ("void thrust::cuda_cub::core::_kernel_agent<for_each_f<It, wrapped_function<thrust::detail::gozer, void>>>(T2)", "", "library"),
        ("void at::native::elementwise_kernel<128, 4, gpu_kernel_impl<add()::[lambda(int) (instance 1)]>>(int, T3)", "", "torch"),
    ],
)  # fmt: skip
def test_language(kernel: str, file: str, expected: str) -> None:
    rows = [{"sass": "EXIT", "file": file, "line": 1 if file else 0}]
    assert language(cases.build({"launch": {"kernel": kernel}, "instructions": rows})) == expected


def test_a_kernel_of_a_library_is_not_to_be_rewritten() -> None:
    case = apart(*GATHER, waits=3, launch={"kernel": PYTORCH, "grid": [1320, 1, 1]})
    ours = {f.bottleneck: f for f in diagnose(cases.build(apart(*GATHER, waits=3))).findings}
    theirs = diagnose(cases.build(case)).findings
    assert [f.bottleneck for f in theirs] == [*ours]
    for finding in theirs:
        assert finding.advice != ours[finding.bottleneck].advice
        assert finding.speedup == ours[finding.bottleneck].speedup
    assert "contiguous" in theirs[0].advice[0]


def test_what_tl_dot_reads_is_advice_for_kernels_that_multiply() -> None:
    case = cases.read("shared-bank-conflict")
    for opcode, message in (("HMMA.16816.F32", "tl.dot"), ("FADD", "tl.sum")):
        opcodes = {"LDS": 5_000_000, "STS": 5_000_000, opcode: 1_000_000}
        profile = cases.build({**case, "opcodes": opcodes, "launch": {"kernel": "pool"}})
        profile = replace(profile, sources={"pool.py": ""})
        assert language(profile) == "triton"
        (first,) = (f for f in diagnose(profile).findings if f.bottleneck == "shared-bank-conflict")
        assert message in first.advice[1]


def test_no_place_that_can_be_no_cause() -> None:
    """Warps that wait at a barrier are sampled at instructions after it, some of which never execute;
    kernels begin with the load of the stack pointer."""
    at = {"LDC R1, c[0x0][0x28]": 900, "BAR.SYNC 0x0": 5, "@!PT  LDS RZ, [RZ]": 500, "EXIT": 1}
    rows = [
        {"sass": sass, "executed": 1000, "samples": {"barrier": samples}}
        for sass, samples in at.items()
    ]
    stalls = {"selected": 1.0, "barrier": 9.0}
    finding = found("barrier-imbalance", {"stalls": stalls, "instructions": rows})
    assert [place.sass for place in finding.locations] == ["BAR.SYNC 0x0"]


def with_source(case: dict[str, Any], text: str) -> Finding:
    """What the rule on special functions finds where its one line reads `text`."""
    profile = cases.build(case)
    row = Instruction(0, 0, "MUFU.SIN R4, R5", "MUFU.SIN", "/x/wave.cu", 2, 9, 288)
    profile = replace(profile, instructions=(row,), sources={"/x/wave.cu": f"// a wave\n{text}\n"})
    rule = load_rules()["special-function-pressure"]
    outcome = cases.outcome(rule.ID, profile)
    assert isinstance(outcome, Finding), outcome.reason
    return outcome


def test_a_line_that_has_the_fast_variant_is_not_told_to_use_it() -> None:
    case = cases.read("special-function-pressure")
    assert "__sinf" in " ".join(with_source(case, "y[i] = sinf(x[i]);").advice)
    fast = with_source(case, "y[i] = __sinf(x[i]);").advice
    assert fast
    assert "__" not in " ".join(fast)


def test_places_are_lines_of_ones_own_that_hold_code() -> None:
    """The instructions of a line count together. A header of the CUDA toolkit gives way to the line
    that calls it, and a closing brace to the next line."""
    own, header = "/src/app/a.cu", "/usr/local/cuda/include/device_atomic_functions.hpp"
    rows = [
        {**SCATTERED, "file": file, "line": line}
        for file, line in ((own, 3), (own, 1), (own, 1), (own, 2), (header, 112), (header, 112))
    ]
    stalls = {"selected": 1.0, "wait": 1.0, "lg_throttle": 6.0}
    profile = cases.build({"stalls": stalls, "instructions": [*rows, rows[0], rows[0], rows[0]]})
    profile = replace(profile, sources={own: "x = y[i];\nadd(x, i);\n}  // end\n"})
    finding = cases.outcome("uncoalesced-global-access", profile)
    assert isinstance(finding, Finding)
    assert [(place.file, place.line) for place in finding.locations] == [(own, 2), (own, 1)]
    assert [round(9 * place.share) for place in finding.locations] == [3, 2]


def test_a_tile_saves_no_more_loads_than_repeat() -> None:
    finding = found("missing-data-reuse", cases.read("missing-data-reuse"))
    asked = next((e.value for e in finding.evidence if e.metric == "lane_reuse"), None)
    asked = asked or next(e.value for e in finding.evidence if e.metric == "load_reuse")
    stated = finding.look_for.partition("by a factor of up to about ")[2].split(". ")[0]
    assert float(stated.replace(",", "")) == pytest.approx(asked, rel=0.06)


def test_the_next_limit_of_a_product_is_what_its_advice_leaves() -> None:
    """Tiles and an order that spare L2 and device memory leave the tensor pipe."""
    from ncu_toolkit.kernel.diagnosis import engine

    unit = engine._Unit("l2-bandwidth", "L2", 0.8, None, "l2", 0.8)
    kernel = Kernel.of(cases.build({"metrics": {"dram_read_bytes": 1e10, "dram_write_bytes": 1e8}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ncu_toolkit.kernel.diagnosis.rules._launch.product_bytes", lambda k: 1e8)
        _, expected, stays = engine._less_for(unit, kernel)
    assert "device memory" in expected
    assert stays == {"dram": pytest.approx(1e8 / 1.01e10), "l2": 0.5, "fill": 0.5}
