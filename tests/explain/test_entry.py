"""Every word that a card shows can be explained: entries are whole, and found by the names that cards
print; pages of cards link to them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import recorded
from program_found import small

from ncu_toolkit.base.core.errors import EXIT_USAGE, UsageProblem
from ncu_toolkit.base.document.card import Card
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.cli import GROUPS, cli, commands, main
from ncu_toolkit.kernel.analysis import answers
from ncu_toolkit.kernel.analysis.analyze import Options, analyze
from ncu_toolkit.kernel.diagnosis import achieved, glossary, time_model
from ncu_toolkit.kernel.diagnosis.rules.reference import rules
from ncu_toolkit.kernel.explain import entry
from ncu_toolkit.kernel.pages.html import write_analysis, write_answer
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.program.explain import program
from ncu_toolkit.program.pages.program_view import write_program_page

MEASURED = store.longest(entry.PAIRS)
PARTS = ("Why it costs time", "How to confirm", "What to change", "When the advice is wrong")


@pytest.mark.parametrize("name", rules())
def test_an_entry_of_a_cause_has_all_parts(name: str) -> None:
    term = glossary.lookup(name)
    text = "\n".join(line for line, _ in entry.plain(term, 100, MEASURED))
    assert text.startswith(term.title)
    assert "\n  Source: " in text
    assert [part for part in PARTS if f"\n{part}\n" not in text] == []
    if name != "unknown":
        assert re.search(r"(?s)\nBefore\n {4}\S.*?\n\nAfter[^\n]*\n {4}\S", text)
    if "kind" in glossary.picture(name):
        assert "\nSketch\n" in text
        assert glossary.picture(name)["before"]["note"] in text
    titles = term.title, *getattr(rules()[name], "ALSO_CALLED", ())
    assert [shown for shown in titles if glossary.lookup(shown) != term] == []


def test_an_entry_has_the_record_of_its_advice() -> None:
    for name in rules():
        text = entry.markdown(glossary.lookup(name), MEASURED)
        assert ("## What the advice did in tests\n" in text) == (name in achieved.FOLLOWED)
        assert glossary.record(name) in text


def test_stall_reasons_and_units_are_explained_with_the_bottlenecks_that_show_as_them() -> None:
    for reason in registry.STALL_REASONS:
        term = glossary.lookup(reason)
        assert term.group == "stall"
        assert "Source: " in entry.markdown(term, ({}, ""))
        assert len(term.text) > len(registry.STALL_REASONS[reason]), "how to read it"
    for unit in time_model.RESOURCES:
        assert glossary.lookup(f"resource:{unit}").text
    shown = [each.words[0] for each in glossary.used_in(glossary.lookup("MIO throttle"))]
    assert shown[0] == "shared-instruction-pressure"


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("Shared bank CONFLICTS", "bottleneck-shared-bank-conflict"),
        ("shared-bank-conflicts", "bottleneck-shared-bank-conflict"),
        ("mio_throttle", "stall-mio-throttle"),
        ("Launch-bound", "cause-launch-bound"),
        ("At the DRAM roof", "bottleneck-dram-bandwidth"),
        ("Grid too small in lstm_cell", "bottleneck-grid-too-small"),
        ("exposed-all-reduce", "cause-exposed-collectives"),
        ("late-rank", "concept-late-rank"),
    ],
)
def test_names_are_found_as_cards_print_them(words: str, key: str) -> None:
    assert glossary.lookup(words).key == key


def test_an_unknown_name_is_one_line_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", "bank", "conflits"])
    out, err = capsys.readouterr()
    assert ended.value.code == EXIT_USAGE
    assert not out
    assert err.count("\n") == 1
    assert "Shared-memory bank conflicts" in err
    with pytest.raises(UsageProblem, match="lists all names"):
        glossary.lookup("qqq")


def test_without_a_name_all_entries_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain"])
    shown = " ".join(capsys.readouterr().out.split())
    terms = glossary.definitions().terms.values()
    assert [term.title for term in terms if term.title not in shown] == []


def test_every_link_of_a_card_leads_to_its_entry(tmp_path: Path) -> None:
    report = tmp_path / "three.ncu-rep"
    report.write_bytes(recorded.first_launches(3))
    found = analyze([report], Options(profiles=True))
    shown = answers.of_analysis(found)
    step = small()
    pages = (
        write_analysis(found, tmp_path / "report.html"),
        write_answer(shown, "Answer", tmp_path / "answer.html"),
        write_program_page(step, tmp_path / "step.html"),
    )
    for page in pages:
        text = page.read_text("utf-8")
        opened = re.findall(r'<a class="term[^"]*" href="([^"]*)"', text)
        assert opened, page.name
        assert [
            href
            for href in set(opened)
            if not href.startswith("#term-") or f'<dt id="{href[1:]}"' not in text
        ] == [], page.name
    assert "<h3>Before</h3><pre" in text, "the page of a cause holds its code"
    cards: list[Card] = [*shown.cards, *program.program_answer(step).cards]
    for card in cards:
        assert glossary.lookup(card.explained.removeprefix("ncu-toolkit explain ")).page


def test_the_help_has_each_command_once_in_a_group() -> None:
    import click

    text = cli.get_help(click.Context(cli, info_name="ncu-toolkit"))
    _, *groups = re.split(rf"\n({'|'.join(GROUPS)}):\n", text)
    assert groups[::2] == [*GROUPS]
    named = re.findall(r"^  ([a-z]+)  +[A-Z]", "\n".join(groups[1::2]), re.MULTILINE)
    assert sorted(named) == sorted(commands())


def test_a_report_alone_is_analyzed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one.ncu-rep").write_bytes(recorded.first_launches(1))
    monkeypatch.chdir(tmp_path)
    outputs = []
    for words in (["analyze", "runs/one.ncu-rep"], ["runs/one.ncu-rep"], ["-q", "runs"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    with pytest.raises(SystemExit):
        main(["gone.ncu-rep"])
    assert "there is no file 'gone.ncu-rep'" in capsys.readouterr().err
    assert "\nmore    ncu-toolkit explain " in outputs[0]
    assert "ncu-toolkit explain " in outputs[2]
