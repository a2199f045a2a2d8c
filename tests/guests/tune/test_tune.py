"""The tuner without a GPU: the search space, pruning, halving, interruption and resumption, what is
kept, and the landscape it reports."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_gpu
import pytest
from click.testing import CliRunner
from ladder_runs import Quiet

from ncu_toolkit.base.core import cache
from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    InputProblem,
    KernelProblem,
    UsageProblem,
)
from ncu_toolkit.base.core.workers import Done
from ncu_toolkit.base.model import Device
from ncu_toolkit.base.model.codec import document
from ncu_toolkit.base.model.run import RunCase
from ncu_toolkit.cli import cli
from ncu_toolkit.guests.tune import halving, tune
from ncu_toolkit.guests.tune import view as tune_view
from ncu_toolkit.guests.tune.halving import (
    FINALISTS,
    FIRST_REPEATS,
    LAST_REPEATS,
    Parameters,
    Round,
    Search,
    Searcher,
    Trial,
)
from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.build.nvcc import Resources
from ncu_toolkit.kernel.gpu import cuda, selection, timing, tuned
from ncu_toolkit.kernel.gpu.selection import case_of
from ncu_toolkit.kernel.ladder.catalogue import find_rung
from ncu_toolkit.kernel.ladder.problems import Size, problem_for
from ncu_toolkit.kernel.ladder.rung import LaunchGeometry, Rung

GPU = "NVIDIA H200 under test"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))


def size_of(text: str) -> Size:
    return problem_for("gemm_fp32").parse_size(text)


def autotuned() -> Rung:
    return find_rung("autotuned")


def search_of(trials: tuple[Trial, ...], default: Mapping[str, int]) -> Search:
    return Search("gemm_fp32", "autotuned", "4096", "float32", GPU, "0123abcd", 1, default, trials)


def grid(count: int, state: str = "ready") -> Search:
    """Settings n = 0 … count - 1, of which `cost` makes n = 7 the fastest; the header's own is n =
    0."""
    trials = tuple(Trial({"n": n, "half": n // 2}, state) for n in range(count))  # type: ignore[arg-type]
    return search_of(trials, {"n": 0, "half": 0})


def cost(parameters: Parameters) -> float:
    return 100.0 + 5 * abs(parameters["n"] - 7) + (0.01 if parameters["n"] > 7 else 0)


class FakeGpu:
    """Times settings by `cost`, with a drift that the baseline beside each run shares, and
    remembers what was asked."""

    def __init__(self, fails: frozenset[int] = frozenset(), stop_after: int | None = None) -> None:
        self.fails, self.stop_after = fails, stop_after
        self.asked: list[tuple[int, int, float | None]] = []

    def __call__(self, parameters: Parameters, repeats: int, limit_us: float | None) -> Round:
        if self.stop_after is not None and len(self.asked) >= self.stop_after:
            raise KeyboardInterrupt
        self.asked.append((parameters["n"], repeats, limit_us))
        if parameters["n"] in self.fails:
            raise KernelProblem("computed a wrong result")
        drift = 1 + len(self.asked) / 50  # a clock that falls
        runs = repeats if limit_us is None or cost(parameters) * drift <= limit_us else 1
        return Round((cost(parameters) * drift,) * runs, (100.0 * drift,) * runs)


def test_the_space_holds_what_constraints_allow() -> None:
    rung = autotuned()
    found, forbidden = halving.settings(rung)
    assert found[0] == rung.with_parameters()
    assert len(found) + forbidden == 432
    assert len({tuple(sorted(each.items())) for each in found}) == len(found)
    for each in found:
        threads = each["BM"] // each["TM"] * (each["BN"] // each["TN"])
        assert threads % 32 == 0
        assert threads <= 1024
        assert 4 * (each["BM"] + each["BN"]) * each["BK"] <= 49152
    fewer, _ = halving.settings(rung, 20, seed=3)
    assert len(fewer) == 20
    assert fewer[0] == rung.with_parameters()
    assert fewer == halving.settings(rung, 20, seed=3)[0]
    assert halving.settings(rung, 1)[0] == [rung.with_parameters()]
    with pytest.raises(UsageProblem, match="no parameters to search"):
        halving.settings(find_rung("cublas"))


@pytest.mark.parametrize(
    ("threads", "used", "dynamic", "reason"),
    [
        (256, Resources(128), 0, ""),
        (256, Resources(255, 64, 32, 32), 0, "spills 64 bytes"),
        (1024, Resources(128), 0, "128 registers for 1024 threads are more than a block may have"),
        (128, Resources(64), 250_000, "250000 bytes of shared memory, a block may have 232448"),
    ],
)
def test_pruning_by_resources(threads: int, used: Resources, dynamic: int, reason: str) -> None:
    launch = LaunchGeometry("k", (1, 1, 1), (threads, 1, 1), dynamic, ())
    assert halving.prune((9, 0), {"k": used}, (launch,))[0] == reason
    _, seen = halving.prune(
        (9, 0),
        {"k": Resources(128, shared=1024)},
        (LaunchGeometry("k", (1, 1, 1), (256, 1, 1), 0, ()),),
    )
    assert (seen.registers, seen.shared, seen.warps) == (128, 1024, 16)
    assert "no kernel k" in halving.prune((9, 0), {}, (launch,))[0]


def test_halving_finds_the_fastest_and_spends_its_runs_on_it() -> None:
    timer = FakeGpu()
    done = Searcher(grid(100), lambda _: None).run(timer)
    assert done.finished
    assert done.ranked()[0].parameters["n"] == 7
    assert done.ranked()[0].score() == pytest.approx(1.0)  # of the baseline: the drift is not in it
    assert done.ranked()[0].beside_us is not None
    per_setting = {
        n: sum(repeats for asked, repeats, _ in timer.asked if asked == n) for n in range(100)
    }
    assert per_setting[7] > LAST_REPEATS
    assert per_setting[99] == FIRST_REPEATS
    own = done.own
    assert own is not None
    assert len(own.rounds) == len(
        done.ranked()[0].rounds
    )  # the header's own parameters are never dropped
    assert len([t for t in done.timed if len(t.rounds) == len(own.rounds)]) <= FINALISTS


def test_a_hopeless_setting_runs_once() -> None:
    slow = search_of(
        (Trial({"n": 7, "half": 3}, "ready"), Trial({"n": 200, "half": 100}, "ready")),
        {"n": 7, "half": 3},
    )
    many = tuple(Trial({"n": 7, "half": k}, "ready") for k in range(20)) + slow.trials[1:]
    done = Searcher(search_of(many, {"n": 7, "half": 0}), lambda _: None).run(FakeGpu())
    (last,) = [trial for trial in done.trials if trial.parameters["n"] == 200]
    assert [len(r.times_us) for r in last.rounds] in (
        [1],
        [FIRST_REPEATS],
    )  # three where it came first of all, in an order that is shuffled
    assert done.ranked()[0].parameters["n"] == 7


def test_settings_that_fail_are_left_out() -> None:
    done = Searcher(grid(30), lambda _: None).run(FakeGpu(fails=frozenset({7, 8})))
    assert done.ranked()[0].parameters["n"] == 6
    assert {t.parameters["n"] for t in done.trials if t.state == "failed"} == {7, 8}
    assert halving.fallen(done) == {"computed a wrong result": 2}


def test_all_fail() -> None:
    with pytest.raises(
        KernelProblem,
        match=r"none of 5 settings of autotuned can be used at 4096: 5 x computed a wrong result",
    ):
        Searcher(grid(5), lambda _: None).run(FakeGpu(fails=frozenset(range(5))))
    with pytest.raises(KernelProblem, match="none of 3 settings"):
        Searcher(grid(3, "pruned"), lambda _: None).run(FakeGpu())


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [0, 1, 37, 100, 130])
def test_an_interrupted_search_goes_on(stop_after: int) -> None:
    """What was measured is kept and not measured again, and the same setting wins."""
    whole = FakeGpu()
    Searcher(grid(100), halving.save).run(whole)
    fresh = grid(100)
    halving.forget(fresh)
    first = FakeGpu(stop_after=stop_after)
    searcher = Searcher(
        fresh, lambda _: None, lambda parameters, running: halving.mark(fresh, parameters, running)
    )
    with pytest.raises(KeyboardInterrupt):
        searcher.run(first)
    halving.save(searcher.search)
    assert not halving.marker(fresh).exists()  # an interruption is not the setting's fault
    again = FakeGpu()
    done = Searcher(halving.resume(fresh), halving.save).run(again)
    assert [asked[:2] for asked in first.asked + again.asked] == [
        asked[:2] for asked in whole.asked
    ]
    assert done.ranked()[0].parameters["n"] == 7
    assert halving.resume(fresh).finished


def test_a_setting_that_kills_the_program_twice_is_left_out() -> None:
    fresh = grid(4)
    for strike in range(halving.STRIKES):
        assert halving.resume(fresh).trials[2].state == "ready", strike
        halving.mark(fresh, fresh.trials[2].parameters, True)  # and the program is killed
        halving.mark(fresh, fresh.trials[1].parameters, True)
        halving.mark(fresh, fresh.trials[1].parameters, False)
    resumed = halving.resume(fresh)
    assert [trial.state for trial in resumed.trials] == ["ready", "ready", "failed", "ready"]
    assert "ended while it ran" in resumed.trials[2].reason


def test_a_damaged_state_is_said() -> None:
    fresh = grid(3)
    halving.save(fresh)
    fresh.path.write_text(fresh.path.read_text()[:50])
    with pytest.raises(InputProblem, match="cannot be read"):
        halving.resume(fresh)
    halving.forget(fresh)
    assert halving.resume(fresh) == fresh


def entry(size: str = "4096", **parameters: int) -> tuned.TunedEntry:
    values = {"BM": 128, "BN": 128, "BK": 16, "TM": 8, "TN": 8, **parameters}
    source = nvcc.source_digest(autotuned())
    return tuned.TunedEntry(
        "gemm_fp32",
        "autotuned",
        size,
        "float32",
        values,
        100.0,
        246,
        source,
        "2025-01-01T00:00:00Z",
        "0",
    )


def test_the_launcher_finds_what_was_tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rung = autotuned()
    shipped = tmp_path / "shipped"
    monkeypatch.setattr(tuned, "shipped_folder", lambda: shipped)
    assert tuned.lookup(rung, "4096", "float32", GPU) is None  # neither folder is there
    tuned.store(GPU, [entry(BK=8)], shipped)
    found = tuned.lookup(rung, "4096", "float32", GPU)
    assert found is not None
    assert found.parameters["BK"] == 8
    path = tuned.store(GPU, [entry(), entry("8192", BM=64)])
    assert path.name == "nvidia-h200-under-test.json"
    tuned.store(GPU, [entry(BK=32)])  # instead of the first
    own = tuned.lookup(rung, "4096", "float32", GPU)
    assert own is not None
    assert own.parameters["BK"] == 32
    for size, dtype, name in (
        ("1024", "float32", GPU),
        ("4096", "float16", GPU),
        ("4096", "float32", "NVIDIA A100"),
    ):
        assert tuned.lookup(rung, size, dtype, name) is None


def test_an_entry_that_the_kernel_no_longer_takes_is_not_used() -> None:
    tuned.store(GPU, [entry(BM=48), entry("8192", GONE=1)])
    assert tuned.lookup(autotuned(), "4096", "float32", GPU) is None
    assert tuned.lookup(autotuned(), "8192", "float32", GPU) is None


def test_an_entry_of_another_source_is_not_used_and_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ncu_toolkit.kernel.gpu.cuda.device", lambda: Device(GPU, (9, 0)))
    tuned.store(
        GPU,
        [
            entry(BK=8),
            entry("8192", BK=8),
            replace(entry("1024", BK=32), source="0123"),
            replace(entry("2048", BM=64), finished=False),
        ],
    )
    assert tuned.lookup(autotuned(), "1024", "float32", GPU) is None
    cases = tuple(
        case_of(autotuned(), size_of(text), "float32")
        for text in ("512", "1024", "2048", "4096", "8192")
    )
    settled = partial(selection.settled, device=Device(GPU, (9, 0)), run=lambda *_: ())
    found, (used, old) = settled(cases, True)
    own = autotuned().with_parameters()
    assert found[1].parameters == own
    assert found[3].parameters == {**own, "BK": 8}
    assert "BM=64 at 2048 (the fastest of 246 that were timed); BK=8 at 4096; BK=8 at 8192" in used
    assert "--no-tuned" in used
    assert "at 1024 is for another version of autotuned and is not used" in old
    assert "512" not in used + old
    overridden = tuple(replace(case, parameters={**own, "BM": 32}) for case in cases)
    assert settled(overridden, True) == (overridden, []), "--param goes before it"
    plain, lines = settled(cases, False)
    assert ([case.parameters for case in plain], lines) == ([own] * 5, [])


def test_what_a_model_names_is_timed_once_and_the_fastest_is_kept() -> None:
    rung, problem = find_rung("gemm_tensor/wgmma_fitted"), problem_for("gemm_tensor")
    sizes = [problem.parse_size(size) for size in ("3000", "3000", "1000x1000x64")]
    cases = tuple(case_of(rung, size, "bfloat16") for size in sizes)
    asked: list[tuple[object, ...]] = []

    def run(function: Any, tasks: Any) -> Any:
        """The second of the model's settings is the fastest; the last size fails."""
        assert function is timing.promising_timed
        asked[:] = list(tasks)
        first, second, *_ = [each for _, each in rung.promising(cases[0].dims, 132)]
        yield Done(1, error=EnvironmentProblem("the GPU ran out of memory"))
        yield Done(0, [(50.0, second), (51.0, first)])

    settled = partial(selection.settled, device=Device(GPU, (9, 0), sm_count=132), run=run)
    (one, again, other), lines = settled(cases, True)
    assert asked == [("gemm_tensor/wgmma_fitted", size, "bfloat16") for size in sizes[1:]]
    assert one.parameters == again.parameters == rung.promising(one.dims, 132)[1][1]
    assert other.parameters == rung.with_parameters()
    text = "\n".join(lines)
    assert "at 1000x1000x64 could not be timed, so it runs as its file says: the GPU ran" in text
    assert "at 3000 (the fastest of 2 that were timed)" in text

    asked.clear()
    (kept,), _ = settled(cases[:1], True)
    assert kept == one
    assert settled(cases[:1], False)[0][0].parameters == rung.with_parameters()
    assert settled((one,), True) == ((one,), []), "--param goes before it"
    assert not asked, "timed once"
    mine = {**one.parameters, "BAND": 4}
    found = tuned.TunedEntry(*one_key(one), mine, 1.0, 9, one.source, "", "")
    tuned.store(GPU, [found])
    assert settled(cases[:1], True)[0][0].parameters == mine, "a search goes before it"


