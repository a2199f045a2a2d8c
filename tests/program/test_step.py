"""The step of a program: right where it has one, and none where it has none."""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import msgspec
import program_traces as programs
import pytest
from program_traces import Machine

from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.program.model import Op, Step, Trace
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.files import read_trace
from ncu_toolkit.program.traces.step import find_step

RECORDINGS = Path(__file__).parents[2] / "benchmarks" / "programs" / "recordings"


def check(step: Step) -> Step:
    """What holds of every step."""
    assert step.windows
    median = sorted(window.us for window in step.windows)[(len(step.windows) - 1) // 2]
    assert step.window.us == pytest.approx(median, rel=0.01)
    for window in step.windows:
        assert window.end > window.start
        ops = step.trace.ops[window.first : window.last]
        assert ops
        assert all(window.start <= op.start < window.end for op in ops)
    for before, after in zip(step.windows, step.windows[1:], strict=False):
        assert before.end <= after.start
        assert before.last <= after.first
    assert step.ops
    assert step.description.endswith(".")
    assert step.spread >= 0
    return step


def sequence(kernels: str, us: float = 20.0, host: float = 0.0) -> Trace:
    """A kernel for each letter."""
    machine = Machine("letters")
    for letter in kernels:
        machine.loaded.add(letter)
        machine.launch(letter, us, 100 + ord(letter))
        machine.host(host)
    return machine.trace()


@pytest.mark.parametrize(
    ("program", "launches", "first"),
    [
        (programs.gpt, 985, "copy"), (programs.healthy, 178, "kernel"),
        (programs.loader, 25, "copy"), (programs.launch_bound, 200, "kernel"),
        (programs.synchronous, 25, "kernel"), (programs.allocating, 12, "kernel"),
        (programs.streams, 18, "kernel"), (programs.graphs, 60, "copy"),
        (lambda: programs.streams(together=True), 18, "kernel"),
        (lambda: programs.gpt(layers=12), 1651, "copy"),
        (lambda: programs.gpt(autotune=200), 985, "copy"),
        (lambda: programs.gpt(evaluate=6), 985, "copy"),
        (lambda: programs.gpt(steps=3), 985, "copy"),
        (lambda: programs.launch_bound(launches=1), 1, "kernel"),
    ],
)  # fmt: skip
def test_a_step_that_repeats(program: Callable[[], Trace], launches: int, first: str) -> None:
    step = check(find_step(program()))
    assert (step.how, step.launches, step.ops[0].kind) == ("repeats", launches, first)


@pytest.mark.parametrize(
    "program",
    [
        programs.no_step,
        lambda: programs.gpt(steps=2),
        lambda: programs.gpt(steps=2, layers=12),  # its layers repeat, and are no step
        lambda: sequence("abcdefghijklmnop"),
        lambda: sequence("a"),
        lambda: sequence("ab"),
    ],
)
def test_no_step_is_better_than_a_false_one(program: Callable[[], Trace]) -> None:
    step = check(find_step(program()))
    assert step.how == "whole"
    assert len(step.windows) == 1
    assert step.description.startswith("No part of the run repeats, so this is the whole run")


@pytest.mark.parametrize("seed", range(6))
def test_shuffled_work_has_no_step(seed: int) -> None:
    trace = programs.gpt()
    shapes = [op.shape for op in trace.ops]
    random.Random(seed).shuffle(shapes)
    ops = tuple(
        msgspec.structs.replace(op, shape=shape, kind="kernel" if shape >= 0 else "copy")
        for op, shape in zip(trace.ops, shapes, strict=True)
    )
    assert check(find_step(msgspec.structs.replace(trace, ops=ops))).how == "whole"


ONE = "".join(chr(0x100 + i) for i in range(20))


@pytest.mark.parametrize(
    ("kernels", "launches", "least"),
    [
        # a decoder of 80 equal layers of 12 kernels, and 3 other ones a token: layers are no step
        (("abcdefghijkl" * 80 + "xyz") * 4, 963, 2),
        ("xyz" + "a" * 300, 1, 2),
        ("ab" * 100, 2, 2),
        (("a" * 790 + "bcdefghijk") * 5, 800, 2),
        # what was tried before, 10 kernels in turn, is alike after every second step of 5 alone
        ("abcdefghij" * 40 + "klmno" * 120, 5, 2),
        # an optimizer that makes its state in the first step
        ("copyHIJKLMNOPQRSTUVW" + "@#" * 15 + "XYZ0123456789" + "copyHIJKLMNOPQRSTUVWXYZ0123456789" * 6, 33, 2),
        # 14 launches of one kernel and 13 of another: all of them repeat, not each
        (("a" * 14 + "b" * 13) * 20, 27, 19),
        # a first step that equals the others in part by chance
        (ONE + "zzabacab" * 10 + (ONE + "abacab" * 10) * 100, 80, 98),
    ],
    ids=lambda value: str(value)[:12],
)  # fmt: skip
def test_what_repeats_is_the_step(kernels: str, launches: int, least: int) -> None:
    step = check(find_step(sequence(kernels)))
    assert (step.how, step.launches) == ("repeats", launches)
    assert len(step.windows) >= least


def test_steps_that_log_or_differ_a_little_are_steps() -> None:
    one = "".join(chr(0x100 + i % 97) for i in range(200))
    logged = "".join(one + ("L" if i % 5 == 4 else "") for i in range(20))
    step = find_step(sequence(logged))
    assert step.launches == 200
    assert len(step.windows) >= 18
    pick = random.Random(3)
    noisy = "".join("?" if pick.random() < 0.005 else letter for letter in one * 12)
    assert find_step(sequence(noisy)).launches == 200


def test_numbers_read_for_a_log_make_no_step() -> None:
    """The host reads 4 bytes after every fifth step, and the first steps compile."""
    machine = Machine("simulate.py")
    one = [f"k{i}" for i in range(40)]
    for i in range(150):
        machine.launch(f"start{i}", 400.0, 100)
    for number in range(30):
        for kernel in one:
            machine.launch(kernel, 20.0, 100)
        if number % 5 == 4:
            machine.item()
    step = check(find_step(machine.trace()))
    assert step.launches == 40
    assert len(step.windows) >= 28


def test_a_period_is_not_left_for_a_multiple_that_differs_at_its_edges() -> None:
    """60 long operations before 40 steps: a period of 13 steps forgives that they are others."""
    one = [f"k{i}" for i in range(100)]
    machine = Machine("simulate.py")
    for at, kernel in enumerate([f"start{i}" for i in range(60)] + one * 40):
        machine.launch(kernel, 400.0 if at < 60 else 20.0, 100)
    assert find_step(machine.trace()).launches == 100


@pytest.mark.parametrize("name", ["step marks", "iteration"])
def test_marks_come_first(name: str) -> None:
    step = check(find_step(programs.gpt(marked=name, evaluate=3)))
    assert step.how == "marked"
    assert step.launches == 985
    ending = r" left out: 1 step that took long and loaded modules \(\d+\.\d ms\) and \d+\.\d ms after the last step\."
    message = {
        "step marks": "Step: as the program marks it;",
        "iteration": 'Step: the NVTX range "iteration";',
    }
    assert re.fullmatch(re.escape(message[name]) + ending, step.description)
    assert 0.8 < step.covered < 0.9


def test_work_belongs_to_the_mark_in_which_it_was_queued() -> None:
    """The host is far ahead: while the GPU does the first step, all are queued."""
    machine = Machine()
    for i in range(6):
        with machine.mark(f"ProfilerStep#{i}", "step"):
            for letter in "abcd":
                machine.loaded.add(letter)
                machine.launch(letter, 900.0, 10)
    trace = machine.trace()
    assert max(mark.end for mark in trace.marks) < trace.ops[4].start
    step = check(find_step(trace))
    assert [shape.kernel for shape in (trace.shapes[op.shape] for op in step.ops)] == list("abcd")
    assert len(step.windows) == 5


def test_ranges_within_or_around_steps_are_no_steps() -> None:
    machine = Machine()
    machine.loaded.update("abcdefgh")
    for _ in range(3):
        with machine.mark("epoch"):
            for _ in range(5):
                with machine.mark("train step"):
                    machine.launch("a", 30)
                    for _ in range(4):
                        with machine.mark("layer"):
                            for letter in "bcde":
                                machine.launch(letter, 100)
                    for letter in "fgh":
                        machine.launch(letter, 10)
    step = check(find_step(machine.trace()))
    assert (step.how, step.launches) == ("marked", 20)
    assert '"train step"' in step.description


def test_ranges_that_hold_little_are_no_steps() -> None:
    machine = Machine()
    machine.loaded.update("abcdef")
    for _ in range(5):
        with machine.mark("forward"):
            machine.launch("a", 20)
        for letter in "bcdef":
            machine.launch(letter, 100)
    step = find_step(machine.trace())
    assert (step.how, step.launches) == ("repeats", 6)


def test_marks_of_steps_without_equal_work() -> None:
    """Ranges of a program whose work differs each time."""
    machine = Machine(seed=4)
    for _ in range(8):
        with machine.mark("batch"):
            for _ in range(machine.random.randrange(5, 9)):
                machine.launch("k", 50, machine.random.randrange(1, 900))
    step = check(find_step(machine.trace()))
    assert step.how == "marked"
    assert len(step.windows) == 7


def test_one_mark_is_one_step() -> None:
    machine = Machine()
    machine.launch("before", 500)
    with machine.mark("ProfilerStep#3", "step"):
        machine.launch("a", 20)
        machine.launch("b", 20)
    step = check(find_step(machine.trace()))
    assert (step.how, step.launches, len(step.windows)) == ("marked", 2, 1)


def test_other_work_between_steps_is_left_out_and_said() -> None:
    machine = Machine()
    machine.loaded.update("abcdefgxyz")
    for at in range(9):
        with machine.mark(str(at), "step"):
            for letter in "abcdefg":
                machine.launch(letter, 30)
        if at == 4:
            for letter in "xyzxyzxyzxyz":
                machine.launch(letter, 30)
    step = check(find_step(machine.trace()))
    assert len(step.windows) == 7
    message = r"Step: as the program marks it; left out: 1 stretch with other work \(\d+ µs\)\."
    assert re.fullmatch(message, step.description)
    assert step.rest == (step.description.partition("left out: ")[2][:-1],)


def test_of_two_processes_the_busier() -> None:
    trace = programs.two_processes()
    step = check(find_step(trace))
    assert (step.process, step.device, step.launches) == (101, 1, 22)
    assert {op.process for op in step.ops} == {101}
    assert "of 2 processes and 2 GPUs, this is where the kernels take most time" in step.description


def test_a_whole_run_begins_after_its_modules_were_loaded() -> None:
    machine = Machine(seed=2)
    for i in range(5):
        machine.launch(f"init{i}", 3.0)
    for _ in range(300):
        machine.launch(f"init{machine.random.randrange(5)}", 40.0, machine.random.randrange(9999))
    step = find_step(machine.trace())
    assert step.how == "whole"
    assert 300 <= step.launches <= 301
    assert "after the first 4 operations (12.0" in step.description


def test_without_calls_the_busiest_stream_has_the_step() -> None:
    trace = programs.streams(together=True)
    ops = tuple(msgspec.structs.replace(op, call=-1) for op in trace.ops)
    step = check(find_step(msgspec.structs.replace(trace, ops=ops, calls=())))
    assert step.how == "repeats"
    assert step.launches == 18


def test_a_trace_without_kernels_says_what_to_do() -> None:
    with pytest.raises(InputProblem, match=r"trace has no kernel.*Record the program"):
        find_step(programs.no_kernels())
    with pytest.raises(InputProblem, match="no kernel"):
        find_step(msgspec.structs.replace(programs.no_kernels(), ops=(), calls=()))


def test_the_spread_is_that_of_the_middle_80_per_cent() -> None:
    ops, at = [], 0
    for i in range(12):
        ops += [Op(at, at + 500, "kernel", 0), Op(at + 500, at + 600, "kernel", 1)]
        at += 1000 + (100 if i % 2 else -100)
    trace = msgspec.structs.replace(sequence("ab"), ops=tuple(ops), calls=())
    step = check(find_step(trace))
    assert step.spread == pytest.approx(0.1, abs=0.02)


def test_steps_side_by_side_on_streams_in_turn_are_none() -> None:
    machine = Machine()
    machine.loaded.update("k")
    for i in range(8):
        machine.copy("HtoD", 1 << 20, stream=i % 4)
        machine.launch("k", 300, 10, stream=i % 4)
        machine.copy("DtoH", 1 << 20, stream=i % 4)
    assert check(find_step(machine.trace())).how == "whole"


def test_a_first_step_that_takes_many_times_as_long_is_left_out_and_said() -> None:
    machine = Machine()
    machine.loaded.update("abcdefgh")
    for i in range(6):
        for letter in "abcdefgh":
            machine.launch(letter, 30)
            machine.host(0 if i else 500)
        machine.sync()
    step = check(find_step(machine.trace()))
    assert len(step.windows) == 4
    assert re.search(
        r"; left out: the first step, which took 1\d times as long\.", step.description
    )
    assert step.covered > 0.95, "the time before the first steady step does not count"


@pytest.mark.parametrize("seed", range(12))
def test_any_sequence_has_a_step(seed: int) -> None:
    """Parts that repeat among parts that do not, of few kernels, some of no duration."""
    pick = random.Random(seed)
    letters = "abcdefghij"[: pick.randrange(1, 10)]
    unit = "".join(pick.choices(letters, k=pick.randrange(1, 40)))
    machine = Machine(seed=seed)
    machine.loaded.update(letters)
    for _ in range(pick.randrange(1, 12)):
        part = unit if pick.random() < 0.8 else pick.choices(letters, k=pick.randrange(9))
        for letter in ("a", *part):
            machine.launch(letter, pick.choice((0.0, 3.0, 20.0)), 1, stream=pick.choice((7, 7, 9)))
            if pick.random() < 0.02:
                machine.item()
    check(find_step(machine.trace()))


def test_few_steps_that_differ_in_time_are_none() -> None:
    machine = Machine()
    machine.loaded.update("abcdef")
    for times in (1, 9, 1, 30):
        for letter in "abcdef":
            machine.launch(letter, 20.0 * times)
    assert find_step(machine.trace()).how == "whole"


def test_ranges_with_numbers_are_one_range() -> None:
    machine = Machine(seed=4)
    for i in range(8):
        with machine.mark(f"iteration {i}"):
            for _ in range(machine.random.randrange(5, 9)):
                machine.launch("k", 50, machine.random.randrange(1, 900))
    step = check(find_step(machine.trace()))
    assert step.how == "marked"
    assert step.description.startswith('Step: the NVTX range "iteration N"')


def test_the_layers_of_one_pass_are_no_steps() -> None:
    """One pass of a model repeats its layers, and nothing else; ranges say that they are layers."""
    machine = Machine()
    machine.loaded.update("abcdefgz")
    machine.launch("z", 20)
    for i in range(12):
        with machine.mark(f"layer {i}"):
            for letter in "abcdefg":
                machine.launch(letter, 50)
    machine.launch("z", 90)
    assert check(find_step(machine.trace())).how == "whole"


def test_layers_within_marked_steps_are_no_steps() -> None:
    machine = Machine()
    machine.loaded.update("abcdefgz")
    for _ in range(4):
        for i in range(12):
            with machine.mark(f"layer {i}"):
                for letter in "abcdefg":
                    machine.launch(letter, 50)
        for letter in "zazbz":
            machine.launch(letter, 90)
    step = check(find_step(machine.trace()))
    assert (step.how, step.launches) == ("repeats", 89)


def test_work_queued_before_the_recording_belongs_to_no_mark() -> None:
    trace = programs.gpt(marked="step marks")
    lost = tuple(
        msgspec.structs.replace(op, call=-1) if op.call < trace.ops[40].call else op
        for op in trace.ops
    )
    assert find_step(msgspec.structs.replace(trace, ops=lost)).windows == find_step(trace).windows
    unmarked = msgspec.structs.replace(trace, ops=lost, marks=())
    assert find_step(unmarked).launches == 985


def test_a_collective_does_not_choose_the_stream() -> None:
    """It waits for others, for most of the time here."""
    machine = Machine()
    machine.loaded.update((*"abcde", programs.ALL_REDUCE))
    for i in range(8):
        for letter in "abcde":
            machine.launch(letter, 20.0)
        machine.wait(30, 7)
        for _ in range(1 + i % 3):
            machine.launch(programs.ALL_REDUCE, 400.0, 24, stream=30)
        machine.wait(7, 30)
    step = check(find_step(machine.trace()))
    assert step.trace.shapes[step.ops[0].shape].kernel == "a"


def test_steps_whose_grids_differ_are_steps_by_the_names_of_their_kernels() -> None:
    """A decoder whose attention grows by a token a step."""
    machine = Machine()
    machine.loaded.update("abcdefghz")
    for token in range(10):
        machine.launch("z", 9, 33)
        for _ in range(4):
            for letter in "abcdefgh":
                machine.launch(letter, 20, 8 + (token if letter in "cde" else 0))
    step = check(find_step(machine.trace()))
    assert (step.how, step.launches) == ("repeats", 33)


def test_few_kernels_with_any_grids_are_no_step() -> None:
    machine = Machine(seed=7)
    machine.loaded.update("ab")
    for i in range(100):
        machine.launch("ab"[i % 2], 20, machine.random.randrange(1, 9999))
    assert check(find_step(machine.trace())).how == "whole"


@pytest.mark.parametrize("passes", [1, 2, 5])
def test_layers_within_a_call_of_a_module_are_no_steps(passes: int) -> None:
    """A pass of a model that is made of layers alone repeats nothing but them."""
    machine = Machine()
    machine.loaded.update("abcdefgz")
    for _ in range(passes):
        with machine.mark("nn.Module: Transformer_0"):
            for i in range(12):
                with machine.mark(f"nn.Module: Layer_{i}"):
                    for letter in "abcdefg":
                        machine.launch(letter, 50)
    step = check(find_step(machine.trace()))
    assert step.how == ("marked" if passes == 5 else "whole")
    if passes == 5:
        assert step.launches == 84
        assert step.description == "Step: a call of the module Transformer_0."


def test_layers_before_a_head_are_no_steps_where_one_pass_was_recorded() -> None:
    """A program that goes on to other work after its steps is not rare, a profiled pass is not
    either: they differ by who recorded them."""
    trace = sequence("xyz" + "abcdefg" * 12 + "hijklmnop")
    assert find_step(trace).launches == 7
    recorded = msgspec.structs.replace(trace, source="PyTorch profiler")
    assert check(find_step(recorded)).how == "whole"
    steps = msgspec.structs.replace(
        sequence("xyz" + "abcdefg" * 12 + "xabc"), source=recorded.source
    )
    assert find_step(steps).launches == 7


def test_a_compiler_s_ranges_are_no_step() -> None:
    """XLA opens a range for each kernel that it compiles and tunes."""
    machine = Machine("scan.py")
    for i in range(40):
        with machine.mark(f"XlaCompileBackend:#module=fusion.{i}#"):
            machine.launch(f"tried_{i}", 3000.0)
    for _ in range(30):
        for letter in "abcd":
            machine.launch(letter, 500.0)
    assert len(check(find_step(machine.trace())).ops) == 4


def test_steps_that_compile_each_time_are_executions_of_the_module() -> None:
    """JAX compiles anew for each shape: kernels have other names, and most of their time is of XLA's
    own measurements."""
    machine = Machine("ragged.py")
    for i in range(12):
        with machine.mark("XlaCompile:#module=jit_train_step#"):
            machine.host(200_000.0)
            for attempt in range(3 + i % 4):
                machine.launch(f"tried_{i}_{attempt}", 900.0)
            machine.sync()
        with machine.mark(f"XlaModule:#hlo_module=jit_train_step,program_id={i}#"):
            for letter in "abcdefgh"[: 4 + i % 5]:
                machine.launch(f"{letter}_fusion_{i}", 20.0)
        machine.item()
    step = check(find_step(machine.trace()))
    assert (step.how, len(step.windows)) == ("marked", 11)
    assert step.description == 'Step: the NVTX range "jit_train_step".'
    assert step.wall_us == pytest.approx(200e3, rel=0.1)


@pytest.mark.parametrize("each", [1, 5])
def test_slow_steps_that_load_are_left_out_where_few_load(each: int) -> None:
    """Where each step loads, time lost in some of them is of the steps."""
    machine = Machine("decode.py")
    for i in range(20):
        for letter in "abcd":
            machine.launch(letter, 100.0)
        if i % each == 0:
            machine.loaded.discard("d")
        machine.host(5000.0 if i % 5 else 15_000.0)
        machine.sync()
    step = check(find_step(machine.trace()))
    assert any("loaded modules" in left for left in step.rest) == (each == 5)


def test_a_range_is_compared_with_what_repeats_while_it_lasts() -> None:
    """The first half of a run has other grids, in steps that are marked alike."""
    machine = Machine("events.py")
    for i in range(40):
        with machine.mark("event"):
            for letter in "abcde":
                machine.launch(letter, 50.0, grid=100 + 8 * i * (i < 20))
        machine.sync()
    step = check(find_step(machine.trace()))
    assert (step.how, len(step.windows)) == ("marked", 38)  # the first loads, the last has no end


def test_steps_between_two_loads() -> None:
    """What was tuned before takes most of the time, and a new kernel ends the program."""
    machine = Machine("fit.py")
    for i in range(60):
        machine.launch(f"tried_{i}", 400.0)
    for _ in range(80):
        for letter in "abc":
            machine.loaded.add(letter)
            machine.launch(letter, 50.0)
    machine.launch("norm", 20.0)
    step = check(find_step(machine.trace()))
    assert (step.how, len(step.ops)) == ("repeats", 3)


@pytest.mark.parametrize("regular", [True, False])
def test_steps_that_wait_now_and_then_count(regular: bool) -> None:
    """Four workers deliver four batches at once, or a part of the run waits: a step takes the mean."""
    machine = Machine("augment.py")
    machine.loaded.update("abc")
    for i in range(60):
        machine.host(90_000.0 if (i % 4 == 0 if regular else i > 40) else 1500.0)
        for letter in "abc":
            machine.launch(letter, 400.0)
    step = check(find_step(machine.trace()))
    took = [window.us for window in step.windows]
    assert len(took) == 59
    assert step.uneven
    assert step.wall_us == pytest.approx(sum(took) / len(took))
    assert step.window.us < 5000 < step.wall_us
    account = account_of(step)
    parts = [gap.part for gap in account.gaps if gap.us > 1000]
    assert parts == pytest.approx([1 / 59] * len(parts))
    work = next(part for part in account.parts if part.key == "idle: host work")
    assert work.us == pytest.approx(step.wall_us - 1200, rel=0.02)


def test_a_marked_step_lasts_from_mark_to_mark() -> None:
    """What the host prepares before the first kernel is in it, also in the only step there is."""
    for steps in (1, 4):
        machine = Machine()
        machine.loaded.update("ab")
        for i in range(steps):
            with machine.mark(f"ProfilerStep#{i}", "step"):
                machine.host(30_000.0)
                machine.launch("a", 500.0)
                machine.launch("b", 500.0)
                machine.sync()
        step = check(find_step(machine.trace()))
        assert len(step.windows) == max(1, steps - 1)
        assert step.wall_us == pytest.approx(31_000, rel=0.03)


def test_work_queued_before_the_recording_belongs_to_the_step_before() -> None:
    machine = Machine()
    machine.loaded.update("abcdefgh")
    for letter in "abcdefgh" * 3:
        machine.launch(letter, 400.0)
    with machine.mark("ProfilerStep#7", "step"):
        for letter in "abcdefgh" * 2:
            machine.launch(letter, 400.0)
        machine.sync()
    trace = machine.trace()
    early = {op.call for op in trace.ops[:24]}
    ops = tuple(
        msgspec.structs.replace(op, call=-1) if op.call in early else op for op in trace.ops
    )
    step = check(find_step(msgspec.structs.replace(trace, ops=ops)))
    assert step.launches == 16
    assert step.wall_us == pytest.approx(16 * 400, rel=0.03)


def test_a_log_makes_no_step_of_many() -> None:
    """40 frames, and a sum of theirs that is read: the frame is the step. A residual that nobody
    reads after 40 sweeps is part of theirs."""
    for read in (True, False):
        machine = Machine()
        machine.loaded.update("abcdefr")
        for _ in range(8):
            for _ in range(40):
                for letter in "abcdef":
                    machine.launch(letter, 300.0)
            machine.launch("r", 3.0)
            if read:
                machine.item()
        step = check(find_step(machine.trace()))
        assert len(step.ops) == (6 if read else 241)


def test_a_token_is_the_step_of_a_request() -> None:
    """Six requests: a prompt, then 90 tokens, of which each is read. Sweeps of 60 us are none."""
    for us in (300.0, 10.0):
        machine = Machine()
        machine.loaded.update("abcdefp")
        for _ in range(6):
            for letter in "ppp":
                machine.launch(letter, us)
            for _ in range(90):
                for letter in "abcdef":
                    machine.launch(letter, us)
                machine.item()
        step = check(find_step(machine.trace()))
        assert len(step.ops) == (7 if us == 300.0 else 633)


def test_what_occurs_as_often_as_a_period_but_elsewhere_begins_no_step() -> None:
    """13 tokens of a decoder repeat, 7,579 operations; what begins them occurs 12 times within one
    of them, 40 operations apart. A token has 583, and took 46.8 ms by the program's own clock."""
    trace = read_trace(RECORDINGS / "hf_reply_decode.before.ncu-trace")
    step = check(find_step(trace))
    assert step.launches == 583
    assert step.description.startswith("Step: 583 GPU operations")
    assert statistics.median(each.us for each in step.windows) == pytest.approx(46756, rel=0.02)


def test_loops_of_varying_length_are_one_step_each() -> None:
    """A picture holds 24 to 40 cells, each cut out by two kernels."""
    pick = random.Random(1)
    machine = Machine()
    machine.loaded.update("abcdefg")
    for _ in range(30):
        machine.launch("a", 50.0)
        for _ in range(pick.randrange(24, 40)):
            machine.launch("b", 30.0)
            machine.launch("c", 30.0)
        for letter in "defg":
            machine.launch(letter, 400.0)
    step = check(find_step(machine.trace()))
    assert step.how == "repeats"
    assert len(step.windows) in (28, 29, 30)


def test_what_repeats_in_a_step_is_said() -> None:
    frames = sequence(("abc" * 10 + "Z") * 6)
    assert (
        find_step(frames).description
        == "Step: 31 GPU operations (kernels, copies, memsets); inner loop: 10 iterations of 3 such operations, 62.8 µs each iteration."
    )
    assert (
        find_step(sequence("abcdef" * 6)).description
        == "Step: 6 GPU operations (kernels, copies, memsets)."
    )
    assert find_step(programs.gpt()).description.startswith("Step: 987 GPU operations")
