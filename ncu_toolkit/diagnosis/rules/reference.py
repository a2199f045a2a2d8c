"""The reference pages of the bottlenecks: docs/bottlenecks/<id>.md, generated from the rule
modules' docstrings and thresholds.

`python -m ncu_toolkit.diagnosis.rules.reference` writes them; a test fails where they are out of
date.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules import Rule, load_rules
from ncu_toolkit.diagnosis.rules._support import Threshold

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
_NOTE = "<!-- Generated from the rule's docstring by `python -m ncu_toolkit.diagnosis.rules.reference`; edit the rule. -->"


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


def markdown(reference: Page) -> str:
    """A page as markdown, ending in a newline."""
    lines = [
        _NOTE,
        "",
        f"# {reference.title}",
        "",
        f"`{reference.bottleneck}`: {reference.summary}",
        "",
    ]
    for heading, body in reference.sections.items():
        lines += [f"## {heading}", "", " ".join(body.split()), ""]
    if reference.thresholds:
        lines += ["## Thresholds", "", "| name | value | source |", "|---|---|---|"]
        lines += [
            f"| {name.lower().replace('_', ' ')} | {threshold.value:.4g} | {threshold.source} |"
            for name, threshold in reference.thresholds
        ]
        lines.append("")
    lines += [
        "## Inputs",
        "",
        f"Needed: {_names(reference.requires)}. Used where collected: {_names(reference.optional)}.",
        "",
    ]
    return "\n".join(lines)


def _names(names: tuple[str, ...]) -> str:
    words = {"opcodes": "executed instructions by opcode", "stalls": "stall reasons"}
    return (
        ", ".join(
            words.get(name) or f"{figures.describe(name)[1].lower()} (`{name}`)" for name in names
        )
        or "nothing in particular"
    )


def index() -> str:
    """The list of all bottlenecks as markdown."""
    lines = [_NOTE, "", "# Bottlenecks", "", "| id | what it says |", "|---|---|"]
    lines += [f"| [`{name}`]({name}.md) | {page(name).summary} |" for name in load_rules()]
    return "\n".join([*lines, ""])


def pages() -> dict[str, str]:
    """File name -> text of every reference page."""
    return {f"{name}.md": markdown(page(name)) for name in load_rules()} | {"README.md": index()}


def write(folder: Path) -> None:
    """Write all pages into `folder`, and remove pages of bottlenecks that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for stale in folder.glob("*.md"):
        if stale.name not in wanted:
            stale.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).resolve().parents[3] / "docs" / "bottlenecks")
