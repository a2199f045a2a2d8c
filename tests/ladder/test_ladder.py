"""The ladders under kernels/: headers become rungs, launches become numbers, and what is wrong is
said with file and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from family_sizes import verified_sizes
from references import check_ladders

from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, UsageProblem
from ncu_toolkit.kernel.ladder import catalogue
from ncu_toolkit.kernel.ladder.catalogue import CHECK_FUNCTIONS
from ncu_toolkit.kernel.ladder.expressions import check_syntax
from ncu_toolkit.kernel.ladder.problems import Case, families, problem_for
from ncu_toolkit.kernel.ladder.rung import SassExpectation, Scratch

HEADER = """\
title = "A step"
idea = "Does something differently. That should help."
kind = "step"
compared_with = ""
+++*/
CODE
/*+++
minimum_cc = "8.0"

[parameters]
BM = 64
TM = 4

[[launch]]
kernel = "NAME"
grid = ["ceil_div(M, BM)", "1", "1"]
block = ["BM / TM", "2"]
shared = "BM * 4"
args = ["A", "M"]
"""
CODE = 'extern "C" __global__ void NAME(const float* A, int M) {}\n'


def write(
    root: Path, name: str, header: str = HEADER, code: str = CODE, family: str = "fam"
) -> Path:
    (root / "common").mkdir(parents=True, exist_ok=True)
    (root / family).mkdir(exist_ok=True)
    path = root / family / name
    bare = name.removesuffix(".cu").partition("_")[2]
    path.write_text(f"/*+++\n{header}+++*/\n".replace("CODE\n", code).replace("NAME", bare))
    return path


def replaced(old: str, new: str) -> str:
    assert old in HEADER
    return HEADER.replace(old, new)


def test_a_header_becomes_a_rung(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "07_wide.cu",
        HEADER
        + '[expect.sass]\npresent = ["LDS.128"]\nmax_registers = 64\n[expect]\nratio_at_least = 2\n',
    )
    rung = catalogue.load_rung(path)
    assert (rung.name, rung.family, rung.order, rung.kind, rung.minimum_cc) == (
        "wide",
        "fam",
        7,
        "step",
        (8, 0),
    )
    assert rung.parameters == {"BM": 64, "TM": 4}
    assert rung.expect.sass == SassExpectation(("LDS.128",), (), 64)
    assert rung.expect.ratio_at_least == 2.0
    assert rung.code == CODE.replace("NAME", "wide")
    assert rung.label == "kernels/fam/07_wide.cu"


def test_launches_become_numbers(tmp_path: Path) -> None:
    rung = catalogue.load_rung(write(tmp_path, "01_a.cu"))
    (launch,) = rung.launch_geometry({"M": 1000}, {}, 132)
    assert (launch.grid, launch.block, launch.shared, launch.args) == (
        (16, 1, 1),
        (16, 2, 1),
        256,
        ("A", "M"),
    )
    assert (launch.blocks, launch.threads, launch.repeat) == (16, 32, 1)
    assert rung.launch_geometry({"M": 1000}, {"BM": 128}, 132)[0].grid == (8, 1, 1)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"ceil_div(M, BM)", "1", "1"', '"M - 1000"', "grid x is 0"),
        ('"ceil_div(M, BM)", "1", "1"', '"1", "M * 100"', "grid y is 100000, CUDA takes 1 to 65535"),
        ('"BM / TM", "2"', '"1025"', "block x is 1025"),
        ('"BM / TM", "2"', '"BM", "32"', "2048 threads"),
        ('"BM * 4"', '"-1"', "-1 bytes of dynamic shared memory"),
        ('"BM * 4"', '"2 ** 20"', "1048576 bytes"),
        ('args = ["A", "M"]', 'args = ["A", "M"]\nrepeat = "BM - 64"', "repeat is 0"),
    ],
)  # fmt: skip
def test_launch_limits(tmp_path: Path, old: str, new: str, says: str) -> None:
    rung = catalogue.load_rung(write(tmp_path, "01_a.cu", replaced(old, new)))
    with pytest.raises(UsageProblem, match=says):
        rung.launch_geometry({"M": 1000}, {}, 132)


