"""Rules of the step: what they find in programs with a known cause, and that they leave a healthy one
alone."""

from __future__ import annotations

import re
from dataclasses import replace

import diagnosis_cases as cases
import msgspec
import program_traces as programs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncu_toolkit.base.model import Device, Diagnosis, Evidence, Finding, Launch, NoFinding, Profile
from ncu_toolkit.kernel.diagnosis import rules
from ncu_toolkit.kernel.diagnosis.rules import reference
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.diagnosis import SURE, diagnose_program, for_caller, ordered
from ncu_toolkit.program.model import (
    Account,
    Call,
    IdleGap,
    Mark,
    Op,
    ProgramDiagnosis,
    Step,
    StepFinding,
    Trace,
    Window,
)
from ncu_toolkit.program.rules import _patterns, step_rules
from ncu_toolkit.program.rules._facts import WORTH, StepFacts
from ncu_toolkit.program.rules.fp32_matmul import rates
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.step import find_step


def of_rule(found: ProgramDiagnosis, rule: str) -> StepFinding | None:
    return next((each for each in found.findings if each.rule == rule), None)


def named(found: ProgramDiagnosis) -> list[str]:
    return [each.rule for each in found.findings]


def step_of(
    work: list[tuple[str, float, float, str]],
    *,
    device: Device = programs.H200,
    grid: int = 528,
    grids: list[int] | None = None,
) -> tuple[Step, Account]:
    """A step by hand on one stream: (kernel, microseconds, idle before it, the gap's cause). The host is
    ahead of what waits for nothing."""
    shapes: list[Launch] = []
    ops, gaps, calls, now = [], [], [], 0
    for at, (kernel, us, idle, cause) in enumerate(work):
        start = now + round(idle * 1000)
        if idle:
            gaps.append(IdleGap(now, start, cause, at, at))  # type: ignore[arg-type]
        queued = max(0, start - 5000) if idle or not calls else calls[-1].end
        calls.append(Call(queued, max(queued, min(queued + 4000, start - 1000)), "launch", 0))
        blocks = grids[at] if grids else grid
        launch = Launch(kernel, programs.function_of(kernel), (blocks, 1, 1), (128, 1, 1))
        if launch not in shapes:
            shapes.append(launch)
        now = start + round(us * 1000)
        ops.append(Op(start, now, "kernel", shapes.index(launch), at))
    trace = Trace(
        source="by hand", devices=(device,), shapes=tuple(shapes), ops=tuple(ops), calls=tuple(calls),
        names=("cudaLaunchKernel",),
    )  # fmt: skip
    window = (Window(0, now, 0, len(ops)),)
    step = Step(trace=trace, windows=window, typical=0, how="repeats", description="By hand.")
    return step, Account(now / 1e3, (), tuple(gaps), tuple(op.us for op in ops))


def kernels(*names: str, us: float = 50.0) -> list[tuple[str, float, float, str]]:
    return [(name, us, 0.0, "") for name in names]


def late_launches(gap: float = 6.0) -> list[tuple[str, float, float, str]]:
    """No chain of elementwise kernels, whose gaps would be the chain's."""
    return [(name, 8.0, gap, "host late") for name in (programs.ADD, programs.MEAN)] * 20


# ---- every rule ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(step_rules()))
def test_rule_has_its_page(name: str) -> None:
    rule = step_rules()[name]
    assert rule.__name__.rpartition(".")[2] == name.replace("-", "_")  # type: ignore[attr-defined]
    about = reference.page(name)
    assert about.summary.endswith(".")
    assert tuple(about.sections) == reference.HEADINGS
    assert all(about.sections.values())
    assert rule.TITLE
    assert rule.TITLE[0].isupper()
    assert name not in rules.bottleneck_ids()
    for value in vars(rule).values():
        if isinstance(value, Threshold):
            assert len(value.source) > 10


@pytest.mark.parametrize("name", sorted(step_rules()))
def test_rule_of_nothing(name: str) -> None:
    """One copy and no figures: no rule finds anything or fails."""
    trace = Trace(
        source="by hand", devices=(), shapes=(), ops=(Op(0, 10, "copy"),),
        lacks=("wall time", "host calls", "marks", "lines", "shapes", "registers", "memory kinds"),
    )  # fmt: skip
    window = (Window(0, 10, 0, 1),)
    step = Step(
        trace=trace, windows=window, typical=0, how="whole", description="It is the whole run."
    )
    outcome = step_rules()[name].find(StepFacts(step, Account(0.0, (), (), (0.0,))))
    assert isinstance(outcome, NoFinding)
    assert outcome.reason


# ---- double beside single ------------------------------------------------------------------------

DOUBLE = programs.ADD.replace("float", "double")
FFT = "void vector_fft<256u, EPT<8u>, 2u, 12u, (layout_t)0, unsigned int, double>(kernel_arguments_t<unsigned int>)"


