"""An entry of the glossary in full: its paragraph, and of a bottleneck or a cause of a step the rest
of its page, with the drawing as text, and code before and after. `explain`, agents and the documents
show it.

Text comes from kernel/diagnosis/glossary.py. data/bottlenecks/<id>.toml declares the drawing
(docs/drawings.py lists its keys) and the code. Without it, the code comes from kernels/pathology: the
rung that `removes` the bottleneck, and the rung that it is compared with. The table [excerpt] gives
the texts with which the lines shown begin and end, for `before` and `after`; an empty list shows what
differs in the header alone. Where no pair of kernels shows the bottleneck, `before_code` and
`after_code` hold the code (in `language`, "cuda" where it is left out), and `after_file` names another
kernel."""

import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.document.tables import Definition
from ncu_toolkit.base.model import Timing
from ncu_toolkit.kernel.diagnosis import glossary
from ncu_toolkit.kernel.ladder.catalogue import find_family
from ncu_toolkit.kernel.ladder.problems import problem_for
from ncu_toolkit.kernel.ladder.rung import Rung

#: The longest recorded timing of each rung of PAIRS, and its GPU (`store.longest`).
Measured = tuple[Mapping[str, Timing], str]
#: The family whose kernels show a bottleneck each.
PAIRS: Final = "pathology"
#: Columns of an id in the list, of a bar in a drawing, and what letters of a track are drawn as, in the legend's order.
_NAME: Final = 27
_BAR: Final = 30
_SHADES: Final = "█▒░▚"


