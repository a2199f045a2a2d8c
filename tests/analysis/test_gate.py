"""compare as a gate: what is paired, when a difference counts, what an expression says, and the
exit codes."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import random
from pathlib import Path
from typing import Any

import mutation
import pytest
import report_files

from ncu_toolkit.base.core.errors import (
    EXIT_GATE,
    EXIT_INPUT,
    EXIT_USAGE,
    EnvironmentProblem,
    InputProblem,
    UsageProblem,
)
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.cli import main
from ncu_toolkit.kernel.analysis import analyze, answers, gate
from ncu_toolkit.kernel.analysis.gate import Side
from ncu_toolkit.kernel.report import framing, integrity
from ncu_toolkit.kernel.runs import baselines


def side(name: str, *times: float, device: str = "GPU", status: str = "complete") -> Side:
    return Side(name, device, times, status=status)


def sides(*found: Side) -> dict[tuple[object, ...], Side]:
    return {(each.name, i): each for i, each in enumerate(found)}


def compared(old: Side, new: Side, *texts: str) -> gate.Comparison:
    return gate.compare(sides(old), sides(new), gates=[gate.parse_gate(text) for text in texts])


def test_a_planted_regression_is_caught_and_noise_is_not() -> None:
    """Ten repeats with 2% noise, a thousand times: 10% slower is caught, the same kernel again
    passes."""
    chance = random.Random(5)

    def runs(middle: float) -> tuple[float, ...]:
        return tuple(chance.gauss(middle, 0.02 * middle) for _ in range(10))

    caught = sum(
        bool(compared(side("k", *runs(100)), side("k", *runs(110)), "time>5%").failures)
        for _ in range(1000)
    )
    false = sum(
        bool(compared(side("k", *runs(100)), side("k", *runs(100)), "time>2%").failures)
        for _ in range(1000)
    )
    assert caught > 950
    assert false < 10


def test_a_slowdown_of_five_percent_is_called_by_permutation() -> None:
    """200 times each, 20 repeats with noise that is not normal: one repeat in ten is slow."""
    draw = random.Random(3)

    def runs(middle: float) -> tuple[float, ...]:
        return tuple(
            draw.gauss(middle, 0.02 * middle) * (1.3 if draw.random() < 0.1 else 1)
            for _ in range(20)
        )

    def alarms(slower: float) -> int:
        found = (
            compared(side("k", *runs(100)), side("k", *runs(100 * slower)), "time>0%")
            for _ in range(200)
        )
        return sum(bool(each.failures) for each in found)

    assert alarms(1.05) >= 190
    assert alarms(1.0) < 2


def test_the_p_value_is_that_of_all_divisions(monkeypatch: pytest.MonkeyPatch) -> None:
    five = tuple(map(float, range(5)))
    later = tuple(time + 5 for time in five)
    assert gate.chance(five, later) == 2 / 252, "the most extreme of 252 divisions, on both ends"
    assert gate.chance(five, five) == 1
    assert gate.chance(five[:4], later[:4]) is None, "four repeats per side cannot be certain"
    many = tuple(map(float, range(30)))
    apart = gate.chance(many, tuple(time + 30 for time in many))
    assert apart == pytest.approx(2 / math.comb(60, 30))
    draw = random.Random(1)
    old, new = (tuple(draw.gauss(middle, 1) for _ in range(40)) for middle in (0, 0.5))
    counted = gate.chance(old, new)
    monkeypatch.setattr(gate, "_COUNTED", 0)
    gate.chance.cache_clear()
    assert gate.chance(old, new) == pytest.approx(counted, abs=0.02), "as a sample finds"
    gate.chance.cache_clear()


def test_what_chance_makes_as_large_is_not_certain() -> None:
    """The medians differ, and so little do the repeats of each around them that the noise does not
    cover it; but half of each side lies on the other's."""
    old, new = side("k", 1, 1, 1, 9, 9), side("k", 1, 1, 9, 9, 9)
    found = compared(old, new, "time>5%")
    difference = found.pairs[0].difference("time")
    assert difference is not None
    assert difference.p is not None
    assert difference.p > 0.5
    assert (difference.certain_change, found.failures) == (0, ())


