"""The glossary is complete, holds nothing that no report shows, and opens where its words stand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import render_fixture

from ncu_toolkit.base.metrics import registry
from ncu_toolkit.kernel.diagnosis import figures, glossary, time_model
from ncu_toolkit.kernel.diagnosis.rules import bottleneck_ids
from ncu_toolkit.kernel.explain import verdict
from ncu_toolkit.kernel.pages.book import open_book
from ncu_toolkit.kernel.pages.columns import COLUMNS
from ncu_toolkit.kernel.pages.html import write_run, write_standalone
from ncu_toolkit.kernel.sass import attribution

WORDS = glossary.words()
STALLS, METRICS, UNITS, KINDS = (WORDS[name] for name in ("stalls", "metrics", "units", "kinds"))
#: Figures whose paragraph is the registry's own: one for each opcode.
COUNTED = {name for name in registry.REGISTRY if name.startswith(("stall_", "threads_"))}


def test_every_term_of_the_renderer_has_an_entry() -> None:
    assert set(STALLS) == set(registry.STALL_REASONS)
    assert (
        set(figures.DERIVED)
        <= set(METRICS)
        <= set(figures.DERIVED)
        | (
            set(registry.REGISTRY) - COUNTED  # of a metric its meaning is enough
        )
    )
    assert set(UNITS) - {"points"} == set(registry.UNITS) | {
        figure.unit for figure in figures.DERIVED.values()
    }
    assert set(KINDS) == set(attribution.KINDS) | {"other"}
    assert set(time_model.RESOURCES) | {"waiting"} <= set(WORDS["concepts"])
    shown = [registry.REGISTRY[name].label for name in registry.REGISTRY] + [
        figure.label for figure in figures.DERIVED.values()
    ]
    shown += [
        *registry.REGISTRY,
        *figures.DERIVED,
        *bottleneck_ids(),
        *(reason.replace("_", " ") for reason in registry.STALL_REASONS),
    ]
    shown += [f"stall_share:{reason}" for reason in registry.STALL_REASONS] + [
        f"kind_share:{kind}" for kind in KINDS
    ]
    shown += [f"resource:{name.replace('_', ' ')}" for name in time_model.RESOURCES]
    assert [words for words in shown if not glossary.definitions().find(words)] == []
    for words in shown:
        assert glossary.definitions().find(words) in glossary.definitions().terms


def test_every_label_of_a_card_has_an_entry() -> None:
    """Bars, waits, the headroom and the queue that summaries name, as a reader would look them
    up."""
    labels = [*map(verdict.resource_name, time_model.RESOURCES), "headroom", "MIO queue", "other"]
    labels += [figures.reason_name(reason) for reason in registry.STALL_REASONS]
    assert [label for label in labels if not glossary.definitions().find(label)] == []


def test_titles_keep_the_capitals_of_abbreviations() -> None:
    titles = {term.title for term in glossary.definitions().terms.values()}
    assert {"MIO throttle", "LG throttle", "IMC miss", "FP64 instructions"} <= titles
    assert not [title for title in titles if re.match(r"(?:Mio|Lg|Imc|Tex|Gmma|Fp\d\d)\b", title)]


def test_no_entry_says_a_sentence_twice() -> None:
    for term in glossary.definitions().terms.values():
        said = re.split(r"(?<=[.!?]) ", term.text)
        assert len(said) == len(set(said)), term.key


def test_headings_open_entries_that_there_are() -> None:
    assert all(spec.title for spec in COLUMNS)
    assert set(WORDS["headings"]["ladder"]) <= {spec.key for spec in COLUMNS}
    assert {key for found in WORDS["headings"].values() for key in found.values()} <= set(
        glossary.definitions().terms
    )


def test_no_entry_is_left_over() -> None:
    known = set(registry.REGISTRY) | set(figures.DERIVED)
    assert set(WORDS["aliases"].values()) <= known
    assert (
        len(glossary.definitions().terms)
        == len({term.key for term in glossary._all()})
        == len(list(glossary._all()))
    )


@pytest.mark.parametrize("term", glossary.definitions().terms.values(), ids=lambda term: term.key)
def test_an_entry_is_a_paragraph(term: glossary.Definition) -> None:
    assert re.fullmatch(r"[a-z0-9-]+", term.key)
    assert term.group in glossary.GROUPS
    assert len(term.text.split()) >= 4
    assert term.text.endswith((".", ")"))
    assert "\n" not in term.text


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    run = render_fixture.run()
    run = replace(run, profiles=run.profiles[:3], timings=run.timings[:3])
    book = open_book(run, render_fixture.diagnosis)
    write_run(run, folder / "fixture", book=book)
    write_standalone(book, folder / "fixture" / "report.html")
    render_fixture.write_front(folder, {"fixture": book})
    return folder


def test_every_word_that_opens_an_entry_has_it_in_the_glossary(reports: Path) -> None:
    """Terms link entries of the glossary's page and of the script beside it; every page links the
    glossary."""
    listed = set(re.findall(r'<dt id="term-([a-z0-9-]+)"', (reports / "glossary.html").read_text()))
    assert listed == set(glossary.definitions().terms)
    script = (reports / "assets" / "terms.js").read_text()
    assert set(json.loads(script.partition("=")[2].rstrip(";\n"))) == listed
    for path in reports.rglob("*.html"):
        text = path.read_text()
        opened = set(re.findall(r'<a class="term[^>]*#term-([a-z0-9-]+)"', text))
        assert opened <= listed, path
        assert 'class="glossary" href="' in text
        if path.name == "report.html":
            assert {
                "stall-selected",
                "metric-duration",
                "bottleneck-low-occupancy",
                "concept-issue",
            } <= opened, path
