"""An entry of the glossary in full: its paragraph, and of a bottleneck or a cause of a step the rest
of its page, with the drawing as text, and code before and after. `explain`, agents and the documents
show it.

Text, drawing and what code data/bottlenecks/<id>.toml declares come from
kernel/diagnosis/glossary.py. Without such code it is that of kernels/pathology: the rung that
`removes` the bottleneck, and the rung that it is compared with. The table [excerpt] of the TOML file
gives the texts with which the lines shown begin and end, for `before` and `after`; an empty list shows
what differs in the header alone. `after_file` names another kernel."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

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
#: Columns of an id in the list.
_NAME: Final = 27


def blocks(term: Definition, measured: Measured) -> Iterator[tuple[str, str, str]]:
    """The parts of an entry, as `Definition.page` has them; a heading is "" for none."""
    yield "", term.text, ""
    declared = any(language not in ("", "text") for _, _, language in term.page)
    for heading, text, language in term.page:
        if heading == "When the advice is wrong" and not declared:
            yield from of_pair(term.words[0], measured)
        yield heading, text, language
    if note := glossary.definitions().note(term):
        yield "", note, ""
    if others := ", ".join(each.title for each in glossary.used_in(term)):
        yield "See also", f"{others}.", ""


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
    yield "`ncu-toolkit explain NAME` explains one of these (separated by semicolons).", False
    for group, heading, terms in glossary.definitions().groups:
        yield from (("", False), (heading, True))
        if group in ("bottleneck", "cause"):
            yield from ((f"  {term.words[0]:{_NAME}}  {term.title}", False) for term in terms)
        else:
            names = "; ".join(term.title.replace(" ", "\0") for term in terms)
            lines = textwrap.wrap(names, width - 2, break_on_hyphens=False)
            yield from ((f"  {line}".replace("\0", " "), False) for line in lines)


def of_pair(name: str, measured: Measured) -> Iterator[tuple[str, str, str]]:
    """The code of the kernels of PAIRS before and after, as parts of an entry; last where it comes
    from. None where no pair shows the bottleneck."""
    excerpt = glossary.picture(name).get("excerpt", {})
    rungs = {rung.name: rung for rung in find_family(PAIRS).rungs}
    after = next((rung for rung in rungs.values() if rung.removes == name), None)
    before = rungs.get(after.compared_with if after else name.replace("-", "_"))
    if "after_file" in excerpt:
        after = rungs[excerpt["after_file"]]
    if before is None or after is None:
        return
    same = excerpt.get("after") == []
    bare = "after_file" in excerpt
    ours = ("", "") if bare else (_header(before, after, same), _header(after, before, same))
    one, other = (
        "\n".join(part for part in (header, _code(rung, excerpt.get(side))) if part)
        for rung, header, side in zip((before, after), ours, ("before", "after"), strict=True)
    )
    yield "Before", one, "cuda"
    yield "After, the same code with" if same else "After", other, "cuda"
    source = f"From `kernels/{PAIRS}/{before.path.name}` and `{after.path.name}`."
    timings, device = measured
    first, then = timings.get(before.name), timings.get(after.name)
    if first and then and first.size == then.size and not bare:
        gain = units.ratio(first.median_us / then.median_us)
        size, _, worked_on = size_of(before, first).partition(" (")
        source += (
            f" Measured on one {device}, {worked_on.rstrip(')') or f'size {size}'}: {units.duration(first.median_us)} before,"
            f" {units.duration(then.median_us)} after, {gain} faster."
        )
    yield "", source, ""


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
