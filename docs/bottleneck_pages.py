"""The pages of the bottlenecks and of the causes of a step: a rule's docstring and thresholds
(ncu_toolkit/kernel/diagnosis), a drawing, and code before and after
(ncu_toolkit/kernel/diagnosis/glossary.py, ncu_toolkit/kernel/explain/entry.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import drawings

from ncu_toolkit.kernel.diagnosis import figures, glossary
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.diagnosis.rules.reference import Page, page, rules
from ncu_toolkit.kernel.explain import entry
from ncu_toolkit.kernel.runs import store

NOTE = "<!-- Written by docs/generate.py (`make docs`) from the rule and from ncu_toolkit/data/bottlenecks; do not edit. -->\n"


def documents() -> dict[str, str]:
    """File name below docs/bottlenecks -> text of every page and drawing."""
    found = {"README.md": index()}
    for name in rules():
        picture = glossary.picture(name)
        if "kind" in picture:
            found[f"pictures/{name}.svg"] = drawings.svg(picture)
        found[f"{name}.md"] = markdown(page(name), picture)
    return found


def index() -> str:
    """The list of all bottlenecks."""
    lines = [
        "# Bottlenecks\n",
        NOTE,
        "What a verdict can name. Each page says what the bottleneck is, how to confirm it, and what to change.\n",
        "| bottleneck | what it is |",
        "|---|---|",
    ]
    rows = {name: f"| [{page(name).title}]({name}.md) | {page(name).summary} |" for name in rules()}
    lines += [rows[name] for name in load_rules()]
    lines += [
        "\n## Causes of a program's step\n",
        "What the answer to [a program](../program.md) can name, beside the bottlenecks of its kernels.\n",
        "| cause | what it is |",
        "|---|---|",
        *(row for name, row in rows.items() if name not in load_rules()),
    ]
    return "\n".join([*lines, ""])


def markdown(about: Page, picture: Mapping[str, Any]) -> str:
    """One page."""
    lines = [f"# {about.title}\n", NOTE, f"{about.summary} Its id is `{about.bottleneck}`.\n"]
    if "kind" in picture:
        lines += [f"![{picture['alt']}](pictures/{about.bottleneck}.svg)\n"]
        lines += ["*The drawing is a sketch; its lengths are not measured.*\n"]
    lines += _before_and_after(about.bottleneck)
    for heading, body in about.sections.items():
        lines += [f"## {heading}\n", " ".join(body.split()), ""]
    if about.thresholds:
        lines += ["## Thresholds\n", "| name | value | source |", "|---|---|---|"]
        lines += [
            f"| {name.lower().replace('_', ' ')} | {threshold.value:.4g} | {threshold.source} |"
            for name, threshold in about.thresholds
        ]
        lines.append("")
    if about.bottleneck not in load_rules():
        return "\n".join(lines)
    lines += [
        "## Inputs\n",
        f"Needed: {_names(about.requires)}. Used where collected: {_names(about.optional)}.\n",
    ]
    return "\n".join(lines)


def _names(names: Sequence[str]) -> str:
    words = {"opcodes": "executed instructions by opcode", "stalls": "stall reasons"}
    text = [
        words.get(name) or f"{figures.small(figures.describe(name)[1])} (`{name}`)"
        for name in names
    ]
    return ", ".join(text) or "nothing in particular"


def _before_and_after(name: str) -> list[str]:
    """The section of that name; empty where no code shows the bottleneck."""
    lines = []
    for heading, text, language in entry.blocks(glossary.lookup(name), store.longest(entry.PAIRS)):
        if language not in ("", "text"):
            lines += [f"{heading}:\n", f"```{language}\n{text}\n```\n"]
        elif text.startswith("From `kernels/"):
            lines.append(f"{text}\n")
    return ["## Before and after\n", *lines] if lines else []
