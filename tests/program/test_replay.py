"""A step replayed with a change: what comes out is what a program with that change takes."""

from collections.abc import Callable

import msgspec
import program_traces as programs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncu_toolkit.program.model import Edit, Op, Step
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.replay import RECORDED, Replay
from ncu_toolkit.program.traces.step import find_step

Made = Callable[[programs.Machine], None]


def step_of(once: Made, times: int = 12) -> tuple[Step, Replay]:
    machine = programs.Machine("loop.py")
    for _ in range(times):
        once(machine)
    step = find_step(machine.trace())
    return step, Replay(step, account_of(step))


def places(step: Step, *kinds: str) -> frozenset[int]:
    return frozenset(at for at, op in enumerate(step.ops) if op.kind in kinds)


def calls(replay: Replay, *kinds: str) -> frozenset[int]:
    return frozenset(at for at, call in replay.calls if call.kind in kinds)


def launches(many: int, us: float, host_us: float = 10.0) -> Made:
    def once(machine: programs.Machine) -> None:
        for i in range(many):
            machine.launch(f"kernel_{i}(float*)", us, host_us=host_us)

    return once


def waiting(wait: bool) -> Made:
    """Four launches and a wait; the host then works for as long as the GPU."""

    def once(machine: programs.Machine) -> None:
        for i in range(4):
            machine.launch(f"kernel_{i}(float*)", 100.0)
        if wait:
            machine.sync()
        machine.host(150.0)

    return once


def copying(beside: bool) -> Made:
    def once(machine: programs.Machine) -> None:
        machine.copy("HtoD", 10_000_000, stream=8 if beside else 7)
        for i in range(3):
            machine.launch(f"kernel_{i}(float*)", 100.0)

    return once


def working(us: float) -> Made:
    def once(machine: programs.Machine) -> None:
        machine.host(us)
        for i in range(6):
            machine.launch(f"kernel_{i}(float*)", 50.0)

    return once


def merging(many: int) -> Made:
    def once(machine: programs.Machine) -> None:
        for _ in range(many):
            machine.launch("item(float*)", 2.0 * 48 / many, host_us=12.0)
        machine.launch("rest(float*)", 80.0, host_us=12.0)

    return once


def graphed(machine: programs.Machine) -> None:
    machine.graph([(f"kernel_{i}(float*)", 4.0, 528) for i in range(30)])


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        (launches(30, 4.0), lambda step, _: Edit(graphed=places(step, "kernel")), graphed),
        (launches(30, 40.0, 6.0), lambda step, _: Edit(keeps=dict.fromkeys(places(step, "kernel"), 0.5)), launches(30, 20.0, 6.0)),
        (launches(30, 40.0, 25.0), lambda step, _: Edit(keeps=dict.fromkeys(places(step, "kernel"), 0.1)), launches(30, 4.0, 25.0)),
        (waiting(True), lambda _, replay: Edit(waits=calls(replay, "sync")), waiting(False)),
        (copying(False), lambda step, _: Edit(beside=places(step, "copy")), copying(True)),
        (working(900.0), lambda step, _: Edit(moved=frozenset((0,))), working(0.0)),
        (merging(48), lambda step, _: Edit(keeps={0: 48.0}, drops=frozenset(range(1, 48))), merging(1)),
    ],
    ids=["graph", "faster kernels", "faster kernels than launches", "no wait", "copy beside", "host work", "one of many"],
)  # fmt: skip
def test_what_a_change_leaves(
    before: Made, edit: Callable[[Step, Replay], Edit], after: Made
) -> None:
    """The step with a change takes what a program that has it takes: a host and a GPU simulated by
    other code (`program_traces.Machine`). A simulated launch is not slowed by recording."""
    step, replay = step_of(before)
    assert replay.error < 0.02
    then, _ = step_of(after, 40)
    slowed = sum(RECORDED[0] for _ in replay.calls) / 1e3
    left = replay.wall_us - replay.saved_us(edit(step, replay))
    assert left == pytest.approx(then.wall_us, rel=0.06, abs=slowed)


def test_changes_at_once_reach_the_next_bound() -> None:
    """Faster kernels save nothing of a step that the host bounds, and with a graph they save all."""
    step, replay = step_of(launches(30, 8.0, 20.0))
    faster = Edit(keeps=dict.fromkeys(places(step, "kernel"), 0.5))
    graph = Edit(graphed=places(step, "kernel"))
    assert replay.saved_us(faster) < 0.02 * replay.wall_us
    alone, both = replay.saved_us(graph), replay.saved_us(faster, graph)
    assert replay.wall_us - alone == pytest.approx(30 * 8.0, rel=0.1)
    assert replay.wall_us - both == pytest.approx(30 * 4.0, rel=0.1)


def test_a_wait_is_for_the_work_that_it_waited_for() -> None:
    """The host waits for the first of two kernels, which another stream holds, while the second runs."""

    def once(machine: programs.Machine) -> None:
        machine.launch("long(float*)", 300.0, stream=8)
        machine.launch("short(float*)", 100.0, stream=7)
        call = machine._call("sync", "cudaStreamSynchronize", 2.0, "")
        machine.now = max(machine.now, machine.ends[0, 7] + 3.0)
        machine.calls[call][1] = machine.now
        machine.host(260.0)

    step, replay = step_of(once)
    short = next(at for at, op in enumerate(step.ops) if op.stream == 7)
    waits = [wait for wait in replay.waits if wait]
    assert [wait[:2] for wait in waits] == [(short, 0)]
    assert replay.saved_us(Edit(keeps={short: 0.1})) > 50