def test_expressions_name_their_file_and_key(tmp_path: Path) -> None:
    rung = catalogue.load_rung(
        write(tmp_path, "01_a.cu", replaced("ceil_div(M, BM)", "ceil_div(Q, BM)"))
    )
    with pytest.raises(
        InputProblem,
        match=r"kernels/fam/01_a\.cu: launch\[0\]\.grid\[0\]: in 'ceil_div\(Q, BM\)': there is no 'Q'",
    ):
        rung.launch_geometry({"M": 1000}, {}, 132)


def test_parameters_and_shapes_are_refused_by_name(tmp_path: Path) -> None:
    extra = (
        '[[constraint]]\ncheck = "BM % TM == 0"\nsays = "the tile must split evenly"\n'
        '[[shapes]]\ncheck = "M % 4 == 0"\nsays = "M must be a multiple of 4"\n'
    )
    rung = catalogue.load_rung(write(tmp_path, "01_a.cu", HEADER + extra))
    with pytest.raises(UsageProblem, match="no parameter 'BN'"):
        rung.with_parameters({"BN": 3})
    with pytest.raises(UsageProblem, match="BM = 64, TM = 3: the tile must split evenly"):
        rung.with_parameters({"TM": 3})
    with pytest.raises(UsageProblem, match="M = 1001: M must be a multiple of 4"):
        rung.launch_geometry({"M": 1001}, {}, 132)


