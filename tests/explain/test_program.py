"""The answer for a program's step: its first screen, what it adds up to, and what it says of traces
that lack something."""

from __future__ import annotations

import itertools
import re

import msgspec
import program_traces
import pytest
import recorded

from ncu_toolkit.base.document.views import Answer
from ncu_toolkit.base.model import Diagnosis, Finding, Launch, NoFinding
from ncu_toolkit.base.model.profile import Advice
from ncu_toolkit.base.render import html, markdown
from ncu_toolkit.base.render.text import plain_text
from ncu_toolkit.kernel.diagnosis import achieved
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.program.explain import program as explain
from ncu_toolkit.program.model import (
    Account,
    AccountPart,
    Call,
    IdleGap,
    Lack,
    Op,
    ProgramDiagnosis,
    Step,
    StepFinding,
    Trace,
    Window,
)
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.choice import LaunchGroup

#: Kernels of the step with their times in microseconds; then 2.8 ms of idle time, 46.6 ms in all.
KERNELS = {
    "void sgemm_128x128<float>(float const*, float*)": 31_200,
    "gelu": 6_500,
    "softmax": 3_300,
    "adam": 2_800,
}
PARTS = (
    AccountPart("product", "products", 31_200.0, 46),
    AccountPart("elementwise", "elementwise", 6_500.0, 500),
    AccountPart("softmax", "softmax", 3_300.0, 21),
    AccountPart("optimizer", "optimizer", 2_800.0, 240),
    AccountPart("idle: host late", "host launches late", 2_000.0, 9),
    AccountPart("idle: sync", "waits for a synchronisation", 800.0, 2),
)
FP32 = StepFinding(
    rule="fp32-matmul",
    title="FP32 matrix products on CUDA cores",
    summary="46 products take 67 % of the step; none uses tensor cores.",
    confidence="high",
    ceiling_us=27_000.0,
    ops=(0,),
    advice=(Advice("Allow TF32", 'torch.set_float32_matmul_precision("high")'), "Or use BF16."),
    where=("model.py:21", "model.py:40"),
)
SPELLED = StepFinding(
    rule="spelled-out",
    title="Unfused attention, 3 × 7 launches",
    summary="Seven launches do what one fused kernel does.",
    confidence="medium",
    ceiling_us=3_100.0,
    ops=(2,),
    where=("model.py:30",),
)
OPTIMIZER = StepFinding(
    rule="optimizer-launches",
    title="Optimizer of 62 × 12 launches",
    summary="Each parameter is updated by its own launches.",
    confidence="low",
    ceiling_us=2_400.0,
    ops=(3,),
    where=("train.py:33",),
)


def gpt(lacks: tuple[Lack, ...] = (), **changes: object) -> ProgramDiagnosis:
    """The step of section 5 of the design, by hand."""
    ops, start = [], 0
    for at, us in enumerate(KERNELS.values()):
        ops.append(Op(start, start + us * 1000, "kernel", shape=at))
        start += us * 1000
    trace = Trace(
        source="PyTorch profiler",
        program="train.py",
        devices=(program_traces.H200,),
        shapes=tuple(Launch(name, name.split("<")[0].removeprefix("void "), (528, 1, 1), (256, 1, 1)) for name in KERNELS),
        ops=tuple(ops),
        lacks=lacks,
    )  # fmt: skip
    step = Step(
        trace=trace,
        windows=tuple(Window(at * 46_600_000, (at + 1) * 46_600_000, 0, 4) for at in range(9)),
        typical=0,
        how="repeats",
        description="The launches repeat: 9 steps are alike.",
        spread=0.004,
    )
    account = Account(
        46_600.0,
        PARTS,
        (IdleGap(43_800_000, 46_600_000, "host late"),),
        tuple(float(us) for us in KERNELS.values()),
    )
    found = ProgramDiagnosis(
        step=step, account=account, findings=(FP32, SPELLED, OPTIMIZER), together_us=31_600.0
    )
    return msgspec.structs.replace(found, **changes)