def test_noise_is_that_of_the_medians() -> None:
    found = compared(side("k", 98, 100, 102), side("k", 100, 102, 104)).pairs[0].difference("time")
    assert found is not None
    assert (found.old, found.new, found.change) == (100, 102, 0.02)
    one = 1.2533 * 1.4826 * 2 / 3**0.5
    assert found.noise == pytest.approx(2 * (2 * one**2) ** 0.5)
    assert found.certain_change == 0, "two percent are within the noise"
    single = compared(side("k", 100.0), side("k", 110.0)).pairs[0].difference("time")
    assert single is not None
    assert (single.noise, single.certain_change) == (0, pytest.approx(0.1)), (
        "single launches say nothing of their noise"
    )
    borrowed = compared(side("k", 98, 100, 102), side("k", 110.0)).pairs[0].difference("time")
    assert borrowed is not None
    assert borrowed.noise == pytest.approx(found.noise)
    assert 0 < borrowed.certain_change < 0.1


@pytest.mark.parametrize(
    ("text", "old", "new", "failed"),
    [
        ("time>5%", 100, 106, True), ("time>5%", 100, 104, False), ("time>5%", 100, 80, False), ("time<-5%", 100, 90, True),
        ("time > 5 % or time < -20%", 100, 70, True), ("time>120us", 100, 121, True), ("time > 0.12 ms or time<1ns", 100, 121, True),
        ("time>5% and time>1ms", 100, 110, False),
        ("time>=5.5%", 100, 105.5, True), ("max(time, 3)>100", 100, 101, True), ("time>0", 100, 100, True), ("100us<time", 100, 101, True),
    ],
)  # fmt: skip
def test_expressions(text: str, old: float, new: float, failed: bool) -> None:
    assert bool(compared(side("k", old), side("k", new), text).failures) is failed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tme>5%", "did you mean 'time'"), ("time", "has no comparison"), ("5%>time", "goes after the number"), ("time>5%%", "%"), ("", ""),
        ("__import__('os')>1", "no function"), ("time.x>1", "Attribute"), ("time>", "cannot be read"), ("change('time')>0", "no function"),
        ("change('nope')>1 or time>1us", "no function 'change'"),
        ("time>5", "5 of what? Write 'time>5%' for a change, or 'time>5us'"), ("duration > 5 or time>1%", "Write 'duration>5%'"),
        ("5<time", "of what"), ("time>1% and time>=2.5", "2.5 of what"), ("registers_per_thread>5us", "is not a time"), ("time>5h", "not a unit"),
    ],
)  # fmt: skip
def test_bad_expressions_are_refused_before_anything_is_read(text: str, message: str) -> None:
    with pytest.raises(UsageProblem) as refused:
        gate.parse_gate(text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "new", "fails", "decided"),
    [
        ("time>5% or dram_bytes>10%", 110, True, True), ("dram_bytes>10% or time>5%", 110, True, True),
        ("time>5% and dram_bytes>10%", 100, False, True), ("dram_bytes>10% and time>5%", 100, False, True),
        ("dram_bytes>10% or time>5%", 100, False, False), ("dram_bytes>10% and time>5%", 110, False, False),
        ("not (dram_bytes>10% or time>5%)", 100, False, False),
    ],
)  # fmt: skip
def test_a_figure_that_is_missing_matters_only_where_it_decides(
    text: str, new: float, fails: bool, decided: bool
) -> None:
    found = compared(side("k", 100), side("k", new), text)
    assert [[each.figure for each in failure.differences] for failure in found.failures] == (
        [["time"]] if fails else []
    )
    assert (found.undecided == ()) is decided


def test_what_cannot_be_compared() -> None:
    assert "different GPUs" in compared(side("k", 1), side("k", 1, device="other")).pairs[0].gpus
    assert (
        "incomplete"
        in compared(side("k", 1), side("k", 1, status="incomplete: cut")).pairs[0].problem
    )
    assert "no time" in compared(side("k", 1), side("k")).pairs[0].problem
    found = compared(side("a", 1), side("b", 1), "time>5%")
    alone = [[each.name for each in sides] for sides in (found.alone_old, found.alone_new)]
    assert (found.pairs, alone, found.comparable) == ((), [["a"], ["b"]], False)
    missing = compared(side("k", 1), side("k", 1), "registers_per_thread>1")
    assert missing.undecided == (
        "'registers_per_thread>1' for k: a side has no registers_per_thread",
    )
    assert not missing.comparable