def test_scratch_and_tensor_maps(tmp_path: Path) -> None:
    extra = (
        '[scratch.partial]\ndtype = "int32"\ncount = "ceil_div(M, 256)"\nzeroed = true\n'
        '[tensor_maps.map_a]\narray = "A"\nbox = ["0 if M % 8 else TM", "0 if M % 8 else BM"]\nswizzle = 128\n'
    )
    rung = catalogue.load_rung(
        write(tmp_path, "01_a.cu", replaced('["A", "M"]', '["map_a", "partial", "M"]') + extra)
    )
    partial = Scratch(dtype="int32", count="ceil_div(M, 256)", zeroed=True)
    assert rung.scratch_tables == {"partial": partial}
    assert rung.scratch_counts({"M": 1000}, {}, 1) == {"partial": 4}
    assert rung.tensor_map_boxes({"M": 1000}, {}, 1) == {"map_a": (4, 64)}
    assert rung.tensor_map_boxes({"M": 1001}, {}, 1) == {"map_a": ()}
    with pytest.raises(InputProblem, match="boxes of 1 to 256"):
        rung.tensor_map_boxes({"M": 1000}, {"BM": 512}, 1)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (HEADER.replace('title = "A step"\n', ""), "title is missing"),
        (replaced('"A step"', '" "'), "title is ' '. Write what it is"),
        (replaced('"A step"', "3"), "title is 3, expected a string"),
        (replaced('"step"', '"stepp"'), "kind is 'stepp'. It is one of step, regression"),
        ('titel = "x"\n' + HEADER, "titel is not a known key. Did you mean 'title'"),
        (
            replaced('minimum_cc = "8.0"', 'minimum_cc = "sm_80"'),
            "minimum_cc is 'sm_80'. Write a compute capability",
        ),
        (
            replaced('minimum_cc = "8.0"', "minimum_cc = 8.0"),
            "minimum_cc is 8.0, expected a string",
        ),
        (replaced("BM = 64", 'BM = "64"'), "parameters.BM is '64', expected an integer"),
        (replaced("BM = 64", "BM = true"), "parameters.BM is True"),
        (
            replaced("ceil_div(M, BM)", "ceil_div(M,"),
            "launch[0].grid[0] is 'ceil_div(M,': cannot be read",
        ),
        (
            replaced("ceil_div(M, BM)", "ceildiv(M, BM)"),
            "there is no function 'ceildiv'. Did you mean 'ceil_div'",
        ),
        (
            replaced('kernel = "NAME"', 'kernel = "other"'),
            "launch.kernel: 'other' is not defined in the code",
        ),
        (replaced('kernel = "NAME"\n', ""), "launch[0].kernel is missing"),
        (replaced('args = ["A", "M"]', "args = [1]"), "launch[0].args[0] is 1, expected a string"),
        (
            replaced('args = ["A", "M"]', 'args = ["A", "M"]\nclusters = 2'),
            "launch[0].clusters is not a known key. kernels/README.md lists",
        ),
        (HEADER + "[search]\nBN = [1]\n", "search.BN is not a parameter"),
        (
            HEADER + '[model]\nsays = "x"\ntime_us = "1"\nover = { BN = [1] }\n',
            "model.BN is not a parameter",
        ),
        (HEADER + '[model]\nsays = "x"\nover = { BM = [1] }\n', "model.time_us is missing"),
        (HEADER + "[search]\nBM = []\n", "search.BM is a list, expected a list of length >= 1"),
        (
            HEADER + '[expect.sass]\npresent = ["lds 128"]\n',
            "expect.sass.present[0] is 'lds 128'. Write opcodes",
        ),
        (HEADER + "[expect.sass]\nregisters = 3\n", "expect.sass.registers is not a known key"),
        (
            HEADER + '[[expect.profile]]\nsays = "x"\ncheck = "exec(\'STS\') > 0"\n',
            "no function 'exec'. Did you mean 'executed'",
        ),
        (HEADER + '[[measured]]\nsays = "x"\n', "measured[0].gpu is missing"),
        (
            HEADER + '[scratch.p]\ndtype = "float"\ncount = "1"\n',
            "scratch.p.dtype is 'float'. It is one of bfloat16",
        ),
        (HEADER + '[scratch.p]\ndtype = "float32"\ncount = "1"\n', "scratch.p: no launch takes it"),
        (
            HEADER + '[tensor_maps.m]\narray = "A"\nbox = ["1"]\nswizzle = 7\n',
            "tensor_maps.m.swizzle is 7. It is one of 0, 32, 64, 128",
        ),
        (replaced("minimum_cc", 'library = "cublas"\nminimum_cc'), "exactly one of the two"),
        (
            replaced('compared_with = ""', 'compared_with = "a"'),
            "compared_with names the rung itself",
        ),
        ('removes = "memory-latency"\n' + HEADER, "removes is set, but compared_with is not"),
        ('removes = "Memory Latency"\n' + HEADER, "removes is 'Memory Latency'"),
        (
            "[[[\n",
            "the head block is not valid TOML: Invalid initial character for a key part (at line 2",
        ),
        (
            replaced("BM = 64", "BM = "),
            "the tail block is not valid TOML: Invalid value (at line 12",
        ),
        ("launch = 3\n", "launch is in the head block. Move it to the tail block"),
        (HEADER.replace('kind = "step"\n', ""), "kind is missing. It belongs in the head block"),
        (
            replaced('kind = "step"\n', "").replace("minimum_cc", 'kind = "step"\nminimum_cc'),
            "kind is in the tail block. Move it to the head block",
        ),
        (replaced("minimum_cc", 'removes = ""\nminimum_cc'), "removes is in the tail block"),
        (replaced("+++*/\nCODE\n/*+++\n", ""), "minimum_cc is in the head block"),
        (replaced("\n/*+++\nminimum_cc", "\n/*+++\n+++*/\n/*+++\nminimum_cc"), "a second block"),
        (HEADER + "+++*/\nint after;\n/*\n", "a second block that is not the end of the file"),
    ],
)
def test_header_errors_name_file_and_key(tmp_path: Path, header: str, says: str) -> None:
    with pytest.raises(InputProblem) as caught:
        catalogue.load_rung(write(tmp_path, "01_a.cu", header))
    assert str(caught.value).startswith("kernels/fam/01_a.cu: ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "__global__ void a() {}", "/*+++\ntitle = 'unfinished'\n", "/*+++ title = 'x' +++*/"],
)
def test_half_written_files(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "01_a.cu")
    path.write_text(text)
    with pytest.raises(InputProblem, match="no head block"):
        catalogue.load_rung(path)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = write(tmp_path, "01_a.cu")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputProblem, match="not UTF-8"):
        catalogue.load_rung(path)


