"""The field benchmark's frame: its pairs are labelled, wrong results do not agree, recordings of
another text are not kept. The pairs themselves need a GPU."""

from __future__ import annotations

import ast
import fcntl
import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from benchmarks import field
from benchmarks.field import __main__ as command
from benchmarks.field import running, scoring
from ncu_toolkit.base.core.errors import EXIT_OK, EXIT_USAGE, EnvironmentProblem, KernelProblem
from ncu_toolkit.kernel.diagnosis import rules
from ncu_toolkit.kernel.diagnosis.chain import Chain
from ncu_toolkit.kernel.gpu.executor import Executor

LABELS = field.labels()
IDS = set(rules.bottleneck_ids())


def test_every_pair_has_a_label_and_every_label_a_pair() -> None:
    assert sorted(LABELS) == sorted(field.names())


def test_labels_name_bottlenecks_and_say_why() -> None:
    for name, label in LABELS.items():
        assert set(label) == {"cause", "also", "roof", "why", "doubt"}, name
        assert {label["cause"], *label["also"]} <= IDS, name
        assert label["cause"] not in label["also"], name
        assert label["roof"] in ("memory", "arithmetic", "none"), name
        assert label["why"].endswith("."), name


def test_both_halves_are_large_and_a_name_keeps_its_half() -> None:
    halves = [field.half(name) for name in field.names()]
    assert min(halves.count("development"), halves.count("sealed")) > len(halves) / 3
    assert field.half("cupy_palette") == "sealed"
    assert field.half("triton_rotary") == "development"


def test_pairs_that_were_scored_are_sealed_no_more() -> None:
    """They count as development; what is recorded and not named there is unseen."""
    assert field.group("triton_rotary") == "development"
    assert field.group("cupy_palette") == "scored"
    days = tomllib.loads((field.FOLDER / "scored.toml").read_text(encoding="utf-8"))
    scored = [name for names in days.values() for name in names]
    assert len(set(scored)) == len(scored)
    assert {field.half(name) for name in scored} == {"sealed"}
    assert set(scored) <= set(field.names())
    assert "sealed" in {field.group(name) for name in field.names()}


def test_the_launch_meant_is_found_among_others() -> None:
    functions = ["copy", "add", "mul", "add"]
    assert running.place(functions, field.Launch("add", 1)) == 3
    assert running.place(functions, field.Launch("^m")) == 2
    assert running.place(functions, field.Launch("add", 2)) is None


@pytest.mark.parametrize(
    ("launches", "last", "call_us", "saved"),
    [(4, 2, 600.0, 0.75 * 300 / 600), (4, 2, 100.0, 0.75), (3, 2, 9000.0, 0.75)],
    ids=["part of the call", "all of it", "all launches, and pauses"],
)
def test_a_chain_counts_as_far_as_it_is_the_call(
    launches: int, last: int, call_us: float, saved: float
) -> None:
    meant, chain = object(), Chain(0, last, 300.0, 75.0, 0.5)
    file = SimpleNamespace(launches=[meant] * launches, chains=[(chain, [meant])])
    assert scoring._chained("before", meant, file, call_us) == {"before": pytest.approx(saved)}
    assert scoring._chained("before", object(), file, call_us) == {}


def test_pairs_parse_and_say_what_they_compute() -> None:
    for name, path in field._files().items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert len(field.work(name)) > 20, name
        assert field.work(name).endswith("."), name
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert {"inputs", "make"} <= functions, name


def test_results_agree_within_rounding_only() -> None:
    a = numpy.linspace(-1, 1, 1001)
    assert field.disagreement(a, a * (1 + 1e-7)) == pytest.approx(1e-7, rel=0.01)
    assert field.disagreement((a, a), (a, a + 0.5)) > 0.1
    many = numpy.ones((1 << 23) + 7, dtype="int8")
    assert field.disagreement(many, many) == 0
    assert field.disagreement(many, numpy.where(numpy.arange(many.size) % 1024 == 3, 9, 1)) > 0.5
    for wrong in (a[1:], a * 0, numpy.where(a > 0.9, numpy.nan, a)):
        assert field.disagreement(a, wrong) == float("inf")


def program(name: str, *after: str) -> field.ExternalPair:
    run = {"before": ("echo", "1"), "after": after}
    return field.ExternalPair(name, "work", {"before": (), "after": ()}, run, field.Launch("k"))


def test_programs_that_print_something_else_do_not_agree() -> None:
    assert running.agreement(program("same", "echo", "1")) == 0
    with pytest.raises(KernelProblem, match="print different text"):
        running.agreement(program("other", "echo", "2"))
    with pytest.raises(KernelProblem, match="ended with 1"):
        running.agreement(program("broken", "false"))


