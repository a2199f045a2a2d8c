"""What the reference says about a bottleneck, or about a cause of a step: the parts of the rule's
docstring, and its thresholds. The glossary, docs/bottleneck_pages.py and agents read it."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from ncu_toolkit.kernel.diagnosis.rules import load_rules, rules_of
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold

#: The fixed structure of a rule's docstring: these headings, in this order, after the first sentence.
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
    """One bottleneck's or cause's reference: `summary` is its first sentence, `sections` the text
    under each of HEADINGS, `requires` and `optional` the inputs of a bottleneck's rule."""

    bottleneck: str
    title: str
    summary: str
    sections: dict[str, str]
    thresholds: tuple[tuple[str, Threshold], ...]
    requires: tuple[str, ...]
    optional: tuple[str, ...]


class Documented(Protocol):
    """What a rule's module declares for its reference, besides its docstring."""

    TITLE: str


def rules() -> Mapping[str, Documented]:
    """Every rule with a reference by its id: those of kernels, then those of a step where that wing is
    installed."""
    found = {**load_rules(), **rules_of("ncu_toolkit.program.rules")}
    return cast(Mapping[str, Documented], found)


def page(bottleneck: str) -> Page:
    """The reference of one bottleneck or cause. Raises KeyError for an unknown id, ValueError where a
    docstring lacks a heading."""
    rule = rules()[bottleneck]
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
        tuple(sorted((n, v) for n, v in vars(rule).items() if isinstance(v, Threshold))),
        getattr(rule, "REQUIRES", ()),
        getattr(rule, "OPTIONAL", ()),
    )
