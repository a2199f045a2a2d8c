"""The page of a program's step in a real browser: its numbers are the card's, blocks are zoomed by
pointer and by keyboard, and it fits every width."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Browser, require_chromium
from program_found import small

from ncu_toolkit.base.core import units
from ncu_toolkit.program.explain.program import headline, program_answer, saving
from ncu_toolkit.program.model import ProgramDiagnosis
from ncu_toolkit.program.pages.program_view import program_view, write_program_page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

TILES = "[...document.querySelectorAll('.tile')]"
SEEN = f"{TILES}.filter(tile => !tile.classList.contains('off')).map(tile => tile.querySelector('b').textContent)"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[ProgramDiagnosis, Path]:
    require_chromium()
    shown = small()
    return shown, write_program_page(shown, tmp_path_factory.mktemp("program") / "page.html")


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


def tile(name: str) -> str:
    return f"{TILES}.find(tile => tile.querySelector('b').textContent === '{name}')"


def choose(browser: Browser, cause: str) -> None:
    """Have a cause hatched."""
    browser.evaluate(
        f"(select => {{ select.value = '{cause}'; select.dispatchEvent(new Event('change')); }})"
        "(document.querySelector('.shade select'))"
    )


def test_numbers_are_those_of_the_card(
    browser: Browser, program: tuple[ProgramDiagnosis, Path]
) -> None:
    shown, page = program
    browser.open(page, width=1440)
    card, wall = program_answer(shown).cards[0], shown.account.wall_us
    message = " · ".join((card.title, card.gain, card.sureness))
    assert plain(browser.evaluate("document.querySelector('.first').innerText")) == plain(message)
    head = browser.evaluate("document.querySelector('h1').innerText + ' · ' + document.querySelector('.lead').innerText")  # fmt: skip
    assert plain(head) == plain(headline(shown))
    rows = browser.evaluate(
        "[...document.querySelectorAll('.finding > summary')]"
        ".map(row => [row.querySelector('b').innerText, row.querySelector('span').innerText])"
    )
    assert [[title, plain(text)] for title, text in rows] == [
        [each.title, plain(saving(each, shown))] for each in shown.findings
    ]
    # what is hatched of the step is as wide as what the finding saves of it
    for at, each in enumerate(shown.findings):
        choose(browser, str(at))
        part = browser.evaluate("(tile => tile.querySelector('i').offsetWidth / tile.offsetWidth)(document.querySelector('.tile'))")  # fmt: skip
        assert part == pytest.approx(each.ceiling_us / wall, abs=0.002)
    # blocks are as wide as their part of the step
    for each in program_view(shown).icicle.tiles:
        width = browser.evaluate(f"{tile(each.name)}.getBoundingClientRect().width / document.querySelector('.icicle').offsetWidth")  # fmt: skip
        first = next(o for o in program_view(shown).icicle.tiles if o.name == each.name)
        assert width == pytest.approx(first.part, abs=0.002)
    table = browser.evaluate(
        "[...document.querySelectorAll('#parts tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert plain(table[-1][1]) == plain(units.duration(wall))
    assert plain(table[-1][2]) == "100 %"
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]


def test_the_picture_works_by_keyboard(
    browser: Browser, program: tuple[ProgramDiagnosis, Path]
) -> None:
    browser.open("about:blank")
    browser.open(program[1], width=1440)
    active = "document.activeElement.querySelector('b').textContent"
    assert browser.evaluate(f"{TILES}.filter(tile => tile.tabIndex === 0).length") == 1
    browser.evaluate("document.querySelector('.tile').focus()")
    browser.press("ArrowDown", 40)
    first = browser.evaluate(active)
    browser.press("ArrowRight", 39)
    assert browser.evaluate(active) == "forward" != first
    browser.press("Enter", 13, "\r")
    assert "train.py:9" not in browser.evaluate(SEEN)
    browser.press("ArrowDown", 40)
    assert browser.evaluate(active) == "model.py:3"
    assert browser.evaluate("document.activeElement.getAttribute('aria-level')") == "3"
    browser.press("Enter", 13, "\r")
    assert "model.py:4" not in browser.evaluate(SEEN)
    browser.press("Escape", 27)
    assert "model.py:4" in browser.evaluate(SEEN)
    browser.press("Escape", 27)
    assert "train.py:9" in browser.evaluate(SEEN)
    assert browser.evaluate(active) == "model.py:3"
    browser.press("Home", 36)
    assert browser.evaluate(active) == "step"
