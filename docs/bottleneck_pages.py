"""The pages of the bottlenecks and of the causes of a step: a rule's docstring, of bottlenecks also a
drawing, and code before and after.

The docstring and the thresholds come from the rule (ncu_toolkit/kernel/diagnosis). The drawing comes
from docs/bottlenecks/pictures/<id>.toml. The code comes from kernels/pathology: the rung that
`removes` the bottleneck, and the rung that it is compared with. The table [excerpt] of the TOML
file gives the texts with which the lines shown begin and end, for `before` and `after`; an empty
list shows what differs in the header alone. Where no pair of kernels shows the bottleneck,
`before_code` and `after_code` hold the code, and `after_file` names another kernel."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import drawings

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Timing
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.diagnosis.rules.reference import Page, page, rules
from ncu_toolkit.kernel.ladder.catalogue import find_family
from ncu_toolkit.kernel.ladder.problems import problem_for
from ncu_toolkit.kernel.ladder.rung import Rung

NOTE = "<!-- Written by docs/generate.py (`make docs`) from the rule and from pictures/; do not edit. -->\n"
PICTURES = Path(__file__).resolve().parent / "bottlenecks" / "pictures"
#: The family whose kernels show a bottleneck each.
PAIRS = "pathology"


def documents(timings: Mapping[str, Timing], device: str) -> dict[str, str]:
    """File name below docs/bottlenecks -> text of every page and drawing.

    `timings`: the longest timing of each rung of PAIRS, recorded on `device`."""
    rungs = {rung.name: rung for rung in find_family(PAIRS).rungs}
    found = {"README.md": index()}
    for name in rules():
        path = PICTURES / f"{name}.toml"
        picture = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if picture:
            found[f"pictures/{name}.svg"] = drawings.svg(picture)
        found[f"{name}.md"] = markdown(page(name), picture, rungs, timings, device)
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


def markdown(
    about: Page,
    picture: Mapping[str, Any],
    rungs: Mapping[str, Rung],
    timings: Mapping[str, Timing],
    device: str,
) -> str:
    """One page."""
    lines = [f"# {about.title}\n", NOTE, f"{about.summary} Its id is `{about.bottleneck}`.\n"]
    if picture:
        lines += [f"![{picture['alt']}](pictures/{about.bottleneck}.svg)\n"]
        lines += ["*The drawing is a sketch; its lengths are not measured.*\n"]
    lines += _before_and_after(about.bottleneck, picture.get("excerpt", {}), rungs, timings, device)
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


def _before_and_after(
    bottleneck: str,
    excerpt: Mapping[str, Any],
    rungs: Mapping[str, Rung],
    timings: Mapping[str, Timing],
    device: str,
) -> list[str]:
    """The section of that name; empty where no code shows the bottleneck."""
    if "before_code" in excerpt:
        return _section(*(_block(excerpt[f"{side}_code"].strip()) for side in ("before", "after")))
    after = next((rung for rung in rungs.values() if rung.removes == bottleneck), None)
    before = rungs.get(after.compared_with if after else bottleneck.replace("-", "_"))
    if "after_file" in excerpt:
        after = rungs[excerpt["after_file"]]
    if before is None or after is None:
        return []
    same = excerpt.get("after") == []
    ours = _header(before, after, same), _header(after, before, same)
    if "after_file" in excerpt:
        ours = "", ""
    shown = [
        _block("\n".join(part for part in (header, _code(rung, excerpt.get(side))) if part))
        for rung, header, side in zip((before, after), ours, ("before", "after"), strict=True)
    ]
    text = f"From `kernels/{PAIRS}/{before.path.name}` and `{after.path.name}`."
    first, then = timings.get(before.name), timings.get(after.name)
    if first and then and first.size == then.size and "after_file" not in excerpt:
        gain = units.ratio(first.median_us / then.median_us)
        text += (
            f" Measured on one {device}, size {size_of(before, first)}: {units.duration(first.median_us)} before,"
            f" {units.duration(then.median_us)} after, {gain} faster."
        )
    return [*_section(*shown, same), f"{text}\n"]


def size_of(rung: Rung, timing: Timing) -> str:
    """The size of a timing, with what the rung works on where the size does not say it."""
    problem = problem_for(rung.family)
    worked_on = problem.worked_on(problem.case(timing.size, None, rung.problem))
    return f"{timing.size} ({worked_on})" if worked_on else timing.size


def _section(before: str, after: str, same: bool = False) -> list[str]:
    then = "After, the same code with:\n" if same else "After:\n"
    return ["## Before and after\n", "Before:\n", before, then, after]


def _block(code: str) -> str:
    return f"```cuda\n{code}\n```\n"


def _code(rung: Rung, marks: Sequence[str] | None) -> str:
    """The lines of a kernel's file from the text that begins them to the text that ends them; the
    whole kernel where `marks` is None, nothing where it is empty.

    Raises:
        ValueError: a text is not there, or the first is there more than once.
    """
    text = rung.path.read_text(encoding="utf-8")
    text = text.partition("+++*/")[2].rpartition("/*+++")[0]
    if marks is None:
        return text[text.index('extern "C"') :].strip()
    if not marks:
        return ""
    begin, end = marks
    if text.count(begin) != 1 or end not in text.partition(begin)[2]:
        raise ValueError(f"{rung.path.name} has no excerpt from '{begin}' to '{end}'")
    at = text.index(begin)
    start = text.rfind("\n", 0, at) + 1
    stop = text.find("\n", text.index(end, at + len(begin)) + len(end))
    return _closed(text[start:stop])


def _closed(code: str) -> str:
    """Code without its common indentation (directives have none), its open braces closed."""
    lines = code.rstrip().splitlines()
    deep = min(len(line) - len(line.lstrip()) for line in lines if line and line[0] != "#")
    lines = [line if line.startswith("#") else line[deep:] for line in lines]
    waiting: list[str] = []
    for line in lines:
        for letter in line.partition("//")[0]:
            if letter == "{":
                waiting.append(line[: len(line) - len(line.lstrip())])
            elif letter == "}":
                waiting.pop()
    return "\n".join([*lines, *(f"{indent}}}" for indent in reversed(waiting))])


def _header(rung: Rung, other: Rung, launch: bool) -> str:
    """What the header of one kernel sets and the other sets otherwise, as comments; with `launch`
    also how they are launched."""
    text = [
        f"// {name} = {value}"
        for name, value in rung.parameters.items()
        if name in other.parameters and other.parameters[name] != value
    ]
    if launch and len(rung.launches) == len(other.launches) == 1:
        ours, theirs = rung.launches[0], other.launches[0]
        for what, a, b in (
            ("grid", ours.grid, theirs.grid),
            ("block", ours.block, theirs.block),
            ("shared memory in bytes", (ours.shared,), (theirs.shared,)),
        ):
            if a != b:
                text.append(f"// {what}: {' x '.join(each for each in a if each != '1')}")
    return "\n".join(text)
