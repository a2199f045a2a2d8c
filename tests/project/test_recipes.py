"""The recipes of CONTRIBUTING.md, carried out in a temporary copy: the files they name are enough,
everything else picks the new thing up, and the quick tests that concern it pass there."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import nvperf
import pytest
import recorded
import report_files

from ncu_toolkit.base.core.errors import EnvironmentProblem
from ncu_toolkit.kernel.build import toolchain

RECIPES = (recorded.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def missing_tools() -> str:
    try:
        toolchain.find_tool("nvcc")
    except EnvironmentProblem as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, kernels, documents and tests of this checkout."""
    folder = tmp_path_factory.mktemp("copy")
    skip = shutil.ignore_patterns("__pycache__", ".*", "node_modules")
    for name in ("ncu_toolkit", "kernels", "docs", "tests", "sections", "benchmarks"):
        shutil.copytree(recorded.ROOT / name, folder / name, ignore=skip)
    for path in (*recorded.ROOT.glob("*.md"), recorded.ROOT / "pyproject.toml"):
        shutil.copy(path, folder)
    MADE[folder] = contents(folder)
    return folder


@pytest.fixture
def copy(clean: Path) -> Iterator[Path]:
    """That copy, of which each recipe's changes are undone after it."""
    yield clean
    known = MADE[clean]
    for path in map(Path, changed(clean)):
        if str(path) in known:
            shutil.copy(recorded.ROOT / path, clean / path)
        elif any(name.startswith(f"{path.parent}/") for name in known):
            (clean / path).unlink()
        else:
            shutil.rmtree(clean / path.parent, ignore_errors=True)
    assert not changed(clean)