def one_key(case: RunCase) -> tuple[str, str, str, str]:
    return case.family, case.rung, case.size, case.dtype


def test_the_settings_of_a_model_are_verified_and_timed_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a stopwatch that has the times."""
    rung = find_rung("gemm_fp32/register_blocked_tma")
    size = problem_for("gemm_fp32").parse_size("3000")
    names = [each for _, each in rung.promising(size.as_dict(), 132)]
    assert len(names) > 1
    done: list[str] = []
    verified: list[Mapping[str, int]] = []

    def bind(rung: object, space: object, parameters: Mapping[str, int]) -> Any:
        assert done == ["built"], "in parallel, before they are bound"
        verified.append(parameters)
        return SimpleNamespace(run=None)

    def in_turns(xp: object, runs: list[Any]) -> list[float]:
        assert verified == names
        return [float(len(runs) - index) for index in range(len(runs))]

    gpu = Device(GPU, (9, 0), sm_count=132)
    monkeypatch.setattr("ncu_toolkit.kernel.gpu.cuda.device", lambda: gpu)
    monkeypatch.setattr("ncu_toolkit.kernel.gpu.cuda.cupy", lambda: None)
    monkeypatch.setattr(timing.nvcc, "build_many", lambda requests: done.append("built"))
    monkeypatch.setattr(timing, "Workspace", lambda *of: of)
    monkeypatch.setattr(timing, "bind_verified", bind)
    monkeypatch.setattr(timing, "in_turns", in_turns)
    ranked = timing.promising_timed("gemm_fp32/register_blocked_tma", size, "float32")
    assert [each for _, each in ranked] == names[::-1]


def test_an_unfinished_search_is_kept_but_replaces_no_finished_one() -> None:
    found, folder = entry(BK=8), tuned.own_folder()
    for each, best in (
        (replace(found, finished=False), 8),
        (entry(BK=32), 32),
        (replace(found, finished=False), 32),
    ):
        tuned.store_search(GPU, each, {"landscape of": each.parameters["BK"]})
        table = tuned.read_table(folder / tuned.file_name(GPU))
        assert table is not None
        assert [kept.parameters["BK"] for kept in table.entries] == [best]
        assert json.loads((folder / tuned.landscape_name(GPU, *each.key)).read_text()) == {
            "landscape of": best
        }
    tuned.store_search(GPU, replace(found, finished=False, source="other"), {})
    table = tuned.read_table(folder / tuned.file_name(GPU))
    assert table is not None
    assert not table.entries[0].finished


def test_shipped_tables_are_whole() -> None:
    """Each shipped table is readable, lies under its GPU's name, and holds settings of the sources
    as they are, each with its landscape."""
    for path in tuned.shipped_folder().glob("*.json"):
        table = tuned.read_table(path)
        assert table is not None
        assert path.name == tuned.file_name(table.gpu)
        for each in table.entries:
            rung = find_rung(f"{each.family}/{each.rung}")
            rung.with_parameters(each.parameters)
            assert each.source == nvcc.source_digest(rung), (
                f"{rung.name} has changed since it was tuned: tune it again, or take its entries out"
            )
            searches = {
                search.size: search for search in tune_view.kept(table.gpu, each.family)[each.rung]
            }
            assert dict(searches[each.size].ranked()[0].parameters) == dict(each.parameters)


@pytest.mark.parametrize(
    ("kernel", "size", "error"),
    [("cublas", "1024", UsageProblem), ("autotuned", "0", UsageProblem), ("autotuned", "1024", EnvironmentProblem)],
)  # fmt: skip
def test_requests_that_cannot_be_carried_out(
    monkeypatch: pytest.MonkeyPatch, kernel: str, size: str, error: type[Exception]
) -> None:
    def no_gpu() -> None:
        raise EnvironmentProblem("no usable GPU")

    monkeypatch.setattr("ncu_toolkit.kernel.gpu.cuda.cupy", no_gpu)
    done = CliRunner().invoke(cli, ["tune", "--kernel", kernel, "--size", size])
    assert isinstance(done.exception, error)


def test_a_time_limit_leaves_time_to_run_what_is_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Compiling takes half of the time that is left; what is ready by then is timed and the best of
    it kept; the next call does the rest."""
    monkeypatch.setattr(
        "ncu_toolkit.kernel.gpu.cuda.device", lambda: Device(GPU, (9, 0), sm_count=132)
    )
    monkeypatch.setattr("ncu_toolkit.kernel.gpu.cuda.cupy", lambda: None)
    clock = itertools.count()
    monkeypatch.setattr(tune.time, "monotonic", lambda: float(next(clock)))
    compiled: list[int] = []
    names: list[str] = []

    def build_many(requests: list[nvcc.BuildRequest], *_: object) -> list[nvcc.BuildOutcome]:
        compiled.append(len(requests))
        entries = {"autotuned": Resources(128)}
        cubin = nvcc.BuiltCubin(tmp_path / "k.cubin", "sm_90", entries, {}, "", (), "")
        return [nvcc.BuildOutcome(request, cubin) for request in requests]

    class Bench:
        def __init__(self, *_: object) -> None:
            pass

        def measure(self, parameters: Parameters, repeats: int, limit_us: float | None) -> Round:
            names.append(str(sorted(parameters.items())))
            return Round((1000.0 / parameters["BK"],) * repeats, (50.0,) * repeats)

    monkeypatch.setattr(nvcc, "build_many", build_many)
    monkeypatch.setattr(tune, "_Bench", Bench)
    stopped = tune.run(
        tune.TuneRequest(autotuned(), size_of("1024"), most=40, seconds=12, jobs=1), Quiet()
    )
    assert not stopped.finished
    assert 0 < sum(compiled) < 40
    assert len(stopped.timed) == sum(trial.state == "ready" for trial in stopped.trials) > 0
    kept = tuned.lookup(autotuned(), "1024", "float32", GPU)
    assert kept is not None
    assert not kept.finished
    assert "not finished" in tune_view.write(stopped, tmp_path).read_text()
    done = tune.run(tune.TuneRequest(autotuned(), size_of("1024"), most=40, jobs=1), Quiet())
    assert done.finished
    assert sum(compiled) == 40 - sum(
        "threads" in trial.reason for trial in done.trials
    )  # none twice
    last = tuned.lookup(autotuned(), "1024", "float32", GPU)
    assert last is not None
    assert last.finished
    assert last.parameters["BK"] == max(trial.parameters["BK"] for trial in done.timed)
    request, before = tune.TuneRequest(autotuned(), size_of("1024"), most=40, jobs=1), len(names)
    assert tune.run(request, Quiet()) == done
    assert len(names) == before, "a finished search is shown again"
    assert tune.run(replace(request, restart=True), Quiet()).finished
    assert len(names) > before


