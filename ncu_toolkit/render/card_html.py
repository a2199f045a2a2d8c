"""An answer as HTML: a fragment that brings its style, for notebooks; pages take the macros of
templates/card.html."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ncu_toolkit.core import units
from ncu_toolkit.explain.answer import Answer
from ncu_toolkit.explain.card import whole_percent, whole_percents

NARROW_NO_BREAK = "\u202f"
#: What the macros call.
GLOBALS = {"whole_percent": whole_percent, "whole_percents": whole_percents}


def fragment(shown: Answer) -> str:
    """An answer as HTML that needs nothing else: no script, no request."""
    body = _environment().get_template("card.html").module.answer(shown)  # type: ignore[attr-defined]
    return f'<div class="nc-alone"><style>{style()}</style>{body}</div>'


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
