"""Work spread over the boards of a Dask cluster: simulated workers with a GPU that is none. What a
killed worker, client or scheduler costs, which boards are used, and what a user reads."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cluster_worker
import pytest
import recorded
from ladder_runs import Ncu, Quiet

import benchmarks.record  # noqa: F401 (adds the command)
from benchmarks.cluster_scaling import simulated
from benchmarks.programs import many_ranks
from ncu_toolkit.base.core import cache, workers
from ncu_toolkit.base.core.errors import (
    EXIT_ENVIRONMENT,
    EXIT_OK,
    EXIT_USAGE,
    ToolkitError,
    UsageProblem,
    extra,
)
from ncu_toolkit.guests.cluster import cluster, schedulers
from ncu_toolkit.guests.cluster.cluster import Board
from ncu_toolkit.guests.tune import halving, tune
from ncu_toolkit.kernel.gpu import executor, selection
from ncu_toolkit.kernel.ladder.catalogue import find_rung
from ncu_toolkit.kernel.ladder.problems import problem_for
from ncu_toolkit.kernel.runs import store

pytestmark = pytest.mark.slow

TESTS = [str(recorded.ROOT / "tests"), str(Path(__file__).parent), str(recorded.ROOT)]
#: Workers are forks of a process that has imported what they need: read when Dask is imported.
os.environ["DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD"] = "forkserver"
TUNE = ("tune", "--kernel", "autotuned", "--size", "64", "--max-settings", "24")
RUNGS = ("naive", "coalesced")
PROFILE = ("profile", "--kernel", ",".join(RUNGS), "--size", "1024", "--alone")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of the test's own, for the client and for what its workers do."""
    fake = tmp_path / "fake"
    fake.mkdir()
    monkeypatch.setenv("FAKE_CLUSTER", str(fake))
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return fake


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, here: Path) -> Path:
    """The stand-ins in this process, for workers that live in it."""
    cluster_worker.install(monkeypatch)
    executor.forget()
    return here


def opened(address: str, notes: list[str] | None = None, **options: bool) -> Any:
    return schedulers.opened(address, (notes if notes is not None else []).append, **options)


def measured(folder: Path) -> list[tuple[str, int]]:
    """Setting and repeats of each measurement."""
    path = folder / "measured"
    lines = path.read_text().splitlines() if path.is_file() else []
    return [(key, repeats) for _, key, repeats in map(json.loads, lines)]


def command(*words: str) -> tuple[int, str]:
    """`ncu-toolkit` in this process: exit code and what it wrote to standard error."""
    from click.testing import CliRunner

    from ncu_toolkit.cli import cli, main

    found: list[int] = []

    def run() -> None:
        try:
            main(list(words))
        except SystemExit as ended:
            found.append(int(ended.code or 0))

    import click

    done = CliRunner().invoke(click.command()(run), [])
    assert done.exception is None, done.output
    assert cli is not None
    return found[0], done.stderr


def request(most: int = 24) -> tune.TuneRequest:
    size = problem_for("gemm_fp32").parse_size("64")
    return tune.TuneRequest(find_rung("autotuned"), size, most=most, jobs=4)


def best_by_formula(search: halving.Search) -> dict[str, int]:
    return dict(
        min(search.trials, key=lambda trial: cluster_worker.cost(trial.parameters)).parameters
    )


@pytest.mark.parametrize("workers", [1, 8])
def test_boards_share_the_settings(inside: Path, workers: int) -> None:
    """The same winner whatever the number of boards; each round of a setting is measured once."""
    (inside / "seconds").write_text("0.001")
    with simulated(workers) as made, opened(made.scheduler_address) as where:
        assert where.boards == workers
        found = tune.run(request(), Quiet(), where)
    assert found.finished
    assert dict(found.ranked()[0].parameters) == best_by_formula(found)
    rounds = sum(len(trial.rounds) for trial in found.trials)
    assert len(measured(inside)) == rounds
    assert set(Counter(measured(inside)).values()) == {1}


class Processes:
    """A cluster of two worker processes, which a test may kill."""

    def __init__(self, made: Any) -> None:
        self.made, self.address = made, made.scheduler_address

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self.made.workers.values() if each.pid]