@pytest.mark.parametrize(
    ("names", "double"),
    [
        ([programs.ADD, DOUBLE, DOUBLE, FFT], 3),
        ([programs.sgemm(), DOUBLE.replace("double", "c10::complex<double>"), FFT], 2),
        (["ampere_cgemm_64x64_nn", DOUBLE], 1),
        (
            [
                programs.ADD,
                "ampere_zgemm_64x64_nn",
                "cutlass_80_tensorop_z884gemm_64x32_16x3_tn_align1",
            ],
            2,
        ),
        (["cupy_add__float32_float64_float64", "cupy_exp__float64_float64"], 1),
        ([DOUBLE, FFT], 0),
        ([programs.ADD, programs.MUL, programs.FOREACH_ADAM, programs.RANDOM], 0),
        (["cupy_add__float64_float_float64", "cupy_exp__complex128_complex128"], 0),
        (["scale(float*)", "scale<double>(double*)"], 0),
        ([DOUBLE, "void scale<double>(double*, float)"], 0),
        ([programs.ADD, *[DOUBLE] * 12], 0),
    ],
)
def test_double_is_reported_only_beside_single(names: list[str], double: int) -> None:
    step, account = step_of(kernels(*names))
    finding = of_rule(diagnose_program(step, account), "double-precision")
    assert (finding is not None) == bool(double)
    if finding:
        assert (finding.title, finding.confidence) == ("Double precision", "low")
        assert len(finding.ops) == double
        assert finding.ceiling_us == pytest.approx(double * 25.0)


def test_double_that_arithmetic_limits_saves_more_where_its_rate_is_low() -> None:
    step, account = step_of(
        kernels(programs.ADD, DOUBLE, FFT), device=replace(programs.H200, cc=(8, 9))
    )
    finding = of_rule(diagnose_program(step, account), "double-precision")
    assert finding
    # a 64th of 50 us is less than a launch takes
    assert finding.ceiling_us == pytest.approx(25.0 + 49.0)


def test_a_finding_that_takes_half_of_a_time_hides_none_of_all_of_it() -> None:
    copy = programs.TO_LAYOUT.replace("float", "double")
    step, account = step_of(kernels(programs.sgemm(), copy, copy, FFT, FFT))
    assert {"double-precision", "layout-copies"} <= {*named(diagnose_program(step, account))}


# ---- steps made by hand -------------------------------------------------------------------------


def test_an_authors_own_long_launches_of_few_blocks_have_a_grid_too_small() -> None:
    """Not a library's, nor short ones: a launch takes some microseconds, however many blocks it has."""
    grid, streams = "grid-too-small", "idle-streams"
    for first, second, us, rule in (
        ("scan_kernel", "scan_kernel", 900.0, grid),
        ("scan_kernel", "back(float*)", 900.0, grid),
        ("scan_kernel", "scan_kernel", 12.0, streams),
        ("scan_kernel", programs.TANH, 900.0, streams),
        (programs.TANH, programs.TANH, 900.0, streams),
    ):
        step, account = step_of(kernels(first, programs.ADD, second, us=us), grids=[16, 528, 16])
        found = of_rule(diagnose_program(step, account), rule)
        assert found is not None, (first, second, us)
        assert found.ops == (0, 2)
        assert found.ceiling_us == pytest.approx(2 * us * (1 - 16 / 132))
        step, account = step_of(kernels("scan_kernel", programs.ADD, us=us), grids=[16, 528])
        reported = named(diagnose_program(step, account, known(0, 0.9, grid)))
        assert reported == [grid if us > 100 else streams], "counters confirm what the trace shows"


def test_fused_attention_and_a_router_are_no_attention() -> None:
    for between in ([programs.FLASH], [programs.SOFTMAX, "void topk_kernel<float>(float*)"]):
        step, account = step_of(kernels(programs.sgemm(), *between, programs.sgemm()))
        assert of_rule(diagnose_program(step, account), "unfused-attention") is None


def test_attention_with_its_softmax_written_out() -> None:
    exp = programs.TANH.replace("tanh_kernel", "exp_kernel")
    most = programs.MEAN.replace("MeanOps", "MaxOps")
    names = [programs.BF16_PRODUCT, programs.SCALE, most, programs.ADD, exp, programs.SUM, programs.MUL, programs.BF16_PRODUCT]  # fmt: skip
    step, account = step_of(kernels(*names * 2))
    assert of_rule(diagnose_program(step, account), "unfused-attention") is not None
    once, account = step_of(kernels(*names))
    assert of_rule(diagnose_program(once, account), "unfused-attention") is None


def test_attention_with_a_copy_between() -> None:
    step, account = step_of(kernels(*[programs.sgemm(), programs.SOFTMAX, programs.ADD] * 3))
    ops = list(step.trace.ops)
    for at in (2, 5):
        ops[at] = msgspec.structs.replace(ops[at], kind="copy", path="DtoD", shape=-1, size=1 << 20)
    trace = msgspec.structs.replace(step.trace, ops=tuple(ops))
    step = msgspec.structs.replace(step, trace=trace)
    assert of_rule(diagnose_program(step, account), "unfused-attention") is not None


