"""What changed between two launches: the same from terminal, Markdown and page."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import render_fixture

from ncu_toolkit.base.core import units
from ncu_toolkit.base.document.tables import Table
from ncu_toolkit.base.document.views import Answer
from ncu_toolkit.base.model import Profile
from ncu_toolkit.base.render import html, markdown
from ncu_toolkit.base.render.text import plain_text
from ncu_toolkit.kernel.analysis import answers, gate
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.glossary import definitions
from ncu_toolkit.kernel.explain import differences, sections
from ncu_toolkit.kernel.explain.verdict import card
from ncu_toolkit.kernel.pages import json as documents


@pytest.fixture(scope="module")
def launches() -> tuple[Profile, Profile]:
    return tuple(render_fixture.profile(rung, 1024, 0) for rung in ("naive", "vectorized"))  # type: ignore[return-value]


def side(profile: Profile) -> gate.Side:
    verdict = diagnose(profile)
    return gate.Side(
        profile.launch.function,
        profile.device.name,
        (profile.duration_us or 0.0,),
        (profile,),
        verdict.primary.bottleneck,
        card=card(profile, verdict, "a.ncu-rep"),
    )


@pytest.fixture(scope="module")
def compared(launches: tuple[Profile, Profile]) -> Answer:
    old, new = map(side, launches)
    return answers.of_comparison(gate.compare({(1,): old}, {(1,): new}))


def rows(table: Table) -> dict[str, tuple[str, ...]]:
    return {row[0].text: tuple(cell.text for cell in row[1:]) for row in table.rows}


def test_every_writer_shows_what_changed(compared: Answer) -> None:
    heads = [table.caption.partition(":")[0] for table in compared.tables]
    assert heads[0] == "Time"
    assert {"Stalls", "Memory", "Instructions"} <= set(heads)
    assert compared.labels == ("old", "new")
    assert (compared.cards[0].next, bool(compared.cards[1].next)) == ("", True)
    texts = [
        plain_text(compared),
        markdown.markdown(compared),
        html.answer_page(compared, "C", definitions()),
    ]
    for text in texts:
        plain = text.replace("\\", "").replace("\u202f", " ")
        assert compared.headline.replace("\u202f", " ") in " ".join(plain.split("\n"))
        for table in compared.tables:
            for name in rows(table):
                assert name[:12] in plain.replace("&lt;", "<").replace("&#39;", "'"), table.caption


def test_parts_of_the_time_add_up(launches: tuple[Profile, Profile]) -> None:
    old, new = launches
    table = differences.between(old, new).tables[0]
    assert table.caption.startswith("Time: ")
    assert list(rows(table))[-1] == "unexplained"


def test_no_cause_takes_more_time_than_there_was(launches: tuple[Profile, Profile]) -> None:
    """Parts in milliseconds may, where two causes offset each other; factors multiply to the whole."""
    found = rows(differences.between(*launches).tables[0])
    factors = [
        (1 / float(text[2:]) if text[0] == "÷" else float(text[2:])) if text != "=" else 1.0
        for text, *_ in found.values()
    ]
    old, new = (launch.duration_us or 0.0 for launch in launches)
    assert math.prod(factors) == pytest.approx(new / old, rel=0.05)
    assert "instructions per scheduler" in found, "not the count of the whole kernel"


def alone(profile: Profile, name: str, times: int = 1, factor: float = 1.0) -> gate.Side:
    """A kernel of a program: so many launches of a profile, none of a ladder's rung."""
    known = replace(profile, context=None)
    lasts = (profile.duration_us or 0.0) * factor
    return replace(side(known), name=name, times_us=(lasts,) * times, profiles=(known,) * times)


def test_what_has_no_partner_is_reported_by_the_total(launches: tuple[Profile, Profile]) -> None:
    fast, slow = launches[1], launches[0]
    old = {(1,): alone(fast, "fused"), (2,): alone(slow, "gone_twice", 2)}
    new = {(1,): alone(slow, "fused")}
    found = gate.compare(old, new, gates=[gate.parse_gate("time>5%")])
    assert [failure.pair.name for failure in found.failures] == ["fused"], "gates judge pairs"
    shown = answers.of_comparison(found)
    assert shown.headline.startswith("Total: ")
    assert "faster (3 launches → 1)" in shown.headline
    assert shown.kernels is not None
    columns = [column.label for column in shown.kernels.columns]
    row = dict(zip(columns[1:], rows(shown.kernels)["gone_twice"], strict=True))
    assert (row["launches"], row["new"], row["change"]) == ("2", "–", "gone")
    assert "What follows is about fused only" in shown.kernels.note
    assert not any("only in the old" in note for note in shown.notes), "the row says it"
    for text in (markdown.markdown(shown), html.answer_page(shown, "C", definitions())):
        assert "Total: " in text
        assert "gone" in text
    document = json.loads(documents.comparison_document(found))
    assert document["total"]["launches"] == [3, 1]
    assert [each["launches"] for each in document["alone"]] == [2]
    assert document["only_old"] == ["gone_twice"]
    assert answers.comment(found).headline == shown.headline


