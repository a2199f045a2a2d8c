"""Generated documents are current, and what the documents point to is there."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import drawings
import generate
import pytest
import recorded
from packaging.requirements import Requirement

from ncu_toolkit import __version__
from ncu_toolkit.base.model import Timing
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.cli import COMMANDS
from ncu_toolkit.kernel.diagnosis.rules import bottleneck_ids
from ncu_toolkit.kernel.ladder.catalogue import find_family

ROOT = recorded.ROOT
PACKAGE = ROOT / "ncu_toolkit"
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "kernels" / "README.md"]
)


@pytest.mark.slow  # so that a new kernel, metric or bottleneck turns no quick test red
def test_generated_documents_are_current() -> None:
    """The words under the README's picture are those of today's front page: `make docs` takes the
    picture where they change."""
    runs = generate.recordings()
    with generate.remembered(runs):
        wanted = generate.documents(runs)
    assert [str(path.relative_to(ROOT)) for path in generate.stale(wanted)] == [], "run `make docs`"


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"## ncu-toolkit {name}\n" not in text] == []
    for part, option in (("save", "--replace"), ("list", "--format")):
        _, found, after = text.partition(f"### ncu-toolkit baseline {part}\n")
        assert found, "commands of a group have their own options"
        assert option in after.partition("\n## ")[0].partition("\n### ")[0]


def test_the_readme_is_short() -> None:
    """Long tables belong to docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900


def test_figures_of_the_results_are_the_recordings() -> None:
    """A figure that someone edits by hand is put back."""
    runs = generate.recordings()
    text = (ROOT / "docs" / "lab" / "results.md").read_text(encoding="utf-8")
    tampered = text.replace("TFLOP/s |", "PFLOP/s |", 1)
    assert tampered != text
    assert (
        generate.between(tampered, "ladder", generate.ladder_table(runs)).partition("end: ladder")[
            0
        ]
        == text.partition("end: ladder")[0]
    )