def test_the_mask_before_a_product_is_part_of_attention() -> None:
    names = ["other(float*)", programs.ADD, programs.BF16_PRODUCT, programs.SCALE, programs.SOFTMAX, programs.BF16_PRODUCT]  # fmt: skip
    step, account = step_of(kernels(*names * 2))
    found = of_rule(diagnose_program(step, account), "unfused-attention")
    assert found is not None
    assert set(found.ops) == {1, 2, 3, 4, 5, 7, 8, 9, 10, 11}
    grids = [528, 8, *[528] * 4] * 2
    step, account = step_of(kernels(*names * 2), grids=grids)
    found = of_rule(diagnose_program(step, account), "unfused-attention")
    assert found is not None
    assert not {1, 7} & set(found.ops)


def test_collectives_are_hidden_by_work_alone() -> None:
    step, account = step_of(
        kernels(programs.ALL_REDUCE, programs.ALL_REDUCE, programs.BF16_PRODUCT)
    )
    found = of_rule(diagnose_program(step, account), "exposed-collectives")
    assert found is not None
    assert found.ceiling_us == pytest.approx(50.0)
    step, account = step_of(kernels(programs.ALL_REDUCE))
    assert not diagnose_program(step, account).findings


def test_a_loss_between_products_is_no_attention() -> None:
    step, account = step_of(
        kernels(programs.sgemm(), programs.LOG_SOFTMAX, programs.LOG_SOFTMAX_BACK, programs.sgemm())
    )
    assert of_rule(diagnose_program(step, account), "unfused-attention") is None


def test_a_loss_written_out_is_one_with_its_gradient() -> None:
    exp, log = (programs.TANH.replace("tanh_kernel", word) for word in ("exp_kernel", "log_kernel"))
    most = programs.MEAN.replace("MeanOps", "MaxOps")
    forward = [most, programs.ADD, exp, programs.SUM, programs.DIV, log, programs.FILL, programs.MUL, programs.SUM]  # fmt: skip
    back = [programs.MUL, programs.DIV, programs.ADD, programs.SUM, programs.MUL]
    names = [programs.sgemm(), *forward, programs.MEAN, *back, programs.sgemm()]
    grids = [528] * len(names)
    grids[10] = 1
    step, account = step_of(kernels(*names), grids=grids)
    found = of_rule(diagnose_program(step, account), "spelled-out")
    assert found is not None
    assert set(found.ops) == set(range(1, 16))
    assert found.ceiling_us == pytest.approx(13 * 50.0)  # one launch stays of each
    assert "cross_entropy" in found.advice[0]
    probabilities = [*forward[:5], programs.MUL]
    step, account = step_of(kernels(programs.sgemm(), *probabilities, programs.sgemm()))
    found = of_rule(diagnose_program(step, account), "spelled-out")
    assert found is not None
    assert "cross" not in found.summary


@pytest.mark.parametrize(
    ("kernel", "before", "results", "is_one"),
    [
        ("gpu_kernel_impl_nocast", programs.sgemm(), 8, True),
        # both operands as large as their difference; a norm written by hand; four coordinates
        ("gpu_kernel_impl", programs.sgemm(), 8, False),
        ("gpu_kernel_impl_nocast", programs.MEAN, 8, False),
        ("gpu_kernel_impl_nocast", programs.sgemm(), 264, False),
    ],
)
def test_differences_of_all_pairs_are_distances(
    kernel: str, before: str, results: int, is_one: bool
) -> None:
    repeated = f"void at::native::elementwise_kernel<128, 4, at::native::{kernel}<at::native::CUDAFunctor_add<float> >(int)>(int)"
    forward = [repeated, programs.POW, programs.SUM, programs.SQRT]
    copy = "void at::native::vectorized_elementwise_kernel<4, at::native::direct_copy_kernel_cuda(int)>(int)"
    back = [copy, programs.SCALE, programs.MUL, programs.ADD, programs.SUM, programs.sgemm()]
    step, account = step_of(
        kernels(before, *forward, programs.sgemm(), *back),
        grids=[528, 528, 528, 528, results, *[528] * 7],
    )
    found = of_rule(diagnose_program(step, account), "spelled-out")
    assert (found is not None and "torch.cdist" in found.advice[0]) == is_one
    if found is not None and is_one:
        assert set(found.ops) == {*range(1, 5), *range(6, 11)}
        # a pass over the distances is left of each, a sixteenth of one over their differences
        assert found.ceiling_us == pytest.approx(9 * 50.0 - 2 * 50.0 / 16)