TABLE = '==PROF== x\n"ID","Metric Name","Metric Value"\n"0","gpu__time_duration.sum","1,536"\n'


def test_ncu_times_are_read_from_its_table() -> None:
    pair = program("timed", "echo")
    assert running._nanoseconds(TABLE, pair, "before") == 1536
    with pytest.raises(KernelProblem, match="timed no launch"):
        running._nanoseconds("==PROF== x\n", pair, "before")


def test_a_launch_is_profiled_by_the_name_by_which_it_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run(job: running.collect.NcuJob) -> SimpleNamespace:
        ran.append(running.collect.argv(job.ncu, job.request))
        return SimpleNamespace(problem=KernelProblem("enough"), report=None)

    ncu = SimpleNamespace(path="ncu")
    monkeypatch.setattr(running.collect, "find_ncu", lambda: ncu)
    monkeypatch.setattr(running.collect, "run", run)
    monkeypatch.setattr(running, "_said", lambda _, words, __: ran.append(words) or TABLE)
    pair = program("named", "true")
    with pytest.raises(KernelProblem, match="enough"):
        running.profile(pair, "before", tmp_path / "to")
    running._profiler_rounds(pair, tmp_path)
    for words in ran:
        assert words[words.index("--kernel-name") + 1] == "regex:k"
        assert "--kernel-name-base" not in words


def test_a_recording_of_another_text_is_made_anew(tmp_path: Path) -> None:
    name = "cupy_palette"
    for variant in field.VARIANTS:
        (tmp_path / f"{name}-{variant}.ncu-rep").touch()
    kept = tmp_path / f"{name}.json"
    assert not running.recorded(name, tmp_path)
    kept.write_text(json.dumps({"source": running.digest(name)}))
    assert running.recorded(name, tmp_path)
    kept.write_text(json.dumps({"source": "0" * 16}))
    assert not running.recorded(name, tmp_path)


def test_the_command_lists_pairs_and_refuses_unknown_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(["--list"]) == EXIT_OK
    assert len(capsys.readouterr().out.splitlines()) == len(field.names())
    assert command.main(["no_such_pair", "--variant", "before"]) == EXIT_USAGE
    assert "no_such_pair" in capsys.readouterr().err


def test_a_pair_that_fails_is_listed_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.cuda, "cards", lambda: ["0", "1"])
    monkeypatch.setattr(
        running,
        "_record_in_child",
        lambda name, out, given: "no such GPU" if "scan" in name else "",
    )
    failed = running.record(["cupy_block_scan", "cupy_palette"], tmp_path, jobs=3)
    assert failed == {"cupy_block_scan": "no such GPU"}
    assert json.loads((tmp_path / "failed.json").read_text()) == failed
    assert running.record(["cupy_block_scan"], tmp_path, jobs=1, seconds=-1) == {}


class Boards(Executor):
    """Two boards of a cluster, played by this process."""

    @property
    def boards(self) -> int:
        return 2


def test_pairs_are_recorded_on_a_cluster_and_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's files come to the client, the one that makes a pair count as recorded last; a
    second call records what is left, and another text of a pair is refused."""
    out, recorded_there = tmp_path / "out", []

    def record(name: str, folder: Path, given: dict[str, str]) -> str:
        recorded_there.append(name)
        assert given["TMPDIR"] == str(tmp_path / "own")
        for variant in field.VARIANTS:
            (folder / f"{name}-{variant}.ncu-rep").write_bytes(b"report")
        (folder / f"{name}.json").write_text(json.dumps({"source": running.digest(name)}))
        return ""

    monkeypatch.setattr(running, "own_temporary_folder", lambda: tmp_path / "own")
    monkeypatch.setattr(running, "_record_in_child", record)
    assert running.record(["cupy_palette"], out, 1, executor=Boards()) == {}
    assert running.recorded("cupy_palette", out)
    both = ["cupy_palette", "cupy_block_scan"]
    assert running.record(both, out, 1, executor=Boards()) == {}
    assert recorded_there == both
    with pytest.raises(EnvironmentProblem, match="text of cupy_palette differs"):
        running.record_there("cupy_palette", "another")
    assert command.main(["record", "--out", str(out), "--cluster", "nonsense"]) == EXIT_USAGE


def test_jobs_on_one_gpu_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIELD_LOCK", str(tmp_path / "lock"))
    with running._alone(), open(tmp_path / "lock") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(tmp_path / "lock") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
