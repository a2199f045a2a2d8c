"""`ncu-toolkit analyze` of traces: alone, beside reports, in every format, and with bad input."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import msgspec
import program_traces
import pytest
import report_files

import ncu_toolkit
from ncu_toolkit.base.core.errors import EXIT_INPUT, EXIT_OK, EXIT_USAGE, InputProblem
from ncu_toolkit.base.model import Launch
from ncu_toolkit.cli import main
from ncu_toolkit.kernel.diagnosis import achieved
from ncu_toolkit.kernel.pages import json as documents
from ncu_toolkit.program.analysis import program
from ncu_toolkit.program.model import Trace
from ncu_toolkit.program.traces.files import write_trace


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> Run:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("NCU_TOOLKIT_DEBUG", raising=False)

    def call(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main(["analyze", *arguments])
        found = capsys.readouterr()
        assert "Traceback" not in found.err + found.out
        return Ended(int(ended.value.code or 0), found.out, found.err)

    return call


def of_naive() -> Trace:
    """A program that launches the first kernels of the recorded report, in a loop."""
    machine = program_traces.Machine("naive.py")
    for _ in range(6):
        for name in ("naive", "coalesced", "other"):
            machine.launch(name, 300.0, line="naive.py:7")
        machine.item(line="naive.py:9")
    trace = machine.trace()
    shapes = tuple(
        Launch(each.kernel, each.function, (32, 32, 1), (32, 32, 1)) for each in trace.shapes
    )
    return msgspec.structs.replace(trace, shapes=shapes)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    write_trace(program_traces.loader(), folder / "loader.ncu-trace")
    write_trace(of_naive(), folder / "naive.ncu-trace")
    write_trace(program_traces.no_kernels(), folder / "empty.ncu-trace")
    (folder / "torn.ncu-trace").write_bytes((folder / "naive.ncu-trace").read_bytes()[:300])
    (folder / "naive.ncu-rep").write_bytes(report_files.first_launches(3))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    for each in made.iterdir():
        (tmp_path / each.name).symlink_to(each)
    return tmp_path


def test_a_trace_alone(run: Run) -> None:
    ended = run("loader.ncu-trace")
    assert (ended.code, ended.err) == (EXIT_OK, "")
    assert ended.out.startswith("loader.py · ")
    assert "NVIDIA H200" in ended.out
    assert "where the step goes" in ended.out
    assert "\nnext" not in ended.out, "there is no one to type it"
    assert "Kernels of the step" in ended.out


def test_several_traces_have_an_answer_each(run: Run) -> None:
    ended = run("loader.ncu-trace", "naive.ncu-trace")
    heads = re.findall(r"^\w+\.ncu-trace: \w+\.py · ", ended.out, flags=re.MULTILINE)
    assert heads == ["loader.ncu-trace: loader.py · ", "naive.ncu-trace: naive.py · "]
    assert ended.code == EXIT_OK
    twice = run("naive.ncu-trace", "naive.ncu-trace")
    assert twice.out == run("naive.ncu-trace").out


def test_json_follows_its_schema(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(achieved, "FOLLOWED", {"host-copy": (5, 4, 3.0)})
    ended = run(
        "loader.ncu-trace", "naive.ncu-trace", "torn.ncu-trace", "naive.ncu-rep", "--format", "json"
    )
    assert ended.code == EXIT_INPUT
    document = json.loads(ended.out)
    schema = documents.schema("program")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    assert set(document) == set(schema["required"])
    assert [each["status"] for each in document["files"]] == ["complete", "complete", "unreadable"]
    assert [each["program"] for each in document["programs"]] == ["loader.py", "naive.py"]
    for each in document["programs"]:
        parts = sum(part["us"] for part in each["account"]["parts"])
        assert parts == pytest.approx(each["account"]["wall_us"])
    loader, naive = (each["findings"] for each in document["programs"])
    assert loader[0]["tested"] == [4, 5]
    assert [each["tested"] for each in (*loader[1:], *naive)] == [None] * len((*loader[1:], *naive))
    kernels = {each["kernel"]: each for each in document["programs"][1]["kernels"]}
    assert kernels["naive"]["diagnosis"]["bottleneck"] == "uncoalesced-global-access"
    assert kernels["other"]["diagnosis"] is None
    assert (
        len(
            json.loads(run("naive.ncu-trace", "--format", "json", "--top", "1").out)["programs"][0][
                "kernels"
            ]
        )
        == 1
    )


def test_csv_is_the_table_of_kernels(run: Run) -> None:
    ended = run("naive.ncu-trace", "torn.ncu-trace", "--format", "csv")
    head, *rows = ended.out.splitlines()
    assert head.startswith("file,kernel,class,grid,block,launches,total_us,share,line,bottleneck")
    assert {row.split(",")[1] for row in rows[:-1]} == {"naive", "coalesced", "other"}
    assert "unreadable" in rows[-1]


def test_html_is_one_page_of_each_trace(run: Run, folder: Path) -> None:
    ended = run("naive.ncu-trace", "--format", "html", "--output", "page.html")
    assert (ended.code, ended.out) == (EXIT_OK, "Open page.html\n")
    assert (folder / "page.html").read_text().startswith("<!DOCTYPE html>")
    ended = run("naive.ncu-trace", "loader.ncu-trace", "--format", "html", "--output", "pages")
    assert ended.code == EXIT_OK
    assert sorted(each.name for each in (folder / "pages").iterdir()) == [
        "loader-ncu-trace.html", "naive-ncu-trace.html"
    ]  # fmt: skip


def test_no_page_where_no_trace_can_be_read(run: Run, folder: Path) -> None:
    ended = run("torn.ncu-trace", "--format", "html", "--output", "page.html")
    assert (ended.code, ended.out) == (EXIT_INPUT, "")
    assert not (folder / "page.html").exists()
    ended = run("torn.ncu-trace", "naive.ncu-rep", "--format", "html", "--output", "pages")
    assert ended.code == EXIT_INPUT
    assert re.fullmatch(r"Open pages/\S*naive-ncu-rep/index\.html\n", ended.out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "sarif"), "--format sarif applies to reports"),
        (("--kernel", "naive"), "--kernel selects launches of reports"),
        (("--needs", "bytes=1MiB"), "--needs applies to launches of a report"),
        (("--format", "html", "--redact"), "--redact applies to reports"),
    ],
)
def test_what_a_trace_has_not_is_refused(run: Run, options: tuple[str, ...], message: str) -> None:
    ended = run("naive.ncu-trace", *options)
    assert ended.code == EXIT_USAGE
    assert ended.out == ""
    (line,) = ended.err.splitlines()
    assert message in line


# ---- beside reports


def test_a_report_of_the_same_program_is_joined(run: Run) -> None:
    ended = run("naive.ncu-rep", "naive.ncu-trace")
    assert (ended.code, ended.err) == (EXIT_OK, "")
    (row,) = re.findall(r"^naive  .*", ended.out, flags=re.MULTILINE)
    assert "Uncoalesced" in row
    (row,) = re.findall(r"^other  .*", ended.out, flags=re.MULTILINE)
    assert row.endswith("not profiled")
    message = " ".join(ended.out.split())
    assert "All kernels of the step are launched at naive.py:7." in message
    assert re.search(r"Kernels with 6\d % of the kernel time were profiled\.", message)
    assert "naive.ncu-rep" not in message, "what could not be joined is in the table"
    assert run("naive.ncu-rep", "naive.ncu-trace", "--needs", "bytes=1MiB").code == EXIT_OK


def test_a_trace_of_another_program_beside_a_report(run: Run) -> None:
    ended = run("loader.ncu-trace", "naive.ncu-rep")
    assert ended.code == EXIT_INPUT
    assert ended.out == run("loader.ncu-trace").out
    (line,) = ended.err.splitlines()
    assert line == (
        "error: 'naive.ncu-rep' has no launch of 'loader.ncu-trace'. Name a report of the same "
        "program, or analyze it alone"
    )


def test_a_report_of_another_gpu_is_not_joined(run: Run, folder: Path) -> None:
    trace = of_naive()
    gpu = program_traces.H200
    other = msgspec.structs.replace(trace, devices=(type(gpu)(name="NVIDIA A100", cc=(8, 0)),))
    write_trace(other, folder / "other.ncu-trace")
    ended = run("other.ncu-trace", "naive.ncu-rep")
    assert ended.code == EXIT_INPUT
    assert "(it is of NVIDIA H200)" in ended.err


def test_names_of_templates_join_as_other_tools_write_them() -> None:
    same = [
        (
            "void gemm<(int)4, (bool)1, float>(float const*)",
            "void gemm<4, 1, float>(float const *)",
        ),
        ("(anonymous namespace)::f(int)", "<unnamed>::f(int)"),
    ]
    for one, other in same:
        assert program._signature(_launch(one)) == program._signature(_launch(other))
    assert program._signature(_launch("f<4>()")) != program._signature(_launch("f<8>()"))


def test_names_join_without_what_only_some_demanglers_write() -> None:
    """As ncu 2025.3 writes PyTorch's kernels, and as CUPTI's names are read here."""
    same = [
        (
            "void at::vectorized<(int)4, at::Add<float>, std::array<char *, (unsigned long)3>>(int, T2, T3)",
            "at::vectorized<4, at::Add<float>, std::array<char*, 3ul> >",
        ),
        (
            "void at::each<(int)2, void at::run<at::<unnamed>::fill(at::It &, const c10::S &)::[lambda() (instance 1)]::"
            "operator ()() const::[lambda(float, bool) (instance 7)]>(at::It &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)",
            "at::each<2, at::run<at::(anonymous namespace)::fill(at::It&, c10::S const&)::{lambda()#1}::operator()() const::"
            "{lambda(float, bool)#7}>(at::It&, at::(anonymous namespace)::fill(at::It&, c10::S const&)::{lambda()#1}::"
            "operator()() const::{lambda(float, bool)#7} const&)::{lambda(int)#1}>",
        ),
        ("__main__::f[abi:v1,cw51_3d](Array<int>)", "__main__::f[abi:v1][abi:cw51_3d]"),
        (
            "void <unnamed>::softmax<float, (int)9, (bool)0>(T2 *, const bool *)",
            "(anonymous namespace)::softmax<float, 9, false>",
        ),
    ]
    for one, other in same:
        assert program._skeleton(_launch(one)) == program._skeleton(_launch(other))
    assert program._skeleton(_launch("f<{lambda()#1}>")) != program._skeleton(
        _launch("f<{lambda()#2}>")
    )


def _launch(kernel: str) -> Launch:
    return Launch(kernel, kernel, (1, 1, 1), (1, 1, 1))


# ---- bad input


def test_a_trace_without_kernels(run: Run) -> None:
    ended = run("empty.ncu-trace")
    assert (ended.code, ended.out) == (EXIT_INPUT, "")
    (line,) = ended.err.splitlines()
    assert line.startswith("error: unreadable: 'empty.ncu-trace' has no kernel. ")


def test_a_trace_that_takes_too_long(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "read_trace", lambda path: time.sleep(20))
    began = time.monotonic()
    ended = run("naive.ncu-trace", "--timeout", "1")
    assert ended.code == EXIT_INPUT
    assert (
        "'naive.ncu-trace' did not finish within 1 s. Allow more time with --timeout" in ended.err
    )
    assert time.monotonic() - began < 10


def test_the_rest_is_shown_where_a_trace_cannot_be_read(run: Run) -> None:
    ended = run("torn.ncu-trace", "naive.ncu-trace")
    assert ended.code == EXIT_INPUT
    assert "naive.py · " in ended.out
    (line,) = ended.err.splitlines()
    assert line.startswith("error: unreadable: 'torn.ncu-trace' ")
    ended = run("torn.ncu-trace", "naive.ncu-rep")
    assert ended.code == EXIT_INPUT
    assert "Uncoalesced" in ended.out, "the report's own answer"
    ended = run("naive.ncu-trace", "missing.ncu-rep")
    assert ended.code == EXIT_INPUT
    assert "naive.py · " in ended.out
    assert "missing.ncu-rep" in ended.err


# ---- Python


def test_load_reads_a_trace(folder: Path) -> None:
    found = ncu_toolkit.load(folder / "naive.ncu-trace", reports=[folder / "naive.ncu-rep"])
    assert found.trace.program == "naive.py"
    assert found.step.trace is found.trace
    assert sum(part.us for part in found.account.parts) == pytest.approx(found.account.wall_us)
    assert found.findings == found.diagnosis.findings
    assert len(repr(found)) < 200
    text = str(found)
    assert text.startswith("naive.py · ")
    assert "--" not in text.partition("next")[2].splitlines()[0]
    assert "nc-card" in found._repr_html_()
    frame = found.to_frame()
    assert set(frame["kernel"]) == {"naive", "coalesced", "other"}
    assert "uncoalesced-global-access" in set(frame["bottleneck"])
    assert found.to_html(folder / "a.html").is_file()
    plain = ncu_toolkit.load(folder / "naive.ncu-trace")
    assert isinstance(plain, ncu_toolkit.ProgramTrace)


def test_load_refuses_what_is_not_a_trace(folder: Path) -> None:
    for path, reports, message in (
        ("empty.ncu-trace", [], "has no kernel"),
        ("torn.ncu-trace", [], "torn.ncu-trace"),
        ("naive.ncu-rep", [], "is not a trace"),
        ("loader.ncu-trace", ["naive.ncu-rep"], "has no launch of"),
        ("naive.ncu-trace", ["missing.ncu-rep"], "missing.ncu-rep"),
    ):
        with pytest.raises(InputProblem, match=message):
            ncu_toolkit.load(folder / path, reports=[folder / each for each in reports])


# ---- folders


@pytest.fixture
def beside(folder: Path, made: Path) -> Path:
    """A folder with a program's trace and report, another trace, and files that are neither."""
    inside = folder / "inside"
    inside.mkdir()
    for name in ("naive.ncu-trace", "naive.ncu-rep", "loader.ncu-trace"):
        (inside / name).symlink_to(made / name)
    (inside / "settings.json").write_text('{"a": 1}')
    (inside / "runs.sqlite").write_bytes(b"SQLite format 3\0" + bytes(2000))
    return inside