def test_sums_of_kept_products_are_products_of_matrices() -> None:
    """CuPy's kernels do not say whether an operand is repeated: nothing else in the step is as large. A tensor
    of more than 2^31 elements takes two launches of each."""
    multiply, other = "cupy_multiply__float32_float32_float32", "cupy_add__float32_float32_float32"
    for first in ([multiply], [multiply, multiply]):
        for grid, is_one in ((16, True), (9_000, False)):
            work = kernels(*first, programs.SUM, programs.sgemm(), other, us=200.0)
            step, account = step_of(work, grids=[*[9_000] * len(first), 4, 16, grid])
            found = of_rule(diagnose_program(step, account), "spelled-out")
            assert (found is not None) == is_one


def test_gradients_alone_are_of_no_distance() -> None:
    """Where no pass forward forms differences, and the copy before the products repeats an operand."""
    copy = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(int)> >(int)"
    twice = programs.MUL.replace("vectorized_elementwise_kernel<4", "elementwise_kernel<128, 4")
    names = [
        programs.sgemm(),
        copy,
        twice,
        programs.MUL,
        programs.ADD,
        programs.SUM,
        programs.sgemm(),
    ]
    step, account = step_of(kernels(*names), grids=[528, 528, 528, 528, 528, 8, 528])
    assert of_rule(diagnose_program(step, account), "spelled-out") is None


@pytest.mark.parametrize("unfused", [True, False])
def test_the_gradients_of_a_norm_go_with_it(unfused: bool) -> None:
    """By autograd, of `centred * rsqrt(variance + eps) * weight + bias`; alone they are of no known norm."""
    kernel = {"m": programs.MEAN, "a": programs.ADD, "p": programs.POW, "u": programs.MUL, "S": programs.SUM,
              "r": programs.ADD.replace("CUDAFunctor_add", "rsqrt_kernel_cuda"), "|": programs.sgemm()}  # fmt: skip
    assert kernel["r"] != programs.ADD
    text = ("mapmaruua" if unfused else "") + "|SuuSuuSpuuuuuaaSaua|"
    step, account = step_of(kernels(*(kernel[each] for each in text)), grid=528)
    found = of_rule(diagnose_program(step, account), "spelled-out")
    assert (found is not None) == unfused
    if found is not None:
        assert set(found.ops) == {*range(9), *range(10, 29)}
        assert "1 norm and 1 norm backward pass take" in found.summary
        # one pass is left of the norm, and two of its gradients
        assert found.ceiling_us == pytest.approx((28 - 3) * 50.0)


def test_launches_of_other_sizes_are_no_chain() -> None:
    names = kernels(*[programs.ADD, programs.MUL, programs.TANH] * 8)
    alike, account = step_of(names, grid=1000)
    chain = of_rule(diagnose_program(alike, account), "unfused-chain")
    assert chain is not None
    assert chain.confidence == "low"
    assert chain.ceiling_us == pytest.approx(23 / 24 * account.wall_us)
    other, account = step_of(names, grids=[1000 * (1 + i % 2) for i in range(24)])
    assert of_rule(diagnose_program(other, account), "unfused-chain") is None


def test_a_fused_optimizer_is_left_alone() -> None:
    fused = (
        "void multi_tensor_apply_kernel<FusedOptimizerMetadata<4>, FusedAdamMathFunctor<4> >(int)"
    )
    step, account = step_of(kernels(*[programs.BF16_PRODUCT, fused] * 4))
    assert of_rule(diagnose_program(step, account), "optimizer-launches") is None


def test_late_launches_that_recording_made_are_not_sure() -> None:
    """A gap of little more than recording costs."""
    step, account = step_of(late_launches(1.5))
    found = of_rule(diagnose_program(step, account), "launch-bound")
    assert found is not None
    assert found.confidence == "low"
    step, account = step_of(late_launches())
    found = of_rule(diagnose_program(step, account), "launch-bound")
    assert found is not None
    assert found.confidence == "high"


def test_a_loop_that_waits_is_no_graph_yet() -> None:
    """Each pass of a solver reads a value back. Two waits in a step of many launches end it."""
    step, account = step_of(late_launches())
    for waits, offered in ((2, "compile"), (0, "cuda-graphs")):
        calls = tuple(
            msgspec.structs.replace(call, kind="sync") if at < waits else call
            for at, call in enumerate(step.trace.calls)
        )
        trace = msgspec.structs.replace(step.trace, calls=calls)
        found = diagnose_program(msgspec.structs.replace(step, trace=trace), account)
        finding = of_rule(found, "launch-bound")
        assert finding is not None
        assert finding.switch == offered
        assert finding.advice[0].startswith("What waits for the GPU") == bool(waits)


