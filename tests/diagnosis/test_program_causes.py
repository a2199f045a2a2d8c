"""What is found in whole programs with a known cause, simulated, and in healthy ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import program_traces as programs
import pytest
from program_found import machine

from ncu_toolkit.base.core import units
from ncu_toolkit.base.hardware.specs import host_link
from ncu_toolkit.program.diagnosis import diagnose_program
from ncu_toolkit.program.explain.program import program_answer
from ncu_toolkit.program.model import Padding, ProgramDiagnosis, Result, StepFinding, Trace
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.files import read_trace
from ncu_toolkit.program.traces.step import find_step


def diagnosed(trace: Trace) -> ProgramDiagnosis:
    step = find_step(trace)
    return diagnose_program(step, account_of(step))


def of_rule(found: ProgramDiagnosis, rule: str) -> StepFinding | None:
    return next((each for each in found.findings if each.rule == rule), None)


def named(found: ProgramDiagnosis) -> list[str]:
    return [each.rule for each in found.findings]


def test_the_gpt_of_the_design() -> None:
    found = diagnosed(programs.gpt())
    assert found.findings[0].rule == "fp32-matmul"
    assert found.findings[0].confidence == "high"
    first = found.findings[0]
    products = sum(
        found.account.exclusive_us[at]
        for at, op in enumerate(found.step.ops)
        if op.kind == "kernel" and "gemm" in found.step.trace.shapes[op.shape].kernel
    )
    assert first.ceiling_us == pytest.approx(products * 7 / 8, rel=1e-3)
    assert {"unfused-attention", "optimizer-launches", "spelled-out"} <= set(named(found))
    attention = of_rule(found, "unfused-attention")
    assert attention is not None
    assert {"train.py:31", "model.py:29"} <= set(attention.where)
    assert found.together_us < found.account.wall_us


@pytest.mark.parametrize("make", [programs.healthy, programs.two_processes])
def test_a_healthy_program_is_left_alone(make: Callable[[], Trace]) -> None:
    found = diagnosed(make())
    promised = [each for each in found.findings if each.rule != "exposed-collectives"]
    assert not promised, [(each.rule, each.ceiling_us) for each in promised]


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (programs.launch_bound, "launch-bound"),
        (programs.synchronous, "host-sync"),
        (programs.allocating, "allocation-in-step"),
        (programs.loader, "host-copy"),
        (programs.streams, "small-ops-loop"),
        (programs.two_processes, "exposed-collectives"),
    ],
)
def test_the_cause_comes_first(make: Callable[[], Trace], rule: str) -> None:
    found = diagnosed(make())
    assert named(found)[:1] == [rule], [(f.rule, f.ceiling_us) for f in found.findings]


def test_pinned_copies_in_line() -> None:
    found = diagnosed(programs.loader(pinned=True))
    assert of_rule(found, "host-copy") is None
    assert of_rule(found, "serial-copies") is not None


def test_independent_streams_are_no_finding() -> None:
    found = diagnosed(programs.streams(together=True))
    assert of_rule(found, "small-ops-loop") is None


def test_a_rule_that_lacks_its_inputs_abstains() -> None:
    trace = msgspec.structs.replace(programs.synchronous(), lacks=("host calls",))
    outcomes = {each.bottleneck: each for each in diagnosed(trace).considered}
    for name in ("launch-bound", "host-sync", "host-work", "allocation-in-step"):
        assert outcomes[name].outcome == "abstained"
        assert outcomes[name].missing == ("host calls",)


def test_a_whole_run_is_never_sure() -> None:
    trace = programs.gpt(steps=1)
    step = find_step(trace)
    step = msgspec.structs.replace(step, how="whole")
    assert {each.confidence for each in diagnose_program(step, account_of(step)).findings} <= {
        "medium",
        "low",
    }


def loading(marked: str, copied: bool = False) -> Trace:
    """A training loop that prepares each batch on the host while the GPU waits."""
    machine = programs.Machine("slow_data.py")
    for _ in range(9):
        if marked:
            with machine.mark(marked, "operator"):
                machine.host(3000.0)
        else:
            machine.host(3000.0)
        if copied:
            machine.copy("HtoD", 1 << 20, line="slow_data.py:8")
        for i in range(10):
            machine.launch(programs.BF16_PRODUCT, 200.0, 120 + i, 384, line="slow_data.py:9")
            machine.launch(programs.ADD, 20.0, 4000, line="slow_data.py:9")
        machine.sync(line="slow_data.py:11")
    return machine.trace()


@pytest.mark.parametrize("copied", [False, True])
def test_the_host_loads_data(copied: bool) -> None:
    (finding,) = diagnosed(loading("enumerate(DataLoader)#_Iter.__next__", copied)).findings
    assert finding.rule == "host-work"
    assert finding.confidence == "high"
    assert "enumerate(DataLoader)" in finding.summary
    assert "DataLoader" in finding.advice[0]
    assert finding.switch == "loader-workers"
    assert finding.ceiling_us == pytest.approx(3000.0, rel=0.1)
    (finding,) = diagnosed(loading("", copied)).findings
    assert finding.confidence == "medium"
    assert "names the functions" in finding.advice[0]
    assert ("DataLoader" in finding.advice[-1]) == copied, "a batch that is copied was prepared"
    assert not finding.switch, "no DataLoader is seen"
    (finding,) = diagnosed(loading("aten::randn [1000, 1000]", copied)).findings
    assert finding.advice[0].startswith("aten::randn computes on the host")


def test_other_work_of_the_host_is_between_two_lines() -> None:
    made = programs.Machine("train.py")
    for _ in range(9):
        for _ in range(4):
            made.launch(programs.ADD, 400.0, line="train.py:7")
        made.item(line="train.py:9")
        made.host(5000.0)
        made.free(line="train.py:11")
    found = next(each for each in diagnosed(made.trace()).findings if each.rule == "host-work")
    assert found.where == ("train.py:9", "train.py:11"), "not where the next launch is"
    assert "between the calls at train.py:9 and train.py:11" in found.summary


XLA = "wrapped_cosine"


def test_what_xla_copies_on_the_host_before_it_copies() -> None:
    """40 MB in 6 ms are a copy of the host's, 4 MB are not, and another framework copies nothing."""
    for kernel, size, rule in (
        (XLA, 40 << 20, "host-copy"),
        (XLA, 4 << 20, "host-work"),
        (programs.ADD, 40 << 20, "host-work"),
    ):
        made = programs.Machine("fit.py")
        for _ in range(9):
            made.host(6000.0)
            made.copy("HtoD", size, line="fit.py:44")
            made.launch(kernel, 60.0, line="fit.py:44")
            made.launch(programs.sgemm(), 60.0, line="fit.py:44")
        found = diagnosed(made.trace())
        assert found.findings[0].rule == rule, (kernel, size)
    assert found.findings[0].ceiling_us > 0.8 * found.account.wall_us