def test_the_family_page_shows_the_landscape() -> None:
    done = Searcher(grid(100), lambda _: None).run(FakeGpu(fails=frozenset({3})))
    for size in ("1024", "4096"):
        each = replace(done, size=size)
        tuned.store_search(GPU, tune.entry_of(each), document(halving.KIND, each.compact()))
    text = "/*+++\n[parameters]\nn = 0   # rows of a tile\nhalf = 0\n\n[search]\nn = [1]  # none\n+++*/"
    drawn = partial(tune_view.charts, GPU, "gemm_fp32", texts={"autotuned": text})
    (chart,) = drawn(shown="1024")
    assert [trace["visible"] for trace in chart.figure["data"]] == [True, False]
    assert chart.figure["layout"]["updatemenus"][0]["active"] == 0
    (chart,) = drawn(shown="2048")
    assert [trace["visible"] for trace in chart.figure["data"]] == [False, True]
    assert "Empty cells have no timed setting" in chart.summary
    assert chart.summary.endswith(" Parameters: n (rows of a tile).")
    assert len(chart.figure["layout"]["updatemenus"][0]["buttons"]) == 2
    assert [row[1].text for row in chart.table.rows] == ["n 7 half 3"] * 2
    assert tune_view.charts("NVIDIA A100", "gemm_fp32", "1024", {}) == ()
    (
        tuned.own_folder() / tuned.landscape_name(GPU, "gemm_fp32", "autotuned", "1024", "float32")
    ).write_text("{")
    assert len(drawn(shown="1024")[0].figure["data"]) == 1  # the other one is drawn