def test_compiled_code_is_not_to_be_compiled() -> None:
    late = late_launches()
    plain = of_rule(diagnose_program(*step_of(late)), "launch-bound")
    fused = [("triton_poi_fused_add_0", 8.0, 6.0, "host late")]
    compiled = of_rule(diagnose_program(*step_of([*late, *fused])), "launch-bound")
    assert plain is not None
    assert compiled is not None
    assert plain.advice[0].startswith("Compile the model")
    assert compiled.advice[0].startswith("The model is compiled")
    step, account = step_of(late)
    mark = Mark(0, step.window.end, "operator", 1)
    trace = msgspec.structs.replace(
        step.trace, marks=(mark,), names=("cudaLaunchKernel", "CompiledFunction")
    )
    marked = diagnose_program(msgspec.structs.replace(step, trace=trace), account)
    assert marked.findings[0].advice == compiled.advice
    left = of_rule(
        diagnose_program(*step_of([*kernels(*[programs.ADD] * 12), *fused])), "unfused-chain"
    )
    assert left is not None
    assert left.advice[0].startswith("torch.compile left these launches out")


def test_a_gpu_without_tf32_is_reported_of_fp16() -> None:
    """In every framework: PyTorch by its own kernel, JAX and CuPy as well."""
    v100 = Device("Tesla V100-SXM2-16GB", (7, 0))
    for other in (programs.ADD, "loop_add_fusion", "cupy_add__float32_float32_float32", "my(int)"):
        step, account = step_of(kernels(*[programs.sgemm()] * 4, other), device=v100)
        found = of_rule(diagnose_program(step, account), "fp32-matmul")
        assert found is not None
        message = " ".join(found.advice).lower()
        assert "tf32" not in message, other
        assert "tensorfloat32" not in message, other
        assert "float16" in message or "fp16" in message, other


def test_copies_are_named_by_what_makes_them() -> None:
    """The switch for images is offered only where there is a convolution."""
    direct = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(int)> >(int)"
    cast = "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(int)>(int)"
    cat = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>(int)"
    turn = "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float>(int)"
    convolution = (
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16"
    )
    for kernel, message, other, switch in (
        (direct, "contiguous()", programs.FLASH, "compile"),
        (cast, "torch.autocast", programs.FLASH, "compile"),
        (cat, "torch.cat", programs.FLASH, "compile"),
        (turn, "channels_last", convolution, "channels-last"),
    ):
        step, account = step_of(kernels(*[kernel, other, programs.ADD] * 3))
        found = of_rule(diagnose_program(step, account), "layout-copies")
        assert found is not None
        assert message in found.advice[0]
        assert found.switch == switch
        assert (found.confidence == "medium") == (kernel is turn)
        # what takes longer than all other work is likely the cause
        step, account = step_of(kernels(*[kernel, kernel, programs.FLASH] * 3))
        found = of_rule(diagnose_program(step, account), "layout-copies")
        assert found is not None
        assert found.confidence == "medium"
    masked = "void at::native::triu_tril_kernel<float, int, true>(int)"
    step, account = step_of(kernels(*[masked, direct, masked, direct, masked]))
    found = of_rule(diagnose_program(step, account), "layout-copies")
    assert found is not None
    assert re.search("mostly .*triu_tril_kernel .* and layout changes", found.summary)
    assert len(found.advice) == 1


def test_copies_that_are_meant_are_left_alone() -> None:
    copy = "cupy_copy__uint32_uint32"
    sort = "void cub::DeviceRadixSortOnesweepKernel<unsigned int>(unsigned int*)"
    own = ["rows(float*)", "transpose(float*, float const*)"] * 3
    for names in (own, [copy, sort, sort] * 3):
        assert of_rule(diagnose_program(*step_of(kernels(*names))), "layout-copies") is None
    for names in ([copy, programs.FLASH] * 3, [sort, copy, programs.FLASH] * 3):
        assert of_rule(diagnose_program(*step_of(kernels(*names))), "layout-copies") is not None


def test_long_idle_time_is_other_work_of_the_host() -> None:
    step, account = step_of([(programs.ADD, 500.0, 700.0, "host late")] * 3)
    assert named(diagnose_program(step, account))[0] == "host-work"


@pytest.mark.parametrize(
    ("name", "cc", "kind", "ratio"),
    [
        ("NVIDIA H200", (9, 0), "TF32", 8.0),
        ("NVIDIA A100-SXM4-80GB", (8, 0), "TF32", 8.0),
        ("NVIDIA A40", (8, 6), "TF32", 2.0),
        ("NVIDIA L4", (8, 9), "TF32", 2.0),
        ("NVIDIA GeForce RTX 3090", (8, 6), "BF16", 2.0),
        ("NVIDIA GeForce RTX 4090", (8, 9), "BF16", 2.0),
        ("NVIDIA B200", (10, 0), "TF32", 16.0),
        ("Tesla V100-SXM2-16GB", (7, 0), "FP16", 8.0),
        ("Tesla T4", (7, 5), "FP16", 8.0),
        ("NVIDIA GeForce RTX 2080 Ti", (7, 5), "FP16", 4.0),
    ],
)
def test_rates_of_the_data_sheets(name: str, cc: tuple[int, int], kind: str, ratio: float) -> None:
    assert rates(Device(name, cc)) == (kind, ratio)
    step, account = step_of(kernels(*[programs.sgemm()] * 4), device=Device(name, cc))
    found = of_rule(diagnose_program(step, account), "fp32-matmul")
    assert found is not None
    assert found.confidence == ("high" if kind == "TF32" else "medium")
    assert found.ceiling_us == pytest.approx(account.wall_us * (1 - 1 / ratio))


