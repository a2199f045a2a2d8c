"""The section files in sections/, made from the registry: set `ladder`, which is what rules and
report read, in few passes. `python docs/section_files.py` rewrites them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ncu_toolkit.base.metrics import registry

_TITLES: Final[dict[str, tuple[str, str, str]]] = {
    "time": ("NcuToolkitTime", "ncu-toolkit: Time and Launch", "Duration, clocks, balance of the SMs, launch shape and what limits occupancy."),
    "issue": ("NcuToolkitIssue", "ncu-toolkit: Issue and Stalls", "How often the schedulers issued, and what warps waited for: the full stall stack in cycles per instruction."),
    "pipes": ("NcuToolkitPipes", "ncu-toolkit: Pipes", "How busy each arithmetic and memory-issue pipe was."),
    "memory": ("NcuToolkitMemory", "ncu-toolkit: Memory", "Traffic and hit rates of DRAM, L2 and L1; sectors per request; shared-memory wavefronts and conflicts."),
    "source": ("NcuToolkitSource", "ncu-toolkit: Source", "Per instruction: executions, warp samples by stall reason, sectors and wavefronts against their ideal."),
}  # fmt: skip

#: Lists that belong to the source section; they carry one value per instruction.
_SOURCE: Final = (
    "inst_executed", "thread_inst_executed", "thread_inst_executed_true", "smsp__pcsamp_sample_count",
    "group:smsp__pcsamp_warp_stall_reasons", "group:smsp__pcsamp_warp_stall_reasons_not_issued",
    "memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal", "memory_l2_theoretical_sectors_local",
    "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal", "memory_l1_tag_requests_global",
    registry.OPCODE_METRIC, registry.OPCODE_THREADS_METRIC,
)  # fmt: skip


def _arch(cc: tuple[int, int]) -> str:
    return f"CC_{cc[0]}{cc[1]}"


def _entry(
    label: str, name: str, since: tuple[int, int] = (7, 0), until: tuple[int, int] = (99, 0)
) -> str:
    limits = ""
    if since > (7, 0):
        limits += f"\n      MinArch: {_arch(since)}"
    if until < (99, 0):
        limits += f"\n      MaxArch: {_arch(until)}"
    filter_text = f"\n    Filter {{{limits}\n    }}" if limits else ""
    return f'  Metrics {{\n    Label: "{label}"\n    Name: "{name}"{filter_text}\n  }}\n'


def collected_as(
    metric: registry.Metric,
) -> tuple[tuple[str, tuple[int, int], tuple[int, int]], ...]:
    """The names to collect a metric by, each with the first and the last GPU that has it."""
    if metric.renamed is None:
        return ((metric.ncu[0], metric.since, metric.until),)
    last, first = metric.renamed
    return (metric.ncu[0], metric.since, last), (metric.ncu[1], first, metric.until)


def section_text(group: str) -> str:
    """The section file's text for one group of the registry, or for `source`."""
    identifier, title, description = _TITLES[group]
    order = 1000 + list(_TITLES).index(group)
    head = f'Identifier: "{identifier}"\nDisplayName: "{title}"\nDescription: "{description}"\nOrder: {order}\nSets {{\n  Identifier: "{registry.SET_NAME}"\n}}\n'
    if group == "source":
        entries = "".join(
            f'  Metrics {{\n    Label: "{name.removeprefix("group:")}"\n    Name: "{name}"\n  }}\n'
            for name in _SOURCE
        )
        return f"{head}SourceMetrics {{\n{entries}}}\n"
    entries = "".join(
        _entry(metric.label, *collected)
        for metric in registry.GROUPS[group]
        if metric.name not in registry.READ_ONLY
        for collected in collected_as(metric)
    )
    return f"{head}Header {{\n{entries}}}\n"


def file_name(group: str) -> str:
    return f"{_TITLES[group][0]}.section"


def write(folder: Path) -> list[Path]:
    """Write every section file into `folder`; returns their paths."""
    paths = []
    for group in _TITLES:
        path = folder / file_name(group)
        path.write_text(section_text(group), encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    write(Path(__file__).resolve().parents[1] / "sections")