def test_a_kernel_is_found_again_under_another_shape_only_where_there_is_no_doubt() -> None:
    old = {("k", 1): side("k", 1.0), ("two", 1): side("two", 1.0)}
    new = {("k", 2): side("k", 2.0), ("two", 2): side("two", 1.0), ("two", 3): side("two", 3.0)}
    pairs, only_old, only_new = gate.pair_up(old, new)
    assert [pair.name for pair in pairs] == ["k"]
    assert ([side.name for side in only_old], [side.name for side in only_new]) == (
        ["two"],
        ["two", "two"],
    )


def launches(*of: tuple[str, int, int]) -> dict[tuple[object, ...], Side]:
    """Sides by kernel, grid and block, in the order of the report; longest first, as in an
    analysis."""
    made = {
        (f"{name}<{at}>", grid, block): dataclasses.replace(side(name, float(at + 1)), place=(at,))
        for at, (name, grid, block) in enumerate(of)
    }
    return dict(reversed(made.items()))


def test_an_edit_that_changes_grid_or_block_keeps_its_partner() -> None:
    """By the same grid, by the same block, and what is left in the order of the reports."""
    old = launches(("k", 1, 32), ("k", 2, 64), ("k", 3, 96), ("k", 4, 128), ("other", 1, 1))
    new = launches(("k", 1, 33), ("k", 5, 64), ("k", 6, 97), ("k", 7, 129), ("more", 1, 1))
    pairs, only_old, only_new = gate.pair_up(old, new)
    assert sorted((pair.old.place, pair.new.place) for pair in pairs) == [((n,), (n,)) for n in range(4)]  # fmt: skip
    assert ([side.name for side in only_old], [side.name for side in only_new]) == (
        ["other"],
        ["more"],
    )
    assert gate.pair_up(old, launches(("k", 8, 1), ("k", 9, 1)))[0] == [], (
        "of four no two are known"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("triton_poi_fused_add_mul_3", "triton_poi_fused_add_mul_12"), ("kernel_0d1d2d3de", "kernel_0d1d2c3d"),
        ("fused_1f3a9c0e77", "fused_9bd20a1c44"), ("loop_fusion.7", "loop_fusion"),
    ],
)  # fmt: skip
def test_what_a_compiler_puts_at_the_end_of_a_name_parts_no_pair(old: str, new: str) -> None:
    (pair,), _, _ = gate.pair_up(launches((old, 1, 1)), launches((new, 1, 1)))
    assert pair.name == f"{old} → {new}"
    two = launches((f"{old}", 1, 1), (f"{new}", 1, 1))
    assert gate.pair_up(two, launches(("other", 1, 1)))[0] == []


def test_names_that_differ_in_words_are_two_kernels() -> None:
    for one, other in (("add_kernel", "add"), ("gemm_f16", "gemm_f32"), ("pass_decade", "pass")):
        assert gate.pair_up(launches((one, 1, 1)), launches((other, 1, 1)))[0] == []


def test_pairs_that_are_named_come_first() -> None:
    old, new = launches(("a", 1, 1), ("b", 1, 1)), launches(("a", 1, 1), ("b_fast", 2, 1))
    pairs, *_ = gate.pair_up(old, new, named=[("b", "a")])
    assert [pair.name for pair in pairs] == ["b → a"]
    pairs, *_ = gate.pair_up(old, new, named=[("b<1>", "b_fast")])
    assert [pair.name for pair in pairs] == ["b → b_fast", "a"]
    with pytest.raises(InputProblem, match="no kernel 'c' left to pair in the old report"):
        gate.pair_up(old, new, named=[("c", "a")])
    with pytest.raises(InputProblem, match="no kernel 'a' left to pair in the new report"):
        gate.pair_up(old, new, named=[("a", "a"), ("b", "a")])


def test_unprofiled_times_go_before_times_under_the_profiler() -> None:
    timings = ({("t",): side("rung", 100.0)}, {("t",): side("rung", 101.0)})
    found = gate.compare(
        sides(side("k", 100.0)), sides(side("k", 150.0)), timings, [gate.parse_gate("time>5%")]
    )
    assert not found.failures
    assert len(found.pairs) == 2