def test_products_of_a_gpu_that_is_not_named_or_not_known() -> None:
    step, account = step_of(kernels(programs.sgemm()), device=Device("an unknown GPU", (0, 0)))
    found = of_rule(diagnose_program(step, account), "fp32-matmul")
    assert found is not None
    assert found.confidence == "low"
    assert "does not name the GPU" in found.summary
    step, account = step_of(kernels(programs.sgemm()), device=Device("GPU", (6, 0)))
    outcomes = {each.bottleneck: each for each in diagnose_program(step, account).considered}
    assert outcomes["fp32-matmul"].outcome == "abstained"


def test_idle_time_without_a_finding_is_reported() -> None:
    step, account = step_of(
        [("a(float*)", 100.0, 30.0, "between"), ("b(float*)", 100.0, 1.0, "sync")] * 4
    )
    found = diagnose_program(step, account)
    assert not found.findings
    *kernels, note = found.notes
    assert [each.partition(" (")[0] for each in kernels] == [
        "a takes 43 % of the step in 4 launches",
        "b takes 43 % of the step in 4 launches",
    ]
    assert note.startswith("The GPU is idle for 13")
    assert "of the step" in note
    step, account = step_of([("a(float*)", 900.0, 10.0, "between")] * 4)
    assert not any(each.startswith("For") for each in diagnose_program(step, account).notes)


_INDEX = "void at::native::(anonymous namespace)::index{}LargeIndex<float, long, unsigned int, 2, 2, -2, true>(float*)"
GATHER, INDEX = (_INDEX.format(each) for each in ("Select", "Func"))


def test_gathers_and_scatters_that_take_most_come_first() -> None:
    """Messages of a graph network, edge by edge. The gathers of an embedding take little."""
    work = kernels(*[GATHER, INDEX] * 3, us=900.0) + kernels(*[programs.sgemm()] * 6, us=300.0)
    step, account = step_of(work)
    grids = known(1, 0.9, "grid-too-small")
    found = diagnose_program(step, account, grids)
    first = found.findings[0]
    assert first.rule == "gather-scatter"
    assert of_rule(found, "grid-too-small") is None
    assert "indexFuncLargeIndex (38 %)" in first.summary
    assert "CSR" in first.advice[0]
    assert any("Sort the index" in each for each in first.advice)
    # a sparse product also multiplies by the weights of edges, and reads the rows, which takes a fifth
    weighted = kernels(*[GATHER, programs.MUL, INDEX, programs.MUL] * 3, us=900.0)
    found = diagnose_program(*step_of(weighted))
    assert found.findings[0].ceiling_us == pytest.approx(3 * (0.8 + 1 + 1) * 900.0, rel=0.001)
    few = kernels(GATHER, us=900.0) + kernels(*[programs.sgemm()] * 12, us=300.0)
    assert of_rule(diagnose_program(*step_of(few)), "gather-scatter") is None


@pytest.mark.parametrize("copies", [1, 4])
def test_a_kernel_that_takes_a_third_is_named(copies: int) -> None:
    names = ["mine(float*)", *[f"other_{at}(float*)" for at in range(copies)]]
    found = diagnose_program(*step_of(kernels(*names), grid=600))
    message = [
        each for each in found.notes if each.startswith("mine takes ") and "(grid 600" in each
    ]
    assert bool(message) == (copies == 1)


def test_jax_outside_of_jit_is_called_so() -> None:
    for number, eager in (("", True), ("_7", False)):
        work = [
            (f"loop_{word}_fusion{number}", 4.0, 20.0, "host late")
            for word in ("add", "tanh", "sub")
        ] * 20
        first = diagnose_program(*step_of(work)).findings[0]
        assert first.rule == "launch-bound"
        assert first.title.startswith("JAX launches operator by operator") == eager


def test_a_setting_goes_before_a_rewrite_of_like_gain() -> None:
    for part, first in ((0.9, "setting"), (0.7, "rewrite")):
        rewrite = StepFinding(
            rule="rewrite", title="", summary="", confidence="high", ceiling_us=10.0
        )
        setting = msgspec.structs.replace(
            rewrite, rule="setting", ceiling_us=10.0 * part, switch="tf32"
        )
        assert ordered([rewrite, setting])[0].rule == first
        waits = msgspec.structs.replace(
            rewrite, rule="small", ceiling_us=1.0, before=("rewrite", "setting")
        )
        assert ordered([rewrite, setting, waits])[0].rule == "small"


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({}, "gathers"),
        ({"ceiling_us": 7.0}, "products"),  # saves clearly less
        ({"frees_us": 12.0}, "products"),  # saves what it frees
        ({"frees_us": 70.0, "confidence": "low"}, "products"),
        ({"measured_us": 9.0}, "products"),
    ],
)
def test_where_another_limit_makes_gains_alike_what_frees_more_time_goes_first(
    changes: dict[str, float | str], first: str
) -> None:
    setting = StepFinding(
        rule="products", title="", summary="", confidence="high", ceiling_us=10.0, frees_us=11.0, switch="tf32"
    )  # fmt: skip
    gathers = msgspec.structs.replace(
        setting, rule="gathers", confidence="medium", frees_us=70.0, switch=""
    )
    found = ordered([setting, msgspec.structs.replace(gathers, **changes)])
    assert found[0].rule == first


