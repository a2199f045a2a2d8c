"""What only a recording keeps: its launches as read from the reports, which load in a twentieth of the
time, with what their code accesses, and what ncu's own rules say."""

import lzma
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import msgspec

from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.diagnosis.static import code_of
from ncu_toolkit.kernel.report.ncu_source import Value
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.kernel.sass import addresses


def save_rules(folder: Path, profiles: Sequence[Profile]) -> None:
    """Write the messages of ncu's own rules by case and launch."""
    rows = {store.rule_key(c): p.rules for p in profiles if (c := p.rung)}
    store.write_json(folder / store.RULES, "rules", rows)


def save_parsed(folder: Path) -> None:
    """Keep the launches of a recording's reports in PARSED with the profiler's own values, so that
    a new or renamed metric changes no recording. With contradictions, which name metrics as the
    registry does, or launches without counters nothing is kept. Raises as `read_reports`."""
    run = store.load_manifest(folder)
    reports = tuple(store.reports_of(folder, run, values=True))
    profiles = [profile for report in reports for profile in report.profiles]
    if any(each.contradictions or not each.launch.complete for each in profiles):
        (folder / store.PARSED).unlink(missing_ok=True)
        return
    launches = [replace(profile, readings={}, stalls=None) for profile in profiles]
    columns = _columns([values for report in reports for values in report.values])
    kept = msgspec.Raw(msgspec.msgpack.encode((addresses.source(), answers(profiles))))
    whole = msgspec.msgpack.encode((store.parse_key(folder, run), launches, columns, kept))
    # two streams: new answers leave the first as it was, and git keeps it once
    streams = whole[: -len(bytes(kept))], bytes(kept)
    packed = b"".join(lzma.compress(each, preset=9) for each in streams)
    store.write_atomic(folder / store.PARSED, packed)


def answers(profiles: Sequence[Profile]) -> dict[str, Mapping[int, addresses.Access]]:
    """What `addresses` answers while the pages of launches are made, by its key."""
    found: dict[str, Mapping[int, addresses.Access]] = {}
    answer = addresses.answer

    def noted(asked: addresses.Question) -> Mapping[int, addresses.Access]:
        found[addresses.key(asked)] = known = answer(asked)
        return known

    with mock.patch.object(addresses, "answer", noted):
        for profile in profiles:
            code_of(profile)
    return found


def kept_answers(folder: Path) -> tuple[str, dict[str, Mapping[int, addresses.Access]]]:
    """The source that a recording's answers are of, and the answers."""
    whole = lzma.decompress((folder / store.PARSED).read_bytes())
    *_, kept = msgspec.msgpack.decode(
        whole, type=tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw, msgspec.Raw]
    )
    return msgspec.msgpack.decode(kept, type=tuple[str, dict[str, dict[int, addresses.Access]]])


def _columns(launches: Sequence[Mapping[str, Value]]) -> list[store.MetricColumn]:
    columns = []
    for name, unit in sorted({(n, v.unit) for each in launches for n, v in each.items()}):
        values = (each.get(name) for each in launches)
        numbers = (value.number if value and value.unit == unit else None for value in values)
        columns.append(store.MetricColumn(name, unit, tuple(numbers)))
    return columns