# ---- the command


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A report of four launches, and the same with every launch 10% slower."""
    folder = tmp_path_factory.mktemp("reports")
    old, new = folder / "old.ncu-rep", folder / "new.ncu-rep"
    data = report_files.many_launches(4)
    old.write_bytes(data)
    new.write_bytes(slower(data, 1.1))
    return old, new


def slower(data: bytes, factor: float) -> bytes:
    """Every launch's duration times `factor`, in all the roll-ups that hold it."""
    import struct

    from ncu_toolkit.kernel.report import framing, messages

    frame = framing.parse(data)
    names = messages.metric_names(frame)
    wanted = {i for i, name in enumerate(names) if name.startswith(b"gpu__time_duration.")}
    out = bytearray(data)
    for block in frame.blocks:
        for offset, length in block.results:
            at = offset
            for number, raw, value in report_files.raw_fields(data[offset : offset + length]):
                if number == messages.RESULT_METRIC and isinstance(value, bytes):
                    parts = {n: v for n, _, v in report_files.raw_fields(value)}
                    inner = parts.get(2)
                    if parts[1] in wanted and isinstance(inner, bytes):
                        start = data.index(inner, at) + 1
                        out[start : start + 8] = struct.pack(
                            "<d", struct.unpack("<d", inner[1:9])[0] * factor
                        )
                at += len(raw)
    return bytes(out)


