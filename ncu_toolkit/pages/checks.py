"""A rung's expected signature beside what was measured."""

from __future__ import annotations

from ncu_toolkit.core.safe import visible
from ncu_toolkit.diagnosis import expectations
from ncu_toolkit.document.views import Cell, Table, Tone, plain_table, text
from ncu_toolkit.pages.book import Book, Entry

_WORDS: dict[bool | None, tuple[str, Tone]] = {
    True: ("holds", "good"),
    False: ("does not hold", "bad"),
    None: ("not known", "muted"),
}


def checks_table(book: Book, entry: Entry) -> Table | None:
    """Expected and measured for one rung, and what its header says where the two disagree. None
    where the header expects nothing."""
    if entry.info is None:
        return None
    rows: list[list[Cell]] = []
    for outcome in outcomes(book, entry):
        word, tone = _WORDS[outcome.passed]
        rows.append(
            [
                text(outcome.says),
                text(word, outcome.reason, tone=tone),
                text(outcome.check, code=True),
                text(outcome.reason or outcome.measured or "–"),
            ]
        )
    if not rows and not entry.info.measured:
        return None
    note = " ".join(
        f"Measured on {visible(found.gpu)}: {visible(found.says)}" for found in entry.info.measured
    )
    return plain_table(
        "checks",
        "Expected and measured",
        ["Expected", "Outcome", "Check", "Measured"],
        rows,
        note=note,
    )


def outcomes(book: Book, entry: Entry) -> tuple[expectations.Outcome, ...]:
    """The checks of an entry's header; none where its rung is in no ladder."""
    if entry.info is None:
        return ()
    before = entry.before
    return expectations.checks_of(
        entry.info, entry.variant.size, _subject(entry), _subject(before) if before else None
    )


def _subject(entry: Entry) -> expectations.Subject:
    return expectations.Subject(entry.profiles, entry.timing)
