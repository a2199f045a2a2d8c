"""What CI takes: SARIF, times for benchmark services, and the comment of a pull request."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import recorded
import report_files
from program_found import small

from ncu_toolkit.base.core import guests
from ncu_toolkit.base.core.errors import EXIT_GATE, EXIT_USAGE
from ncu_toolkit.base.render import markdown
from ncu_toolkit.base.render.text import plain_text
from ncu_toolkit.cli import analyze as command
from ncu_toolkit.cli import main
from ncu_toolkit.kernel.analysis import analyze, answers, gate
from ncu_toolkit.program.explain.program import program_answer

#: The part of the SARIF 2.1.0 schema that code hosts read; unknown properties are refused, as there.
SARIF: Mapping[str, Any] = {
    "$defs": {
        "message": {
            "type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}, "additionalProperties": False,
        },
        "physical": {
            "type": "object", "additionalProperties": False, "required": ["artifactLocation"],
            "properties": {
                "artifactLocation": {
                    "type": "object", "additionalProperties": False, "required": ["uri"],
                    "properties": {"uri": {"type": "string", "pattern": r"^(file:///)?[^\s/\\][^\s\\]*$"}},
                },
                "region": {
                    "type": "object", "additionalProperties": False, "required": ["startLine"],
                    "properties": {"startLine": {"type": "integer", "minimum": 1}},
                },
            },
        },
        "location": {
            "type": "object", "additionalProperties": False,
            "properties": {
                "id": {"type": "integer", "minimum": 0},
                "physicalLocation": {"$ref": "#/$defs/physical"},
                "logicalLocations": {
                    "type": "array", "minItems": 1,
                    "items": {
                        "type": "object", "additionalProperties": False,
                        "properties": {"fullyQualifiedName": {"type": "string"}, "kind": {"const": "function"}},
                    },
                },
            },
        },
        "rule": {
            "type": "object", "additionalProperties": False, "required": ["id"],
            "properties": {"id": {"type": "string"}, "shortDescription": {"$ref": "#/$defs/message"}},
        },
        "result": {
            "type": "object", "additionalProperties": False, "required": ["message", "ruleId", "locations"],
            "properties": {
                "ruleId": {"type": "string"}, "level": {"enum": ["none", "note", "warning", "error"]}, "message": {"$ref": "#/$defs/message"},
                "locations": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/location"}},
                "relatedLocations": {"type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/location"}},
                "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
    },
    "type": "object", "additionalProperties": False, "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"}, "version": {"const": "2.1.0"},
        "runs": {
            "type": "array", "minItems": 1,
            "items": {
                "type": "object", "additionalProperties": False, "required": ["tool", "results"],
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
                    "tool": {
                        "type": "object", "additionalProperties": False, "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object", "additionalProperties": False, "required": ["name"],
                                "properties": {
                                    "name": {"type": "string"}, "version": {"type": "string"},
                                    "rules": {"type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/rule"}},
                                },
                            }
                        },
                    },
                },
            },
        },
    },
}  # fmt: skip
#: As bencher.dev/docs/reference/bencher-metric-format gives it.
BENCHER: Mapping[str, Any] = {
    "type": "object", "additionalProperties": {
        "type": "object", "additionalProperties": {
            "type": "object", "required": ["value"], "additionalProperties": False,
            "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
        },
    },
}  # fmt: skip
#: As the README of github-action-benchmark describes it.
ACTION: Mapping[str, Any] = {
    "type": "array", "items": {
        "type": "object", "required": ["name", "unit", "value"], "additionalProperties": False,
        "properties": {
            **{name: {"type": "string"} for name in ("name", "unit", "range", "extra")}, "value": {"type": "number"},
        },
    },
}  # fmt: skip


sarif = guests.guest("sarif.sarif")
needs_sarif = pytest.mark.skipif(sarif is None, reason="the guest is not here")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ci") / "report.ncu-rep"
    path.write_bytes(report_files.first_launches(2))
    return path


@pytest.fixture(scope="module")
def found(report: Path) -> analyze.Analysis:
    return analyze.analyze([report], analyze.Options(profiles=True))


def side(name: str, *times: float, bottleneck: str = "") -> gate.Side:
    return gate.Side(name, "GPU", times, bottleneck=bottleneck)


def compared(*pairs: tuple[gate.Side, gate.Side], gates: tuple[str, ...] = ()) -> gate.Comparison:
    old, new = ({(pair[at].name,): pair[at] for pair in pairs} for at in (0, 1))
    return gate.compare(old, new, gates=[gate.parse_gate(text) for text in gates])


@needs_sarif
def test_each_finding_is_on_its_source_line(found: analyze.Analysis) -> None:
    document = json.loads(sarif.analysis_document(found))
    jsonschema.validate(document, SARIF)
    (run,) = document["runs"]
    first = run["results"][0]
    launch = found.groups[0].typical
    place = launch.diagnosis.primary.locations[0]
    physical = first["locations"][0]["physicalLocation"]
    assert physical["region"]["startLine"] == place.line
    assert physical["artifactLocation"]["uri"].endswith(place.file.rsplit("/", 1)[-1])
    assert first["ruleId"] == launch.diagnosis.primary.bottleneck
    assert {result["ruleId"] for result in run["results"]} == {
        rule["id"] for rule in run["tool"]["driver"]["rules"]
    }


@needs_sarif
def test_a_source_file_is_found_in_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a b.cu").write_text("")
    for path in ("/build/7/src/a b.cu", r"C:\build\src\a b.cu", "src/a b.cu"):
        assert sarif.source_uri(path, tmp_path) == "src/a%20b.cu"
    assert sarif.source_uri("/build/other.cu", tmp_path) == "file:///build/other.cu"
    assert sarif.source_uri("../../src/a b.cu", tmp_path) == "../../src/a%20b.cu", "not looked for"


@needs_sarif
def test_regressions_are_results(found: analyze.Analysis) -> None:
    old = gate.sides_of(found)
    key = next(iter(old))
    slower = {key: replace(old[key], times_us=tuple(2 * time for time in old[key].times_us))}
    gates = [gate.parse_gate("time>5%")]
    for asked, level in ((gates, "error"), ([], "warning")):
        document = json.loads(sarif.comparison_document(gate.compare(old, slower, gates=asked)))
        jsonschema.validate(document, SARIF)
        (result,) = document["runs"][0]["results"]
        assert (result["ruleId"], result["level"]) == ("regression", level)
        assert "(+100.0%)" in result["message"]["text"]
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] > 0
    same = json.loads(sarif.comparison_document(gate.compare(old, old, gates=gates)))
    jsonschema.validate(same, SARIF)
    assert same["runs"][0]["results"] == []


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_times_for_benchmark_services(report: Path, tmp_path: Path) -> None:
    """The commands of docs/ci.md write what the services take."""
    assert (
        run("analyze", str(report), "--format", "json", "--output", f"{tmp_path}/launches.json")
        == 0
    )
    text = (recorded.ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    written = []
    for words in re.findall(r"```sh\n(jq .*?)```", text, re.DOTALL):
        subprocess.run(["sh", "-c", words], cwd=tmp_path, check=True)
        written.append(json.loads((tmp_path / "times.json").read_text()))
    jsonschema.validate(written[0], ACTION)
    jsonschema.validate(written[1], BENCHER)
    launches = json.loads((tmp_path / "launches.json").read_text())["launches"]
    assert {row["value"] for row in written[0]} == {row["duration_us"] for row in launches}
    assert len(written[0]) == len(written[1]) == len(launches)


def test_the_comment_names_what_moved_and_the_noise_last() -> None:
    quiet = [100 + 0.1 * (at % 3) for at in range(10)]
    pairs = (
        (side("slow", *quiet), side("slow", *(1.2 * time for time in quiet))),
        (side("same", *quiet), side("same", *quiet)),
        (side("other", 5.0, bottleneck="old-one"), side("other", 5.0, bottleneck="new-one")),
    )
    text = markdown.markdown(answers.comment(compared(*pairs)))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 2 + 1, "the heading, what moved, and the noise"
    assert "slow" in rows[1]
    assert "old-one → new-one" in rows[2].replace("\\", "")
    assert "A/A" in rows[-1]
    assert "up to" in rows[-1]
    assert "`same`" not in text
    assert "1 kernel did not move" in text
    assert "No kernel moved" in markdown.markdown(answers.comment(compared(pairs[1])))


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_a_baseline_by_name(
    report: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    new = str(report)
    assert run("compare", "--baseline", "main", new) == 4
    assert "there is no baseline 'main'" in capsys.readouterr().err
    assert run("baseline", "save", "main", new) == 0
    Path("main").write_text("a file of the same name is no baseline")
    capsys.readouterr()
    assert run("compare", "--baseline", "main", new, "--comment") == 0
    assert capsys.readouterr().out.startswith("<!-- ncu-toolkit compare -->\n**No kernel moved.**")
    bad = "registers_per_thread>1"
    assert run("compare", "--baseline", "main", new, "--fail-on", bad, "--comment") == EXIT_GATE
    for wrong in (
        ["--baseline", "main", new, new],
        [new],
        [new, new, "--comment", "--format", "json"],
    ):
        assert run("compare", *wrong) == EXIT_USAGE


@needs_sarif
@pytest.mark.parametrize("form", ["sarif"])
def test_analyze_writes_it(form: str, report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("analyze", str(report), "--format", form) == 0
    assert json.loads(capsys.readouterr().out)


def test_the_script_of_the_action_keeps_the_exit_code(tmp_path: Path) -> None:
    """The comment is to be posted before the job fails: the code goes into the step's outputs."""
    tool = tmp_path / "ncu-toolkit"
    tool.write_text(
        '#!/bin/sh\nprintf "%s|" "$@" >> message; echo >> message\n'
        'while [ $# -gt 1 ]; do [ "$1" = --output ] && echo text > "$2"; shift; done\nexit 1\n'
    )
    tool.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "OLD": "a b", "NEW": "n", "KERNEL": "k.*",
        "GATES": "time>2%\nregisters_per_thread>64\n", "GITHUB_OUTPUT": "out", "GITHUB_STEP_SUMMARY": "page",
    }  # fmt: skip
    script = Path(__file__).resolve().parents[2] / "ci" / "compare"
    done = subprocess.run([script], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0
    found = (tmp_path / "out").read_text().splitlines()
    assert found == ["code=1", "comment=ncu-comment.md", "sarif=ncu.sarif"]
    assert (tmp_path / "page").read_text() == "text\n"
    gates = "--kernel|k.*|--fail-on|time>2%|--fail-on|registers_per_thread>64|"
    message = (tmp_path / "message").read_text()
    assert message.count(f"compare|a b|n|{gates}") == message.count("\n") == 2
    del environment["GITHUB_OUTPUT"]
    assert subprocess.run([script], cwd=tmp_path, env=environment, check=False).returncode == 1


def test_what_is_copied_and_searched_has_plain_spaces(found: analyze.Analysis) -> None:
    """In no format but HTML is there another space, not even one from a kernel's name."""
    first, *rest = found.launches
    named = "a\u00a0kernel\u2009of\u3000spaces\u202f"
    assert first.profile is not None
    launch = replace(first.profile.launch, function=named, kernel=named)
    spaced = analyze.judge(
        replace(first.profile, launch=launch), "a.ncu-rep", analyze.Options(profiles=True)
    )
    report = replace(found, files=(replace(found.files[0], launches=(spaced, *rest)),))
    sides = gate.sides_of(report)
    changes = gate.compare(sides, gate.sides_of(found), named=[(named, first.function)])
    step = program_answer(small())
    texts = {form: command.render(report, form, None) for form in ("json", "csv")}
    for name, shown in (
        ("report", answers.of_analysis(report)),
        ("change", answers.of_comparison(changes)),
        ("step", step),
    ):
        texts |= {
            f"{name} as text": plain_text(shown),
            f"{name} as Markdown": markdown.markdown(shown),
            f"{name} in brief": markdown.brief(shown),
        }
    texts["comment"] = markdown.markdown(answers.comment(changes))
    if tools := guests.guest("mcp.tools"):
        served = guests.guest("mcp.reports").ServedReport("0123456789", "a.ncu-rep", report)
        texts["MCP"] = msgspec.json.encode(tools.analysed(served)).decode()
    if sarif:
        texts["SARIF"] = command.render(report, "sarif", None)
        texts["comparison as SARIF"] = sarif.comparison_document(changes)
    for form, text in texts.items():
        assert text, form
        strange = re.search(r"[^\S \n\r]|\\u(?:00a0|2009|202f|3000)", text)
        assert strange is None, (form, text[strange.start() - 40 : strange.end()])