def run(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main(list(arguments))
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def test_exit_codes(reports: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = map(str, reports)
    code, out, _ = run("compare", old, old, "--fail-on", "time>5%")
    assert code == 0, out
    assert "no regression" in out
    code, out, err = run(
        "compare", old, new, "--fail-on", "time>5%", "--fail-on", "registers_per_thread>5%"
    )
    assert code == EXIT_GATE
    assert "regression: naive: time 4.42 ms → 4.87 ms" in out
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert run("compare", old, new)[0] == 0, "without a gate nothing fails"
    assert run("compare", old, new, "--fail-on", "time>15%")[0] == 0
    assert run("compare", old, new, "--fail-on", "tyme>15%")[0] == EXIT_USAGE
    other = tmp_path / "other.ncu-rep"
    other.write_bytes(report_files.first_launches(2))
    assert (
        run("compare", old, str(other), "--kernel", "coalesced", "--fail-on", "time>5%")[0]
        == EXIT_INPUT
    )
    assert run("compare", old, str(tmp_path / "none"))[0] == EXIT_INPUT
    assert run("compare", "", new)[0] == EXIT_USAGE, (
        "an unset variable, not the folder one works in"
    )


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_contradiction_is_compared_and_named(
    reports: tuple[Path, Path], tmp_path: Path, form: str
) -> None:
    doubled = tmp_path / "doubled.ncu-rep"
    data = reports[0].read_bytes()
    doubled.write_bytes(
        mutation.double_a_figure(data, random.Random(1), b"dram__bytes_read.sum")[0]
    )
    code, out, _ = run("compare", str(reports[0]), str(doubled), "--format", form)
    assert code == 0
    assert "contradictory: naive in the new: " in out.replace("\\", "")
    assert "contradictory" not in run("compare", *map(str, reports), "--format", form)[1]


def test_a_file_cut_at_a_block_is_not_compared_nor_kept(
    reports: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(baselines.VARIABLE, str(tmp_path / "kept"))
    data = reports[0].read_bytes()
    blocks = framing.parse(data).blocks
    last = max(index for index, block in enumerate(blocks) if block.results)
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(data[: blocks[last].offset])
    for arguments in (("compare", str(reports[0]), str(cut)), ("baseline", "save", "x", str(cut))):
        code, _, err = run(*arguments)
        assert code == EXIT_INPUT
        assert err.startswith(f"error: '{cut}' is incomplete: it names no ncu version")
    assert run("baseline", "save", "x", str(cut), "--allow-incomplete")[0] == 0


def other_gpu(data: bytes) -> bytes:
    """The same report as if from another GPU of as long a name."""
    name = b"NVIDIA H200"
    assert name in data
    return data.replace(name, b"NVIDIA H999")


@pytest.fixture(scope="module")
def strange(reports: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("strange") / "strange.ncu-rep"
    path.write_bytes(other_gpu(reports[0].read_bytes()))
    return path


def test_reports_of_different_gpus_are_compared_in_shares_and_ratios(
    reports: tuple[Path, Path], strange: Path
) -> None:
    code, out, _ = run("compare", str(reports[0]), str(strange))
    assert code == 0
    assert out.startswith("Different GPUs: NVIDIA H200 and NVIDIA H999. Times depend on the GPU")
    assert "faster" not in out.splitlines()[0] + out.splitlines()[1]
    assert out.count("so their change is not given") == 1
    assert "Stalls: shares of a warp's time" in out
    assert "by cause" not in out, "part of the difference in time is the GPU's"
    table = out[: out.index("old\nnaive")]
    assert "other GPU" in table
    assert "%" not in table, "no change of the time and no noise, of which part is the GPU's"
    assert "×" not in table, "nor a ratio of the times"
    code, out, err = run("compare", str(reports[0]), str(strange), "--fail-on", "time>5%")
    assert code == EXIT_INPUT
    assert "not decided: 'time>5%' for naive: different GPUs" in out
    assert "not every --fail-on could be decided" in err
    code, out, _ = run("compare", str(reports[0]), str(strange), "--format", "json")
    document = json.loads(out)
    assert (code, document["passed"], document["compared"]) == (0, True, 1)
    assert document["pairs"][0]["different_gpus"].startswith("different GPUs: ")


def test_what_cannot_be_compared_is_an_input_error_with_and_without_a_gate(
    reports: tuple[Path, Path],
) -> None:
    lost = gate.Side("naive", "a GPU", (), status="incomplete: it crashed")
    kept = gate.Side("naive", "a GPU", (1.0, 1.0))
    for gates in ([], [gate.parse_gate("time>5%")]):
        found = gate.compare({(1,): lost}, {(1,): kept}, gates=gates)
        assert (found.compared, found.comparable) == (0, False)
        shown = answers.of_comparison(found)
        assert shown.verdict.startswith("0 of 1 kernel could be compared")
        assert shown.notes == ("not comparable: naive: the old launch is incomplete: it crashed",)


def test_kernels_that_are_alone_are_paired_whatever_their_names(
    reports: tuple[Path, Path], tmp_path: Path
) -> None:
    """A kernel gets a new name as it is rewritten; a gate is never held on a guess."""
    other = tmp_path / "other.ncu-rep"
    other.write_bytes(report_files.first_launches(2))
    arguments = ("compare", str(reports[0]), str(other), "--kernel", "naive|coalesced")
    assert run(*arguments)[0] == 0
    one, two = (gate.Side(name, "a GPU", (1.0, 1.0)) for name in ("naive", "coalesced"))
    (pair,) = gate.compare({(1,): one}, {(2,): two}).pairs
    assert pair.name == "naive → coalesced"
    assert gate.compare({(1,): one}, {(2,): two}, gates=[gate.parse_gate("time>5%")]).pairs == ()


def test_a_damaged_report_is_refused_without_an_option_that_is_not_there(
    reports: tuple[Path, Path], tmp_path: Path
) -> None:
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(reports[0].read_bytes()[:-10])
    code, _, err = run("compare", str(reports[0]), str(cut))
    assert code == EXIT_INPUT
    assert f"`ncu-toolkit analyze {cut} --allow-partial`" in err
    assert err.count("--allow-partial") == 1


def test_an_incomplete_launch_is_no_matter_of_the_gpu(
    reports: tuple[Path, Path], tmp_path: Path
) -> None:
    empty = tmp_path / "empty.ncu-rep"
    empty.write_bytes(report_files.nameless_launch())
    code, out, err = run("compare", str(empty), str(empty))
    assert code == EXIT_INPUT
    assert "not comparable: unnamed: the old launch is incomplete" in " ".join(out.split())
    assert err.endswith("Profile it again, or leave it out with --kernel\n")


def test_kernels_are_not_to_be_chosen_where_they_were(tmp_path: Path) -> None:
    """The hint to add --kernel is for who gave none; who gave one gets the counters, and with a gate
    that holds the short answer."""
    report = tmp_path / "two.ncu-rep"
    report.write_bytes(report_files.first_launches(2))
    same = ("compare", str(report), str(report))
    chosen = (*same, "--kernel", "naive|coalesced")
    assert "To compare the counters of one kernel, add --kernel " in run(*same)[1]
    code, out, _ = run(*chosen)
    assert code == 0
    assert "--kernel" not in out
    assert "Stalls: shares of a warp's time" in out
    code, out, _ = run(*chosen, "--fail-on", "time>5%")
    assert code == 0
    assert "2 kernels, none changed" in out
    assert "--kernel" not in out


def test_who_chose_the_kernel_is_not_asked_to_leave_it_out(tmp_path: Path) -> None:
    empty = tmp_path / "empty.ncu-rep"
    empty.write_bytes(report_files.nameless_launch())
    _, _, err = run("compare", str(empty), str(empty), "--kernel", "^")
    assert err.endswith(". Profile it again\n")


def saved_files() -> tuple[str, ...]:
    ((_, run),) = baselines.saved()
    assert isinstance(run, Run)
    return run.report_files


def test_baselines(
    reports: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(baselines.VARIABLE, str(tmp_path / "kept"))
    old, new = map(str, reports)
    assert "No baselines" in run("baseline", "list")[1]
    assert run("baseline", "save", "main", old)[0] == 0
    kept = tmp_path / "kept" / "main" / "old.ncu-rep"
    assert integrity.verify(kept) == integrity.SumCheck("run.json")
    assert run("baseline", "save", "main", new)[0] == EXIT_USAGE, (
        "a baseline is not replaced by accident"
    )
    assert run("compare", "main", new, "--fail-on", "time>5%")[0] == EXIT_GATE
    assert run("baseline", "save", "main", new, "--replace")[0] == 0
    assert run("compare", "main", new, "--fail-on", "time>5%")[0] == 0
    listed = json.loads(run("baseline", "list", "--format", "json")[1])
    assert [each["name"] for each in listed["data"]] == ["main"]
    for bad in ("../up", ".hidden", "a/b", ""):
        with pytest.raises(UsageProblem):
            baselines.folder_of(bad)
    with pytest.raises(InputProblem):
        baselines.save("empty", [tmp_path / "kept" / "nothing.ncu-rep"])
    assert not [path for path in (tmp_path / "kept").iterdir() if path.name.startswith(".")], (
        "no half-made baseline is left"
    )


def test_a_baseline_of_incomplete_launches_is_refused(
    reports: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(baselines.VARIABLE, str(tmp_path / "kept"))
    good = analyze.analyze([reports[0]])
    first, *others = good.launches
    lost = dataclasses.replace(
        good.files[0],
        launches=(dataclasses.replace(first, status="incomplete: counters are missing"), *others),
    )
    monkeypatch.setattr(analyze, "analyze", lambda *_, **__: analyze.Analysis((lost,)))
    code, _, err = run("baseline", "save", "main", str(reports[0]))
    assert code == EXIT_INPUT
    assert "is incomplete: counters are missing" in err
    assert not (tmp_path / "kept").exists()
    code, out, _ = run("baseline", "save", "main", str(reports[0]), "--allow-incomplete")
    assert code == 0
    assert "Kept 1 report as" in out


def test_tables_that_are_kept_pickled_change_no_figure(tmp_path: Path) -> None:
    report = tmp_path / "one.ncu-rep"
    report.write_bytes(report_files.first_launches(1))
    whole, packed = (
        gate.sides_of(analyze.analyze([report], analyze.Options(profiles=True, packed=pack)))
        for pack in (False, True)
    )
    (mine,), (theirs,) = whole.values(), packed.values()
    assert mine.profiles[0].instructions
    assert not any(each.instructions or each.sources for each in theirs.profiles)
    assert theirs.representative == mine.representative
    # one of the registry, and one that needs the instructions
    for figure in ("registers_per_thread", "global_sectors"):
        assert theirs.values(figure) == mine.values(figure) != ()


def test_a_baseline_stays_until_the_new_one_is_there(
    reports: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(baselines.VARIABLE, str(tmp_path / "kept"))
    baselines.save("main", [reports[0]])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("ncu_toolkit.base.core.files.exchange", full)
        with pytest.raises(EnvironmentProblem, match="No space left"):
            baselines.save("main", [reports[1]], replace=True)
    assert saved_files() == ("old.ncu-rep",)
    assert (tmp_path / "kept" / "main" / "old.ncu-rep").is_file()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["main"]
    baselines.save("main", [reports[1]], replace=True)
    assert saved_files() == ("new.ncu-rep",)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["main"]


def test_of_several_saves_at_once_one_gets_the_name(
    reports: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(baselines.VARIABLE, str(tmp_path / "kept"))
    read = analyze.analyze

    def overtaken(*arguments: Any, **options: Any) -> analyze.Analysis:
        """Another save of that name is done while ours still reads."""
        monkeypatch.setattr(analyze, "analyze", read)
        baselines.save("main", [reports[0]])
        return read(*arguments, **options)

    monkeypatch.setattr(analyze, "analyze", overtaken)
    with pytest.raises(UsageProblem, match="there is a baseline 'main' already"):
        baselines.save("main", [reports[1]])
    assert saved_files() == ("old.ncu-rep",)