def test_figures_of_the_readme_are_those_of_the_documents() -> None:
    """The table of how often it is right, and the cost of profiling."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lab = {name: (ROOT / "docs" / "lab" / f"{name}.md").read_text("utf-8") for name in LAB}
    _, _, table = readme.partition("|---|---:|---:|---:|\n")
    rows = [row.split("|")[2:5] for row in table.partition("\n\n")[0].splitlines()]
    assert len(rows) == len(RIGHT)
    for row, (where, after, shown) in zip(rows, RIGHT, strict=True):
        cases, first, theirs = (cell.split()[0] if cell.strip() else "" for cell in row)
        _, found, text = lab[where].partition(after)
        assert found, after
        for line in shown.format(cases, first, theirs).split("; "):
            assert line in text, (after, line)
    unseen = re.findall(r"at 7febfb3, unseen \| H200, ours \| (\d+) of 18", lab["calibration"])
    assert [cells.strip() for cells in rows[2][:2]] == ["36", str(sum(map(int, unseen)))]
    passes = re.search(r"in (\d+) replay passes .*? `full` set takes (\d+)", readme)
    assert passes
    for name, taken in zip(
        ("ncu-toolkit (`--set ladder`)", "`--set full`"), passes.groups(), strict=True
    ):
        (line,) = [x for x in lab["results"].splitlines() if x.startswith(f"| {name} |")]
        assert line.split("|")[4].strip() == taken


LAB = ("calibration", "field", "programs", "results")
#: For each row of the README's table: the document, the text before its figures there, and what
#: must stand after that, with cases, first, and the others' first.
RIGHT = (
    ("calibration", "## On kernels it had never", "limits, unseen | H200, ours | {1} of {0} |; `--set full` | {2} of {0} |"),
    ("calibration", "**A second set**", "unseen | H200, ours | {1} of {0} |"),
    ("calibration", "**A third and a fourth set**", "unseen"),
    ("field", "## The sealed half", "| ncu-toolkit | {0} | {1} (; | Nsight Compute's rules | {0} | {2} ("),
    ("field", "### 21 more pairs", "First {1} of {0} (; Nsight Compute's rules: {2} and "),
    ("field", "### The last 29 pairs", "First {1} of {0}**; Nsight Compute's rules {2}, and "),
    ("calibration", "generated: readings", "| **sealed** | {0} | {1} ("),
    ("calibration", "generated: readings", "| sealed: Blackwell | {0} | {1} ("),
    ("calibration", "generated: readings", "| **forty** | {0} | {1} ("),
    ("calibration", "generated: readings", "| **fortysix** | {0} | {1} ("),
    ("calibration", "generated: readings", "| **fortythree** | {0} | {1} ("),
    ("calibration", "generated: readings", "| **sixty** | {0} | {1} ("),
    ("calibration", "generated: readings", "| **fiftythree** | {0} | {1} ("),
    ("calibration", "generated: readings", "| **fortytwo** | {0} | {1} ("),
    ("programs", "\n## The sealed half\n", "| ncu-toolkit | {0} | {1} (; | HolisticTraceAnalysis | {0} | {2} ("),
    ("programs", "\n## The second sealed set\n", "| ncu-toolkit | {0} | {1} ("),
    ("programs", "\n## The third sealed set\n", "| ncu-toolkit | {0} | {1} ("),
    ("programs", "\n## The fourth sealed set\n", "| ncu-toolkit | {0} | {1} ("),
    ("programs", "\n## The fifth sealed set\n", "| ncu-toolkit | {0} | {1} ("),
    ("programs", "\n## The sixth sealed set\n", "| ncu-toolkit | {0} | {1} ("),
    ("programs", "\n## The seventh sealed set\n", "| ncu-toolkit | {0} | {1} ("),
    ("programs", "\n## The eighth sealed set\n", "| ncu-toolkit | {0} | {1} ("),
    ("programs", "\n## The ninth sealed set\n", "| ncu-toolkit | {0} | {1} ("),
    ("programs", "\n## The tenth sealed set\n", "| ncu-toolkit | {0} | {1} ("),
    ("programs", "\n## The eleventh sealed set\n", "| ncu-toolkit | {0} | {1} ("),
    ("programs", "\n## The twelfth sealed set\n", "| ncu-toolkit | {0} | {1} ("),
    ("programs", "\n## The thirteenth sealed set\n", "| ncu-toolkit | {0} | {1} ("),
    ("programs", "\n## The fourteenth sealed set\n", "| ncu-toolkit | {0} | {1} ("),
)  # fmt: skip


@pytest.mark.parametrize("name", ["README.md", "docs/guide/slow-kernel.md"])
def test_a_card_names_the_report_of_the_command_above_it(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    asked = re.findall(r"^ncu-toolkit analyze (\S+)", text, flags=re.MULTILINE)
    assert (
        re.findall(r"^next +ncu-toolkit compare (\S+)", text, flags=re.MULTILINE)[:1] == asked[:1]
    )


def test_sessions_are_reported_by_the_recordings() -> None:
    def run(family: str, created: str) -> Run:
        return replace(recorded_run, created=created, timings=(timing_of(family),))

    recorded_run = generate.recordings()[0]

    def timing_of(family: str) -> Timing:
        return replace(recorded_run.timings[0], family=family)

    runs = [
        run("c", "2026-11-23T07:55:50Z"),
        run("b", "2026-11-23T01:36:42Z"),
        run("a", "2026-11-23T01:27:23Z"),
    ]
    assert generate.sessions_sentence(runs) == (
        "The recordings were started on 2026-11-23 from 01:27 to 01:36 UTC (a, b)"
        " and on 2026-11-23 from 07:55 to 07:55 UTC (c).\n"
    )


def test_a_kind_is_reported_once() -> None:
    assert re.findall(r"\([^()]*\) \([^()]*\) \|", generate.rung_tables()) == []


def test_tuned_sizes_are_counted() -> None:
    """docs/tuning.md: at how many sizes the package has an entry, and at how many with other tiles
    than the header's."""
    path = PACKAGE / "data" / "tuned" / "nvidia-h200.json"
    rung = next(r for r in find_family("gemm_tensor").rungs if r.name == "wgmma_fitted")
    found = [
        entry["parameters"]
        for entry in json.loads(path.read_text(encoding="utf-8"))["data"]["entries"]
        if entry["rung"] == rung.name
    ]
    others = [p for p in found if any(p[tile] != rung.parameters[tile] for tile in ("BM", "BN"))]
    words = {2: "two", 3: "three"}
    text = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
    assert f"at {words[len(found)]} sizes. At {words[len(others)]} of them other tiles" in text


