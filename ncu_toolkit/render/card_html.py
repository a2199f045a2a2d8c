"""An answer as HTML: a fragment that brings its style, for notebooks, and a page of its own. The pages
of a run take the macros of templates/card.html."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ncu_toolkit.core import units
from ncu_toolkit.core.files import make_folder, write_atomic
from ncu_toolkit.document.card import whole_percent
from ncu_toolkit.document.views import Answer, Trend
from ncu_toolkit.render.assets_out import inlined
from ncu_toolkit.render.glossary_view import groups, term_note

NARROW_NO_BREAK = "\u202f"


def fragment(shown: Answer) -> str:
    """An answer as HTML that needs nothing else: no script, no request."""
    body = _environment().get_template("card.html").module.answer(shown)  # type: ignore[attr-defined]
    return f'<div class="nc-alone"><style>{style()}</style>{body}</div>'


def page(shown: Answer, title: str, crumbs: Sequence[tuple[str, str]] = ()) -> str:
    """An answer as a page that needs nothing else. `crumbs` are labels and addresses above it."""
    template = _environment().get_template("answer.html")
    above = [*crumbs, (title, "")]
    parts = {**inlined(charts=False), "glossary": "#page-glossary"}
    return template.render(shown=shown, title=title, crumbs=above, groups=groups(), **parts)


def write_page(
    shown: Answer, title: str, target: Path, crumbs: Sequence[tuple[str, str]] = ()
) -> Path:
    """Write an answer as a page; returns `target`.

    Raises:
        EnvironmentProblem: the file cannot be written.
    """
    make_folder(target.parent)
    write_atomic(target, page(shown, title, crumbs).encode("utf-8", "backslashreplace"))
    return target


#: A trend's drawing in pixels: its size, and the room for labels around the plot.
_WIDE, _HIGH, _LEFT, _TOP, _BOTTOM = 960, 254, 76, 44, 10
_LINES = 4
#: Runs that are drawn: more would be less than two pixels each.
_DRAWN = 400


def trend(shown: Trend, titled: bool = True) -> Markup:
    """A trend as SVG: times with their spread, and a line with the new verdict where it changed. The
    axis of times starts at zero."""
    points = shown.points[-_DRAWN:]
    most = max((point.high for point in points), default=0.0) * 1.05
    if not most:
        return Markup("")
    step = (_WIDE - _LEFT - 20) / max(1, len(points) - 1)

    def place(value: float) -> float:
        return _HIGH - _BOTTOM - (_HIGH - _BOTTOM - _TOP) * value / most

    parts = []
    for at in range(_LINES + 1):
        value = most * at / _LINES
        label = units.duration(value, 2) if at else "0"
        parts.append(
            Markup(
                '<line class="nc-axis" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/><text x="{}" y="{:.1f}" text-anchor="end">{}</text>'
            ).format(_LEFT, _WIDE, _LEFT - 8, place(value) + 4, unbroken(label), y=place(value))
        )
    across = [_LEFT + 10 + step * at for at in range(len(points))]
    line = " ".join(f"{x:.1f},{place(p.value):.1f}" for x, p in zip(across, points, strict=True))
    parts.append(Markup('<polyline points="{}"/>').format(line))
    changes = 0
    for x, point in zip(across, points, strict=True):
        if point.change:
            top = 14 + 15 * (changes % 2)  # so that two labels that meet can both be read
            changes += 1
            end = x > (_LEFT + _WIDE) / 2
            parts.append(
                Markup(
                    '<line class="nc-changed" x1="{x:.1f}" x2="{x:.1f}" y1="{}" y2="{}"/><text x="{:.1f}" y="{}"{}>{}</text>'
                ).format(
                    top - 10, _HIGH - _BOTTOM, x - 5 if end else x + 5, top,
                    Markup(' text-anchor="end"') if end else "", point.change, x=x,
                )
            )  # fmt: skip
        parts.append(
            Markup(
                '<g><title>{}</title><line class="nc-range" x1="{x:.1f}" x2="{x:.1f}" y1="{:.1f}" y2="{:.1f}"/>'
                '<circle cx="{x:.1f}" cy="{:.1f}" r="{}"/></g>'
            ).format(
                unbroken(point.note), place(point.low), place(point.high), place(point.value),
                3.5 if step > 8 else 2, x=x,
            )
        )  # fmt: skip
    return Markup(
        '<figure class="nc-trend">{}<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg></figure>'
    ).format(
        Markup("<figcaption>{}</figcaption>").format(shown.title) if titled else "",
        _WIDE,
        _HIGH,
        f"times of {shown.title}" if shown.title else "times by run",
        Markup("").join(parts),
    )


#: What the macros call.
GLOBALS = {
    "duration": units.duration,
    "whole_percent": whole_percent,
    "trend": trend,
    "term_note": term_note,
}


@cache
def style() -> str:
    """The card's style sheet."""
    return files("ncu_toolkit.render").joinpath("assets", "card.css").read_text(encoding="utf-8")


def unbroken(value: Any) -> Any:
    """Thin spaces as ones that do not break a line between number and unit."""
    if isinstance(value, Markup):
        return Markup(value.replace(units.THIN_SPACE, NARROW_NO_BREAK))
    return value.replace(units.THIN_SPACE, NARROW_NO_BREAK) if isinstance(value, str) else value


@cache
def _environment() -> Environment:
    return environment(unbroken)


def environment(finalize: Callable[[Any], Any]) -> Environment:
    """The templates; `finalize` takes a last look at every value."""
    made = Environment(
        loader=PackageLoader("ncu_toolkit.render"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=finalize,
    )
    made.globals.update(GLOBALS)
    return made