def picture(name: str) -> Mapping[str, Any]:
    """The declaration of a bottleneck's drawing and code; empty where there is none."""
    path = files("ncu_toolkit").joinpath("data", "bottlenecks", f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def blocks(term: Definition, measured: Measured) -> Iterator[tuple[str, str, str]]:
    """The parts of an entry: a heading ("" for none), a text, and the language of its code ("" for
    prose, "text" for a drawing)."""
    yield "", term.text, ""
    for heading, text in term.page:
        yield heading, text, ""
        if heading == "What to change":
            yield from _shown(term.words[0], measured)
    if note := glossary.definitions().note(term):
        yield "", note, ""
    if others := ", ".join(each.title for each in glossary.used_in(term)):
        yield "Terms with entries of their own", f"{others}.", ""


def _shown(name: str, measured: Measured) -> Iterator[tuple[str, str, str]]:
    about = picture(name)
    if drawing := list(_drawn(about)):
        yield "Sketch", "\n".join(drawing), "text"
    for at, (words, code, language) in enumerate(before_and_after(name, measured)):
        yield "" if at else "Before and after", words, ""
        if code:
            yield "", code, language


def markdown(term: Definition, measured: Measured) -> str:
    """An entry as Markdown."""
    lines = [f"# {term.title}"]
    for heading, text, language in blocks(term, measured):
        lines += [f"## {heading}"] if heading else []
        lines.append(f"```{language}\n{text}\n```" if language else text)
    return "\n\n".join(lines) + "\n"


def plain(term: Definition, width: int, measured: Measured) -> Iterator[tuple[str, bool]]:
    """The lines of an entry for a terminal; headings are marked True."""
    yield term.title, True
    for heading, text, language in blocks(term, measured):
        yield "", False
        if heading:
            yield heading, True
        lines = text.splitlines() if language else textwrap.wrap(text, max(20, width - 2))
        yield from ((f"{'    ' if language else '  '}{line}".rstrip(), False) for line in lines)


def listed(width: int) -> Iterator[tuple[str, bool]]:
    """The names of all entries in their groups, as `plain`."""
    for group, heading, terms in glossary.definitions().groups:
        yield from (("", False), (heading, True))
        if group in ("bottleneck", "cause"):
            yield from ((f"  {term.words[0]:{_NAME}}  {term.title}", False) for term in terms)
        else:
            names = ", ".join(term.title.replace(" ", "\0") for term in terms)
            lines = textwrap.wrap(names, width - 2, break_on_hyphens=False)
            yield from ((f"  {line}".replace("\0", " "), False) for line in lines)


def _drawn(about: Mapping[str, Any]) -> Iterator[str]:
    """A drawing as text. Of lanes each cell of memory is a digit: how many lanes touch it; `|` parts
    sectors or banks. Of a timeline `|` is where the next begins."""
    for panel in (about[side] for side in ("before", "after") if side in about):
        yield panel["title"]
        rows: Sequence[tuple[str, Any]] = panel.get("tracks") or panel.get("bars") or ()
        wide = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            if about["kind"] == "bars":
                yield f"  {name:{wide}}  {'█' * round(value * _BAR):{_BAR}} {value:4.0%}"
            else:
                track = re.sub(r"\|.", "|", value).replace(".", " ")
                shades = {ord(a): b for a, b in zip(about["legend"], _SHADES, strict=False)}
                yield f"  {name:{wide}}  {track.translate(shades)}".rstrip()
        if about["kind"] == "lanes":
            spans = range(panel.get("span", 1))
            touched = [place + i for place in panel["touches"] for i in spans]
            cells = [str(touched.count(cell) or ".") for cell in range(panel["cells"])]
            parts = range(0, len(cells), panel["group"])
            yield f"  |{'|'.join(''.join(cells[at : at + panel['group']]) for at in parts)}|"
        yield f"  {panel['note']}"
    if about.get("kind") == "lanes":
        yield "A digit is how many of the lanes touch that cell of memory."
    if legend := about.get("legend"):
        yield "  ".join(f"{a} {b}" for a, b in zip(_SHADES, legend.values(), strict=False))


def before_and_after(name: str, measured: Measured) -> Iterator[tuple[str, str, str]]:
    """Words, the code under them and its language, of the kernel before and after; last where they
    come from, with no code. Empty where no code shows the bottleneck."""
    excerpt = picture(name).get("excerpt", {})
    if "before_code" in excerpt:
        language = excerpt.get("language", "cuda")
        yield "Before:", excerpt["before_code"].strip(), language
        yield "After:", excerpt["after_code"].strip(), language
        return
    rungs = {rung.name: rung for rung in find_family(PAIRS).rungs}
    after = next((rung for rung in rungs.values() if rung.removes == name), None)
    before = rungs.get(after.compared_with if after else name.replace("-", "_"))
    if "after_file" in excerpt:
        after = rungs[excerpt["after_file"]]
    if before is None or after is None:
        return
    same = excerpt.get("after") == []
    ours = _header(before, after, same), _header(after, before, same)
    if "after_file" in excerpt:
        ours = "", ""
    one, other = (
        "\n".join(part for part in (header, _code(rung, excerpt.get(side))) if part)
        for rung, header, side in zip((before, after), ours, ("before", "after"), strict=True)
    )
    yield "Before:", one, "cuda"
    yield "After, the same code with:" if same else "After:", other, "cuda"
    source = f"From `kernels/{PAIRS}/{before.path.name}` and `{after.path.name}`."
    timings, device = measured
    first, then = timings.get(before.name), timings.get(after.name)
    if first and then and first.size == then.size and "after_file" not in excerpt:
        gain = units.ratio(first.median_us / then.median_us)
        source += (
            f" Measured on one {device}, size {size_of(before, first)}: {units.duration(first.median_us)} before,"
            f" {units.duration(then.median_us)} after, {gain} faster."
        )
    yield source, "", ""


def size_of(rung: Rung, timing: Timing) -> str:
    """The size of a timing, with what the rung works on where the size does not say it."""
    problem = problem_for(rung.family)
    worked_on = problem.worked_on(problem.case(timing.size, None, rung.problem))
    return f"{timing.size} ({worked_on})" if worked_on else timing.size


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
    shown = [
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
                shown.append(f"// {what}: {' x '.join(side for side in a if side != '1')}")
    return "\n".join(shown)