def prepare() -> None:
    """Have the server of forks import the stand-ins; it finds them by PYTHONPATH."""
    from distributed.utils import get_mp_context

    get_mp_context().set_forkserver_preload(["distributed", "cluster_worker"])


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Processes, Path]]:
    """Two workers in their own processes, and the folder that they read."""
    from distributed import LocalCluster

    folder = tmp_path_factory.mktemp("processes")
    (folder / "fake").mkdir()
    patch = pytest.MonkeyPatch()
    ncu = Ncu(patch, folder / "ncu")
    (ncu.folder / "sections").mkdir()
    (ncu.folder / "sections" / "SpeedOfLight.section").touch()
    names = ("NCU", "FAKE_NCU", "PYTHONPATH")
    own = {name: os.environ[name] for name in names}
    own |= {"FAKE_CLUSTER": str(folder / "fake"), cache.CACHE_VARIABLE: str(folder / "cache")}
    for name, value in own.items():
        patch.setenv(name, value)
    prepare()
    with LocalCluster(
        n_workers=2,
        env=own,
        threads_per_worker=2,
        resources={"GPU": 1},
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
        memory_limit=0,
        preload=["cluster_worker"],
    ) as made:
        yield Processes(made), folder
    patch.undo()


@pytest.fixture
def two(
    processes: tuple[Processes, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[Processes, Path]]:
    """The two workers, with nothing left of an earlier test."""
    made, folder = processes
    for name in ("fake", "cache"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    monkeypatch.chdir(tmp_path)
    yield made, folder / "fake"
    for name in ("at", "what", "hangs", "ran"):
        (folder / "ncu" / name).unlink(missing_ok=True)


def state_of(folder: Path) -> dict[str, int]:
    """Rounds that are stored of each setting."""
    paths = [*(folder.parent / "cache" / "tune").rglob("*.json")]
    trials = json.loads(paths[0].read_text())["data"]["trials"] if paths else []
    return {json.dumps(dict(sorted(t["parameters"].items()))): len(t["rounds"]) for t in trials}


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "it did not come to this"
        time.sleep(0.02)


def test_a_killed_worker_and_a_killed_client_cost_no_result(two: tuple[Processes, Path]) -> None:
    """kill -9 of a worker and then of the client, both half-way: the same command goes on, and what
    was stored is not measured again."""
    made, folder = two
    (folder / "seconds").write_text("0.15")
    words = [sys.executable, "-m", "ncu_toolkit", *TUNE, "--cluster", made.address]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(measured(folder)) >= 8 or client.poll() is not None)
    assert client.poll() is None, client.communicate()
    os.kill(made.pids[0], signal.SIGKILL)
    before = len(measured(folder))
    wait_for(lambda: len(measured(folder)) >= before + 6 or client.poll() is not None)
    assert client.poll() is None, client.communicate()
    client.kill()
    client.communicate()
    stored = state_of(folder)
    assert sum(stored.values()) >= before - cluster._AHEAD
    done = len(measured(folder))
    wait_for(lambda: len(made.pids) == 2)
    (folder / "seconds").write_text("0.01")
    code, err = command(*TUNE, "--cluster", made.address)
    assert code == EXIT_OK, err
    assert err.count("Build: 0 to do") == 1
    later = Counter(key for key, _ in measured(folder)[done + 2 * cluster._AHEAD :])
    whole = state_of(folder)
    assert sum(whole.values()) > sum(stored.values())
    for key, rounds in whole.items():
        assert later[key] <= rounds - stored[key], "nothing finished is measured twice"
    assert not list((folder.parent / "cache" / "tune").rglob("*.running"))


def test_a_kernel_that_breaks_the_context_costs_its_setting(two: tuple[Processes, Path]) -> None:
    """The worker is replaced, the search ends in one call, and every other setting is timed."""
    made, folder = two
    settings, _ = halving.settings(find_rung("autotuned"), 24)
    broken = json.dumps(dict(sorted(settings[5].items())))
    (folder / "break").write_text(broken)
    old, notes = set(made.pids), list[str]()
    with opened(made.address, notes) as where:
        found = tune.run(request(24), Quiet(), where)
    times = sum("the GPU's context on GPU-" in note for note in notes)
    # Tried twice; once more for each answer on its way that was lost with its worker.
    assert 2 <= times <= 2 + cluster._AHEAD
    assert not old & set(made.pids)
    failed = [trial for trial in found.trials if trial.state == "failed"]
    assert [trial.reason for trial in failed] == ["an illegal memory access was encountered"]
    assert all(trial.rounds for trial in found.trials if trial.state == "ready")
    assert found.finished


def ran(folder: Path) -> list[str]:
    path = folder.parent / "ncu" / "ran"
    lines = path.read_text().splitlines() if path.is_file() else []
    return [line.split("/")[1].split(":")[0] for line in lines]


def only_run() -> Path:
    (folder,) = (path for path in Path("reports").iterdir() if (path / store.MANIFEST).is_file())
    return folder


def test_a_profile_goes_on_where_its_client_was_killed(two: tuple[Processes, Path]) -> None:
    made, folder = two
    words = [sys.executable, "-m", "ncu_toolkit", *PROFILE, "--cluster", made.address]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def stored() -> dict[str, str]:
        try:
            return {case.rung: case.state for case in store.load_manifest(only_run()).cases}
        except (ToolkitError, OSError, ValueError):
            return {}

    wait_for(lambda: "profiled" in stored().values() or client.poll() is not None)
    client.kill()
    out = client.communicate()
    finished = [rung for rung, state in stored().items() if state == "profiled"]
    assert finished, out
    began = len(ran(folder))
    code, err = command(*PROFILE, "--cluster", made.address)
    assert code == EXIT_OK, err
    reported = re.search(r"(\d) of 2 cases are profiled and 2 timed, and kept", err)
    assert reported, err
    # A report that was written just before the kill is kept too, though the manifest lacked it.
    assert int(reported[1]) >= len(finished)
    again = ran(folder)[began:]
    assert not set(finished) & set(again), "nothing finished is profiled twice"
    assert len(again) >= 2 - int(reported[1])
    run = store.load_run(only_run(), live=True)
    assert {case.state for case in run.cases} == {"profiled"}
    assert {profile.context.rung for profile in run.profiles if profile.context} == set(RUNGS)
    boards = [value for label, value in run.environment.items() if label.startswith("GPU-")]
    assert boards
    assert any("gemm_fp32 1024" in value for value in boards)
    assert (only_run() / "index.html").is_file()


def test_bench_and_record_on_a_cluster(
    two: tuple[Processes, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = two
    words = ("bench", "--kernel", "naive,coalesced", "--size", "64,128", "--cluster", made.address)
    code, err = command(*words)
    assert code == EXIT_OK, err
    run = store.load_run(only_run(), live=True)
    assert {(t.rung, t.size) for t in run.timings} == {
        (rung, size) for rung in ("naive", "coalesced") for size in ("64", "128")
    }
    assert run.ceilings.copy == 4e12
    assert run.device.name == "Fake GPU"
    # Interrupted before its second size: the same command times that one and no other.
    path = only_run()
    kept = [timing for timing in run.timings if timing.size == "64"]
    cases = [
        case if case.size == "64" else cluster.replace(case, state="planned") for case in run.cases
    ]
    store.save(path, cluster.replace(run, cases=tuple(cases), timings=tuple(kept)))
    (path / "index.html").unlink()
    code, err = command(*words)
    assert code == EXIT_OK, err
    assert f"{path.name} resumes: 2 timings and 0 reports are kept" in err
    assert "Verify and time: 2 to do" in err
    assert len(store.load_run(only_run(), live=True).timings) == 4

    everything = selection.select
    monkeypatch.setattr(  # The GPU that is none has no libraries.
        selection,
        "select",
        lambda kernels, families, *rest, **named: everything(RUNGS, (), *rest, **named),
    )
    words = (
        "record",
        "--family",
        "gemm_fp32",
        "--size",
        "1024",
        "--bench-size",
        "1024",
        "--output",
    )
    code, err = command(*words, "recording", "--no-stock-rules", "--cluster", made.address)
    assert code == EXIT_OK, err
    run = store.load_run(Path("recording"), live=False)
    assert len(run.report_files) > 1
    assert {case.state for case in run.cases} <= {"profiled", "skipped", "failed"}
    code, err = command(*words, "recording", "--no-stock-rules", "--cluster", made.address)
    assert (code, "is finished already" in err) == (EXIT_USAGE, True), err


def test_a_scheduler_that_dies_is_one_line(inside: Path) -> None:
    """What was finished is kept, and the same command goes on with another scheduler."""
    (inside / "seconds").write_text("0.1")
    with simulated(2) as made:
        address = made.scheduler_address

        def ending() -> None:
            wait_for(lambda: len(measured(inside)) > 6)
            made.sync(made.scheduler.close)

        killer = threading.Thread(target=ending)
        killer.start()
        code, err = command(*TUNE, "--cluster", address)
        killer.join()
    assert code == EXIT_ENVIRONMENT
    last = err.strip().splitlines()[-1]
    assert last == (
        f"error: the Dask scheduler at {address} is gone. What was finished is kept: run the same command again"
    )
    before = Counter(measured(inside))
    (inside / "seconds").write_text("0.001")
    with simulated(2) as made:
        code, err = command(*TUNE, "--cluster", made.scheduler_address)
    assert code == EXIT_OK, err
    again = sum((Counter(measured(inside)) - before)[key] for key in before)
    assert again <= 2 * cluster._AHEAD, "only what was under way is done again"


def test_ctrl_c_is_one_line_and_keeps_what_was_measured(inside: Path) -> None:
    (inside / "seconds").write_text("0.05")

    def interrupting() -> None:
        wait_for(lambda: len(measured(inside)) > 6)
        os.kill(os.getpid(), signal.SIGINT)

    with simulated(2) as made:
        user = threading.Thread(target=interrupting)
        user.start()
        code, err = command(*TUNE, "--cluster", made.scheduler_address)
        user.join()
    assert code == 130
    assert err.strip().splitlines()[-1] == "error: interrupted; what was finished is kept"
    assert sum(state_of(inside).values()) >= 6 - 2 * cluster._AHEAD


@pytest.mark.parametrize("asked", [False, True])
def test_a_slow_board_is_left_out_unless_asked(inside: Path, asked: bool) -> None:
    (inside / "probe-1").write_text("1700")
    notes: list[str] = []
    with simulated(3) as made, opened(made.scheduler_address, notes, slow_boards=asked) as where:
        assert where.boards == (3 if asked else 2)
        boards = {done.where for done in where.run(cluster.missing, [([],)] * 30)}
    (line,) = (note for note in notes if "GPU-1 on" in note)
    assert "1.70 times the median of its model in the probe" in line
    assert ("is used as you asked" in line) == asked
    assert ("left out" in line) != asked
    assert any("GPU-1" in each for each in boards) == asked


def test_a_board_that_comes_later_is_used(inside: Path) -> None:
    (inside / "seconds").write_text("0.2")
    with simulated(1) as made, opened(made.scheduler_address) as where:
        made.scale(2)
        bench = tune.BenchOf("gemm_fp32/autotuned", "64", "float32", "")
        task = (bench, {"BM": 1}, 3, None, True)
        boards = Counter(done.where for done in where.run(tune.measure_setting, [task] * 40))
    assert len(boards) == 2, boards


def test_workers_run_only_this_projects_functions(inside: Path) -> None:
    with simulated(1) as made, opened(made.scheduler_address) as where:
        (done,) = where.run(os.getcwd, [()])
    assert isinstance(done.error, UsageProblem)
    assert "is not a task of ncu-toolkit" in str(done.error)


def test_another_version_on_a_worker_is_one_line(
    inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {**cluster.versions(), "ncu-toolkit": "0.0.1"}
    introduce = cluster.introduce

    def introduced() -> Board:
        return cluster.replace(introduce(), versions=other)

    introduced.__module__, introduced.__name__ = cluster.__name__, "introduce"
    monkeypatch.setattr(cluster, "introduce", introduced)
    with simulated(1) as made:
        code, err = command(*TUNE, "--cluster", made.scheduler_address)
    assert code == EXIT_ENVIRONMENT
    assert "differs: ncu-toolkit 0.0.1 there" in err.strip().splitlines()[-1]


def test_a_cluster_without_gpus(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(cluster, "WAIT_SECONDS", 0.5)
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, processes=False, protocol="tcp://", dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    ) as made:  # fmt: skip
        code, err = command(*TUNE, "--cluster", made.scheduler_address)
    assert code == EXIT_ENVIRONMENT
    assert "the cluster has 1 workers and none offers a GPU. Start one worker" in err


def test_ranks_are_read_on_workers_without_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from distributed import LocalCluster

    from ncu_toolkit.cli import main

    def answer(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["analyze", *words])
        return int(ended.value.code or 0), *capsys.readouterr()

    many_ranks.write(tmp_path, 8, 4000)
    here = answer(str(tmp_path))
    monkeypatch.setattr(workers, "run", None)  # none of this machine's
    with LocalCluster(
        n_workers=2, protocol="tcp://", dashboard_address=":0", silence_logs=logging.CRITICAL
    ) as made:
        address = made.scheduler_address
        assert answer(str(tmp_path), "--cluster", address) == here
        monkeypatch.setattr(schedulers, "_unseen", broken_path)
        code, _, err = answer(str(tmp_path), "--cluster", address)
        assert code == EXIT_USAGE
        assert "does not see '/elsewhere'. Put the traces on" in err
    code, _, err = answer("none.ncu-rep", "--cluster", address)
    assert code == EXIT_USAGE
    assert "no folder of them is named" in err


def broken_path(paths: list[str]) -> str:
    return "/elsewhere"


@pytest.mark.parametrize(
    ("where", "content", "code", "words"),
    [
        ("nonsense", "", EXIT_USAGE, "is neither local, an address such as tcp://host:8786"),
        ("http://host:80", "", EXIT_USAGE, "is not an address. Write it as tcp://host:8786"),
        ("none.yaml", None, EXIT_USAGE, "'none.yaml' cannot be read: No such file or directory"),
        ("a.yaml", "a: [", EXIT_USAGE, "'a.yaml' is not YAML"),
        ("a.yaml", "adress: tcp://a:1", EXIT_USAGE, "'adress' is not a known key; keys are address,"),
        ("a.yaml", "slurm: {queue: gpu}\njobs: 0", EXIT_USAGE, "'jobs' is 0, expected a number"),
        ("a.yaml", "address: tls://h:1\nsecurity: {tls_ca_file: /no/ca.pem}", EXIT_USAGE, "'security.tls_ca_file' names no file"),
        ("tcp://127.0.0.1:9", "", EXIT_ENVIRONMENT, "no Dask scheduler answers at tcp://127.0.0.1:9"),
    ],
)  # fmt: skip
def test_bad_places_are_one_line(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    content: str | None,
    code: int,
    words: str,
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    if content:
        Path(where).write_text(content)
    found, err = command(*TUNE, "--cluster", where)
    assert (found, words in err) == (code, True), err
    assert len(err.strip().splitlines()) == 1, err


@pytest.mark.parametrize(
    "first", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["silent", "http"]
)
def test_another_service_is_one_line_at_once(here: Path, first: bytes | None) -> None:
    """A port that says nothing, and one that says something else."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    held.append(server.accept()[0])
                    if first is not None:
                        held[-1].sendall(first)
                        held[-1].shutdown(socket.SHUT_WR)

        threading.Thread(target=serve, daemon=True).start()
        words = [sys.executable, "-c", f"""
from ncu_toolkit.guests.cluster import cluster
cluster.CONNECT_SECONDS = 1.0
from ncu_toolkit.cli import main
main([*{TUNE!r}, "--cluster", "tcp://127.0.0.1:{server.getsockname()[1]}"])"""]  # fmt: skip
        ended = subprocess.run(words, cwd=here, capture_output=True, text=True, timeout=60)
        for each in held:
            each.close()
    assert ended.returncode == EXIT_ENVIRONMENT
    assert "no Dask scheduler answers at tcp://127.0.0.1:" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr


def test_without_the_extra(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    for words in (
        TUNE,
        PROFILE,
        ("bench", "--kernel", "naive"),
        ("record", "-f", "transpose", "-o", "x"),
    ):
        code, err = command(*words, "--cluster", "local")
        assert code == EXIT_ENVIRONMENT, err
        assert err == (f"error: --cluster needs dask.distributed. {extra('cluster')}\n")


def test_help_imports_no_dask() -> None:
    lines = (
        "import sys; from ncu_toolkit.cli import main",
        "try: main(['tune', '--help'])",
        "except SystemExit: sys.exit(bool({'dask', 'distributed'} & {*sys.modules}))",
    )
    words = [sys.executable, "-c", "\n".join(lines)]
    assert subprocess.run(words, cwd=recorded.ROOT, capture_output=True).returncode == 0


def listening() -> set[tuple[str, int]]:
    """Addresses and ports on which this process and its children listen."""
    import psutil

    ours = [psutil.Process(), *psutil.Process().children(recursive=True)]
    found = (at for each in ours for at in each.net_connections() if at.status == "LISTEN")
    return {(at.laddr.ip, at.laddr.port) for at in found}


def test_this_machines_gpus(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--cluster local`: one worker a GPU, each sees only its own; nobody else can connect."""
    import distributed

    monkeypatch.setattr(cluster.cuda, "cards", lambda: ["GPU-1", "GPU-2"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(TESTS))
    import dask

    prepare()
    names = ("FAKE_CLUSTER", cache.CACHE_VARIABLE)
    own = {name: os.environ[name] for name in names}
    preload = {"distributed.worker.preload": ["cluster_worker"]}
    with dask.config.set({**preload, "distributed.nanny.environ": own}):
        notes: list[str] = []
        before = listening()
        with opened("local", notes) as where:
            assert where.boards == 2
            made = where._client.cluster
            assert made.scheduler_address.startswith("tls://127.0.0.1:")
            opened_here = listening() - before
            assert len(opened_here) >= 3
            assert {ip for ip, _ in opened_here} == {"127.0.0.1"}, (
                "others on the network can reach it"
            )
            visible = where._client.run(os.getenv, "CUDA_VISIBLE_DEVICES")
            assert sorted(visible.values()) == ["GPU-1", "GPU-2"]
            found = tune.run(request(12), Quiet(), where)
            plain = made.scheduler_address.replace("tls", "tcp")
            with pytest.raises(OSError, match=r"Timed out|TLS|unsupported|closed"):
                distributed.Client(plain, timeout=1, set_as_default=False)
    assert found.finished


def test_slurm_jobs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that runs each job at once: the jobs' script starts a worker with a GPU."""
    bin_folder = Path("bin").resolve()
    bin_folder.mkdir()
    sbatch = bin_folder / "sbatch"
    sbatch.write_text(
        '#!/bin/sh\ncp "$1" "$FAKE_CLUSTER/job"\n'
        'setsid sh "$FAKE_CLUSTER/job" >"$FAKE_CLUSTER/log" 2>&1 &\necho "Submitted batch job $!"\n'
    )
    (bin_folder / "scancel").write_text("#!/bin/sh\nkill -9 -- -$1\n")
    for path in bin_folder.iterdir():
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(TESTS))
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__PRELOAD", "['cluster_worker']")
    Path("slurm.yaml").write_text(
        "slurm:\n  queue: gpu\n  cores: 2\n  memory: 4GB\n  walltime: '00:10:00'\n  interface: lo\njobs: 1\nwait: 60\n"
    )
    code, err = command(*TUNE[:-1], "4", "--cluster", "slurm.yaml")
    log = here / "log"
    assert code == EXIT_OK, err + (log.read_text() if log.is_file() else "")
    job = (here / "job").read_text()
    assert "#SBATCH --gpus=1" in job
    assert "#SBATCH -p gpu" in job
    assert "--resources GPU=1" in job
    assert len(measured(here)) >= 4