def test_two_programs_are_faster_only_if_they_do_the_same(
    launches: tuple[Profile, Profile],
) -> None:
    old = {(1,): alone(launches[0], "scan", factor=0.01), (2,): alone(launches[0], "sort", 2)}
    new = {(1,): alone(launches[1], "scan", factor=0.01), (3,): alone(launches[1], "hash")}
    line = answers.of_comparison(gate.compare(old, new)).headline
    assert line.endswith(", if both do the same work: kernels of both take 1 % of the time")
    new[(2,)] = alone(launches[1], "sort")
    assert "same work" not in answers.of_comparison(gate.compare(old, new)).headline


def test_a_small_rest_leaves_the_headline_to_the_pair(launches: tuple[Profile, Profile]) -> None:
    old = {(1,): alone(launches[0], "k"), (2,): alone(launches[0], "little", factor=0.05)}
    new = {(1,): alone(launches[1], "k")}
    shown = answers.of_comparison(gate.compare(old, new))
    assert shown.headline.startswith("k: ")
    assert shown.kernels is not None
    assert "little" in rows(shown.kernels)
    rungs = gate.compare(
        {(1,): side(launches[0]), (2,): side(launches[0])}, {(1,): side(launches[1])}
    )
    assert rungs.alone_old
    assert rungs.total is None, "rungs of a ladder do the same work: their sum says nothing"
    lost = replace(alone(launches[0], "lost"), status="incomplete: it crashed", times_us=())
    assert gate.compare({**old, (3,): lost}, new).total is None


def test_a_prediction_is_compared_with_what_came_of_it(launches: tuple[Profile, Profile]) -> None:
    cards = [side(launch).card for launch in launches]
    assert cards[0]
    assert cards[1]
    old = replace(cards[0], state="slow", factor=10.0, interval=(3.0, 16.0), time_us=160.0)
    new = replace(cards[1], state="slow", bottleneck="grid-too-small", title="Grid too small")
    for after, side_of_it, inside in (
        (140.0, "below", False),
        (40.0, "inside", True),
        (5.0, "above", False),
    ):
        found = differences.outcome(old, replace(new, time_us=after))
        assert found
        assert found.inside is inside
        first, second = differences.against_prediction(found, old, new)
        assert first.endswith(f"which lies {side_of_it} that interval.")
        assert second.startswith("Another limit remains: Grid too small, ")
    # An interval that is shown as open ends nowhere.
    open_ended = differences.outcome(
        replace(old, factor=40.0, interval=(8.8, 110.0)), replace(new, time_us=160.0 / 189)
    )
    assert open_ended
    assert open_ended.inside is True
    assert differences.against_prediction(open_ended, old, new)[0].endswith(
        "lies inside that interval."
    )
    at_roof = replace(new, state="roof", title="At the DRAM roof", gain="nothing left to gain")
    assert (
        differences.against_prediction(found, old, at_roof)[1]
        == "The new kernel is at the DRAM roof, nothing left to gain."
    )
    same = replace(new, bottleneck=old.bottleneck)
    assert differences.against_prediction(found, old, same)[1].startswith(
        "The same limit remains: "
    )
    for changed in (
        replace(new, time_us=158.0),  # within what two profiles of one kernel differ by
        replace(new, time_us=200.0),
        replace(new, time_us=40.0, gpu="Another GPU"),
    ):
        assert differences.outcome(old, changed) is None
    assert differences.outcome(replace(old, factor=None), replace(new, time_us=40.0)) is None