def healthy(**changes: object) -> ProgramDiagnosis:
    """The same step without findings, and without its idle time."""
    account = msgspec.structs.replace(gpt().account, gaps=())
    return gpt(findings=(), together_us=0.0, **{"account": account, **changes})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch is a group."""

    def groups(step: Step, account: Account) -> tuple[LaunchGroup, ...]:
        return tuple(
            LaunchGroup(op.shape, (at,), account.exclusive_us[at]) for at, op in enumerate(step.ops)
        )

    monkeypatch.setattr(explain, "groups", groups)


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


def shown(answer: Answer, width: int = 100) -> str:
    return plain(plain_text(answer, width))


def test_the_first_screen_answers() -> None:
    """24 lines of 100 columns: the first cause with its saving, the next two, where time goes."""
    screen = shown(explain.program_answer(gpt(), next_command="ncu-toolkit analyze x")).split("\n")
    assert max(map(len, screen)) <= 100
    head, text = " ".join(screen[:2]), "\n".join(screen[:24])
    assert head == (
        "train.py · step of 46.6 ms (mean of 9 steps, 80 % within ±0.4 %) · NVIDIA H200 · 4 launches, GPU busy 94 %"
    )
    assert screen[3].startswith("FP32 matrix products on CUDA cores  ")
    assert screen[3].endswith("  fix saves about 27 of 46.6 ms · clear cause")
    assert "1. Allow TF32" in text
    assert "where   model.py:21" in text
    assert re.search(
        r"also    Unfused attention, 3 × 7 launches +fix alone saves about 3.1 ms +model", text
    )
    assert re.search(
        r"        Optimizer of 62 × 12 launches  +fix alone saves about 2.4 ms +train.py:33", text
    )
    assert re.search(
        r"        fixing all three +leaves about 15 of 46.6 ms +the fixes overlap", text
    )
    assert "where the step goes" in text
    assert re.search(r"products +█+▍? +67 %", text)


def test_idle_time_is_one_bar_and_its_causes_are_reported() -> None:
    first = explain.program_answer(gpt()).cards[0]
    idle = [bar for bar in first.bars if bar.label == "GPU idle"]
    assert [round(bar.busy * 100) for bar in idle] == [6]
    assert plain(first.basis) == (
        "Why the GPU idles (% of the step): host launches late 4.3 %, waits for a synchronisation 1.7 %."
    )


def test_the_kernels_of_the_step_follow() -> None:
    answer = explain.program_answer(gpt(), top=2)
    (table,) = answer.tables
    assert [row[0].text for row in table.rows] == ["sgemm_128x128", "gelu"]
    labels = [column.key for column in table.columns]
    first = dict(zip(labels, (plain(cell.text) for cell in table.rows[0]), strict=True))
    assert (first["grid"], first["time"], first["share"]) == ("528", "31.2 ms", "67 %")
    assert plain(table.note) == "2 more kernels take 6.10 ms; --top 4 shows all."
    assert len(answer.cards) == 2, "--top bounds the cards too"
    quiet = explain.program_answer(gpt(), top=3, flags=False).tables[0].note
    assert plain(quiet) == "1 more kernel takes 2.80 ms."


def test_a_kernel_of_several_grids_is_one_row() -> None:
    found = gpt()
    trace = found.step.trace
    shapes = tuple(
        Launch("f<float>(int)", "f", (at + 1, 1, 1), (256, 1, 1)) for at in range(len(KERNELS))
    )
    step = msgspec.structs.replace(found.step, trace=msgspec.structs.replace(trace, shapes=shapes))
    (table,) = explain.program_answer(msgspec.structs.replace(found, step=step)).tables
    ((name, grids, *_),) = table.rows
    assert (name.text, grids.text) == ("f", "4 sizes")


def test_a_report_gives_its_kernel_a_verdict() -> None:
    (profile, *_) = recorded.run_of(recorded.FOLDERS[0]).profiles
    known = {1: (profile, diagnose(profile))}
    table = explain.program_answer(gpt(), known).tables[0]
    at = [column.key for column in table.columns].index("verdict")
    none = "not profiled"
    assert [row[at].text == none for row in table.rows] == [True, False, True, True]
    assert plain(table.note) == "Kernels with 15 % of the kernel time were profiled."
    kernel = [column.key for column in explain.program_answer(gpt()).tables[0].columns]
    assert "verdict" not in kernel, "a trace alone has no verdicts"


@pytest.mark.parametrize("form", ["text", "markdown", "brief", "html"])
def test_every_writer_shows_the_same(form: str) -> None:
    answer = explain.program_answer(gpt())
    write = {
        "text": plain_text, "markdown": markdown.markdown, "brief": markdown.brief,
        "html": html.fragment,
    }[form]  # fmt: skip
    text = plain(str(write(answer)))
    for words in (
        "step of 46.6 ms",
        "fix saves about 27 of 46.6 ms",
        "clear cause",
        "where the step goes",
        "all three",
        "leaves about 15 of 46.6 ms",
        "Optimizer of 62 × 12 launches",
        "model.py",
    ):
        assert words in text, words
    assert "()" not in text


TESTED = "Following the advice for this cause made 4 of 5 short test programs faster."


@pytest.mark.parametrize("form", ["text", "markdown", "brief", "html"])
def test_the_first_cause_says_in_how_many_programs_its_advice_helped(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = {
        "text": plain_text, "markdown": markdown.markdown, "brief": markdown.brief,
        "html": html.fragment,
    }[form]  # fmt: skip
    followed = {FP32.rule: (5, 4, 119.0), SPELLED.rule: (9, 8, 2.0)}
    monkeypatch.setattr(achieved, "FOLLOWED", followed)
    text = plain(str(write(explain.program_answer(gpt()))))
    at = text.index(TESTED)
    assert text.index("use BF16.") < at < text.index("all three"), "after its advice"
    assert " of 9 short" not in text, "of the first cause alone"
    monkeypatch.setattr(achieved, "FOLLOWED", {FP32.rule: (2, 2, 119.0)})
    assert "short test programs" not in plain(str(write(explain.program_answer(gpt()))))


def test_a_record_follows_its_cause_below_another_first_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(achieved, "FOLLOWED", {OPTIMIZER.rule: (5, 4, 119.0)})
    (profile, *_) = recorded.run_of(recorded.FOLDERS[0]).profiles
    small = gpt(findings=(OPTIMIZER,), together_us=2_400.0)
    roof = Finding("tensor-pipe", "Busy.", "medium", (), None, (), (), good=True)
    first, second = explain.program_answer(small, {0: (profile, Diagnosis((roof,)))}).cards
    assert (first.tested, second.tested) == ("", TESTED)


def test_gains_of_three_kinds() -> None:
    def message(wall_us: float = 46_600.0, busy: float = 1.0, **changes: object) -> str:
        account = Account(wall_us, (), (), (busy * wall_us,))
        finding = msgspec.structs.replace(FP32, **changes)
        return plain(explain.saving(finding, gpt(account=account)))

    assert message() == "fix saves about 27 of 46.6 ms"
    assert (
        message(expected_us=(20e3, 26e3, 30e3))
        == "fix saves about 26 of 46.6 ms (80 % interval 20 to 30 ms)"
    )
    assert (
        message(expected_us=(20e3, 40e3, 46.6e3))
        == "fix saves about 40 of 46.6 ms (80 % interval 20 ms or more)"
    )
    assert message(measured_us=28_700.0) == "measured 46.6 → 17.9 ms"
    assert message(measured_us=0.0) == "no gain when tried"
    assert message(good=True) == "nothing to gain"
    assert message(974_000.0, ceiling_us=128_400.0) == "fix saves about 128 of 974 ms"
    assert message(2_500_000.0, ceiling_us=120_000.0) == "fix saves about 0.12 of 2.50 s"
    assert message(12_900.0, ceiling_us=12_830.0) == "fix saves about 12.8 of 12.9 ms"
    assert message(812.0, ceiling_us=3.26) == "fix saves about 3.3 of 812 µs"
    assert message(busy=0.4) == "fix saves about 58 % of the step"
    assert message(busy=0.4, ceiling_us=46.5e3) == "fix saves about 99.8 % of the step"
    likely = (20e3, 26e3, 30e3)
    assert (
        message(busy=0.4, expected_us=likely)
        == "fix saves about 56 % of the step (80 % interval 43 to 64 %)"
    )
    likely = (20e3, 40e3, 46.6e3)
    assert (
        message(busy=0.4, expected_us=likely)
        == "fix saves about 86 % of the step (80 % interval 43 % or more)"
    )
    assert message(busy=0.4, measured_us=28_700.0) == "fix saves 62 % of the step, measured"


def test_a_healthy_step_says_so() -> None:
    ruled = (
        NoFinding("host-sync", "ruled out", "No call waits."),
        NoFinding("launch-bound", "ruled out", "The GPU is busy."),
        NoFinding("host-copy", "abstained", "There is no copy."),
    )
    text = shown(explain.program_answer(healthy(considered=ruled)))
    assert "Nothing stands out" in text
    assert "No known cause of lost time was found." in text
    assert "saves" not in text
    assert "also" not in text
    bare = explain.program_answer(healthy())
    assert bare.cards[0].summary == "No known cause of lost time was found."
    good = msgspec.structs.replace(
        FP32, good=True, title="Products on tensor cores", summary="They are."
    )
    card = explain.program_answer(gpt(findings=(good,))).cards[0]
    assert (card.state, card.gain) == ("roof", "nothing to gain")
    assert card.summary == "They are."


def test_a_step_without_a_finding_is_not_healthy_while_the_gpu_idles() -> None:
    account = gpt().account
    gap = IdleGap(43_800_000, 46_600_000, "host late", before=3)
    card = explain.program_answer(
        healthy(account=msgspec.structs.replace(account, gaps=(gap,)))
    ).cards[0]
    assert plain(card.title) == "GPU idle for 6.0 % of the step"
    assert plain(card.gain) == "up to 2.8 of 46.6 ms"
    assert plain(card.summary).startswith(
        "The longest time without work is 2.80 ms, until adam starts."
    )
    assert "Nothing stands out" not in shown(explain.program_answer(gpt(findings=())))
    why = "For 6 % of the step the GPU is idle: the host launches late."
    text = shown(explain.program_answer(gpt(findings=(), notes=(why,))))
    assert text.count(why) == 1
    assert shown(explain.program_answer(gpt(notes=(why,)))).count(why) == 1


def test_lines_have_their_share_of_the_step() -> None:
    found = gpt()
    calls = (Call(0, 10, "launch", 0, line=0), Call(10, 20, "launch", 0, line=-1))
    ops = tuple(
        msgspec.structs.replace(op, call=min(at, 1)) for at, op in enumerate(found.step.trace.ops)
    )
    trace = msgspec.structs.replace(
        found.step.trace, ops=ops, calls=calls, lines=("model.py:21",), names=("cudaLaunchKernel",)
    )
    found = msgspec.structs.replace(found, step=msgspec.structs.replace(found.step, trace=trace))
    first, second = explain.program_answer(found).cards[0].where
    assert (first.place, plain(first.cost)) == ("model.py:21", "67 % of the step")
    assert (second.place, second.cost) == ("model.py:40", "")
    assert found.step.trace.ops[3].call == 1
    assert [each.line for each in explain.step_kernels(found.step, found.account)] == [
        "model.py:21", "", "", ""
    ]  # fmt: skip


def test_words_of_a_trace_are_harmless() -> None:
    evil = "\x1b[31m<script>alert(1)</script>\u202e"
    bad = msgspec.structs.replace(
        FP32, title=evil, summary=evil, where=(f"{evil}:3", evil), advice=(evil,)
    )
    found = gpt(findings=(bad, bad), notes=(evil,))
    trace = msgspec.structs.replace(
        found.step.trace, program=evil, notes=(evil,),
        shapes=tuple(Launch(evil, evil, (1, 1, 1), (1, 1, 1)) for _ in KERNELS),
    )  # fmt: skip
    found = msgspec.structs.replace(
        found, step=msgspec.structs.replace(found.step, trace=trace, description=evil)
    )
    answer = explain.program_answer(found)
    for text in (
        plain_text(answer),
        markdown.markdown(answer),
        markdown.brief(answer),
        html.fragment(answer),
    ):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<script>" not in html.fragment(answer)


def test_what_most_of_the_step_goes_into_leads_where_findings_are_small() -> None:
    """Products at their roof, or kernels without counters, come before a finding of 5 %."""
    (profile, *_) = recorded.run_of(recorded.FOLDERS[0]).profiles
    small = gpt(findings=(OPTIMIZER,), together_us=2_400.0)
    roof = Finding("tensor-pipe", "Busy.", "medium", (), None, (), (), good=True)
    answer = explain.program_answer(small, {0: (profile, Diagnosis((roof,)))})
    first, second = answer.cards
    assert plain(first.title) == "67 % of the step is at or near a roof of the GPU"
    assert first.sureness == "unless it does unneeded work"
    assert first.then[0][0] == OPTIMIZER.title
    assert second.title == OPTIMIZER.title
    slow = Finding("tail-effect", "Uneven.", "low", (), None, (), ())
    first, _ = explain.program_answer(small, {1: (profile, Diagnosis((slow,)))}).cards
    assert plain(first.title) == "80 % of the step is in kernels that were not profiled"
    (large, *_) = explain.program_answer(gpt(), {1: (profile, Diagnosis((slow,)))}).cards
    assert large.title == FP32.title


def test_what_the_trace_lacks_is_one_sentence() -> None:
    def message(*lacks: Lack) -> str:
        return explain.lacking(gpt(lacks).step.trace)

    assert message() == message("marks", "registers") == ""
    assert message("lines") == (
        "The trace does not show which line launches a kernel; ncu-toolkit profile -- PROGRAM records it for Python."
    )
    ours = msgspec.structs.replace(gpt(("lines",)).step.trace, source="ncu-toolkit 0.1.0")
    assert explain.lacking(ours) == "", "a program in C++ has none"
    assert message("host calls", "lines", "memory kinds") == (
        "The trace does not show why the GPU idles, which line launches a kernel or whether the host's "
        "memory is pinned; ncu-toolkit profile -- PROGRAM records it for Python."
    )
    record = "No host times and no idle time: record them with ncu-toolkit profile -- PROGRAM."
    assert message("wall time", "host calls") == record
    text = shown(explain.program_answer(gpt(("wall time",))))
    assert "GPU busy" not in text
    assert "note    No host times and no idle time: record them with" in text


def test_the_headline_of_other_steps() -> None:
    def head(step: dict[str, object], **trace: object) -> str:
        found = gpt()
        changed = msgspec.structs.replace(
            found.step, trace=msgspec.structs.replace(found.step.trace, **trace), **step
        )
        return plain(explain.headline(msgspec.structs.replace(found, step=changed)))

    window = gpt().step.window
    assert head({"how": "whole", "windows": (window,)}).startswith(
        "train.py · whole run of 46.6 ms · "
    )
    assert head({"windows": (window,)}, program="").startswith("step of 46.6 ms (1 seen) · NVIDIA")
    whole = healthy()
    run = msgspec.structs.replace(whole.step, how="whole")
    text = shown(explain.program_answer(msgspec.structs.replace(whole, step=run)))
    assert "where the run goes" in text
    assert "Kernels of the run" in text
    two = (program_traces.H200, program_traces.H200)
    assert " · 2 × NVIDIA H200 · " in head({}, devices=two)
    assert " · NVIDIA H200, one of 2 · " in head({"device": 1}, devices=two)
    assert " · 4 launches" in head({}, devices=())
    long = msgspec.structs.replace(window, end=window.start + 90_000_000)
    assert "(mean of 2 steps, shortest 46.6 ms, longest 90.0 ms)" in head(
        {"windows": (window, long), "spread": 0.5}
    )


@pytest.mark.parametrize(
    ("kernel", "function", "label"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>(int)",
            "at::native::vectorized_elementwise_kernel",
            "add: vectorized_elementwise_kernel",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda(at::TensorIteratorBase&)::{lambda()#1}>(int)",
            "at::native::vectorized_elementwise_kernel",
            "tanh: vectorized_elementwise_kernel",
        ),
        ("sm90_xmma_gemm_f32f32", "sm90_xmma_gemm_f32f32", "sm90_xmma_gemm_f32f32"),
        (
            "void par_ranged2d_kernel<clover::PdV_kernel(bool, double)::{lambda(int, int)#1}>(int)",
            "par_ranged2d_kernel",
            "PdV_kernel: par_ranged2d_kernel",
        ),
        ("cutlass::Kernel<cutlass_80_simt_sgemm_128x32>(x)", "cutlass::Kernel", "cutlass_80_simt_sgemm_128x32"),
        ("ns::(anonymous namespace)::softmax<float>(float*)", "ns::(anonymous namespace)::softmax", "softmax"),
    ],
)  # fmt: skip
def test_a_generic_kernel_is_called_by_its_functor(kernel: str, function: str, label: str) -> None:
    assert explain.label_of(Launch(kernel, function, (1, 1, 1), (1, 1, 1))) == label


def test_a_kernel_of_ones_own_that_takes_most_time_is_reported_where_nothing_else_is() -> None:
    trace = program_traces.no_step()
    own = Launch("mine(float*)", "mine", (64, 1, 1), (256, 1, 1))
    trace = msgspec.structs.replace(
        trace,
        shapes=(own,),
        ops=(Op(0, 9_000_000, "kernel", 0), Op(9_000_000, 9_500_000, "kernel", 0)),
    )
    window = Window(0, 9_500_000, 0, 2)
    step = Step(trace=trace, windows=(window,), typical=0, how="whole", description="All of it.")
    found = ProgramDiagnosis(step=step, account=account_of(step), findings=())
    card = explain.program_answer(found).cards[0]
    assert plain(card.title) == "mine takes 95 % of the run"
    assert plain(card.summary).startswith("Longest: mine (95 %)")
    assert card.gain == "cause and gain not known without counters"
    assert card.do == ("Profile them with counters: ncu-toolkit profile --kernel mine -- PROGRAM",)
    (profile, *_) = recorded.run_of(recorded.FOLDERS[0]).profiles
    torch = Launch("void at::native::gather<4>(int)", "at::native::gather", (64, 1, 1), (256, 1, 1))
    slow = "Blocks are short."
    for kernel, gain in ((own, "no known cause"), (torch, "only another call avoids it")):
        finding = Finding("tail-effect", slow, "low", (), None, (), ("Change it.",))
        seen = msgspec.structs.replace(trace, shapes=(kernel,))
        part = msgspec.structs.replace(found, step=msgspec.structs.replace(step, trace=seen))
        card = explain.program_answer(part, {0: (profile, Diagnosis((finding,)))}).cards[0]
        assert (card.gain, card.summary, card.do) == (gain, slow, ("Change it.",))
    # profiled for a third of its time: the answer names the kernels that were not
    several = (own, *(Launch(name, name, (64, 1, 1), (256, 1, 1)) for name in ("mid", "nvjet_a")))
    ends = (0, 3_000_000, 6_200_000, 9_500_000)
    ops = tuple(Op(a, b, "kernel", at) for at, (a, b) in enumerate(itertools.pairwise(ends)))
    for shapes, title in (
        (several, "Nothing stands out"),
        ((*several[:2], torch), "68 % of the run is in kernels that were not profiled"),
    ):
        seen = msgspec.structs.replace(trace, shapes=shapes, ops=ops)
        part = msgspec.structs.replace(step, trace=seen, windows=(Window(0, 9_500_000, 0, 3),))
        part = ProgramDiagnosis(step=part, account=account_of(part), findings=())
        card = explain.program_answer(part, {0: (profile, Diagnosis((finding,)))}).cards[0]
        assert plain(card.title) == title
        assert title != "Nothing stands out" or plain(card.gain) == "only 32 % was profiled"
    assert "mid (34 %)" in plain(card.summary)
    assert "--kernel 'mid|at::native::gather'" in card.do[0]
    library = Launch("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn", (64, 1, 1), (256, 1, 1))
    step = msgspec.structs.replace(step, trace=msgspec.structs.replace(trace, shapes=(library,)))
    found = ProgramDiagnosis(step=step, account=account_of(step), findings=())
    assert explain.program_answer(found).cards[0].title == "Nothing stands out"


def test_the_share_of_a_line_is_of_what_the_finding_is_about() -> None:
    """A finding of idle time has no share of the GPU's time beside its lines."""
    late = msgspec.structs.replace(FP32, gaps=(0,), ops=(3,))
    first = explain.program_answer(gpt(findings=(late,))).cards[0]
    assert [line.cost for line in first.where] == ["", ""]
