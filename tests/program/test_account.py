"""The account of a step: it adds up, and each idle time has its cause."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import program_traces as programs
import pytest
from program_traces import Machine

from ncu_toolkit.base.model import Device, Launch
from ncu_toolkit.program.model import Account, Call, Op, Step, Trace, Window
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.step import find_step


def whole(trace: Trace) -> Step:
    window = Window(trace.ops[0].start, max(op.end for op in trace.ops), 0, len(trace.ops))
    return Step(trace=trace, windows=(window,), typical=0, how="whole", description="All of it.")


def check(step: Step) -> Account:
    """What holds of every account."""
    account, ops, windows = account_of(step), step.ops, step.windows
    assert account.wall_us == step.wall_us
    assert sum(part.us for part in account.parts) == pytest.approx(step.wall_us, rel=1e-9)
    assert [part.us for part in account.parts] == sorted((part.us for part in account.parts), reverse=True)  # fmt: skip
    assert len(account.exclusive_us) == len(ops)
    idle = sum(gap.us for gap in account.gaps)
    assert sum(account.exclusive_us) + idle == pytest.approx(step.wall_us, rel=1e-9)
    assert 0 <= account.busy <= 1 + 1e-9
    for op, time in zip(ops, account.exclusive_us, strict=True):
        # of several steps it is the mean
        assert -1e-6 <= time <= (op.us + 1e-6 if len(windows) == 1 else step.wall_us)
    for before, after in zip(account.gaps, account.gaps[1:], strict=False):
        assert before.start < before.end <= after.start < after.end
        assert windows[0].start <= before.start
        assert after.end <= windows[-1].end
    for gap in account.gaps[:: 1 + len(account.gaps) // 200]:
        assert 0 <= gap.before < len(ops)
        middle = (gap.start + gap.end) / 2
        assert not any(op.start < middle < op.end for op in ops)
    return account


def shares(account: Account) -> dict[str, float]:
    return {part.key: part.us / account.wall_us for part in account.parts}


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_every_program_adds_up(name: str) -> None:
    trace = programs.PROGRAMS[name]()
    check(find_step(trace))
    if len(trace.ops) < 2000:
        check(whole(trace))


def a_program(seed: int) -> Trace:
    """Anything that a host may do, on several streams and threads."""
    machine = Machine(seed=seed)
    pick = machine.random
    for _ in range(pick.randrange(20, 200)):
        stream, thread = pick.choice((7, 7, 13, 20)), pick.choice((1, 1, 2))
        machine.thread = thread
        act = pick.randrange(12)
        if act < 6:
            machine.launch(
                pick.choice("abcde"), pick.choice((0.0, 1.5, 9.0, 80.0)), 9, stream=stream
            )
        elif act == 6:
            machine.copy(pick.choice(("HtoD", "DtoH", "DtoD")), pick.randrange(1 << 20), pinned=pick.random() < 0.5, stream=stream)  # fmt: skip
        elif act == 7:
            pick.choice((machine.sync, machine.item, machine.allocate, machine.free))()
        elif act == 8:
            machine.set(pick.randrange(1 << 20), stream=stream)
        elif act == 9:
            machine.host(pick.expovariate(1 / 30))
        elif act == 10:
            machine.graph([("g", 5.0, 8), ("h", 3.0, 8)] * 3, stream=stream)
        else:
            machine.wait(stream, pick.choice((7, 13, 20)))
    machine.launch("last", 5.0)
    return machine.trace()


@pytest.mark.parametrize("seed", range(12))
def test_any_program_adds_up(seed: int) -> None:
    trace = a_program(seed)
    check(whole(trace))
    check(find_step(trace))
    lost = tuple(msgspec.structs.replace(op, call=-1) for op in trace.ops)
    account = check(whole(msgspec.structs.replace(trace, ops=lost, calls=())))
    assert {gap.cause for gap in account.gaps} <= {"unknown"}


@pytest.mark.parametrize(
    ("program", "key", "low", "high"),
    [
        (programs.gpt, "product", 0.6, 0.7),
        (programs.gpt, "idle: host late", 0.0, 0.001),
        (programs.launch_bound, "idle: host late", 0.6, 0.8),
        (programs.synchronous, "idle: sync", 0.07, 0.1),
        (programs.allocating, "idle: allocation", 0.45, 0.6),
        (programs.loader, "copy", 0.6, 0.8),
        (lambda: programs.loader(pinned=True), "copy", 0.2, 0.3),
        (programs.healthy, "idle: between", 0.0, 0.01),
        (programs.graphs, "idle: between", 0.05, 0.1),
        (programs.two_processes, "collective", 0.1, 0.12),
    ],
)
def test_a_known_cause_has_its_share(
    program: Callable[[], Trace], key: str, low: float, high: float
) -> None:
    assert low <= shares(check(find_step(program()))).get(key, 0.0) <= high


def op(start: int, end: int, kind: str = "kernel", **more: object) -> Op:
    return Op(start * 1000, end * 1000, kind, 0 if kind == "kernel" else -1, **more)  # type: ignore[arg-type]


def made(*ops: Op) -> Trace:
    machine = Machine()
    machine.launch("k", 1.0)
    return msgspec.structs.replace(machine.trace(), ops=ops, calls=())


def test_kernels_share_and_hide_copies() -> None:
    trace = made(
        op(0, 100),
        op(20, 60, stream=1),
        op(50, 150, "copy", stream=2, path="HtoD"),
        op(140, 160, "set"),
        op(170, 180),
    )
    account = check(whole(trace))
    assert account.exclusive_us == pytest.approx((80, 20, 45, 15, 10))
    assert [(part.key, part.us, part.count) for part in account.parts] == [
        ("other", pytest.approx(110), 3), ("copy", pytest.approx(45), 1), ("set", pytest.approx(15), 1),
        ("idle: unknown", pytest.approx(10), 1),
    ]  # fmt: skip


def test_work_that_outlives_its_step_counts_at_the_start() -> None:
    trace = made(op(0, 10), op(5, 25, stream=1), op(20, 30), op(25, 45, stream=1), op(40, 50))
    step = Step(
        trace=trace,
        windows=(Window(0, 20_000, 0, 2),),
        typical=0,
        how="repeats",
        description="Part.",
    )
    account = check(step)
    assert account.exclusive_us == pytest.approx((5, 15))
    assert account.gaps == ()


def causes(machine: Machine) -> list[tuple[str, float]]:
    account = check(whole(machine.trace()))
    return [(gap.cause, gap.us) for gap in account.gaps if gap.us > 2]


def ready() -> Machine:
    machine = Machine()
    machine.loaded.update("ab")
    machine.launch("a", 30)
    return machine


def test_host_work_after_a_wait_is_late_by_itself() -> None:
    """A wait of 30 µs cannot explain 500 µs of idle time."""
    machine = ready()
    machine.sync()
    machine.host(500)
    machine.launch("b", 10)
    (first, waited), (second, late) = causes(machine)
    assert (first, second) == ("sync", "host late")
    assert waited < 40
    assert 450 < late < 550


def test_a_read_back_is_a_wait_and_a_pageable_copy_is_one_for_a_copy() -> None:
    machine = ready()
    machine.launch("a", 400)
    machine.item()
    machine.launch("b", 10)
    assert [cause for cause, _ in causes(machine)] == ["sync"]
    machine = ready()
    machine.copy("HtoD", 4 << 20, pinned=False)
    machine.launch("b", 10)
    assert {cause for cause, _ in causes(machine)} == {"copy"}


def test_the_thread_that_launches_next_need_not_be_the_one_that_waited() -> None:
    machine = ready()
    machine.launch("a", 400)
    machine.sync()
    with machine.on_thread(2):
        machine.launch("b", 10)
    assert [cause for cause, _ in causes(machine)] == ["sync"]


def test_a_wait_of_a_thread_that_launches_nothing_is_no_cause() -> None:
    machine = ready()
    machine.host(300)
    with machine.on_thread(9):
        machine.sync()
    machine.launch("b", 10)
    assert [cause for cause, _ in causes(machine)] == ["host late"]


def test_loading_a_module_is_the_hosts() -> None:
    machine = ready()
    machine.launch("new", 10)
    account = check(whole(machine.trace()))
    (gap,) = account.gaps
    call = machine.trace().calls[gap.call]
    assert (gap.cause, call.kind) == ("host late", "load")


def test_the_last_gap_is_the_next_steps() -> None:
    """Host work between steps belongs to the step before, and its first operation ended it."""
    step = find_step(programs.synchronous())
    gap = account_of(step).gaps[-1]
    assert (gap.cause, gap.before, gap.end) == ("sync", 0, step.window.end)
    assert step.trace.calls[gap.call].end <= step.window.end


def test_a_kernel_of_no_duration_costs_nothing() -> None:
    account = check(whole(made(op(0, 10), op(10, 10), op(12, 20))))
    assert account.exclusive_us == pytest.approx((10, 0, 8))


def test_a_long_wait_of_queued_work_is_not_explained() -> None:
    """A trace that lacks kernels, or a GPU that waits for what no trace has."""
    trace = programs.gpt(steps=4)
    kept = tuple(op for i, op in enumerate(trace.ops) if i % 50 > 3 or op.kind != "kernel")
    account = check(whole(msgspec.structs.replace(trace, ops=kept)))
    assert any(gap.cause == "unknown" and gap.call == -1 for gap in account.gaps)
    assert max(gap.us for gap in account.gaps if gap.cause == "between") <= 20


def test_clocks_that_disagree_explain_nothing() -> None:
    """A reader that keeps calls for their lines alone says that the trace lacks them."""
    trace = msgspec.structs.replace(programs.synchronous(), lacks=("host calls",))
    assert {gap.cause for gap in check(find_step(trace)).gaps} == {"unknown"}


def test_work_that_waits_long_after_it_was_queued_waits_for_no_host() -> None:
    """A synchronisation ends, the next launch is queued at once, and begins 4 ms later."""
    call = Call(0, 5_000, "launch", 0)
    trace = Trace(
        source="test",
        devices=(Device("GPU", (9, 0)),),
        shapes=(Launch("k()", "k", (1, 1, 1), (32, 1, 1)),),
        ops=(Op(10_000, 1_000_000, "kernel", 0, 0), Op(5_020_000, 6_000_000, "kernel", 0, 2)),
        calls=(call, Call(6_000, 1_010_000, "sync", 1), Call(1_015_000, 1_020_000, "launch", 0)),
        names=("cuLaunchKernel", "cuStreamSynchronize"),
    )
    account = check(whole(trace))
    assert [(gap.cause, gap.us) for gap in account.gaps] == [("sync", 20.0), ("unknown", 4000.0)]
