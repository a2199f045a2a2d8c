"""Building: flags, cache, ptxas's report, staging, and what is said when the machine or the code is
at fault."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ncu_toolkit.base.core import cache
from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    KernelProblem,
    ToolkitError,
    UsageProblem,
)
from ncu_toolkit.kernel.build import nvcc, toolchain
from ncu_toolkit.kernel.ladder.catalogue import find_rung
from ncu_toolkit.kernel.ladder.rung import Rung


def have(tool: str) -> bool:
    try:
        toolchain.find_tool(tool)
    except EnvironmentProblem:
        return False
    return True


needs_nvcc = [
    pytest.mark.toolchain,
    pytest.mark.skipif(not have("nvcc"), reason="no nvcc here: pip install '.[toolchain]'"),
]

HEADER = """\
/*+++
title = "t"
idea = "i"
kind = "step"
compared_with = ""
+++*/
CODE
/*+++
minimum_cc = "8.0"
[parameters]
BM = 4
[[launch]]
kernel = "NAME"
grid = ["1"]
block = ["BM"]
args = ["A"]
+++*/
"""
CODE = '#include "common/scale.cuh"\nextern "C" __global__ void NAME(float* A) { A[threadIdx.x] = scale(A[threadIdx.x]) + BM; }\n'


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ladder folder with one shared header, and its own cache."""
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(nvcc.SOURCE_ROOT_VARIABLE, raising=False)
    folder = tmp_path / "private-name" / "kernels"
    (folder / "common").mkdir(parents=True)
    (folder / "fam").mkdir()
    (folder / "common" / "scale.cuh").write_text(
        "#pragma once\n__device__ inline float scale(float x) { return 2.f * x; }\n"
    )
    return folder


def rung_in(root: Path, name: str = "a", code: str = CODE, header: str = HEADER) -> Rung:
    (root / "fam" / f"01_{name}.cu").write_text(
        header.replace("CODE\n", code).replace("NAME", name)
    )
    return find_rung(name, root)


REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5spillPfi' for 'sm_90'
ptxas info    : Function properties for _Z5spillPfi
    256 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 18 registers, used 0 barriers, 256 bytes cumulative stack size
ptxas info    : Compile time = 20.778 ms
ptxas info    : Function properties for helper
    40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'mm' for 'sm_90'