def contents(copy: Path) -> dict[str, str]:
    """A digest of each of the copy's files, caches aside, by its place."""
    return {
        str(path.relative_to(copy)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in copy.rglob("*")
        if path.is_file()
        and not any(part.startswith((".", "__py")) for part in path.relative_to(copy).parts)
    }


#: What each copy was like when it was made.
MADE: dict[Path, dict[str, str]] = {}


def changed(copy: Path) -> set[str]:
    """Files of the copy that are new, gone or have other content."""
    return {name for name, _ in MADE[copy].items() ^ contents(copy).items()}


def written(recipe: str) -> int:
    """How many files the table says that a recipe writes, a ladder's one kernel included."""
    (count, kernels) = re.findall(rf"^\| {recipe} \| (\d+)( and its kernels)?", RECIPES, re.M)[0]
    return int(count) + bool(kernels)


def quick(copy: Path, recipe: str, *tests: str, naming: str = "") -> int:
    """How many of the quick tests of some files pass in the copy, of which none may fail, and none
    may write; `naming` picks those whose names hold words."""
    before = changed(copy)
    assert len(before) == written(recipe), before
    command = ["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not gpu and not slow"]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    for name in ("NCU_TOOLKIT_KERNELS", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, *command, *tests, *(["-k", naming] if naming else [])],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert changed(copy) == before, "the tests wrote into the copy"
    return int(re.findall(r"(\d+) passed", done.stdout)[0])


def python(copy: Path, script: str) -> str:
    """What a script prints that sees only the copy."""
    path = os.pathsep.join(
        map(str, (copy, copy / "docs", copy / "tests", copy / "tests" / "ladder"))
    )
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("NCU_TOOLKIT_KERNELS", None)
    checked = (
        f"import ncu_toolkit\nassert ncu_toolkit.__file__.startswith({str(copy)!r})\n"
        + textwrap.dedent(script)
    )
    done = subprocess.run(
        [sys.executable, "-c", checked],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


KERNEL_CODE = """
extern "C" __global__ void recipe_kernel(const float* A, const float* B, float* C, int M, int N, int K) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || column >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * (long long)K + k] * B[k * (long long)N + column];
    C[row * (long long)N + column] = sum;
}
"""


def add_kernel(
    copy: Path, family: str = "gemm_fp32", header: str = "", name: str = "recipe_kernel"
) -> Path:
    """The file that CONTRIBUTING.md shows, under another name, with a body."""
    (shown,) = re.findall(r"```cuda\n(/\*\+\+\+\n.*?\+\+\+\*/)\n```", RECIPES, flags=re.DOTALL)
    text = header or shown.replace('"name"', '"recipe_kernel"')
    assert text.count("\n// the kernel\n") == 1
    path = copy / "kernels" / family / f"90_{name}.cu"
    path.parent.mkdir(exist_ok=True)
    text = text.replace("// the kernel\n", KERNEL_CODE.lstrip()).rstrip("\n") + "\n"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_kernel_is_one_file(copy: Path) -> None:
    add_kernel(copy)
    listed = json.loads(
        python(
            copy,
            "from ncu_toolkit.cli import main\nmain(['list', '--family', 'gemm_fp32', '--format', 'json'])",
        )
    )
    assert listed[0]["rungs"][-1]["name"] == "recipe_kernel"
    python(
        copy,
        """
        import generate, references
        from ncu_toolkit.kernel.gpu import selection
        from ncu_toolkit.kernel.ladder import catalogue as ladder
        assert not references.check_ladders(), references.check_ladders()
        rung = ladder.find_rung("recipe_kernel")
        (launch,) = rung.launch_geometry({"M": 100, "N": 40, "K": 7}, {}, 132)
        assert launch.grid == (2, 4, 1), launch
        assert "`recipe_kernel`" in generate.rung_tables()
        cases = selection.select(["recipe_kernel"], [], "64", None, predecessors=True)
        assert [case.rung for case in cases] == ["naive", "recipe_kernel"]
        """,
    )
    assert quick(copy, "a kernel", "tests/ladder/test_ladder.py", "tests/ladder/test_families.py")


def test_a_kernel_without_a_recording_is_pending(copy: Path) -> None:
    add_kernel(copy)
    show = "from ncu_toolkit.cli import main\nmain(['list', '--family', 'gemm_fp32'{}])"
    rungs = json.loads(python(copy, show.format(", '--format', 'json'")))[0]["rungs"]
    assert [rung["name"] for rung in rungs if rung["pending"]] == ["recipe_kernel"]
    assert python(copy, show.format("")).replace("\n", " ").count("[not recorded yet]") == 1
    python(
        copy,
        """
        import generate, recorded
        from ncu_toolkit.kernel.pages import book, family_view
        from ncu_toolkit.kernel.runs import store
        run = recorded.run_of(recorded.FP32)
        made = book.open_book(run, recorded.diagnosed)
        note = "Not recorded yet: recipe_kernel."
        assert made.pending("gemm_fp32") == ["recipe_kernel"]
        panels = family_view.family_view(made, "gemm_fp32").panels
        assert panels and all(note in panel.notes for panel in panels)
        (line,) = [l for l in generate.rung_figures([run]).splitlines() if "recipe_kernel" in l]
        assert "not recorded yet" in line
        (line,) = [l for l in generate.ladder_table([run]).splitlines() if "recipe_kernel" in l]
        assert line.endswith("| not recorded yet |")
        """,
    )
    tests = ("tests/ladder/test_recordings.py", "tests/diagnosis/test_story.py")
    assert quick(copy, "a kernel", *tests, naming="every_rung or header_checks") >= 9


@pytest.mark.toolchain
@pytest.mark.skipif(bool(missing_tools()), reason=missing_tools())
def test_the_kernel_of_the_recipe_compiles(copy: Path) -> None:
    add_kernel(copy)
    python(
        copy,
        """
        from ncu_toolkit.kernel.build import nvcc as build
        from ncu_toolkit.kernel.ladder import catalogue as ladder
        cubin = build.compile_rung(ladder.find_rung("recipe_kernel"), "sm_90")
        assert set(cubin.entries) == {"recipe_kernel"}, cubin.entries
        """,
    )


def add_metric(copy: Path) -> tuple[str, str]:
    """The entry that CONTRIBUTING.md shows; its short name and the profiler's."""
    (entry,) = re.findall(r"```python\n(Metric\(.*?\))?,?\n```", RECIPES, flags=re.DOTALL)
    name, raw = re.findall(r'"([^"]+)"', entry)[:2]
    registry = copy / "ncu_toolkit" / "base" / "metrics" / "registry.py"
    text = registry.read_text(encoding="utf-8")
    start = "_MEMORY: Final[tuple[Metric, ...]] = (\n"
    assert text.count(start) == 1
    registry.write_text(text.replace(start, f"{start}    {entry},\n"), encoding="utf-8")
    return name, raw


def test_a_metric_is_one_entry(copy: Path) -> None:
    name, raw = add_metric(copy)
    python(
        copy,
        f"""
        import diagnosis_cases, generate, section_files as sections
        from ncu_toolkit.kernel.analysis import frames
        from ncu_toolkit.kernel.diagnosis import figures as derived
        assert 'Name: "{raw}"' in sections.section_text("memory")
        assert "| `{name}` | L2 misses" in generate.metric_table()
        profile = diagnosis_cases.build({{"metrics": {{"{name}": 12.0}}}})
        assert derived.value(profile, "{name}") == 12.0
        assert frames.launches_frame([profile])["{name}"][0] == 12.0
        from ncu_toolkit.kernel.runs import store
        for folder in store.recordings():
            run = store.load_manifest(folder)
            launches = store.load_parsed(folder, run)
            assert launches and all("{name}" in each.readings for each in launches)
        """,
    )
    also = ("tests/diagnosis/test_glossary.py", "tests/analysis/test_frames.py")
    quick(copy, "a metric", *quick_tests("a metric"), *also)
    quick(copy, "a metric", "tests/runs/test_store.py", naming="metric or launch")
    if nvperf.library_path() is not None:
        for chip in nvperf.CHIPS.values():
            with nvperf.chip(chip) as known:
                assert known.has(raw), f"the recipe shows a name that {chip} does not have"


def shown(recipe: str, language: str) -> str:
    """The code that CONTRIBUTING.md shows for a recipe."""
    return section(recipe).partition(f"```{language}\n")[2].partition("```")[0]


def section(recipe: str) -> str:
    return RECIPES.partition(f"## Add {recipe}\n")[2].partition("\n## ")[0]


def quick_tests(recipe: str, name: str = "") -> list[str]:
    """The arguments of the pytest command that a recipe tells to test with, of a thing of a name."""
    (command,) = re.findall(r"`pytest ([^`]+)`", section(recipe))
    return shlex.split(command.replace("<id-with-dashes>", name))


REFERENCE = '''
"""Warps wait at memory fences.

What it is
A fence holds a warp until its writes are visible.

Why it costs time
The warp issues nothing meanwhile.

How to confirm
The membar stall.

What to change
Fence once a block.

When the advice is wrong
When the algorithm needs each fence.

Source
This test.
"""

'''


def add_bottleneck(copy: Path) -> None:
    """The rule and the case that CONTRIBUTING.md shows, with a reference page."""
    rule = copy / "ncu_toolkit" / "kernel" / "diagnosis" / "rules" / "fence_waits.py"
    text = REFERENCE.lstrip() + shown("a bottleneck", "python")
    rule.write_text(text, encoding="utf-8")
    case = copy / "tests" / "cases" / "fence-waits.json"
    case.write_text(shown("a bottleneck", "json"), encoding="utf-8")


def test_a_bottleneck_is_a_rule_and_a_case(copy: Path) -> None:
    add_bottleneck(copy)
    python(
        copy,
        """
        import bottleneck_pages, diagnosis_cases
        from ncu_toolkit.kernel.diagnosis import rules
        from ncu_toolkit.kernel.diagnosis.engine import diagnose
        assert "fence-waits" in rules.bottleneck_ids()
        assert rules.title("fence-waits") == "Waiting at memory fences"
        pages = bottleneck_pages.documents()
        assert "where the number comes from" in pages["fence-waits.md"]
        assert "fence-waits.md" in pages["README.md"]
        found = diagnose(diagnosis_cases.build(diagnosis_cases.read("fence-waits")))
        assert "fence-waits" in [finding.bottleneck for finding in found.findings]
        """,
    )
    passed = quick(copy, "a bottleneck", *quick_tests("a bottleneck", "fence-waits"))
    assert passed >= 3, "the case file alone brings its tests along"
    tests = "every_bottleneck_has_a_case"
    assert quick(copy, "a bottleneck", "tests/diagnosis/test_rules.py", naming=tests)
    quick(copy, "a bottleneck", "tests/diagnosis/test_glossary.py")


PROBLEM = '''
"""Scaling a vector, for a test."""

from __future__ import annotations

from collections.abc import Mapping

from ncu_toolkit.kernel.ladder.problems.base import Array, ArraySpec, Case, Expected, Problem


class Scale(Problem):
    """y = 2 x."""

    family = "scale"
    title = "Scaling"
    story = "Moves data."
    dimensions = ("n",)
    baseline = ""
    bench_sizes = record_sizes = ("1024",)

    def arrays(self, case: Case) -> Mapping[str, ArraySpec]:
        shape = (case["n"],)
        return {"x": ArraySpec(shape, case.dtype), "y": ArraySpec(shape, case.dtype, "output")}

    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        return {"y": Expected(inputs["x"].astype("float64") * 2, 0.0, "scaling by two is exact")}

    def flops(self, case: Case) -> float:
        return float(case["n"])


PROBLEM = Scale()
'''
SCALE = """/*+++
title = "Scale"
idea = "One thread an element. It is all there is to do."
kind = "step"
compared_with = ""
+++*/

// the kernel

/*+++
minimum_cc = "8.0"

[[launch]]
kernel = "recipe_kernel"
grid = ["ceil_div(n, 256)"]
block = ["256"]
args = ["x", "y", "n"]
+++*/"""


def add_ladder(copy: Path) -> None:
    add_kernel(copy, "scale", SCALE, "scale_kernel")
    problem = copy / "ncu_toolkit" / "kernel" / "ladder" / "problems" / "scale.py"
    problem.write_text(PROBLEM.lstrip(), encoding="utf-8")


def test_a_ladder_is_a_folder_and_a_problem(copy: Path) -> None:
    add_ladder(copy)
    python(
        copy,
        """
        import numpy, references
        from ncu_toolkit.kernel.gpu import selection
        from ncu_toolkit.kernel.ladder import catalogue as ladder
        from ncu_toolkit.kernel.ladder.problems import compare, families, problem_for
        assert "scale" in families() and "scale" in ladder.load_families()
        assert not references.check_ladders()
        cases = selection.select([], ["scale"], lambda problem: problem.record_sizes, None)
        assert {case.size for case in cases} == {"1024"}
        problem = problem_for("scale")
        case = problem.case("7", xp=numpy)
        inputs = problem.make_inputs(case, 1, ["x"])
        import test_families
        assert not list(test_families.violations(problem, ladder.load_families()["scale"].rungs))
        assert compare(numpy, "y", inputs["x"] * 2, problem.reference(case, inputs)["y"]).passed
        """,
    )
    assert quick(copy, "a ladder", "tests/ladder/test_ladder.py", "tests/ladder/test_families.py")


#: Documents that `make docs` writes again after each of these recipes.
FOLLOWING: tuple[tuple[Callable[[Path], object], set[str]], ...] = (
    (add_metric, {"docs/metrics.md", "docs/glossary.md"}),
    (add_kernel, {"docs/lab/results.md", "docs/lab/rungs.md", "kernels/README.md"}),
    (add_ladder, {"kernels/README.md"}),
)
#: Documents that take minutes and are left out: tables of rungs that are recorded.
CALIBRATION = ("calibration.md", "12-kernels-that-changed-the-rules.md")
GENERATED = f"""
import generate
wanted = generate.documents(generate.recordings(), lambda path: path.name not in {CALIBRATION})
for path, text in wanted.items():
    if path.read_text(encoding="utf-8") != text:
        print(path.relative_to(generate.ROOT))
        path.write_text(text, encoding="utf-8")
"""


@pytest.mark.slow
def test_documents_that_follow_from_a_recipe(copy: Path) -> None:
    """Each recipe on top of the ones before it."""
    python(copy, GENERATED)
    for carry_out, following in FOLLOWING:
        carry_out(copy)
        assert set(python(copy, GENERATED).split()) == following


def test_a_section_is_one_entry(copy: Path) -> None:
    path = copy / "ncu_toolkit" / "kernel" / "pages" / "page_view.py"
    text = path.read_text(encoding="utf-8")
    before, imported = "    yield _considered(diagnosis)\n", "from ncu_toolkit.kernel.explain.code"
    assert text.count(before) == text.count(imported) == 1
    text = text.replace(before, before + textwrap.indent(shown("a section", "python"), "    "))
    needed = "from ncu_toolkit.kernel.explain.sections import by_fact\n"
    path.write_text(text.replace(imported, needed + imported), encoding="utf-8")
    columns = python(
        copy,
        """
        import render_fixture
        from ncu_toolkit.kernel.pages.book import open_book
        from ncu_toolkit.kernel.pages.page_view import page_view
        run = render_fixture.run()
        page = page_view(open_book(run, render_fixture.diagnosis), run.profiles[0])
        (fold,) = [fold for fold in page.folds if fold.id == "l2-section"]
        print([column.label for column in fold.parts[0][1].columns])
        """,
    )
    assert "This launch" in columns
    naming = "one_file or well_formed"
    assert (
        quick(copy, "a section of a launch's page", *quick_tests("a section"), naming=naming) == 2
    )


def test_a_guest_command_is_a_folder(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    named, code = re.findall(r"```python\n(.*?)```", section("a guest command"), flags=re.DOTALL)
    folder = copy / "ncu_toolkit" / "guests" / "count"
    folder.mkdir()
    (folder / "__init__.py").write_text(named, encoding="utf-8")
    (folder / "command.py").write_text(code, encoding="utf-8")
    report = tmp_path_factory.mktemp("reports") / "a.ncu-rep"
    report.write_bytes(report_files.first_launches(2))
    script = f"from ncu_toolkit.cli import main\nmain(['count', {str(report)!r}])"
    assert python(copy, script) == "2 launches\n"
    assert quick(copy, "a guest command", "tests/cli/test_kernel_option.py")


def test_a_switch_is_one_table(copy: Path) -> None:
    path = copy / "ncu_toolkit" / "data" / "switches.toml"
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" + shown("a switch", "toml"))
    script = "from ncu_toolkit.cli import main\nmain(['try', '--list'])"
    assert "rounded-sizes" in python(copy, script)
    assert quick(copy, "a switch", *quick_tests("a switch")) > 20


def test_the_recipes_are_the_ones_that_are_tested() -> None:
    assert re.findall(r"^## (Add .*)$", RECIPES, flags=re.MULTILINE) == [
        "Add a kernel",
        "Add a metric",
        "Add a bottleneck",
        "Add a ladder",
        "Add a section",
        "Add a guest command",
        "Add a switch",
    ]
