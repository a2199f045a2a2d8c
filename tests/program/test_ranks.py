"""Ranks of a job: joined, aligned, accounted, and what costs them."""

from pathlib import Path

import msgspec
import pytest

from benchmarks.programs import many_ranks
from ncu_toolkit.base.model.profile import Device, Launch
from ncu_toolkit.kernel.analysis.analyze import Analysis
from ncu_toolkit.program.analysis.program import analyze_programs, answers_of, judged
from ncu_toolkit.program.explain.ranks import job_answer
from ncu_toolkit.program.model import Call, Op, Trace
from ncu_toolkit.program.pages.program_view import write_program_page
from ncu_toolkit.program.recording.program_run import name_of
from ncu_toolkit.program.traces.classes import exchange_kind
from ncu_toolkit.program.traces.ranks import job_of, split, timeline
from ncu_toolkit.program.traces.step import find_step

EIGHT = Path(__file__).parents[3] / "shared/traces/eight-ranks"


def _shape(name: str, grid: int = 64) -> Launch:
    return Launch(name, name.partition("(")[0], (grid, 1, 1), (128, 1, 1), 32, 0, 0)


SHAPES = (
    _shape("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"),
    *(_shape(f"gemm_{i}") for i in range(6)),
    _shape("multi_tensor_apply_kernel"),
)


def _two(
    late_ns: int = 0, passes: int = 1, exchanges: int = 1, steps: int = 12,
    gaps: tuple[int, int] = (1000, 1000), call_ns: tuple[int, int] = (400, 400),
) -> Trace:  # fmt: skip
    """A job of two processes with a GPU each: `passes` of six products; an all-reduce after each of
    the last `exchanges`; the second rank is late to each step. `gaps` between products of each rank,
    and how long each takes for a launch."""
    ops, calls = [], []
    for step in range(steps):
        begin = step * 3_000_000
        ends = [begin, begin + late_ns]
        for done in range(passes):
            for rank in range(2):
                for shape in range(1, 7):
                    start = ends[rank] + gaps[rank]
                    calls.append(
                        Call(start - 400 - call_ns[rank], start - 400, "launch", 0, rank, rank)
                    )
                    ops.append((start, start + 50_000 + 1000 * shape, shape, rank, len(calls) - 1))
                    ends[rank] = start + 50_000 + 1000 * shape
            if done >= passes - exchanges:
                end = max(ends) + 101_000
                for rank in range(2):
                    start = ends[rank] + 1000
                    calls.append(Call(start - 800, start - 400, "launch", 0, rank, rank))
                    ops.append((start, end, 0, rank, len(calls) - 1))
                ends = [end, end]
        for rank in range(2):
            calls.append(Call(ends[rank] + 200, ends[rank] + 600, "launch", 0, rank, rank))
            ops.append((ends[rank] + 1000, ends[rank] + 9000, 7, rank, len(calls) - 1))
    order = sorted(range(len(calls)), key=lambda i: calls[i].start)
    place = {old: new for new, old in enumerate(order)}
    made = [
        Op(start, end, "kernel", shape, place[call], rank, 7, rank)
        for start, end, shape, rank, call in ops
    ]
    devices = tuple(Device("NVIDIA H200", (9, 0), index=i) for i in range(2))
    return Trace(
        source="test", program="ddp.py", devices=devices, shapes=SHAPES, names=("cudaLaunchKernel",),
        ops=tuple(sorted(made, key=lambda op: (op.start, op.end))), calls=tuple(calls[i] for i in order),
    )  # fmt: skip


def test_a_trace_of_two_ranks_is_one_answer() -> None:
    result = judged(_two(late_ns=400_000), "t", Analysis(()))
    assert result.job is not None
    first, second = result.job.rows
    assert first.waiting_us == pytest.approx(400, rel=0.01)
    assert first.traffic_us == second.traffic_us == pytest.approx(100, rel=0.01)
    assert second.waiting_us == 0
    for row in result.job.rows:
        parts = row.compute_us + row.traffic_us + row.waiting_us + row.idle_us
        assert parts == pytest.approx(row.step_us)
    assert result.job.late is second
    assert result.job.findings[0].rule == "late-rank"
    assert result.job.findings[0].ceiling_us == pytest.approx(400, rel=0.01)


def test_bus_bandwidth_is_what_a_link_moves_once_all_ranks_are_there() -> None:
    sized = [
        msgspec.structs.replace(op, size=20_000_000) if op.shape == 0 else op
        for op in _two(late_ns=400_000).ops
    ]
    job = judged(
        msgspec.structs.replace(_two(late_ns=400_000), ops=tuple(sized)), "t", Analysis(())
    ).job
    assert job is not None
    (reduces,) = job.exchanges
    assert reduces.size == 20_000_000
    # of two ranks, each sends and receives a half of the message twice; 100 us of traffic
    assert reduces.bandwidth == pytest.approx(20e6 / 100e-6, rel=0.01)
    assert any("450 GB/s each way" in each.note for each in job_answer(job).tables)


def test_a_job_without_a_late_rank_has_none() -> None:
    job = judged(_two(), "t", Analysis(())).job
    assert job is not None
    assert job.late is None
    assert [each.rule for each in job.findings] == ["exposed-all-reduce"]


@pytest.mark.parametrize(("call_ns", "late"), [((400, 400), False), ((400, 600), True)])
def test_ranks_that_launch_alike_have_no_late_one(call_ns: tuple[int, int], late: bool) -> None:
    """The host sets the pace of both; one is behind, by chance or since its launches take longer."""
    job = judged(_two(gaps=(20_000, 40_000), call_ns=call_ns), "t", Analysis(())).job
    assert job is not None
    assert job.latest is job.rows[1]
    assert (job.late is not None) == late
    assert "launch-bound" in [each.rule for each in job.findings]


