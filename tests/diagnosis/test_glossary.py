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
from ncu_toolkit.kernel.pages.book import open_book
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
