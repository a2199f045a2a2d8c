"""Diagnoses of programs' steps made by hand: the whole trace is the step."""

from __future__ import annotations

from program_traces import Machine

from ncu_toolkit.base.model.profile import Advice, Evidence, NoFinding
from ncu_toolkit.program.model import (
    Account,
    AccountPart,
    IdleGap,
    ProgramDiagnosis,
    Step,
    StepFinding,
    Trace,
    Window,
)
from ncu_toolkit.program.traces.classes import kernel_class


def machine(program: str = "train.py") -> Machine:
    """A host and its GPU on which every kernel is loaded already."""
    made = Machine(program)
    made.loaded = Everything()
    return made


class Everything(set[str]):
    def __contains__(self, item: object) -> bool:
        return True


def found(trace: Trace, findings: tuple[StepFinding, ...] = ()) -> ProgramDiagnosis:
    """A trace of one stream as one step, with its account and `findings`."""
    end = max(op.end for op in trace.ops)
    window = Window(trace.calls[0].start, end, 0, len(trace.ops))
    step = Step(
        trace=trace, windows=(window,) * 9, typical=4, how="repeats", description="It repeats.", spread=0.004
    )  # fmt: skip
    now, gaps = window.start, []
    for at, op in enumerate(trace.ops):
        if op.start > now:
            gaps.append(IdleGap(now, op.start, "host late", at, op.call))
        now = op.end
    parts: dict[str, AccountPart] = {}
    timed = [(_class(trace, at), op.us) for at, op in enumerate(trace.ops)]
    timed += [(("idle: host late", "the host launches late"), gap.us) for gap in gaps]
    for (key, label), us in timed:
        before = parts.get(key, AccountPart(key, label, 0.0, 0))
        parts[key] = AccountPart(key, label, before.us + us, before.count + 1)
    account = Account(
        step.wall_us,
        tuple(sorted(parts.values(), key=lambda part: -part.us)),
        tuple(gaps),
        tuple(op.us for op in trace.ops),
    )
    return ProgramDiagnosis(
        step=step,
        account=account,
        findings=findings,
        considered=(
            NoFinding("host-sync", "ruled out", "No call waits for the GPU."),
            NoFinding(
                "host-copy", "abstained", "Kinds of memory are not known.", missing=("copy",)
            ),
        ),
        together_us=sum(each.ceiling_us for each in findings),
    )


def _class(trace: Trace, at: int) -> tuple[str, str]:
    op = trace.ops[at]
    if op.kind != "kernel":
        return op.kind, {"copy": "Copies", "set": "Memory sets"}[op.kind]
    of = kernel_class(trace.shapes[op.shape])
    return of.id, of.label


def small() -> ProgramDiagnosis:
    """Two products in a range, one of them alone, a copy; half of the products would be saved, and
    all idle time."""
    program = machine()
    with program.mark("epoch"):
        program.copy("HtoD", 6_000_000, pinned=False, line="train.py:9")
        with program.mark("forward"):
            program.launch("nvjet_tst_128x256", 900.0, line="model.py:3")
            with program.mark("attention"):
                program.launch("nvjet_tst_128x256", 100.0, line="model.py:4")
            program.launch("softmax_warp_forward(float*)", 300.0, line="model.py:4")
        program.host(3000.0)
        program.launch("adam(float*)", 400.0, line="train.py:12")
    trace = program.trace()
    plain = found(trace)
    products = tuple(
        at for at, op in enumerate(trace.ops)
        if op.kind == "kernel" and trace.shapes[op.shape].kernel.startswith("nvjet")
    )  # fmt: skip
    busy = sum(plain.account.exclusive_us[at] for at in products)
    gaps = plain.account.gaps
    return found(
        trace,
        (
            StepFinding(
                rule="fp32-matmul",
                title="FP32 matrix products on CUDA cores",
                summary="2 products take 23 % of the step; none uses tensor cores.",
                confidence="high",
                ceiling_us=busy / 2,
                ops=products,
                evidence=(
                    Evidence("share", "products", 0.23, "fraction", "of the step", 0.2, ">"),
                ),
                arithmetic=("1 ms at half of its time",),
                advice=(Advice("Use TF32", 'torch.set_float32_matmul_precision("high")'),),
                where=("model.py:3", "model.py:4"),
            ),
            StepFinding(
                rule="launch-bound",
                title="The host launches late",
                summary="The GPU waits for the host.",
                confidence="medium",
                ceiling_us=sum(gap.us for gap in gaps),
                gaps=tuple(range(len(gaps))),
                advice=("Call torch.nn.functional.scaled_dot_product_attention_of_many_heads.",),
            ),
        ),
    )