# ---- the engine ----------------------------------------------------------------------------------


def known(
    shape: int, saved: float, bottleneck: str = "tail-effect"
) -> dict[int, tuple[Profile, Diagnosis]]:
    finding = Finding(
        bottleneck,
        "The last wave is small.",
        "high",
        (),
        1 / (1 - saved),
        ("By hand.",),
        ("Do it.",),
    )
    profile = cases.build({"metrics": {"fma_pipe_active": None, "dram_utilization": None}})
    return {shape: (profile, Diagnosis((finding,)))}


def test_a_kernel_verdict_counts_by_its_share() -> None:
    step, account = step_of(kernels("big(float*)", us=900.0) + kernels("small(float*)", us=100.0))
    found = diagnose_program(step, account, known(1, 0.5))
    assert found.findings[0].ceiling_us == pytest.approx(50.0)
    assert found.findings[0].title == "Tail effect in small"
    assert not diagnose_program(step, account, known(1, 0.2)).findings


@pytest.mark.parametrize(("low", "shown"), [(2.9, True), (1.0, False)])
def test_a_kernels_other_cause_that_surely_gains_more_is_named(low: float, shown: bool) -> None:
    step, account = step_of(kernels("small(float*)", us=100.0))
    ((profile, verdict),) = known(0, 0.8).values()
    (first,) = verdict.findings
    other = replace(first, bottleneck="local-memory-traffic", speedup=4.0, interval=(low, 41.0))
    verdict = Diagnosis((replace(first, interval=(1.0, 7.6)), other))
    (found,) = diagnose_program(step, account, {0: (profile, verdict)}).findings
    assert found.rule == "tail-effect"
    says = 'Its report also says "Local-memory traffic", 2.9–41×.'
    assert found.summary.endswith(says) == shown


def test_a_kernel_verdict_of_products_gives_way() -> None:
    step, account = step_of(kernels(*[programs.sgemm()] * 4))
    found = diagnose_program(step, account, known(0, 0.1, "fp32-pipe"))
    assert named(found) == ["fp32-matmul"]
    left = [each for each in found.considered if each.bottleneck == "fp32-pipe"]
    assert "FP32 matrix products" in left[0].reason


def test_a_kernel_at_its_roof_has_nothing_to_gain() -> None:
    step, account = step_of(kernels("mine(float*)"))
    profile = cases.build(cases.read("dram-bandwidth"))
    for good, speedup, weight, message in (
        (True, 1.0, 0.0, "mine is at its roof"),
        (False, None, 0.0, "mine is near its roof"),
        (False, None, 0.2, ""),
    ):
        verdict = Finding("dram-bandwidth", "Busy.", "medium", (), speedup, (), (), good=good)
        verdict = replace(verdict, weight=weight)
        found = diagnose_program(step, account, {0: (profile, Diagnosis((verdict,)))}).findings
        assert [each.title for each in found] == [message][: bool(message)]
        assert all(each.good and "Device memory moves" in each.summary for each in found)


def test_only_the_author_of_a_librarys_kernel_changes_it() -> None:
    for kernel, bottleneck, metric, reported in (
        ("mine(float*)", "barrier-imbalance", "duration", True),
        ("void cub::DeviceRadixSort<int>(int*)", "barrier-imbalance", "duration", False),
        (programs.TANH, "grid-too-small", "waves", True),
        ("mine(float*)", "launch-overhead", "block_rate", True),
        (programs.TANH, "launch-overhead", "block_rate", False),
        ("void getrf_pivot<float, getrf_params_<float> >(int)", "grid-too-small", "waves", False),
    ):
        step, account = step_of(kernels(kernel))
        ((profile, verdict),) = known(0, 0.5, bottleneck).values()
        fact = Evidence(metric, "", 1.0, "", "")
        finding = replace(verdict.primary, evidence=(fact,))
        found = diagnose_program(step, account, {0: (profile, Diagnosis((finding,)))})
        assert named(found) == [bottleneck] * reported
        shown = for_caller(Diagnosis((finding,)), step.trace.shapes[0]).primary
        assert (shown.speedup, shown.weight) == ((2.0, 0.0) if reported else (None, 0.5))