@pytest.mark.parametrize(("gaps", "late"), [((20_000, 40_000), True), ((1000, 90_000), False)])
def test_a_rank_is_late_where_its_host_explains_most_of_its_idle_time(
    gaps: tuple[int, int], late: bool
) -> None:
    """A pause of 0.8 ms is most of what its GPU idles longer, or 60 %."""
    job = judged(_two(late_ns=800_000, gaps=gaps), "t", Analysis(())).job
    assert job is not None
    assert job.latest is job.rows[1]
    assert (job.late is not None) == late


def test_gradients_that_accumulate_are_exchanged_once() -> None:
    wrong = judged(_two(passes=4, exchanges=4), "t", Analysis(())).job
    right = judged(_two(passes=4, exchanges=1), "t", Analysis(())).job
    assert wrong is not None
    assert right is not None
    assert "no_sync" in wrong.findings[0].advice[0]
    assert "4 passes" in wrong.findings[0].title
    assert not any("no_sync" in line for each in right.findings for line in each.advice)


def test_clocks_that_differ_and_drift_are_aligned() -> None:
    first, second = split(_two(late_ns=400_000, steps=40))

    def moved(value: int) -> int:
        return round(7_000_000 + 1.0001 * value)

    ops = tuple(msgspec.structs.replace(op, start=moved(op.start), end=moved(op.end)) for op in second.ops)  # fmt: skip
    calls = tuple(msgspec.structs.replace(x, start=moved(x.start), end=moved(x.end)) for x in second.calls)  # fmt: skip
    second = msgspec.structs.replace(second, ops=ops, calls=calls)
    job = job_of([timeline(find_step(each), "") for each in (first, second)], "")
    assert job is not None
    assert job.error_us < 1
    assert job.rows[0].waiting_us == pytest.approx(400, rel=0.01)


def test_programs_that_share_no_collective_are_no_job() -> None:
    first, second = split(_two())
    lone = msgspec.structs.replace(second, rank=0)
    assert job_of([timeline(find_step(each), "") for each in (first, lone)], "") is None


def test_a_folder_of_many_ranks_is_one_short_answer(tmp_path: Path) -> None:
    many_ranks.write(tmp_path, 8, 4000)
    (answer,) = answers_of(analyze_programs([tmp_path]))
    assert "8 ranks" in answer.headline
    assert "rank 5 is late" in answer.headline


def test_a_damaged_rank_is_named_and_the_others_answered(tmp_path: Path) -> None:
    many_ranks.write(tmp_path, 7, 4000)
    (tmp_path / "rank3.pt.trace.json").write_bytes(b'{"traceEvents": [')
    programs = analyze_programs([tmp_path])
    assert "6 ranks" in answers_of(programs)[0].headline
    assert len(programs.errors) == 1


@pytest.mark.skipif(not EIGHT.is_dir(), reason="the public traces are not here")
def test_eight_ranks_wait_for_the_seventh() -> None:
    (result,) = analyze_programs([EIGHT]).traces
    assert result.job is not None
    assert result.job.late is not None
    assert (result.job.late.rank, result.job.late.last, result.job.in_step) == (7, 5, 8)
    assert result.job.rows[1].waiting_us == pytest.approx(10_858, rel=0.01)
    assert result.job.error_us < 10
    assert {each.kind: each.count for each in result.job.exchanges} == {
        "all-to-all": 5,
        "all-reduce": 3,
    }


@pytest.mark.skipif(not EIGHT.is_dir(), reason="the public traces are not here")
def test_a_rank_that_begins_late_has_a_possible_cause(tmp_path: Path) -> None:
    """What makes it late was not recorded. What its step has beyond a usual one's is not what costs that
    step most, and says so; savings are in order; the page names the rank whose step it shows."""
    (result,) = analyze_programs([EIGHT]).traces
    assert result.job is not None
    assert result.found is not None
    late = result.job.findings[0]
    assert late.confidence == "low"
    assert "lies before what was recorded. More than on rank 6: CPU-bound. The GPU" in late.summary
    assert result.found.costly[0].rule != "host-work"
    rows = job_answer(result.job).cards[0].then
    assert [row[0].partition(",")[0] for row in rows] == [
        "Launch-bound",
        "Synchronisation inside the step",
    ]
    page = tmp_path / "page.html"
    write_program_page(result.found, page, job=result.job)
    assert "Where does the time of the step of rank 7 go?" in page.read_text()


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all-reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(...)", "reduce-scatter"),
        ("ncclDevKernel_AllGather_RING_LL(...)", "all-gather"),
        ("ncclDevKernel_Broadcast_RING_LL(...)", "broadcast"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(...)", "all-to-all"),
        ("nccl:all_to_all", "all-to-all"),
    ],
)  # fmt: skip
def test_kinds(kernel: str, kind: str) -> None:
    assert exchange_kind(kernel) == kind


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("torchrun --nproc_per_node=2 ddp_resnet.py --epochs 3", "ddp_resnet.py"),
        ("python -m torch.distributed.run --nproc_per_node 2 a/ddp.py", "ddp.py"),
        ("mpirun -np 2 python train.py", "train.py"),
        ("python train.py torchrun", "train.py"),
    ],
)
def test_a_run_is_called_by_its_script(command: str, name: str) -> None:
    assert name_of(command.split()) == name