def test_what_was_not_measured_is_reported_by_name() -> None:
    text = (ROOT / "docs" / "lab" / "results.md").read_text(encoding="utf-8")
    reported = "full (repeats 2 and 3), detailed (repeats 2 and 3), ladder (repeat 3)."
    assert f"Not run for lack of time: {reported}" in text


def test_drawings_are_plain_pictures() -> None:
    """Each is well-formed, belongs to a bottleneck, loads nothing, and can be told from a light
    and a dark page."""
    files = sorted((PACKAGE / "data" / "bottlenecks").glob("*.toml"))
    paths = [path for path in files if "\nkind = " in f"\n{path.read_text('utf-8')}"]
    assert {path.stem for path in paths} <= set(bottleneck_ids())
    assert len(paths) >= 31, "a drawing is gone"
    for path in paths:
        text = drawings.svg(tomllib.loads(path.read_text(encoding="utf-8")))
        assert ElementTree.fromstring(text).get("aria-label"), path.name
        assert not re.search(r"<script|<image|href|url\(", text), path.name
    for colour in drawings.COLOURS:
        for page in ("#ffffff", "#1e2129"):
            assert contrast(colour, page) >= 3, (colour, page)


def test_pages_of_bottlenecks_keep_the_capitals_of_abbreviations() -> None:
    for name, inputs in (("dram-bandwidth", "DRAM throughput (`"), ("l2-bandwidth", "L2 ")):
        text = (ROOT / "docs" / "bottlenecks" / f"{name}.md").read_text(encoding="utf-8")
        assert inputs in text.partition("## Inputs\n")[2], name