ptxas info    : Function properties for mm
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 23 registers, used 1 barriers, 2048 bytes smem, 380 bytes cmem[0]
"""


def test_resource_report_is_read_by_entry() -> None:
    assert nvcc.parse_resources(REPORT) == {
        "_Z5spillPfi": nvcc.Resources(18, 256, 12, 16, 0, 0),
        "mm": nvcc.Resources(23, 0, 0, 0, 2048, 1),
    }
    assert [r.spills for r in nvcc.parse_resources(REPORT).values()] == [True, False]


@pytest.mark.parametrize(
    ("text", "cc"),
    [("sm_90", (9, 0)), ("sm_90a", (9, 0)), ("86", (8, 6)), ("8.9", (8, 9)), ("sm_120", (12, 0))],
)
def test_architectures_are_read(text: str, cc: tuple[int, int]) -> None:
    assert nvcc.parse_arch(text) == cc


@pytest.mark.parametrize("text", ["", "hopper", "sm_", "9", "sm_90b", "compute_90"])
def test_other_architectures_are_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match="is not an architecture"):
        nvcc.parse_arch(text)


def test_targets(root: Path) -> None:
    plain = rung_in(root)
    assert nvcc.target_of(plain, "sm_90") == "sm_90"
    assert nvcc.target_of(plain, "sm_90a") == "sm_90"
    with pytest.raises(UsageProblem, match=r"a needs compute capability 8\.0 or newer, not 7\.5"):
        nvcc.target_of(plain, "sm_75")
    hopper = rung_in(root, "b", header=HEADER.replace('"8.0"', '"9.0"\narch_specific = true'))
    assert nvcc.target_of(hopper, "sm_90") == "sm_90a"
    with pytest.raises(
        UsageProblem, match=r"b needs compute capability 9\.0 exactly.*--arch sm_90a"
    ):
        nvcc.target_of(hopper, "sm_100")


def test_no_nvcc_says_how_to_get_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "tool_folders", lambda: iter([root]))
    with pytest.raises(
        EnvironmentProblem, match=r"nvcc was not found.*pip install .*\[toolchain\]"
    ):
        nvcc.compile_rung(rung_in(root), "sm_80")
    assert toolchain.toolchain_description() == "no nvcc, no nvdisasm"


def fake_nvcc(folder: Path, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = folder / "nvcc"
    script.write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && echo 'release 11.0, V11.0.1' && exit 0\necho '{message}' >&2\nexit 1\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(toolchain, "tool_folders", lambda: iter([folder]))


@pytest.mark.parametrize(
    ("message", "kind", "says"),
    [
        ("nvcc fatal   : Unsupported gpu architecture 'compute_90'", EnvironmentProblem, r"nvcc 11\.0\.1 cannot compile for sm_90"),
        ("gcc: No such file or directory", EnvironmentProblem, "no C\\+\\+ host compiler"),
        ("nvcc fatal   : Failed to preprocess host compiler properties.", EnvironmentProblem, "Install g\\+\\+"),
        ("error: -- unsupported GNU version! gcc versions later than 9", EnvironmentProblem, "host compiler here"),
        ("ptxas error   : Entry function 'a' uses too much shared data", KernelProblem, r"01_a\.cu does not compile for sm_90: ptxas error"),
        ("", KernelProblem, "nvcc printed nothing"),
    ],
)  # fmt: skip
def test_failures_are_told_apart(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    kind: type[ToolkitError],
    says: str,
) -> None:
    rung = rung_in(root)
    fake_nvcc(tmp_path, message.replace("'", "'\\''"), monkeypatch)
    with pytest.raises(kind, match=says):
        nvcc.compile_rung(rung, "sm_90")
    assert not list((tmp_path / "cache" / "cubins").iterdir())


def test_no_place_to_write(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "file"))
    fake_nvcc(tmp_path, "", monkeypatch)
    with pytest.raises(EnvironmentProblem, match=f"cannot write to .*{cache.CACHE_VARIABLE}"):
        nvcc.compile_rung(rung_in(root), "sm_90")


class TestCompile:
    pytestmark = needs_nvcc

    def test_builds_and_reports(self, root: Path) -> None:
        cubin = nvcc.compile_rung(rung_in(root), "sm_80", {"BM": 8}, {"ELEM_FLOAT32": "1"})
        assert cubin.path.read_bytes()[:4] == b"\x7fELF"
        assert set(cubin.entries) == {"a"}
        assert 0 < cubin.entries["a"].registers <= 255
        assert {
            "-arch=sm_80",
            "-lineinfo",
            "-std=c++17",
            "-O3",
            "-DBM=8",
            "-DELEM_FLOAT32=1",
        } <= set(cubin.command)
        assert cubin.compiler == f"nvcc {toolchain.find_tool('nvcc').version}"
        assert (cubin.cached, cubin.warnings) == (False, ())

    def test_cache_follows_content(self, root: Path) -> None:
        first = nvcc.compile_rung(rung_in(root), "sm_80")
        again = nvcc.compile_rung(rung_in(root), "sm_80")
        assert (again.cached, again.path, again.entries) == (True, first.path, first.entries)
        assert again.command == first.command
        assert not nvcc.compile_rung(rung_in(root), "sm_80", {"BM": 5}).cached
        assert not nvcc.compile_rung(rung_in(root), "sm_86").cached
        header = root / "common" / "scale.cuh"
        header.write_text(header.read_text().replace("2.f", "3.f"))
        changed = nvcc.compile_rung(rung_in(root), "sm_80")
        assert (changed.cached, changed.path == first.path) == (False, False)

    @pytest.mark.slow
    def test_a_damaged_entry_is_built_again(self, root: Path) -> None:
        first = nvcc.compile_rung(rung_in(root), "sm_80")
        whole = first.path.read_bytes()
        first.path.write_bytes(whole[:100])
        second = nvcc.compile_rung(rung_in(root), "sm_80")
        assert (second.cached, len(second.path.read_bytes())) == (False, len(whole))
        record = first.path.parent / "report.json"
        record.write_text(record.read_text().replace('"registers": ', '"registers": 1'))
        assert not nvcc.compile_rung(rung_in(root), "sm_80").cached
        record.write_text("{}")
        assert not nvcc.compile_rung(rung_in(root), "sm_80").cached

    @pytest.mark.slow
    def test_two_processes_at_once(self, root: Path) -> None:
        rung_in(root)
        script = (
            "import sys; from pathlib import Path; from ncu_toolkit.kernel.build import nvcc; "
            "from ncu_toolkit.kernel.ladder import catalogue as ladder\n"
            "c = nvcc.compile_rung(ladder.find_rung('a', Path(sys.argv[1])), 'sm_80'); print(c.path, c.entries['a'].registers)"
        )
        runs = [
            subprocess.Popen(
                [sys.executable, "-c", script, str(root)], stdout=subprocess.PIPE, text=True
            )
            for _ in range(3)
        ]
        answers = {run.communicate()[0] for run in runs}
        assert len(answers) == 1
        assert [run.returncode for run in runs] == [0, 0, 0]
        assert len(list((cache.cache_folder() / "cubins").iterdir())) == 1

    def test_compile_error_names_file_line_and_keeps_the_log(self, root: Path) -> None:
        with pytest.raises(KernelProblem) as caught:
            nvcc.compile_rung(rung_in(root, code=CODE.replace("+ BM", "+ MB")), "sm_80")
        assert (
            'does not compile for sm_80: kernels/fam/01_a.cu(8): error: identifier "MB" is undefined'
            in caught.value.message
        )
        assert "private-name" not in caught.value.message
        log = Path(caught.value.remedy.removeprefix("The full log is "))
        assert "MB" in log.read_text()

    def test_staging_leaves_no_private_path(
        self, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage = tmp_path / "src"
        plain = nvcc.compile_rung(rung_in(root), "sm_80")
        monkeypatch.setenv(nvcc.SOURCE_ROOT_VARIABLE, str(stage))
        staged = nvcc.compile_rung(rung_in(root), "sm_80")
        assert b"private-name" in plain.path.read_bytes()
        assert b"private-name" not in staged.path.read_bytes()
        assert b"01_a.cu" in staged.path.read_bytes()
        assert (stage / "kernels" / "common" / "scale.cuh").is_file()
        assert nvcc.compile_rung(rung_in(root), "sm_80").cached

    def test_build_many_keeps_order_and_goes_on_after_a_failure(self, root: Path) -> None:
        good, bad = (
            rung_in(root),
            rung_in(root, "b", code='extern "C" __global__ void b(float* A) { oops }\n'),
        )
        seen: list[tuple[int, int]] = []
        requests = [
            nvcc.BuildRequest(good, "sm_80"),
            nvcc.BuildRequest(bad, "sm_80"),
            nvcc.BuildRequest(good, "sm_75"),
        ]
        outcomes = nvcc.build_many(
            requests, lambda done, total, _: seen.append((done, total)), jobs=2
        )
        assert seen == [(1, 3), (2, 3), (3, 3)]
        assert [o.request for o in outcomes] == requests
        assert outcomes[0].cubin is not None
        assert isinstance(outcomes[1].error, KernelProblem)
        assert isinstance(outcomes[2].error, UsageProblem)

    def test_any_file(self, root: Path) -> None:
        source = root.parent / "other.cu"
        source.write_text("__global__ void k(float* p) { p[0] = 1; }\n")
        assert set(nvcc.compile_file(source, "sm_90a").entries) == {"_Z1kPf"}
        with pytest.raises(UsageProblem, match="there is no file"):
            nvcc.compile_file(root / "absent.cu", "sm_90")

    @pytest.mark.slow
    def test_the_packaged_compiler_works_by_itself(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """pip's nvidia-cuda-nvcc, where it is installed, compiles without any toolkit elsewhere."""
        packaged = [
            f
            for f in toolchain.tool_folders()
            if "site-packages" in str(f) and shutil.which("nvcc", path=str(f))
        ]
        if not packaged:
            pytest.skip("the toolchain packages are not installed here")
        monkeypatch.setattr(toolchain, "tool_folders", lambda: iter(packaged))
        assert nvcc.compile_rung(rung_in(root), "sm_90").path.is_file()


def test_a_library_baseline_has_nothing_to_compile(root: Path) -> None:
    header = (
        '/*+++\ntitle = "l"\nidea = "i"\nkind = "baseline"\n+++*/\n'
        '/*+++\nlibrary = "cublas"\nminimum_cc = "7.0"\n+++*/\n'
    )
    with pytest.raises(UsageProblem, match="library baseline"):
        nvcc.compile_rung(rung_in(root, "lib", "", header), "sm_80")
