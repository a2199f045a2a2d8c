"""What came of switches, in words."""

from __future__ import annotations

import msgspec

from ncu_toolkit.base.render.markdown import markdown
from ncu_toolkit.base.render.text import plain_text
from ncu_toolkit.program.explain.trial import trial_answer, tried_lines
from ncu_toolkit.program.model import ProgramTrial, Tried

TF32 = Tried(
    switches=("tf32",), title="TF32 for FP32 products and convolutions", outcome="faster",
    description="46.6 ms → 17.9 ms, 2.60× as fast.", before_us=(46600.0,) * 5, after_us=(17900.0,) * 5, p=0.008,
    results="within", compared="Results differ by at most 0.014 %: 7.086 → 7.087.", ceiling_us=27e3,
    keep=('torch.set_float32_matmul_precision("high")',),
)  # fmt: skip
BROKE = Tried(
    switches=("compile",), title="torch.compile of the model", outcome="broke",
    description="The program fails with it: exit code 1: no.",
)  # fmt: skip
OTHER = Tried(
    switches=("bf16-autocast",), title="BF16", outcome="faster", description="46.6 ms → 9 ms.", before_us=(46600.0,) * 5,
    after_us=(9000.0,) * 5, results="differ", compared="Results differ: 7.086 → 9 (21 % apart).",
)  # fmt: skip


def trial(*tried: Tried) -> ProgramTrial:
    return ProgramTrial(
        program="train.py", gpu="NVIDIA H100", word="step", before_us=(46600.0,) * 5, tried=tried
    )


def shown(*tried: Tried) -> str:
    return " ".join(plain_text(trial_answer(trial(*tried)), 120).split())


def test_the_best_is_on_the_card() -> None:
    text = shown(TF32, BROKE, OTHER)
    assert text.startswith("train.py · step of 46.6 ms · NVIDIA H100 · 5 runs per side")
    assert "measured 46.6 → 17.9 ms (2.60×)" in text
    assert 'torch.set_float32_matmul_precision("high")' in text
    assert "Products round their inputs to 10 mantissa bits" in text
    assert "compile: The program fails with it: exit code 1: no." in text
    assert "bf16-autocast: Results differ: 7.086 → 9" in text


def test_nothing_to_keep() -> None:
    assert "No setting makes it faster" in shown(BROKE)
    assert "bf16-autocast is faster, but the program prints other results." in shown(OTHER)


def test_the_table_tells_all() -> None:
    table = trial_answer(trial(TF32, BROKE, OTHER)).tables[0]
    assert [row[0].text for row in table.rows] == ["tf32", "compile", "bf16-autocast"]
    assert [row[1].text for row in table.rows] == ["2.60× as fast", "fails", "5.18× as fast"]
    assert table.rows[0][3].text == "27.0 ms"
    assert "| tf32" in markdown(trial_answer(trial(TF32))).replace("`", "")


def test_text_of_the_program_is_shown_safely() -> None:
    hostile = msgspec.structs.replace(BROKE, description="It says \x1b[31m<b>.")
    assert "\x1b" not in shown(hostile)
    assert "\x1b" not in " ".join(tried_lines(trial(hostile)))


def test_the_answer_to_the_trace_tells_it() -> None:
    assert tried_lines(trial(TF32, BROKE)) == [
        "Tried: tf32 took the step from 46.6 to 17.9 ms.",
        "Tried without gain: compile.",
    ]