def test_a_folder_has_traces_beside_reports(run: Run, beside: Path) -> None:
    ended = run("inside")
    assert (ended.code, ended.err) == (EXIT_OK, "")
    assert ended.out.startswith("loader.ncu-trace: ")
    assert "naive.ncu-trace: " in ended.out
    assert " ".join(ended.out.split()).count("the kernel time were profiled") == 1, (
        "it is joined to its own"
    )
    assert "settings" not in ended.out + ended.err
    assert "Uncoalesced" in run("inside", "--kernel", "naive").out, "of reports alone"


def test_a_report_named_like_a_trace_is_of_its_program(run: Run, beside: Path) -> None:
    (beside / "naive.ncu-rep").rename(beside / "loader.ncu-rep")
    ended = run("inside")
    assert ended.code == EXIT_INPUT
    assert "'inside/loader.ncu-rep' has no launch of 'inside/loader.ncu-trace'" in ended.err
    assert "Uncoalesced" not in ended.out


def test_a_report_named_like_no_trace_is_answered_alone(run: Run, beside: Path) -> None:
    (beside / "naive.ncu-rep").rename(beside / "third.ncu-rep")
    ended = run("inside")
    assert (ended.code, ended.err) == (EXIT_OK, "")
    assert "of the kernel time were profiled" not in ended.out
    assert "3 launches of 3 kernels" in ended.out
    assert "3 launches of 3 kernels" in run("inside", "--format", "brief").out
    reported = run("inside", "--format", "html", "--output", "pages").out.split()
    assert len(reported) == 6
    assert all(Path(page).is_file() for page in reported[1::2])


def test_the_only_trace_of_a_folder_is_its_reports_own(run: Run, beside: Path) -> None:
    (beside / "loader.ncu-trace").unlink()
    (beside / "naive.ncu-trace").rename(beside / "program.ncu-trace")
    ended = run("inside")
    assert (ended.code, ended.err) == (EXIT_OK, "")
    assert "of the kernel time were profiled" in " ".join(ended.out.split())
    (beside / "program.ncu-trace").unlink()
    (beside / "program.ncu-trace").symlink_to(beside.parent / "loader.ncu-trace")
    ended = run("inside")
    assert (ended.code, ended.err) == (EXIT_OK, ""), "it was not named like it"
    assert "3 launches of 3 kernels" in ended.out


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_machines_read_the_reports_of_a_folder(run: Run, beside: Path, form: str) -> None:
    with_traces = run("inside", "--format", form)
    for trace in beside.glob("*.ncu-trace"):
        trace.unlink()
    assert run("inside", "--format", form) == with_traces