def test_the_source_is_compared_without_the_blocks_around_it(
    launches: tuple[Profile, Profile],
) -> None:
    (path,) = {row.file for row in launches[0].instructions if row.file in launches[0].sources}
    old, new = (
        replace(
            launches[0], sources={path: f'/*+++\ntitle = "{word}"\n+++*/\nint {word};\nint n;\n'}
        )
        for word in ("one", "two")
    )
    (listing,) = differences.between(old, new).code
    assert [line[::2] for line in listing.lines if line[0] in ("+", "-")] == [
        ("-", "int one;"),
        ("+", "int two;"),
    ]
    assert differences.between(old, old).code == ()
    assert any("is the same." in point for point in differences.between(old, old).points)


def test_a_waterfall_goes_from_the_old_time_to_the_new_one(
    launches: tuple[Profile, Profile],
) -> None:
    """Bar for bar: each cause of the table, from where the one above ends, by its factor."""
    old, new = launches
    found = differences.between(old, new)
    drawn = found.waterfall
    assert drawn
    assert drawn.table is found.tables[0]
    first, *causes, last = drawn.rows
    assert [(row.name, *row.figures) for row in causes] == [
        (name, values[0]) for name, values in rows(drawn.table).items()
    ]
    assert (first.figures, last.figures) == tuple(
        (units.duration(launch.duration_us or 0.0),) for launch in launches
    )
    at = first.points[0].sizes[0]
    for row in causes:
        gap, bar = (part.sizes[0] for part in row.segments)
        assert at == pytest.approx(gap if row.segments[1].kind == "slower" else gap + bar, abs=0.4)
        at = gap + bar if row.segments[1].kind == "slower" else gap
    assert at == pytest.approx(last.points[0].sizes[0], abs=0.5)
    assert differences.between(old, old).waterfall is None
    elsewhere = replace(new, device=replace(new.device, name="Another GPU"))
    assert differences.between(old, elsewhere).waterfall is None


def test_a_picture_of_two_launches_is_of_one_kind_of_work(
    launches: tuple[Profile, Profile],
) -> None:
    verdicts = [diagnose(profile) for profile in launches]
    shown = [card(*each, "a.ncu-rep") for each in zip(launches, verdicts, strict=True)]
    sides = [(p, c, v.bounds) for p, c, v in zip(launches, shown, verdicts, strict=True)]
    both = sections.roof_plot(*sides)
    assert both
    assert [row[0].text for row in both.table.rows][:: len(both.table.rows) - 1] == [
        "old",
        "new",
    ]
    single = sections.roof_plot(sides[0])
    assert single
    assert single.table.columns[0].label == "Roof"
    assert single.summary == "Thick: what limits it. Dotted: how far a roof is."
    busy = {bar.label: bar.busy for bar in shown[1].bars}
    assert any(busy.get(reach.unit) == reach.busy for reach in both.pictures[1].reaches)
    untimed = replace(launches[1], readings={})
    assert sections.roof_plot(sides[0], (untimed, shown[1], {})) is None


def test_the_first_line_has_the_times_of_the_table(launches: tuple[Profile, Profile]) -> None:
    """The median of an even number of launches is the time of none of them."""
    four = replace(side(launches[0]), times_us=(70.5, 72.64, 72.704, 74.6))
    card_of_one = replace(four.card, time_us=72.64) if four.card else None
    found = gate.compare(
        {(1,): replace(four, card=card_of_one)}, {(1,): replace(four, card=card_of_one)}
    )
    shown = answers.of_comparison(found)
    assert shown.headline.endswith("no difference (72.7 µs)")
    assert shown.kernels
    assert [cell.text for cell in shown.kernels.rows[0]][1:3] == ["72.7 µs"] * 2
    assert "a card shows the median launch" in shown.points[0]


def test_the_short_form_has_what_moved_most(launches: tuple[Profile, Profile]) -> None:
    old, new = map(side, launches)
    found = answers.of_comparison(gate.compare({(1,): old}, {(1,): new}), short=True)
    assert found.cards == found.code == ()
    assert found.points[0].startswith("Bottleneck")
    whole = differences.between(*launches).tables
    stalls = next(table for table in found.tables if table.caption.startswith("Stalls"))
    everything = rows(next(table for table in whole if table.caption.startswith("Stalls")))
    moved = [int(cells[-1].split()[0].replace("=", "0")) for cells in everything.values()]
    shown = [int(cells[-1].split()[0].replace("=", "0")) for cells in rows(stalls).values()]
    assert len(shown) == differences.SHORT
    assert max(map(abs, shown)) >= max(map(abs, moved))
    assert all(len(table.rows) <= differences.SHORT + 3 for table in found.tables)
