"""Everything in a report is hostile text: none of it acts in a terminal, in Markdown, in a
spreadsheet or in JSON, and no path in it is followed."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import render_fixture
import report_files
from render_hostile import EVIL, hostile_run
from rich.console import Console

from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.render import html, markdown
from ncu_toolkit.base.render.text import AnswerText
from ncu_toolkit.cli import main
from ncu_toolkit.kernel.analysis import analyze, answers, gate
from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, Options
from ncu_toolkit.kernel.diagnosis.glossary import definitions
from ncu_toolkit.kernel.pages import json as documents
from ncu_toolkit.kernel.pages.html import as_run
from ncu_toolkit.kernel.report import reader

NAMES = (
    EVIL,
    '=HYPERLINK("http://x","y")',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "`code` [link](javascript:alert(1)) | pipe\n# heading\n- item",
    "\x1b]0;title\x07\x1b[2J\x9b31m",
    "\u202egnirts\u2066\u200bhidden",
    "n" * 100_000,
    "../../etc/passwd",
)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    base = render_fixture.profile("vectorized", 1024, 0)
    options = Options(profiles=True, figures=True)
    launches = []
    for i, name in enumerate(NAMES):
        launch = replace(
            base.launch,
            kernel=name,
            function=name,
            status="complete" if i % 3 else f"incomplete: {name}",
        )
        profile = replace(base, launch=launch, device=replace(base.device, name=name))
        launches.append(analyze.judge(profile, f"{name[:50]}.ncu-rep", options))
    hostile = [
        analyze.judge(replace(profile, stalls=base.stalls), "hostile.ncu-rep", options)
        for profile in hostile_run().profiles
    ]
    broken = FileResult(
        NAMES[4], error=InputProblem(f"'{NAMES[4]}' is damaged {NAMES[5]}", NAMES[3])
    )
    partial = FileResult(NAMES[5], tuple(hostile), EVIL, 9, 4, f"{NAMES[4]} declares 9 launches")
    return Analysis(
        (
            FileResult("many.ncu-rep", tuple(launches), "2025.3.1", len(launches), len(launches)),
            broken,
            partial,
        ),
        replace(options, kernel=NAMES[4]),
    )


def harmless(text: str, keep: str = "\n") -> None:
    for character in text:
        assert character in keep or unicodedata.category(character) not in ("Cc", "Cf", "Cs"), (
            f"{character!r}"
        )


def in_terminal(renderable: object) -> str:
    sink = io.StringIO()
    Console(file=sink, width=140, color_system=None, force_terminal=False).print(renderable)
    return sink.getvalue()


def test_terminal(analysis: Analysis) -> None:
    text = in_terminal(AnswerText(answers.of_analysis(analysis, 30)))
    harmless(text)
    assert "\\x1b" in text, "what was there is spelled out"
    assert len(text) < 60_000


def test_brief(analysis: Analysis) -> None:
    text = markdown.brief(answers.digest(analysis))
    harmless(text)
    assert len(text.splitlines()) <= 60
    assert len(text) < 12_000


def test_markdown(analysis: Analysis) -> None:
    text = markdown.markdown(answers.of_analysis(analysis, 30))
    harmless(text, keep="\n\u2060")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    width = rows[0].replace("\\|", "").count("|")
    assert all(row.replace("\\|", "").count("|") == width for row in rows), "no name adds a column"
    assert not [line for line in text.splitlines() if line.startswith(("# ", "<"))]
    outside = "".join(
        part for i, part in enumerate(re.sub(r"\\.", "", text).split("`")) if i % 2 == 0
    )
    assert "<script" not in outside
    assert "](javascript" not in outside


def test_csv(analysis: Analysis) -> None:
    text = documents.csv(analysis)
    harmless(text)
    rows = list(csv.reader(io.StringIO(text)))
    assert len({len(row) for row in rows[:-1]}) == 1
    for row in rows:
        for cell in row:
            with contextlib.suppress(ValueError):
                float(cell)
                continue
            assert cell[:1] not in ("=", "+", "-", "@", "\t", "\r"), cell[:40]


def test_json(analysis: Analysis) -> None:
    text = documents.analysis_document(analysis)
    harmless(text)
    document = json.loads(text)
    jsonschema.validate(document, documents.schema())
    assert len(document["launches"]) == len(analysis.launches)
    assert len(text) < 3_000_000, "a name of 100 kB is not repeated in full"


def test_comparison(analysis: Analysis) -> None:
    sides = gate.sides_of(analysis)
    found = gate.compare(
        sides, sides, gates=[gate.parse_gate("time>5%"), gate.parse_gate("registers_per_thread>0")]
    )
    shown = answers.of_comparison(found)
    assert shown.cards
    assert shown.code == ()
    for text in (in_terminal(AnswerText(shown)), documents.comparison_document(found)):
        harmless(text)
    harmless(markdown.markdown(shown), keep="\n\u2060")
    harmless(html.answer_page(shown, "Comparison", definitions()), keep="\n\u2060")


def test_no_path_in_a_report_is_followed(analysis: Analysis, tmp_path: Path) -> None:
    from ncu_toolkit.kernel.pages.html import write_run

    outside = sorted(path for path in tmp_path.iterdir())
    assert not outside
    write_run(as_run(analysis, "2025-01-01T00:00:00Z"), tmp_path / "reports" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["reports"]
    assert {path.name for path in (tmp_path / "reports").iterdir()} <= {
        "run",
        "assets",
        "glossary.html",
    }
    for page in (tmp_path / "reports" / "run").iterdir():
        harmless(page.name)
        assert page.parent == tmp_path / "reports" / "run"


def test_a_real_file_with_hostile_names(tmp_path: Path) -> None:
    """Through the reader and the command line: names in the file itself, as long as it wants."""
    evil = "na\x1b[31m\u202e=1+1|`<script>".encode()
    data = report_files.with_texts(
        report_files.first_launches(2), lambda name: evil if name == b"naive" else None
    )
    path = tmp_path / "evil.ncu-rep"
    path.write_bytes(data)
    assert any("\x1b" in profile.launch.kernel for profile in reader.load_report(path).profiles)
    for form in ("text", "markdown", "csv"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), pytest.raises(SystemExit):
            main(["analyze", str(path), "--format", form])
        harmless(out.getvalue(), keep="\n\u2060" if form == "markdown" else "\n")
        assert "coalesced" in out.getvalue()


def test_hostile_command_lines_stay_on_one_line() -> None:
    err = io.StringIO()
    with contextlib.redirect_stderr(err), pytest.raises(SystemExit):
        main(["analyze", "/no/such\x1b[31m\nfile.ncu-rep", "--format", "json"])
    assert len(err.getvalue().splitlines()) == 1
    harmless(err.getvalue())


def test_a_long_plain_name_is_not_repeated_in_full(analysis: Analysis) -> None:
    """The command to go on with names the kernel, unless it would be as long as the report."""
    base = analysis.files[0].launches[0]
    long = replace(base, function="n" * 8_000_000, status="complete")
    only = replace(analysis, files=(FileResult("a.ncu-rep", (long,), "2025.3.1", 1, 1),))
    text = markdown.brief(answers.digest(only))
    assert len(text) < 4000
    assert "--top 1 --format html" in text
