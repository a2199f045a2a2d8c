"""Drawings for the pages of the bottlenecks: SVG without scripts, legible on light and dark pages.

A drawing is declared in ncu_toolkit/data/bottlenecks/<id>.toml as `kind` and the panels `before` and
`after`:

lanes     which cells of memory the lanes of a warp touch: `cells` (how many are drawn), `group`
          (cells in a sector or bank), `touches` (one cell for each lane drawn), `span` (cells
          that a lane touches from there on, 1 where left out)
timeline  what each track does in each step: `tracks`, a name and a string of letters; `.` is
          nothing, other letters are those of `legend`
bars      how busy each unit is: `bars`, a name and a share of its peak (0 to 1)

A panel has a `title` and a `note`, of at most TITLE and WORDS letters. `alt` describes the drawing for
readers who do not see it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

WIDTH = 400
#: Letters that fit into a line of a note, and of a title.
WORDS, TITLE = 60, 53
#: Work, waste, and two further roles. Each has a contrast of 3 to white and to near-black.
COLOURS = ("#3b82c4", "#d0742c", "#3d9a5f", "#8a63c2")
#: The colour of text and lines where the file is shown as a picture; a page that holds the drawing
#: itself gives its own.
STYLE = (
    "<style>svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}"
    "text{font-family:system-ui,sans-serif}</style>"
)


def svg(drawing: Mapping[str, Any]) -> str:
    """The drawing as the text of an SVG file.

    Raises:
        KeyError: the declaration lacks a key, or names a kind that does not exist.
        ValueError: a text is too long, or a track has a letter without a legend.
    """
    panel = {"lanes": _lanes, "timeline": _timeline, "bars": _bars}[drawing["kind"]]
    parts: list[str] = []
    y = 0
    for name in ("before", "after"):
        if name not in drawing:
            continue
        what = drawing[name]
        parts.append(_text(0, y + 14, what["title"], weight="600"))
        body, height = panel(drawing, what, y + 26)
        parts += body
        y += 26 + height
        parts.append(_text(0, y + 14, what["note"], size=12))
        y += 32
    if legend := drawing.get("legend"):
        parts += _legend(legend, y)
        y += 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-2 0 {WIDTH + 4} {y}" role="img" '
        f'aria-label="{escape(drawing["alt"])}">{STYLE}\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _lanes(drawing: Mapping[str, Any], panel: Mapping[str, Any], y: int) -> tuple[list[str], int]:
    """Lanes above, cells of memory below, a line from each lane to the cell it touches."""
    cells, group, touches = panel["cells"], panel["group"], panel["touches"]
    span = panel.get("span", 1)
    used = {place + i for place in touches for i in range(span)}
    lane, cell = WIDTH / len(touches), WIDTH / cells
    below = y + 62
    touched = {place // group for place in used}
    parts = [
        f'<rect x="{i * lane + lane / 2 - 8:.1f}" y="{y}" width="16" height="14" rx="2" '
        f'fill="{COLOURS[0]}"/>'
        for i in range(len(touches))
    ]
    for i in range(cells):
        role = COLOURS[0] if i in used else COLOURS[1]
        shade = 'fill="none"' if i // group not in touched else f'fill="{role}"'
        parts.append(
            f'<rect x="{i * cell:.1f}" y="{below}" width="{cell:.1f}" height="16" {shade} '
            'stroke="currentColor" stroke-opacity=".35"/>'
        )
    parts += [
        f'<rect x="{i * cell:.1f}" y="{below}" width="{group * cell:.1f}" height="16" fill="none" '
        'stroke="currentColor" stroke-width="1.6"/>'
        for i in range(0, cells, group)
    ]
    parts += [
        f'<path d="M{i * lane + lane / 2:.1f} {y + 14}L{(place + span / 2) * cell:.1f} {below}" '
        'stroke="currentColor" stroke-opacity=".7" fill="none"/>'
        for i, place in enumerate(touches)
    ]
    return parts, 62 + 18


def _timeline(
    drawing: Mapping[str, Any], panel: Mapping[str, Any], y: int
) -> tuple[list[str], int]:
    """A row for each track: its name, then its steps from left to right."""
    legend, parts = list(drawing["legend"]), []
    steps = max(
        len(letters.replace("|", ""))
        for side in ("before", "after")
        if side in drawing
        for _, letters in drawing[side]["tracks"]
    )
    left = 78
    step = (WIDTH - left) / steps
    for row, (name, letters) in enumerate(panel["tracks"]):
        top = y + 20 * row
        parts.append(_text(0, top + 12, name, size=12))
        parts.append(
            f'<path d="M{left} {top + 16}H{WIDTH}" stroke="currentColor" stroke-opacity=".25"/>'
        )
        for start, length, letter in _runs(letters):
            if letter == ".":
                continue
            if letter not in legend:
                raise ValueError(f"the track '{name}' has '{letter}', which the legend lacks")
            parts.append(
                f'<rect x="{left + start * step:.1f}" y="{top + 2}" '
                f'width="{length * step - 1:.1f}" height="13" fill="{COLOURS[legend.index(letter)]}"/>'
            )
    return parts, 20 * len(panel["tracks"])


def _runs(letters: str) -> Iterator[tuple[int, int, str]]:
    """(start, length, letter) of each run of equal letters; `|` starts a new run."""
    at = start = 0
    last = ""
    for letter in [*letters, ""]:
        if letter == "|" or letter != last:
            if last and at > start:
                yield start, at - start, last
            start = at
        last = letter if letter != "|" else ""
        at += letter not in ("|", "")


def _bars(drawing: Mapping[str, Any], panel: Mapping[str, Any], y: int) -> tuple[list[str], int]:
    """A bar for each unit; the line at the right is its peak."""
    left, full = 120, WIDTH - 120 - 8
    parts = []
    bars: Sequence[tuple[str, float]] = panel["bars"]
    highest = max(share for _, share in bars)
    for row, (name, share) in enumerate(bars):
        top = y + 20 * row
        colour = COLOURS[1] if share == highest else COLOURS[0]
        parts.append(_text(0, top + 12, name, size=12))
        parts.append(
            f'<rect x="{left}" y="{top + 2}" width="{share * full:.1f}" height="13" '
            f'fill="{colour}"/>'
        )
    end = y + 20 * len(bars)
    parts.append(
        f'<path d="M{left + full} {y - 4}V{end}" stroke="currentColor" stroke-dasharray="4 3"/>'
    )
    return parts, 20 * len(bars)


def _legend(legend: Mapping[str, str], y: int) -> list[str]:
    parts: list[str] = []
    x = 0.0
    for colour, words in zip(COLOURS, legend.values(), strict=False):
        parts.append(f'<rect x="{x:.0f}" y="{y + 2}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 17, y + 12, words, size=12))
        x += 17 + 7 * len(words) + 14
    if x > WIDTH + 14:
        raise ValueError(f"the legend is too long: {', '.join(legend.values())}")
    return parts


def _text(x: float, y: float, words: str, *, size: int = 13, weight: str = "400") -> str:
    if len(words) > (WORDS if weight == "400" else TITLE):
        raise ValueError(f"a text of {len(words)} letters does not fit: '{words}'")
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" '
        f'fill="currentColor">{escape(words)}</text>'
    )
