"""A rung's expected signature beside what was measured."""

from __future__ import annotations

from ncu_toolkit.core.safe import visible
from ncu_toolkit.diagnosis import expectations
from ncu_toolkit.document.views import Table, Tone, plain_table, text
from ncu_toolkit.pages.book import Entry

_WORDS: dict[bool | None, tuple[str, Tone]] = {
    True: ("holds", "good"),
    False: ("does not hold", "bad"),
    None: ("not known", "muted"),
}


def checks_table(entry: Entry) -> Table | None:
    """Expected and measured for one rung, and what its header says where the two disagree. None
    where the header expects nothing."""
    found = outcomes(entry)
    measured = entry.info.measured if entry.info else ()
    if not found and not measured:
        return None
    rows = []
    for outcome in found:
        word, tone = _WORDS[outcome.passed]
        rows.append(
            [
                text(outcome.says),
                text(word, outcome.reason, tone=tone),
                text(outcome.check, code=True),
                text(outcome.reason or outcome.measured or "–"),
            ]
        )
    note = " ".join(f"Measured on {visible(of.gpu)}: {visible(of.says)}" for of in measured)
    headings = ["Expected", "Outcome", "Check", "Measured"]
    return plain_table("checks", "Expected and measured", headings, rows, note=note)


def outcomes(entry: Entry) -> tuple[expectations.Outcome, ...]:
    """The checks of an entry's header; none where its rung is in no ladder."""
    if entry.info is None:
        return ()
    before = entry.before.launches if entry.before else None
    return expectations.checks_of(entry.info, entry.variant.size, entry.launches, before)
