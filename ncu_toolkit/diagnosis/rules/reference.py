"""What the reference says about a bottleneck: the parts of the rule's docstring, and its thresholds.
The glossary and docs/bottleneck_pages.py read it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from ncu_toolkit.diagnosis.rules import Rule, load_rules
from ncu_toolkit.diagnosis.thresholds import Threshold

#: The fixed structure of a rule's docstring: these headings, in this order, after the first
#: sentence.
HEADINGS = (
    "What it is",
    "Why it costs time",
    "How to confirm",
    "What to change",
    "When the advice is wrong",
    "Source",
)


@dataclass(frozen=True)
class Page:
    """One bottleneck's reference: `summary` is its first sentence, `sections` the text under each
    of HEADINGS."""

    bottleneck: str
    title: str
    summary: str
    sections: dict[str, str]
    thresholds: tuple[tuple[str, Threshold], ...]
    requires: tuple[str, ...]
    optional: tuple[str, ...]


def page(bottleneck: str) -> Page:
    """The reference of one bottleneck. Raises KeyError for an unknown id, ValueError where a
    docstring lacks a heading."""
    rule = load_rules()[bottleneck]
    text = inspect.cleandoc(rule.__doc__ or "")
    summary, _, rest = text.partition("\n\n")
    sections: dict[str, str] = {}
    for paragraph in rest.split("\n\n"):
        heading, _, body = paragraph.partition("\n")
        if heading not in HEADINGS:
            raise ValueError(
                f"{bottleneck}: '{heading}' is not one of the headings {', '.join(HEADINGS)}"
            )
        sections[heading] = body
    if tuple(sections) != HEADINGS:
        raise ValueError(f"{bottleneck}: the headings must be {', '.join(HEADINGS)}, in this order")
    return Page(
        bottleneck,
        rule.TITLE,
        " ".join(summary.split()),
        sections,
        _thresholds(rule),
        rule.REQUIRES,
        rule.OPTIONAL,
    )


def _thresholds(rule: Rule) -> tuple[tuple[str, Threshold], ...]:
    return tuple(
        (name, value) for name, value in sorted(vars(rule).items()) if isinstance(value, Threshold)
    )