def test_one_broken_file_leaves_the_others_usable(tmp_path: Path) -> None:
    write(tmp_path, "01_a.cu")
    write(tmp_path, "02_b.cu", "kind = \n")
    assert catalogue.find_rung("a", tmp_path).name == "a"
    assert catalogue.load_families(tmp_path)["fam"].rung_names == ("a", "b")
    assert [p.message.partition(":")[0] for p in check_ladders(tmp_path)] == ["kernels/fam/02_b.cu"]
    with pytest.raises(InputProblem):
        _ = catalogue.load_families(tmp_path)["fam"].rungs


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, "01_a.cu")
    first = catalogue.load_rung(path)
    assert catalogue.load_rung(path) is first
    write(tmp_path, "01_a.cu", replaced("A step", "Another step"))
    assert catalogue.load_rung(path).title == "Another step"


def test_misses_suggest_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, "01_vectorized.cu")
    with pytest.raises(UsageProblem, match=r"no kernel 'vectorised'.*'vectorized'"):
        catalogue.find_rung("vectorised", tmp_path)
    with pytest.raises(UsageProblem, match=r"no family 'fan'.*'fam'"):
        catalogue.find_rung("fan/vectorized", tmp_path)
    with pytest.raises(UsageProblem, match="fam has no rung 'q'"):
        catalogue.find_rung("fam/q", tmp_path)


def test_names_are_unique_and_well_formed(tmp_path: Path) -> None:
    write(tmp_path, "01_a.cu")
    write(tmp_path, "01_a.cu", family="other")
    with pytest.raises(InputProblem, match=r"there is a rung 'a' already, in kernels/fam/01_a\.cu"):
        catalogue.load_families(tmp_path)
    with pytest.raises(InputProblem, match="already"):
        catalogue.find_rung("a", tmp_path)
    write(tmp_path, "Naive.cu", family="third")
    assert any("NN_name.cu" in p.message for p in check_ladders(tmp_path))


def test_references_are_checked(tmp_path: Path) -> None:
    write(tmp_path, "01_a.cu")
    write(
        tmp_path,
        "02_b.cu",
        'removes = "memory-latencies"\n'
        + replaced('compared_with = ""', 'compared_with = "a"').replace(
            "minimum_cc", 'baseline = "cublas"\nminimum_cc'
        ),
    )
    write(tmp_path, "03_c.cu", replaced('compared_with = ""', 'compared_with = "bb"'))
    write(tmp_path, "04_d.cu", replaced('compared_with = ""', 'compared_with = "fam/e"'))
    write(tmp_path, "05_e.cu", replaced('compared_with = ""', 'compared_with = "d"'))
    says = [str(p) for p in check_ladders(tmp_path, {"memory-latency"})]
    assert len(says) == 5
    assert (
        "02_b.cu: removes: there is no bottleneck 'memory-latencies'. Did you mean 'memory-latency'"
        in says[0]
    )
    assert "02_b.cu: baseline: fam has no rung 'cublas'" in says[1]
    assert "03_c.cu: compared_with: fam has no rung 'bb'" in says[2]
    assert "04_d.cu: compared_with leads in a circle: d → e → d" in says[3]
    assert len(check_ladders(tmp_path, {"memory-latencies"})) == 4
    compared = catalogue.comparison_of(catalogue.find_rung("b", tmp_path))
    assert compared is not None
    assert compared.name == "a"
    assert catalogue.comparison_of(compared) is None