def contrast(a: str, b: str) -> float:
    """The contrast of two colours by WCAG 2, 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_markers_must_be_there_once() -> None:
    assert (
        generate.between("a\n<!-- generated: x -->\nold\n<!-- end: x -->\nb", "x", "new\n")
        == "a\n<!-- generated: x -->\nnew\n<!-- end: x -->\nb"
    )
    for text in ("none", "<!-- generated: x -->\n<!-- end: x --><!-- end: x -->"):
        with pytest.raises(ValueError, match="markers of 'x'"):
            generate.between(text, "x", "")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    broken = [
        link
        for link in links
        if not link.startswith(("http", "#"))
        and not (path.parent / link.partition("#")[0]).exists()
    ]
    assert not broken


def test_every_document_is_in_the_navigation_of_the_site() -> None:
    """Folders of bottlenecks and decisions are listed by docs/site_hook.py."""
    docs = ROOT / "docs"
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    paths = {page for folder in ("", "guide", "lab") for page in (docs / folder).glob("*.md")}
    paths -= {docs / "README.md"}
    names = sorted(str(path.relative_to(docs)) for path in paths)
    assert [name for name in names if f": {name}\n" not in site] == []
    listed = (docs / "README.md").read_text(encoding="utf-8")
    assert [name for name in names if f"]({name})" not in listed] == []
    decisions = (docs / "decisions" / "README.md").read_text(encoding="utf-8")
    paths = {*(docs / "decisions").glob("*.md")} - {docs / "decisions" / "README.md"}
    assert [path.name for path in sorted(paths) if f"]({path.name})" not in decisions] == []


def test_make_targets_that_are_named_exist() -> None:
    targets = set(
        re.findall(
            r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE
        )
    )
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / ".github" / "workflows").iterdir(),
    ):
        named = {
            word
            for line in re.findall(
                r"\bmake ([a-z -]+?)(?:\s{2,}|`|$|#)",
                path.read_text(encoding="utf-8"),
                flags=re.MULTILINE,
            )
            for word in line.split()
        }
        assert named - targets == set(), path.name


def test_the_citation_names_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", text, flags=re.MULTILINE) == [__version__]


def test_the_lock_file_meets_the_requirements() -> None:
    """Every requirement of development has one locked version that fits; `make lock` rewrites."""
    text = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([a-z0-9._-]+)==([^ ;\n]+)", text, flags=re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [
        Requirement(line)
        for line in (
            *project["dependencies"],
            *(each for name in ("dev", "docs", "toolchain") for each in extras[name]),
        )
    ]
    assert [str(each) for each in wanted if locked.get(each.name, "") not in each.specifier] == []
    assert "://" not in text, "no index, no host"


#: Distributions of modules with another name, or that a requirement brings; "": the user's program's own.
BRINGS = {
    "cuda": "cuda-bindings", "cupy": "cupy-cuda13x", "cupy_backends": "cupy-cuda13x", "pynvml": "nvidia-ml-py",
    "yaml": "pyyaml", "mcp_types": "mcp", "anyio": "mcp", "uvicorn": "mcp", "markupsafe": "jinja2", "dask": "distributed",
    "_typeshed": "", "torch": "", "cudnn": "",
}  # fmt: skip
#: Requirements that others import, that Python has from 3.14 on, or that are no modules.
NOT_IMPORTED = {"backports-zstd", "bokeh", "cryptography", "nvidia-cuda-cupti"}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    """Without what only development, documents and the toolchain need."""
    modules = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            match node:
                case ast.Import(names=names):
                    modules |= {alias.name for alias in names}
                case ast.ImportFrom(module=str(name), level=0):
                    modules.add(name)
                case ast.Call(
                    func=ast.Attribute(attr="import_module" | "find_spec"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    modules.add(name)
    names = {name.partition(".")[0] for name in modules} - {"ncu_toolkit", *sys.stdlib_module_names}
    imported = {BRINGS.get(name, name.replace("_", "-")) for name in names} - {""}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = (extras[name] for name in extras.keys() - {"all", "dev", "docs", "toolchain"})
    lines = [*project["dependencies"], *(line for extra in wanted for line in extra)]
    declared = {Requirement(line).name for line in lines}
    assert sorted(imported - declared) == []
    assert sorted(declared - imported - NOT_IMPORTED) == []


@pytest.mark.parametrize("name", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_modules_that_are_named_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = {path.rstrip("/") for path in re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?)`", text)}
    assert named, "a document that names no file is tested for nothing"
    assert [
        path for path in sorted(named) if not any((at / path).exists() for at in (ROOT, PACKAGE))
    ] == []


def test_what_comments_and_messages_name_exists() -> None:
    """Files by their path, and what `module.name` says of a module of the package."""
    sources = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    words: dict[str, set[str]] = {}
    for path, text in sources.items():
        module = path.parent.name if path.stem == "__init__" else path.stem
        words.setdefault(module, set()).update(re.findall(r"\w+", text))
    missing = []
    for path, text in sources.items():
        files = re.findall(r"(?<![\w/.<*{}-])((?:[\w-]+/)+[\w-]+\.(?:py|toml|c|md))\b", text)
        roots = (ROOT, PACKAGE, path.parent)
        missing += [(path.name, at) for at in files if not any((r / at).exists() for r in roots)]
        for module, name in re.findall(r"`(\w+)\.(\w+)(?:\(.*?\))?`", text):
            if module in words and name not in {*words, *words[module], "py", "toml", "md"}:
                missing.append((path.name, f"{module}.{name}"))
    assert missing == []


def test_the_picture_shows_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    assert re.findall(r"^  (\w+) ", text, flags=re.MULTILINE) == layers[1:]