def test_products_that_wait_for_something_else_have_no_gain() -> None:
    """Counters tell a product of a few columns, and what memory moves stays."""
    step, account = step_of(kernels(*[programs.sgemm()] * 4))
    gains = []
    for fma, dram in ((0.8, 0.05), (0.8, 0.5), (0.3, 0.05)):
        profile = cases.build({"metrics": {"fma_pipe_active": fma, "dram_utilization": dram}})
        found = diagnose_program(step, account, {0: (profile, known(0, 0.0)[0][1])})
        finding = of_rule(found, "fp32-matmul")
        gains.append(finding.ceiling_us / account.wall_us if finding else 0.0)
    assert gains == pytest.approx([7 / 8, 0.5, 0.0])


def test_a_kernel_gives_way_to_a_finding_that_does_without_it() -> None:
    step, account = step_of(kernels(*[programs.TO_LAYOUT] * 4, programs.sgemm()))
    found = diagnose_program(step, account, known(0, 0.9, "grid-too-small"))
    assert "grid-too-small" not in named(found)


def test_what_hides_behind_copies_is_no_further_gain() -> None:
    """An upload longer than all kernels bounds the step, however few kernels are left."""
    copies, chain = "serial-copies", "unfused-chain"
    for size, shown in ((80_000_000, [copies]), (20_000_000, [copies, chain])):
        machine = programs.Machine("tiles.py")
        for _ in range(9):
            machine.copy("HtoD", size)
            for name in [programs.ADD, programs.MUL, programs.TANH] * 6:
                machine.launch(name, 60.0)
            machine.copy("DtoH", 20_000_000)
        step = find_step(machine.trace())
        found = diagnose_program(step, account_of(step))
        assert sorted(named(found)) == shown


POOL = (
    programs.ADD, programs.MUL, programs.TANH, programs.SOFTMAX, programs.SUM, programs.MEAN, programs.SQRT,
    programs.sgemm(), programs.BF16_PRODUCT, programs.ADDCDIV, programs.ADDCMUL, programs.TO_LAYOUT, programs.ALL_REDUCE, "mine(float*)",
)  # fmt: skip
WORK = st.lists(
    st.tuples(
        st.sampled_from(POOL),
        st.floats(0.5, 500.0),
        st.sampled_from((0.0, 0.0, 1.0, 10.0, 400.0)),
        st.sampled_from(("host late", "sync", "copy", "allocation", "between", "unknown")),
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None, max_examples=60)
@given(WORK, st.integers(1, 600), st.floats(0.0, 0.9))
def test_no_gain_is_above_the_step(
    work: list[tuple[str, float, float, str]], grid: int, saved: float
) -> None:
    step, account = step_of(work, grid=grid)
    found = diagnose_program(step, account, known(0, saved))
    most = 0.0
    for finding in found.findings:
        assert finding.ceiling_us <= account.wall_us + 1e-6
        assert finding.ceiling_us >= WORTH.value * account.wall_us * 0.99
        assert len(set(finding.ops)) == len(finding.ops)
        assert len(set(finding.gaps)) == len(finding.gaps)
        assert all(fact.holds for fact in finding.evidence)
        assert finding.arithmetic
        assert finding.advice
        if finding.expected_us is not None:
            assert finding is found.findings[0]
            assert finding.confidence != "low"
            low, likely, high = finding.expected_us
            assert 0 < low <= likely <= high <= account.wall_us
        most = max(most, finding.ceiling_us)
    assert most - 1e-6 <= found.together_us <= account.wall_us + 1e-6
    plain = [each for each in found.findings if not each.switch and not each.before]
    order = [each.ceiling_us * SURE[each.confidence] for each in plain]
    assert order == sorted(order, reverse=True)
    asked = {each.rule for each in found.findings} | {each.bottleneck for each in found.considered}
    assert set(step_rules()) <= asked


def test_what_repeats_in_a_queue() -> None:
    keys = [7, 1, 2, 1, 2, 1, 2, 1, 9, None, None, None, 3, 3, 3]
    assert [*_patterns.repeats(keys, 4, 3)] == [(1, 8, 2), (12, 15, 1)]
    assert [*_patterns.repeats(keys, 1, 3)] == [(12, 15, 1)]


def test_what_launches_take_as_one() -> None:
    work = kernels(programs.ADD, programs.MUL) * 2
    s = StepFacts(*step_of(work, device=replace(programs.H200, sm_count=132), grids=[33, 66] * 2))
    # 48.8 us of 50 move bytes; the launch that does all starts once
    assert s.moving(range(4), 0.5) == pytest.approx(1.2 + 0.5 * 4 * 48.8)
    # the blocks of two passes need 75 us of all SMs, and each pass has two launches in turn
    assert s.alongside(range(4), period=2) == pytest.approx(100.0)
    assert s.alongside(range(4)) == pytest.approx(75.0)
    merged = s.merged([(0, 1), (2, 3)], [60.0, 70.0])
    assert s.left(merged, range(4)) == pytest.approx(130.0)
