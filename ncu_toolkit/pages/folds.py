"""What the folded sections of a launch's page say in one line each."""

from __future__ import annotations

from collections.abc import Iterator

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.figures import reason_name
from ncu_toolkit.document.card import whole_percent
from ncu_toolkit.document.views import PageView, Table
from ncu_toolkit.model import Profile
from ncu_toolkit.pages.columns import compact

#: Opcodes and stall reasons that a line names.
_NAMED = 3


def folds(page: PageView, profile: Profile) -> dict[str, str]:
    """One line for each section that the page has, by the section's key."""
    return dict(_folds(page, profile))


def _folds(page: PageView, profile: Profile) -> Iterator[tuple[str, str]]:
    if page.hotspots:
        yield "code", _code(page)
    if page.step:
        speedup = page.step.facts[0].cell
        gain = "not timed" if speedup.missing else speedup.text
        yield "changed", f"{gain}, compared with {page.step.before.text}"
    if page.checks:
        yield "expected", _count(page.checks, "prediction") + " from the kernel's header"
    yield "memory", _memory(page, profile)
    yield "stalls", _stalls(profile)
    yield "instructions", _instructions(profile)
    yield "occupancy", _occupancy(profile)
    yield "verdict", _verdict(page)
    if page.considered:
        yield "considered", _considered(page.considered)
    if "rules" in page.tables:
        yield "rules", _count(page.tables["rules"], "message")
    yield "figures", _count(page.tables["metrics"], "figure")
    yield "reproduce", plural(len(page.commands), "command")


def _code(page: PageView) -> str:
    if page.hotspots and not page.hotspots.data:
        return "not in the report"
    if not page.card.where:
        return "source and SASS"
    line = page.card.where[0]
    return f"{line.short}: {line.cost}"


def _memory(page: PageView, profile: Profile) -> str:
    parts = []
    if page.memory:
        links = (*(link for link, _ in page.memory.ends), page.memory.link)
        parts += [f"{link.busy} busy" for link in links if link.mark]
        levels = (page.memory.l2, page.memory.l1)
        parts += [unit for level in levels for unit, _ in level.units[:1]]
    for label, name in (("L1", "l1_hit_rate"), ("L2", "l2_hit_rate")):
        if (rate := figures.value(profile, name)) is not None:
            parts.append(f"{label} hits {units.percent(rate, 2)}")
    return ", ".join(parts) or "no memory counters in this report"


def _stalls(profile: Profile) -> str:
    shares = figures.stall_shares(profile)
    ranked = sorted(shares.items(), key=lambda item: -item[1])[:_NAMED]
    return ", ".join(f"{reason_name(name)} {whole_percent(share)}" for name, share in ranked)


def _instructions(profile: Profile) -> str:
    if not profile.mix.collected:
        return "from the code alone"
    total = profile.mix.total or 1
    ranked = sorted(profile.mix.opcodes.items(), key=lambda item: -item[1])[:_NAMED]
    parts = [f"{opcode} {whole_percent(n / total)}" for opcode, n in ranked]
    return f"{compact(profile.mix.total)} by warps: {', '.join(parts)}"


def _occupancy(profile: Profile) -> str:
    achieved, most = (
        figures.value(profile, name) for name in ("achieved_occupancy", "theoretical_occupancy")
    )
    if achieved is None or most is None:
        return "what limits the blocks on an SM"
    limits = " and ".join(
        figures.BLOCK_LIMITS[name] for name in figures.occupancy_limiters(profile)
    )
    said = f"{whole_percent(achieved)} achieved of {whole_percent(most)} possible"
    return f"{said}, limited by {limits}" if limits and most < 1 else said


def _verdict(page: PageView) -> str:
    if not page.findings:
        return ""
    facts = plural(len(page.findings[0].evidence.rows), "figure")
    others = len(page.findings) - 1
    return f"{facts}, {plural(others, 'other cause')}" if others else facts


def _considered(table: Table) -> str:
    skipped = sum(row[1].text == "abstained" for row in table.rows)
    checked = f"{plural(len(table.rows) - skipped, 'cause')} checked"
    return f"{checked}, {skipped} skipped for lack of data" if skipped else checked


def _count(table: Table, what: str) -> str:
    return plural(len(table.rows), what)


def plural(n: int, one: str, many: str = "") -> str:
    """As `units.counted`, with thin spaces in thousands."""
    return f"{units.count(n)} {one if n == 1 else many or one + 's'}"
