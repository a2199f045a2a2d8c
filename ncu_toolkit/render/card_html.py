"""An answer as HTML: a fragment that brings its style, for notebooks, and a page of its own. The pages
of a run take the macros of templates/card.html."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ncu_toolkit.core import units
from ncu_toolkit.core.files import write_atomic
from ncu_toolkit.explain.answer import Answer
from ncu_toolkit.explain.card import whole_percent, whole_percents
from ncu_toolkit.render.assets_out import inlined

NARROW_NO_BREAK = "\u202f"
#: What the macros call.
GLOBALS = {"whole_percent": whole_percent, "whole_percents": whole_percents}


def fragment(shown: Answer) -> str:
    """An answer as HTML that needs nothing else: no script, no request."""
    body = _environment().get_template("card.html").module.answer(shown)  # type: ignore[attr-defined]
    return f'<div class="nc-alone"><style>{style()}</style>{body}</div>'


def page(shown: Answer, title: str, crumbs: Sequence[tuple[str, str]] = ()) -> str:
    """An answer as a page that needs nothing else. `crumbs` are labels and addresses above it."""
    template = _environment().get_template("answer.html")
    above = [*crumbs, (title, "")]
    return template.render(shown=shown, title=title, crumbs=above, **inlined(charts=False))


def write_page(
    shown: Answer, title: str, target: Path, crumbs: Sequence[tuple[str, str]] = ()
) -> Path:
    """Write an answer as a page; returns `target`.

    Raises:
        EnvironmentProblem: the file cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(target, page(shown, title, crumbs).encode("utf-8", "backslashreplace"))
    return target


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
    environment = Environment(
        loader=PackageLoader("ncu_toolkit.render"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=unbroken,
    )
    environment.globals.update(GLOBALS)
    return environment