@pytest.mark.parametrize(("line", "rule"), [(44, "host-copy"), (43, "host-work")])
def test_what_is_converted_at_the_line_that_copies(line: int, rule: str) -> None:
    """`templates.type_as(x)` of a tensor of the host converts it there first; a line before makes it."""
    made = programs.Machine("fit.py")
    for _ in range(9):
        made.host(6000.0, "fit.py:9 main", f"fit.py:{line} match")
        made.copy("HtoD", 8 << 20, pinned=False, line="fit.py:44")
        made.launch(programs.ADD, 60.0, line="fit.py:45")
    first = diagnosed(made.trace()).findings[0]
    assert first.rule == rule
    assert ("until the host has prepared them" in first.summary) == (line == 44)


@pytest.mark.parametrize(("passes", "least", "most"), [(1, 0.0, 0.2), (6, 0.7, 1.0)])
def test_a_loop_of_jax_that_reads_back_becomes_one_launch(
    passes: int, least: float, most: float
) -> None:
    """Once it is in jax.jit; a value that is read once in a step leaves the launches as they are."""
    made = programs.Machine("retrieve.py")
    for _ in range(9):
        for i in range(24):
            made.launch(f"wrapped_cosine_{i % 4}", 10.0, 100 + i)
            made.host(90.0)
            if (i + 1) % (24 // passes) == 0:
                made.item()
    found = diagnosed(made.trace())
    finding = of_rule(found, "host-sync")
    saved = finding.ceiling_us / found.account.wall_us if finding else 0.0
    assert least <= saved <= most


def test_a_step_of_one_small_launch_has_the_kernels_cause() -> None:
    made = programs.Machine("walk.py")
    for _ in range(9):
        made.launch("walk(float*)", 900.0, 4, line="walk.py:5")
    (finding,) = diagnosed(made.trace()).findings
    assert (finding.rule, finding.title) == ("grid-too-small", "Grid too small in walk")
    assert finding.advice[0].startswith("Give each result to a block"), "few threads in all"
    assert finding.ceiling_us == pytest.approx(900 * (1 - 4 / 132), rel=0.05)


def test_the_host_would_be_ahead_without_its_waits() -> None:
    """Late launches after a wait are the wait's, if the host waits for longer than the GPU idles."""
    for us, covered in ((200.0, True), (6.0, False)):
        made = programs.Machine("iterate.py")
        for _ in range(9):
            for i in range(4):
                made.launch(f"sweep_{i}(float*)", us if i == 3 else 6.0)
                made.host(6.0)
            made.item()
        found = diagnosed(made.trace())
        finding = of_rule(found, "host-sync")
        assert finding is not None
        assert "as launches come late" in finding.summary
        assert (of_rule(found, "launch-bound") is None) == covered
        assert found.together_us <= found.account.wall_us


def _fitted(others: int, host_us: float, update: Sequence[str]) -> ProgramDiagnosis:
    """A step of layers, each launched after so long, and an update of 20 parameters by hand."""
    made = programs.Machine("fit.py")
    for _ in range(5):
        for i in range(others):
            made.launch(f"layer_{i % 8}(float*)", 3.0, 600, host_us=host_us)
        for parameter in range(20):
            for word in update:
                made.launch(word, 3.0, 200 + parameter, host_us=25.0)
    return diagnosed(made.trace())


def test_late_launches_belong_to_what_would_merge_them() -> None:
    """An Adam by hand in many launches, with a few others: the gaps between its launches are its own."""
    words = [programs.MUL, programs.MUL, programs.ADD, programs.SQRT, programs.ADD, programs.DIV]
    for others, first in ((8, "optimizer-launches"), (400, "launch-bound")):
        found = _fitted(others, 25.0, (*words[:3], programs.ADDCMUL, *words[3:]))
        assert found.findings[0].rule == first, named(found)
        assert found.together_us <= found.account.wall_us
        if others == 8:
            assert found.findings[0].ceiling_us > 0.7 * found.account.wall_us


def test_most_late_launches_belong_to_what_launches_them() -> None:
    """An optimizer with most of the launches goes first, though others come later each and cost more time."""
    words = [programs.MUL, programs.ADD, programs.ADDCMUL, programs.SQRT, programs.ADD, programs.DIV]  # fmt: skip
    for others, first in ((90, "optimizer-launches"), (200, "launch-bound")):
        found = _fitted(others, 45.0, words)
        assert found.findings[0].rule == first, named(found)
        update = of_rule(found, "optimizer-launches")
        late = of_rule(found, "launch-bound")
        assert late is not None
        if update is not None:
            assert update.ceiling_us < late.ceiling_us / 2


def test_copies_of_a_loop_over_parameters_go_with_it() -> None:
    """An average that is written back by a copy: one launch takes the place of the copies too."""
    made = programs.Machine("fit.py")
    for _ in range(6):
        made.launch("begin(float*)", 3.0, 600, host_us=25.0)
        for parameter in range(60):
            for word in (programs.MUL, programs.MUL, programs.ADD):
                made.launch(word, 3.0, 20 + parameter * parameter % 23, host_us=25.0)
            made.host(30.0)
            made.copy("DtoD", 4096)
    made.sync()
    found = diagnosed(made.trace())
    assert found.findings[0].rule == "optimizer-launches", named(found)
    assert found.findings[0].ceiling_us > 0.9 * found.account.wall_us


@pytest.mark.parametrize(
    ("before", "after", "index"),
    [
        (
            ("at_cuda_detail::cub::detail::reduce::DeviceReduceKernel<int>(int*)",),
            ("at_cuda_detail::cub::DeviceCompactInitKernel<int>(int*)", "at_cuda_detail::cub::DeviceSelectSweepKernel<int>(int*)"),
            programs.ADD.replace("CUDAFunctor_add", "index_kernel"),
        ),
        (("cupy_bsum_shfl", "cupy_scan_naive"), ("cupy_copy__bool_bool", "cupy_scan_naive"), "cupy_getitem_mask"),
    ],
)  # fmt: skip
def test_what_counts_the_entries_of_a_mask_goes_with_the_wait(
    before: tuple[str, ...], after: tuple[str, ...], index: str
) -> None:
    saved = []
    for masked in (True, False):
        made = programs.Machine("track.py")
        for _ in range(6):
            for _ in range(20):
                made.launch(
                    programs.MUL
                    if "cub" in before[0]
                    else "cupy_multiply__float32_float32_float32",
                    3.0,
                    host_us=20.0,
                )
                for name in before if masked else ("cupy_sum",):
                    made.launch(name, 3.0, host_us=20.0)
                made.item(line="track.py:9")
                for name in (*after, index) if masked else ():
                    made.launch(name, 3.0, host_us=20.0)
        found = diagnosed(made.trace())
        finding = of_rule(found, "host-sync")
        assert finding is not None
        assert ("boolean masks takes" in finding.summary) == masked
        saved.append(finding.ceiling_us / found.account.wall_us)
        if masked:
            assert "where" in " ".join(finding.advice[:2])
            kept = {
                found.step.trace.shapes[op.shape].kernel
                for at, op in enumerate(found.step.ops)
                if op.kind == "kernel" and at not in finding.edit.drops
            }  # type: ignore[union-attr]
            assert index in kept
            assert not kept & {*before, *after}
    assert saved[0] > 0.5 > saved[1]  # fmt: skip


def test_a_transform_length_with_a_large_prime_factor_is_named() -> None:
    made = programs.Machine("ranging.py")
    for _ in range(6):
        with made.mark("aten::_fft_c2c [256, 51999]", "operator"):
            for _ in range(6):
                made.launch(
                    "multi_bluestein_fft<16u, EPT<8u>, 128u, float>",
                    120.0,
                    10_000,
                    line="ranging.py:9",
                )
        made.launch(programs.MUL, 100.0, 10_000, line="ranging.py:10")
    found = diagnosed(made.trace())
    first = found.findings[0]
    assert (first.rule, first.confidence) == ("fft-length", "high")
    assert "(51,999) has a prime factor above 127" in first.summary
    assert "next_fast_len" in first.advice[0]
    assert first.ceiling_us == pytest.approx(0.75 * 720.0, rel=0.03)
    assert first.where == ("ranging.py:9",)


def _padded(elements: int, longest: int, kept: int) -> ProgramDiagnosis:
    made = programs.Machine("tune.py")
    for _ in range(6):
        for _ in range(10):
            made.launch("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", 90.0, 5_000, line="tune.py:70")
        made.launch("flash_fwd_kernel<bf16>", 200.0, 4_000, line="tune.py:70")
        made.launch("multi_tensor_apply_kernel<AdamFunctor>", 100.0, 300, line="tune.py:74")
    mask = "attention_mask of BertModel.forward"
    seen = Padding(mask, "tune.py:70", 512, elements, longest, kept)
    return diagnosed(msgspec.structs.replace(made.trace(), padding=seen))


def test_padding_that_a_mask_shows_is_named_and_left_out() -> None:
    first = _padded(65536, 16384, 13000).findings[0]
    assert first.rule == "padding-work"
    assert first.summary.startswith(
        "80 % of the elements are padding: rows have 512 columns, of which the"
    )
    assert first.where == ("tune.py:70",)
    # products to a quarter, attention to a sixteenth, and the optimizer as it was
    assert first.ceiling_us == pytest.approx(900 * 3 / 4 + 200 * 15 / 16, rel=0.05)
    assert 'padding="longest"' in first.advice[0]
    assert not any("sort" in each for each in first.advice)


def test_rows_of_unlike_lengths_are_to_be_sorted() -> None:
    first = _padded(65536, 65536, 13000).findings[0]
    assert first.rule == "padding-work"
    assert first.advice[0].startswith("Put rows of about the same length into a batch")
    assert not any("longest" in each for each in first.advice)


@pytest.mark.parametrize(("longest", "kept"), [(65536, 65536), (65536, 45000), (64512, 60000)])
def test_batches_that_are_full_enough_have_no_padding_to_name(longest: int, kept: int) -> None:
    assert of_rule(_padded(65536, longest, kept), "padding-work") is None


def test_without_a_mask_nothing_is_said_of_padding() -> None:
    left = {each.bottleneck: each for each in diagnosed(programs.gpt()).considered}
    assert left["padding-work"].outcome == "abstained"


#: A step that calls `factorise`, which calls `distances`, and then `estimate`.
_RESULTS = (
    Result("factorise", "krige.py", 10, 20, 8, True, "", (3,)),
    Result("distances", "krige.py", 1, 8, 8, True, "", (0, 3)),
    Result("estimate", "krige.py", 22, 30, 2, False, "", (3,)),
    Result("step", "krige.py", 32, 40, 2, False),
)


def _krige(results: Sequence[Result]) -> ProgramDiagnosis:
    made = programs.Machine("krige.py")
    for _ in range(6):
        made.launch("distances(float*)", 300.0, 5_000, line="krige.py:5")
        made.launch("cholesky(float*)", 400.0, 5_000, line="krige.py:12")
        made.launch("solve(float*)", 200.0, 5_000, line="krige.py:25")
    return diagnosed(msgspec.structs.replace(made.trace(), results=tuple(results)))


def test_what_returns_the_same_again_is_to_be_computed_once() -> None:
    first = _krige(_RESULTS).findings[0]
    assert first.rule == "repeated-work"
    assert first.summary.startswith(
        "factorise returned the same arrays in each of the first 8 calls: 702 µs (78 %"
    )
    assert first.where == ("krige.py:10",)
    assert first.ceiling_us == pytest.approx(700, rel=0.05)
    assert first.advice[0].startswith("Call factorise once before the loop")


@pytest.mark.parametrize(
    "results",
    [
        [msgspec.structs.replace(each, same=True, calls=8) for each in _RESULTS],
        [msgspec.structs.replace(each, calls=2) for each in _RESULTS],
        [msgspec.structs.replace(each, same=False) for each in _RESULTS],
        [_RESULTS[3]],
    ],
    ids=["one batch again and again", "called twice", "all change", "only the step"],
)
def test_nothing_is_repeated_where_that_is_not_known(results: Sequence[Result]) -> None:
    assert of_rule(_krige(results), "repeated-work") is None


#: A frozen `encode` is called at two lines of `step`, with the same images at one of them.
_AT_LINES = (
    Result("encode", "clan.py", 10, 14, 8, True, "clan.py:20"),
    Result("self.layers", "clan.py", 12, 12, 4, False),
    Result("encode", "clan.py", 10, 14, 2, False, "clan.py:21"),
    Result("step", "clan.py", 16, 24, 2, False, "clan.py:30"),
)


def _clan(results: Sequence[Result]) -> ProgramDiagnosis:
    made = programs.Machine("clan.py")
    for _ in range(6):
        for grid in (5_000, 7_000, 3_000, 4_000):
            made.launch(programs.MUL, grid / 10, grid, line="clan.py:12")
    trace = made.trace()
    launches = [at for at, call in enumerate(trace.calls) if call.kind == "launch"]
    chain = {at: n // 2 % 2 for n, at in enumerate(launches)}
    return diagnosed(
        msgspec.structs.replace(
            trace,
            lines=("clan.py:12", "clan.py:30", "clan.py:20", "clan.py:21"),
            callers=((1, 2), (1, 3)),
            calls=tuple(
                msgspec.structs.replace(call, callers=chain.get(at, -1))
                for at, call in enumerate(trace.calls)
            ),
            results=tuple(results),
        )
    )


def test_a_function_may_return_the_same_at_one_of_its_lines() -> None:
    first = _clan(_AT_LINES).findings[0]
    assert first.rule == "repeated-work"
    assert first.where == ("clan.py:20",)
    assert first.advice[0].startswith("Call encode (called at clan.py:20) once before the loop")
    assert first.ceiling_us == pytest.approx(1200, rel=0.05)


def test_a_function_that_changes_at_both_lines_is_not_repeated() -> None:
    others = [msgspec.structs.replace(each, same=False) for each in _AT_LINES]
    assert of_rule(_clan(others), "repeated-work") is None


def test_an_update_written_out_is_replaced() -> None:
    """PyTorch's optimizers launch from the one line that calls step()."""
    words = [programs.MUL, programs.MUL, programs.ADD, programs.ADDCMUL, programs.SQRT, programs.ADD, programs.DIV]  # fmt: skip
    for lines, switch in ((1, "fused-optimizer"), (7, "")):
        made = programs.Machine("fit.py")
        for _ in range(5):
            made.launch("layer(float*)", 3.0, 600, host_us=25.0)
            for parameter in range(20):
                for at, word in enumerate(words):
                    line = f"fit.py:{at % lines}"
                    made.launch(word, 3.0, 200 + parameter, host_us=25.0, line=line)
        finding = of_rule(diagnosed(made.trace()), "optimizer-launches")
        assert finding is not None
        assert finding.switch == switch
        assert finding.advice[0].startswith(
            "Construct" if switch else "Write the update over the list"
        )
        assert "Adam" not in finding.summary, "what computes like Adam may be another"
        assert "about 7 for each of 20 parameters" in finding.summary


def test_copies_of_chunks_in_both_directions_are_in_line() -> None:
    for us, back, rule in (
        (380.0, 15, "serial-copies"),
        (20.0, 15, "serial-copies"),
        (20.0, 1, "host-copy"),
    ):
        made = programs.Machine("denoise")
        for _ in range(9):
            made.copy("HtoD", 15 << 20)
            made.launch("denoise(float*)", us, 16384)
            made.copy("DtoH", back << 20)
        found = diagnosed(made.trace())
        first = found.findings[0]
        assert first.rule == rule
        if rule == "serial-copies":  # a fifth longer while the link copies the other way
            assert first.edit is not None
            assert [*first.edit.keeps.values()] == pytest.approx([1.2, 1.2])
            assert first.arithmetic[0].startswith("Copies both ways at once take ")


def test_code_that_is_compiled_again_and_again() -> None:
    """What loads code in each step compiles; what loads it in the first steps alone, as libraries do, does not."""
    for many, again in ((12, True), (3, False)):
        made = programs.Machine("ragged.py")
        for step in range(12):
            with made.mark(f"XlaPass:#name=fusion,module=jit_fit,program_id={step}#"):
                made.host(20_000.0)
            if step < many:
                made._call("load", "cuModuleLoadData", 100.0, "ragged.py:9")
            for i in range(6):
                made.launch(XLA, 60.0 + 5 * i, 100 + i, line="ragged.py:9")
        found = next(each for each in diagnosed(made.trace()).findings if each.rule == "host-work")
        assert (found.title == "Code is compiled again and again") == again
        assert ("compiles fit" in found.summary) == again
        assert any("pad the batches" in each for each in found.advice) == again


def test_a_number_that_is_read_back_is_a_wait_and_no_copy() -> None:
    for size, rule in ((4, "host-sync"), (64 << 20, "host-copy")):
        made = programs.Machine("solve.py")
        for _ in range(12):
            for _ in range(5):
                made.launch("sweep(float*)", 30.0, line="solve.py:8")
                made.copy("DtoH", size, pinned=False, line="solve.py:9")
        found = diagnosed(made.trace())
        assert named(found)[0] == rule
        assert rule == "host-copy" or of_rule(found, "host-copy") is None
        assert ("the wait costs, not the bytes" in found.findings[0].summary) == (size == 4)


# ---- particular causes before "launch-bound" -------------------------------------------------------

#: What an item's pass launches, of its own size.
PASS = (programs.ADD, programs.MUL, programs.TANH, programs.ADD, programs.MUL)


def launching(steps: int, work: Callable[[programs.Machine], None]) -> Trace:
    made = programs.Machine("fit.py")
    for _ in range(steps):
        made.launch("begin(float*)", 3.0, 600, host_us=25.0)
        work(made)
    made.sync()
    return made.trace()


def average(made: programs.Machine) -> None:
    """An EMA of parameters, one after another."""
    for size in range(60):
        for word in (programs.MUL, programs.ADD):
            made.launch(word, 3.0, 20 + size % 9, host_us=25.0, line="fit.py:9")


def copies(made: programs.Machine) -> None:
    """The same with a copy of each parameter: these copies are of no other loop."""
    for size in range(60):
        made.copy("DtoD", 1 << 24, line="fit.py:9")
        for word in (programs.MUL, programs.ADD):
            made.launch(word, 3.0, 20 + size * size % 23, host_us=25.0, line="fit.py:9")


def crops(made: programs.Machine) -> None:
    """Pictures cut out and resized one by one: no update of parameters."""
    for size in range(96):
        made.launch("upsample_bilinear2d_out_frame(float*)", 3.0, 4 + size % 9, host_us=25.0, line="fit.py:9")  # fmt: skip


def items(made: programs.Machine) -> None:
    for item in range(40):
        for word in PASS:
            made.launch(word, 3.0, 4 + item * item % 23, host_us=25.0, line="fit.py:9")


def layers(made: programs.Machine) -> None:
    """Equal layers of a network: they are no items."""
    for _ in range(24):
        for word in PASS:
            made.launch(word, 3.0, 20, host_us=25.0, line="model.py:9")
        made.launch(programs.BF16_PRODUCT, 6.0, 20, host_us=25.0, line="model.py:9")


def pieces(made: programs.Machine) -> None:
    for _ in range(200):
        made.copy("HtoD", 2048, line="fit.py:9")
        made.host(20.0)


def slots(made: programs.Machine) -> None:
    for _ in range(200):
        made.copy("DtoD", 2048, line="fit.py:9")
        made.host(20.0)


def reading(made: programs.Machine) -> None:
    for _ in range(30):
        for size in range(7):
            made.launch(f"sweep_{size}(float*)", 3.0, 20, host_us=12.0)
        made.item(line="fit.py:9")


def batches(made: programs.Machine) -> None:
    """Batches are made in the process. A CUDA graph would save more, since the host could then make the
    next batch while the GPU computes, but the GPU is idle for longer during the batches."""
    with made.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        made.host(4000.0)
    for size in range(200):
        made.launch(programs.BF16_PRODUCT, 24.0, 100 + size % 40, host_us=25.0, line="fit.py:7")
    average(made)


@pytest.mark.parametrize(
    ("work", "rule", "says"),
    [
        (batches, "host-work", "num_workers=2"),
        (average, "optimizer-launches", "torch._foreach_lerp_"),
        (copies, "optimizer-launches", "torch._foreach_lerp_"),
        (items, "small-ops-loop", "one after another in one tensor"),
        (crops, "small-ops-loop", ""),
        (layers, "launch-bound", "torch.compile"),
        (pieces, "host-copy", "pinned buffer"),
        (slots, "host-copy", "takes a list of their places"),
        (reading, "host-sync", ""),
    ],
)
def test_a_particular_cause_goes_before_slow_launches(
    work: Callable[[programs.Machine], None], rule: str, says: str
) -> None:
    found = diagnosed(launching(6, work))
    assert found.findings[0].rule == rule, [(f.rule, f.ceiling_us) for f in found.findings]
    assert any(says in each for each in found.findings[0].advice)
    assert found.together_us <= found.account.wall_us


def test_what_blocks_a_graph_goes_first_with_what_both_save() -> None:
    found = diagnosed(launching(6, reading))
    first, late = found.findings[:2]
    assert (first.rule, late.rule) == ("host-sync", "launch-bound")
    assert first.ceiling_us < late.ceiling_us
    assert "Fixing the late launches too saves about" in first.summary
    # alone that fix is not possible
    assert late.after == {"host-sync": pytest.approx(found.together_us)}
    assert first.expected_us is not None
    adds = units.significant(
        (found.together_us - first.expected_us[1]) / found.account.wall_us * 100, 2
    )
    title, saves, _ = program_answer(found).cards[0].then[0]
    assert (title, saves) == ("Launch-bound", f"with the waits gone, fix saves about {adds} %")


def test_one_first_pass_is_its_start() -> None:
    made = programs.Machine("once.py")
    for at in range(30):
        made.allocate(150.0)
        made.host(60.0)
        made.launch(f"kernel_{at}(float*)", 5.0)
    made.sync()
    first = diagnosed(made.trace()).findings[0]
    assert first.rule == "first-pass"
    assert "allocating or freeing memory" in first.summary
    assert not any("torch.compile" in each for each in first.advice)


def test_copies_of_a_single_pass_take_the_time_of_pinned_ones() -> None:
    """Nothing repeats, so no other step's work hides them: 0.8 of the rate of the link is left."""
    made = programs.Machine("once.py")
    for at in range(3):
        made.copy("HtoD", 256 << 20, pinned=False)
        made.launch(f"kernel_{at}(float*)", 5.0)
    made.sync()
    found = diagnosed(made.trace())
    copies = of_rule(found, "host-copy")
    assert found.step.how == "whole"
    assert copies is not None
    link = host_link(programs.H200.name, programs.H200.cc)
    assert link is not None
    took_us = sum(found.step.ops[at].us for at in copies.ops)
    took_us += sum(found.account.gaps[at].us for at in copies.gaps)
    left_us = len(copies.ops) * (256 << 20) / (0.8 * link.bandwidth) * 1e6
    assert copies.ceiling_us == pytest.approx(took_us - left_us, rel=0.01)
    assert not any("stream" in each or "step" in each for each in copies.advice)


def test_a_first_pass_idles_as_its_account_says() -> None:
    """The summary's times were another split of the same idle time than the account below it."""
    made = machine("once.py")
    for at in range(60):
        made.host(60.0 if at % 20 else 400.0)
        made.launch(f"kernel_{at // 2}(float*)", 5.0)
    made.sync()
    found = diagnosed(made.trace())
    first = found.findings[0]
    assert first.rule == "first-pass"
    parts = {part.key: part for part in found.account.parts}
    other = parts["idle: host work"]
    assert f"{units.duration(other.us)} {other.label.removeprefix('Idle: ')}" in first.summary
    # of launches that come late, the first of their kernel apart
    assert "kernels launched late" in first.summary
    assert "first launches of 2" in first.summary


SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"


@pytest.mark.parametrize(
    ("name", "rule", "says"),
    [
        ("read-back-in-each-pass.sqlite", "host-sync", "3,829 copies read a few bytes back"),
        ("dominant-gather.json.gz", "gather-scatter", "aten::index in vectorized_gather_kernel (59 %)"),
        ("cold-single-pass.sqlite", "first-pass", "choosing algorithms"),
    ],
)  # fmt: skip
def test_traces_of_others(name: str, rule: str, says: str) -> None:
    if not (SHARED / name).exists():
        pytest.skip("the folder of shared traces is not here")
    first = diagnosed(read_trace(SHARED / name)).findings[0]
    assert first.rule == rule
    assert says in first.summary


PAIRS = Path(__file__).resolve().parents[2] / "benchmarks" / "programs" / "recordings"


@pytest.mark.parametrize(
    ("name", "rule", "says"),
    [
        # 48 launches without a product for each of 72 recordings of a heart
        ("torch_beat_features", "small-ops-loop", "72 iterations of 48 launches"),
        # LAMB: 19 launches for each of 340 parameters
        ("torch_lamb_speech", "optimizer-launches", "pass over one tensor after another"),
        # every pass decides by boolean masks what the next computes
        ("torch_streamlines", "host-sync", "waits for the GPU"),
        # the long pieces of idle time are JAX's own tracing
        ("jax_hierarchical_hmc", "launch-bound", "94 % of the step"),
        # a static argument with a new value in each step compiles a jitted function again; its kernels look like operators alone
        ("jax_fabric_defects", "host-work", "compiles relax"),
        ("jax_vertex_density", "host-work", "compiles vertex_density"),
        # memory that is allocated in each step keeps it from being a CUDA graph
        ("cuda_wirechamber_multigrid", "allocation-in-step", "no CUDA graph captures code that"),
        # a kernel of Numba's has its module before its name, and is the author's to split
        ("numba_tide_harmonics", "grid-too-small", "40 blocks for 132 SMs"),
        # XLA copies a batch into pinned memory on the host first, which takes most of the step
        ("jax_milk_infrared", "host-copy", "until the host has prepared them"),
        # matrix_power in FP32, which does not follow the setting that other products show
        ("torch_weevil_spread", "repeated-work", "ShipmentNetwork.over"),
        # masks of padded batches
        ("hf_customs_codes", "padding-work", "94 % of the elements are padding"),
        ("hf_helpdesk", "padding-work", "the longest row of a batch fills 12 %"),
    ],
)
def test_loops_of_real_programs(name: str, rule: str, says: str) -> None:
    first = diagnosed(read_trace(PAIRS / f"{name}.before.ncu-trace")).findings[0]
    assert first.rule == rule
    assert says in first.summary


@pytest.mark.parametrize(
    ("name", "least"),
    [
        # all that the GPU waits for lies before launches that one batched call has not
        ("jax_gauge_calibration", 0.95),
        # kernels are tuned on the GPU while code is compiled, before it is loaded
        ("jax_vertex_density", 0.7),
        # the host converts a table at the line that copies it in each step
        ("lightning_exoplanet_spectra", 0.85),
        # a value is read back in each pass of a loop over a jitted function
        ("jax_diffraction", 0.9),
        # products that XLA compiles are of the library's type, and a function of the host waits for room in the queue
        ("jax_biogas_digester", 0.5),
    ],
)
def test_what_a_fix_closes_is_not_unexplained(name: str, least: float) -> None:
    found = diagnosed(read_trace(PAIRS / f"{name}.before.ncu-trace"))
    assert found.findings[0].ceiling_us >= least * found.account.wall_us
    assert not any(note.startswith("Idle time in none") for note in found.notes)


@pytest.mark.parametrize(
    "others",
    ["nvjet_sm90_tst_128x160_64x5_2x1_v_bz_TNT", "sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n"],
)
def test_products_of_xla_are_of_a_type_that_all_others_have(others: str) -> None:
    trace = read_trace(PAIRS / "jax_biogas_digester.before.ncu-trace")
    first = diagnosed(trace).findings[0]
    assert (first.rule, len(first.ops)) == ("fp32-matmul", 23)
    shapes = tuple(
        replace(each, kernel=others) if each.kernel == "gemm_fusion_dot_14" else each
        for each in trace.shapes
    )
    mixed = diagnosed(msgspec.structs.replace(trace, shapes=shapes)).findings[0]
    assert (mixed.rule, len(mixed.ops)) == ("fp32-matmul", 6)


def test_what_is_ruled_out_agrees_with_the_account() -> None:
    """A wait that began before the step is in the account; a steady step has no first launches."""
    found = diagnosed(read_trace(PAIRS / "cuda_nearest_points.before.ncu-trace"))
    assert any(part.key == "idle: sync" for part in found.account.parts)
    ruled = {each.bottleneck: each for each in found.considered}
    assert "No call waits" not in ruled["host-sync"].reason
    calls = next(x for x in ruled["host-sync"].evidence if x.metric == "sync_calls")
    assert calls.value
    assert calls.value >= 1
    assert not ruled["first-pass"].evidence


@pytest.mark.parametrize("name", ["torch_penguin_reid", "torch_satellite_tiles"])
def test_an_interval_that_ends_above_its_cause_says_why(name: str) -> None:
    found = diagnosed(read_trace(PAIRS / f"{name}.before.ncu-trace"))
    first = found.findings[0]
    assert first.expected_us is not None
    took_us = sum(found.account.exclusive_us[at] for at in first.ops)
    assert first.expected_us[1] < took_us < first.expected_us[2]
    assert "The interval ends above the time of its cause, since" in first.summary