def test_few_settings_are_bars_and_one_alone_is_no_search(tmp_path: Path) -> None:
    """A heat map of one parameter over itself would show a diagonal."""
    for size, count in (("1024", 3), ("4096", 1)):
        trials = tuple(Trial({"n": n, "half": 0}, "ready") for n in range(count))
        each = replace(search_of(trials, {"n": 0, "half": 0}), size=size)
        done = Searcher(each, lambda _: None).run(FakeGpu())
        tuned.store_search(GPU, tune.entry_of(done), document(halving.KIND, done.compact()))
        (only,) = tune_view.figure(done)["data"]
        assert only["type"] == "bar"
    (chart,) = tune_view.charts(GPU, "gemm_fp32", "4096", {})
    (trace,) = chart.figure["data"]
    assert (trace["type"], trace["y"]) == ("bar", ["n 0", "n 1", "n 2"])
    assert [row[0].text for row in chart.table.rows] == ["1024 float32"]
    assert "mpty cells" not in chart.summary


def test_a_heat_map_takes_parameters_that_combine_freely() -> None:
    """`half` follows from `n`: their pair would be empty but for a diagonal."""
    trials = tuple(
        Trial({"n": n, "half": n // 2, "k": k}, "ready") for n in range(4) for k in range(4)
    )
    each = search_of(trials, {"n": 0, "half": 0, "k": 0})
    done = Searcher(each, lambda _: None).run(FakeGpu())
    assert tune_view.weightiest(done) == ("n", "k")


class Watch:
    """A stopwatch that runs the work and counts: each run takes one microsecond more than the one
    before."""

    def __init__(self, cache: str) -> None:
        self.runs = 0

    def enqueue(self, run: Callable[[], None]) -> int:
        run()
        self.runs += 1
        return self.runs

    def elapsed_us(self, events: int) -> float:
        return float(events)


def bench(
    monkeypatch: pytest.MonkeyPatch, folder: Path, deadline: float | None = None
) -> tuple[tune._Bench, fake_gpu.FakeCupy]:
    fake = fake_gpu.install(monkeypatch, folder)
    fake.behaviours["autotuned"] = fake_gpu.product
    monkeypatch.setattr(tune, "Stopwatch", Watch)
    monkeypatch.setattr(
        tune, "_baseline", lambda rung, space: tune.Runnable(find_rung("naive"), space)
    )
    fake.behaviours["naive"] = fake_gpu.product
    return tune._Bench(autotuned(), size_of("5x6x8"), "float32", deadline), fake


def test_a_setting_is_verified_once_and_timed_beside_the_baseline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    timer, fake = bench(monkeypatch, tmp_path)
    own = autotuned().with_parameters()
    taken = timer.measure(own, 3, None)
    assert taken == Round((2.0, 4.0, 6.0), (1.0, 3.0, 5.0))  # baseline and setting by turns
    launched = [event for event in fake.events if event in ("naive", "autotuned")]
    assert launched == ["autotuned", *["naive", "autotuned"] * 3]
    assert timer.measure(own, 3, 5.0) == Round((8.0,), (7.0,))  # beyond the limit: once is enough
    fake.behaviours["autotuned"] = fake_gpu.forgetful
    with pytest.raises(KernelProblem, match="wrong result"):
        timer.measure({**own, "BK": 8}, 3, None)


def test_what_the_gpu_says_is_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An error of a launch is that setting's; a context that is lost ends the command; so does the
    deadline, before anything runs."""
    timer, fake = bench(monkeypatch, tmp_path)

    def broken(arguments: Mapping[str, object]) -> None:
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access")

    fake.behaviours["autotuned"] = broken
    with pytest.raises(KernelProblem, match="failed on the GPU: CUDA_ERROR_ILLEGAL_ADDRESS"):
        timer.measure(autotuned().with_parameters(), 3, None)

    def lost(what: str) -> None:
        raise KernelProblem(f"{what} failed on the GPU: CUDA_ERROR_ILLEGAL_ADDRESS")

    monkeypatch.setattr(cuda, "synchronize", lost)
    with pytest.raises(EnvironmentProblem, match="goes on without the setting"):
        timer.measure(autotuned().with_parameters(), 3, None)
    late, fake = bench(monkeypatch, tmp_path, deadline=0.0)
    before = list(fake.events)
    with pytest.raises(tune._OutOfTime):
        late.measure(autotuned().with_parameters(), 3, None)
    assert fake.events == before