def test_architecture(tmp_path: Path) -> None:
    plain = catalogue.load_rung(write(tmp_path, "01_a.cu"))
    assert plain.unsupported_on((7, 5)) == "a needs compute capability 8.0 or newer, not 7.5"
    assert plain.unsupported_on((12, 0)) == ""
    hopper = catalogue.load_rung(
        write(
            tmp_path,
            "02_b.cu",
            replaced('minimum_cc = "8.0"', 'minimum_cc = "9.0"\narch_specific = true'),
        )
    )
    assert hopper.unsupported_on((9, 0)) == ""
    assert (
        hopper.unsupported_on((10, 0))
        == "b needs compute capability 9.0 exactly (sm_90a), not 10.0"
    )


def test_root_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "01_mine.cu")
    monkeypatch.setenv(catalogue.ROOT_VARIABLE, str(tmp_path))
    assert catalogue.find_rung("mine").family == "fam"
    monkeypatch.setenv(catalogue.ROOT_VARIABLE, str(tmp_path / "absent"))
    with pytest.raises(EnvironmentProblem, match="no folder of kernels"):
        catalogue.kernels_root()


def test_shipped_ladders_are_sound() -> None:
    assert catalogue.load_families()
    assert [str(p) for p in check_ladders()] == []


def shipped() -> list[Path]:
    return [path for path in catalogue.rung_files() if path.parent.name in families()]


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)
def test_shipped_headers_resolve_with_their_problem(path: Path) -> None:
    """Every name in a header exists: arguments, dimensions, parameters; and launches resolve at
    every size that the family names."""
    rung = catalogue.load_rung(path)
    problem = problem_for(rung.family)
    rung.with_parameters()
    resolved = 0
    for text in dict.fromkeys(
        (*verified_sizes(problem), *problem.bench_sizes, *problem.record_sizes)
    ):
        size, dtype = problem.parse_size(text), problem.dtypes[0]
        scalars = {
            name: scalar.value
            for name, scalar in problem.scalars(Case(size, dtype, rung.problem)).items()
        }
        arrays = problem.arrays(Case(size, dtype, rung.problem))
        try:
            launches = rung.launch_geometry(scalars, {}, 132)
        except UsageProblem:
            continue  # a size the rung refuses by name; at least one must remain
        resolved += 1
        scratch, maps = (
            rung.scratch_counts(scalars, {}, 132),
            rung.tensor_map_boxes(scalars, {}, 132),
        )
        for launch in launches:
            unknown = set(launch.args) - {*arrays, *scalars, *scratch, *maps}
            assert not unknown, (
                f"{rung.label}: args {sorted(unknown)} are neither arrays, scalars, scratch nor tensor maps of {rung.family}"
            )
        assert {spec.array for spec in rung.map_tables.values()} <= set(arrays)
        known = {*scalars, *rung.parameters, *size.as_dict(), "sm_count", "time_us", "prev_time_us"}
        for check in rung.expect.profile:
            unread = check_syntax(check.check, CHECK_FUNCTIONS) - known
            assert not unread, (
                f"{rung.label}: expect.profile '{check.check}' reads unknown {sorted(unread)}"
            )
        for expectation in rung.expect.profile:
            for wanted in expectation.sizes:
                problem.parse_size(wanted)
    assert resolved


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)
def test_shipped_files_open_with_their_kernel(path: Path) -> None:
    """A head of at most 12 lines, the kernel, and the tail at the end."""
    head, code, tail = catalogue.split(path.read_text(encoding="utf-8"))
    assert head.startswith("/*+++\n")
    assert head.count("\n") <= 12
    assert max(map(len, head.splitlines())) <= 100
    assert tail.endswith("\n+++*/\n")
    rung = catalogue.load_rung(path)
    assert bool(rung.code) != bool(rung.library)
    assert head + code + tail == rung.text


def test_the_digest_of_code_is_of_what_the_compiler_sees(tmp_path: Path) -> None:
    """Blocks in either layout, comments and white space do not count; code and text in quotes do."""
    text = write(tmp_path, "01_a.cu").read_text()
    digest = catalogue.code_digest(text)
    former = "/*+++\nminimum_cc = 1\n+++*/\n" + CODE.replace("NAME", "a")
    for same in (
        former,
        text.replace("A step", "Another"),
        text.replace("BM = 64", "BM = 32"),
        text.replace("void a", "/* the\n kernel */ void // it\n    a"),
    ):
        assert same != text
        assert catalogue.code_digest(same) == digest
    for other in (text.replace("void a", "void b"), text.replace('"C"', '"C "')):
        assert catalogue.code_digest(other) != digest