def test_threads_take_turns_or_run_beside_each_other() -> None:
    """Autograd's thread and the program's are one sequence; a thread that copies meanwhile is not."""

    def turns(machine: programs.Machine) -> None:
        for thread in (1, 2):
            machine.thread = thread
            for i in range(5):
                machine.launch(f"kernel_{thread}_{i}(float*)", 5.0, host_us=10.0)

    step, replay = step_of(turns)
    assert not any(replay.side)
    assert replay.saved_us(Edit(graphed=places(step, "kernel"))) > 0.3 * replay.wall_us

    def meanwhile(machine: programs.Machine) -> None:
        start = machine.now
        for i in range(8):
            machine.launch(f"kernel_{i}(float*)", 5.0, host_us=20.0)
        end = machine.now
        with machine.on_thread(3):
            machine.now = start + 5.0
            machine.copy("HtoD", 1000, stream=9)
        machine.now = end

    step, replay = step_of(meanwhile)
    assert sum(replay.side) == 1
    assert replay.error < 0.03


def test_a_step_without_calls_is_its_work() -> None:
    machine = programs.Machine("loop.py")
    for _ in range(6):
        launches(4, 50.0)(machine)
    trace = machine.trace()
    ops = tuple(
        Op(*(*msgspec.structs.astuple(op)[:4], -1, *msgspec.structs.astuple(op)[5:]))
        for op in trace.ops
    )
    step = find_step(msgspec.structs.replace(trace, ops=ops, calls=(), lacks=("host calls",)))
    replay = Replay(step, account_of(step))
    assert replay.error < 0.02
    saved = replay.saved_us(Edit(keeps=dict.fromkeys(range(len(step.ops)), 0.5)))
    assert saved == pytest.approx(0.5 * replay.wall_us, rel=0.05)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.floats(1.0, 80.0), st.floats(3.0, 60.0), st.sampled_from((7, 8)), st.booleans()), min_size=2, max_size=12),
    st.data(),
)  # fmt: skip
def test_no_change_takes_longer(
    work: list[tuple[float, float, int, bool]], data: st.DataObject
) -> None:
    """What is replayed is within the step, whatever the change, and nothing is saved by none."""

    def once(machine: programs.Machine) -> None:
        for i, (us, host_us, stream, sync) in enumerate(work):
            machine.launch(f"kernel_{i}(float*)", us, host_us=host_us, stream=stream)
            if sync:
                machine.sync()

    step, replay = step_of(once, 6)
    some = st.frozensets(st.integers(0, len(step.ops) - 1))
    edit = Edit(drops=data.draw(some), graphed=data.draw(some), waits=calls(replay, "sync"))
    assert replay.saved_us() == pytest.approx(0.0)
    assert 0 <= replay.saved_us(edit) <= replay.wall_us


def both(machine: programs.Machine) -> None:
    """Long work of the host, two streams, and a wait."""
    with machine.mark("step", "step"):
        machine.host(900.0, "loop.py:1 main")
        for i in range(6):
            machine.launch(f"kernel_{i}(float*)", 300.0, stream=7 + i % 2)
        machine.sync()


def test_the_times_of_an_unchanged_step_are_those_of_the_trace() -> None:
    step, replay = step_of(both)
    times, origin = replay.times(), step.window.start
    assert times.us == pytest.approx(step.wall_us)
    for stream in (7, 8):
        recorded = [(op.start - origin, op.end - origin) for op in step.ops if op.stream == stream]
        replayed = [(start * 1e3, end * 1e3) for start, end, _ in times.rows[f"stream {stream}"]]
        assert replayed == [pytest.approx(each, abs=0.005 * replay.length) for each in recorded]
    host: dict[str, float] = dict.fromkeys(("host-launch", "host-work", "host-wait"), 0.0)
    for start, end, kind in times.rows["host"]:
        host[kind] += end - start
    assert sum(host.values()) == pytest.approx(times.us, rel=0.01)  # it is never ahead
    assert host["host-work"] == pytest.approx(900.0, rel=0.05)
    waited = next(call for _, call in replay.calls if call.kind == "sync")
    assert host["host-wait"] == pytest.approx((waited.end - waited.start) / 1e3, rel=0.05)


def test_the_times_with_a_change_are_as_long_as_it_leaves_the_step() -> None:
    _, replay = step_of(both)
    half = Edit(keeps=dict.fromkeys(range(6), 0.5))
    beside = Edit(beside=frozenset((1,)), waits=calls(replay, "sync"))
    for edits in ((half,), (beside,), (half, beside)):
        times = replay.times(*edits)
        assert times.us == pytest.approx(replay.wall_us - replay.saved_us(*edits))
        spans = [span for row in times.rows.values() for span in row]
        assert all(0 <= start < end <= times.us * (1 + 1e-9) for start, end, _ in spans)
    alone = sum(end - start for start, end, _ in times.rows["new stream"])
    assert alone == pytest.approx(150.0, rel=0.05)