def test_a_model_ranks_the_settings_that_the_constraints_allow(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "01_a.cu",
        HEADER
        + '[[constraint]]\ncheck = "BM != 96"\nsays = "no"\n'
        + '[model]\nsays = "rounds"\ntime_us = "rounds * BM"\n'
        + '[model.over]\nBM = [32, 64, 96, 128]\n[model.let]\nrounds = "ceil_div(ceil_div(M, BM), sm_count)"\n',
    )
    rung = catalogue.load_rung(path)
    ranked = rung.modelled({"M": 256, "N": 1, "K": 1}, 4)
    assert [(time, each["BM"]) for time, each in ranked] == [(64.0, 32), (64.0, 64), (128.0, 128)]
    assert rung.modelled({"M": 1024, "N": 1, "K": 1}, 4)[0][0] == 256.0
    assert catalogue.find_rung("gemm_fp32/naive").modelled({"M": 8}, 4) == []
    assert [each["BM"] for _, each in rung.promising({"M": 256, "N": 1, "K": 1}, 4)] == [32, 64]
    assert catalogue.find_rung("gemm_fp32/naive").promising({"M": 8}, 4) == []


@pytest.mark.parametrize("size", ["640x640x1024", "5448"])
def test_promising_settings_are_few_near_and_of_several_tiles(size: str) -> None:
    rung = catalogue.find_rung("gemm_tensor/wgmma_fitted")
    dims = problem_for(rung.family).parse_size(size).as_dict()
    found, ranked = rung.promising(dims, 132), rung.modelled(dims, 132)
    assert len(found) == 8
    assert found[0] == ranked[0]
    assert found[-1][0] <= 1.15 * found[0][0]
    tiles = [tuple(each[name] for name in ("BM", "BN", "CLUSTER", "ACROSS")) for _, each in found]
    assert max(map(tiles.count, tiles)) <= 2
    skipped = [each for each in ranked if each not in found and each[0] < found[-1][0]]
    for _, each in skipped:
        assert tiles.count(tuple(each[n] for n in ("BM", "BN", "CLUSTER", "ACROSS"))) == 2


@pytest.mark.parametrize("name", ["gemm_tensor/wgmma_fitted", "gemm_fp32/register_blocked_tma"])
@pytest.mark.parametrize("size", ["1", "8x16384x64", "16384x8x64", "512x512x16384", "3000", "9999"])
def test_a_shipped_model_has_a_setting_for_every_shape(name: str, size: str) -> None:
    rung = catalogue.find_rung(name)
    dims = problem_for(rung.family).parse_size(size).as_dict()
    ranked = rung.modelled(dims, 132)
    assert ranked[0][0] > 0
    for _, parameters in ranked[:3]:
        rung.launch_geometry(dims, parameters, 132)
        rung.scratch_counts(dims, parameters, 132)
        rung.tensor_map_boxes(dims, parameters, 132)


def test_the_model_fills_rounds_reads_less_and_cuts_what_is_few() -> None:
    rung = catalogue.find_rung("gemm_tensor/wgmma_fitted")

    def best(m: int, n: int, k: int) -> tuple[int, int, int]:
        chosen = rung.modelled({"M": m, "N": n, "K": k}, 132)[0][1]
        return chosen["BM"], chosen["BN"], chosen["SPLIT"]

    assert best(3072, 3072, 3072)[1:] == (192, 1)  # 1.94 rounds, where 128 x 256 has 2.18
    assert best(12288, 12288, 12288) == (192, 256, 1)
    assert best(512, 512, 16384)[2] > 1
    assert best(1024, 1024, 1024) == (64, 128, 1)
