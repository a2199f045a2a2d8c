"""`ncu-toolkit static`: what a kernel's code and resources say, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ncu_toolkit.analysis.analyze import SUFFIXES
from ncu_toolkit.build.nvcc import parse_arch
from ncu_toolkit.cli._common import console, parse_params
from ncu_toolkit.core import units
from ncu_toolkit.core.errors import EnvironmentProblem, UsageProblem
from ncu_toolkit.diagnosis.static import (
    KernelAnalysis,
    StaticAnalysis,
    analyse_cubin,
    analyse_rung,
    analyse_source,
)
from ncu_toolkit.sass.cost import Region

_UNITS = {
    "issue": "issue slots", "fma": "FP32 pipe", "half": "FP16 pipe", "alu": "integer pipe", "fp64": "FP64 pipe", "special": "special functions",
    "tensor": "tensor pipe", "shared": "shared memory",
}  # fmt: skip
DEFAULT_ARCH = "sm_90"


@click.command("static")
@click.argument("what", metavar="KERNEL|FILE.cu|FILE.cubin")
@click.option(
    "--arch",
    "-a",
    metavar="sm_NN",
    help=f"Architecture to compile for.  [default: this GPU's, else {DEFAULT_ARCH}]",
)
@click.option(
    "--size",
    "-s",
    metavar="SIZE",
    help="Problem size of a ladder's kernel, for its launch.  [default: the family's largest usual one]",
)
@click.option(
    "--dtype",
    metavar="TYPE",
    help="Element type of a ladder's kernel, where the family has several.",
)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Tile parameter of a ladder's kernel, or macro of a .cu file; repeat it.",
)
@click.option(
    "--block",
    type=click.IntRange(1, 1024),
    metavar="THREADS",
    help="Threads a block, for a .cu or .cubin file.",
)
@click.option(
    "--shared",
    type=click.IntRange(0),
    default=0,
    metavar="BYTES",
    help="Dynamic shared memory a block, for a .cu or .cubin file.",
)
@click.option(
    "--sm-count",
    type=click.IntRange(1),
    metavar="N",
    help="Multiprocessors of the GPU, for waves.  [default: this GPU's, else not computed]",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def command(
    what: str, arch: str | None, size: str | None, dtype: str | None, params: tuple[str, ...], block: int | None, shared: int,
    sm_count: int | None, form: str,
) -> None:  # fmt: skip
    """Analyse a kernel's compiled code: resources, occupancy, hot loops and the bottlenecks that
    need no counters.

    Needs nvcc and nvdisasm, but no GPU. What the code cannot say is listed at the end.
    """
    values = parse_params(params, (what,))
    path = Path(what)
    if path.suffix in (".cu", ".cubin"):
        if size or dtype:
            raise UsageProblem(
                "--size and --dtype go with a ladder's kernel, not with a file",
                "Give --block and --shared for a file",
            )
        if path.suffix == ".cubin":
            found = analyse_cubin(path, block=block, shared=shared)
        else:
            found = analyse_source(
                path,
                arch or _here()[0],
                macros={name: str(value) for name, value in values.items()},
                block=block,
                shared=shared,
            )
    elif path.suffix:
        report = path.name.lower().endswith(SUFFIXES)
        raise UsageProblem(
            f"'{what}' is {'a report' if report else 'no .cu or .cubin file'}, and no kernel of a ladder has this name",
            "`ncu-toolkit analyze` reads reports"
            if report
            else "`ncu-toolkit list` shows the kernels",
        )
    else:
        from ncu_toolkit.ladder.catalogue import find_rung

        if block is not None or shared:
            raise UsageProblem(
                "--block and --shared go with a file; a ladder's kernel has its launch in its header",
                "Use --param and --size",
            )
        chosen, count = _here()
        rung = find_rung(what)
        if arch is None and rung.unsupported_on(parse_arch(chosen)):
            chosen = f"sm_{rung.minimum_cc[0]}{rung.minimum_cc[1]}"
        known = sm_count or (count if arch is None else None)
        found = analyse_rung(
            rung, arch or chosen, size=size, dtype=dtype, parameters=values, sm_count=known
        )
    if form == "json":
        click.echo(json.dumps(found.as_document(), indent=1, ensure_ascii=False, allow_nan=False))
        return
    show(found)


def _here() -> tuple[str, int | None]:
    """This machine's architecture and SM count, or the default where it has no GPU."""
    from ncu_toolkit.gpu import cuda

    try:
        device = cuda.device()
    except EnvironmentProblem:
        return DEFAULT_ARCH, None
    return device.arch, device.sm_count


def show(found: StaticAnalysis) -> None:
    """Print an analysis."""
    screen = console()
    head = f"{found.subject}" + (f" for {found.target}" if found.target else "")
    if found.size:
        head += f", size {found.size}" + (f", {found.dtype}" if found.dtype else "")
    screen.print(head, style="bold", markup=False)
    if found.parameters:
        screen.print(
            ", ".join(f"{name} = {value}" for name, value in found.parameters.items()),
            style="dim",
            markup=False,
        )
    if found.nothing:
        screen.print(f"{found.nothing[:1].upper()}{found.nothing[1:]}.", markup=False)
    for kernel in found.kernels:
        _kernel(screen, kernel)


def _kernel(screen: Any, kernel: KernelAnalysis) -> None:
    screen.print()
    screen.print(kernel.name, style="bold", markup=False)
    spills = (
        "spills not recorded in a cubin"
        if kernel.spill_stores is None
        else f"{units.count(kernel.spill_stores + (kernel.spill_loads or 0))} bytes spilled"
    )
    shared = f"{units.count(kernel.shared_static)} + {units.count(kernel.shared_dynamic)} bytes of shared memory a block (static + dynamic)"
    size = (
        f"stack {units.count(kernel.stack)} bytes, {units.count(kernel.instructions)} instructions"
    )
    screen.print(f"{kernel.registers} registers a thread, {spills}, {shared}, {size}", markup=False)
    at = kernel.live_at
    where = f"{at.file}:{at.line}" if at.line else f"{at.address:#x}"
    opcode = next(word for word in at.sass.split() if not word.startswith("@"))
    screen.print(
        f"Registers peak at {where} ({opcode}): {kernel.live_registers} live of {kernel.registers}",
        markup=False,
    )
    _occupancy(screen, kernel)
    if kernel.regions:
        screen.print(_regions(kernel))
        for region in kernel.regions[:1]:
            _mix(screen, region)
    if kernel.bytes_in_flight:
        screen.print(
            f"Bytes of global loads an SM can have in flight there: {units.count(kernel.bytes_in_flight)}",
            markup=False,
        )
    if not kernel.findings:
        screen.print("Nothing in the code points to a bottleneck.", markup=False)
    for finding in kernel.findings:
        screen.print()
        screen.print(f"{finding.bottleneck} ({finding.certainty})", style="bold", markup=False)
        screen.print(f"  {finding.summary}", markup=False)
        for fact in finding.evidence:
            limit = (
                f", {fact.comparison} {units.quantity(fact.threshold, fact.unit)}"
                if fact.threshold is not None
                else ""
            )
            screen.print(
                f"    {fact.label}: {units.quantity(fact.value, fact.unit)}{limit}. {fact.meaning}",
                style="dim",
                markup=False,
            )
        for place in finding.locations:
            screen.print(
                f"    {place.file or 'code'}:{place.line}  {place.sass}  ({units.percent(place.share)} of the {place.what})",
                style="dim",
                markup=False,
            )
        screen.print(f"  Change: {finding.advice}", markup=False)
        screen.print(f"  A profile would show: {finding.look_for}", markup=False)
    screen.print()
    screen.print("Only a profile can tell", style="bold")
    for unknown in kernel.unknown:
        names = f" ({', '.join(unknown.bottlenecks)})" if unknown.bottlenecks else ""
        screen.print(f"  {unknown.why}{names}", markup=False)


def _occupancy(screen: Any, kernel: KernelAnalysis) -> None:
    fill = kernel.occupancy
    if fill is None:
        parts = [
            f"{found.block_threads}: {units.percent(found.fraction)}" for found in kernel.blocks
        ]
        screen.print(
            f"Theoretical occupancy by threads a block: {', '.join(parts)} (--block says which)",
            markup=False,
        )
        return
    limit = f", limited by {' and '.join(fill.limiters)}" if fill.limiters else ""
    resident = f"{fill.active_blocks} blocks of {fill.block_threads} threads, {fill.active_warps} of {fill.max_warps} warps"
    screen.print(
        f"Theoretical occupancy {units.percent(fill.fraction)}: {resident}{limit}", markup=False
    )
    if kernel.waves is not None:
        screen.print(
            f"{units.count(kernel.grid_blocks or 0)} blocks, {units.significant(kernel.waves)} waves",
            markup=False,
        )
    words = {
        "registers": "registers a thread",
        "shared memory": "bytes of shared memory a block",
        "block": "threads a block",
    }
    for step in kernel.what_if:
        change = f"{units.count(step.now)} -> {units.count(step.then)} {words[step.resource]}"
        screen.print(
            f"  what if {change}: {step.active_warps} warps, {units.percent(step.fraction)}",
            markup=False,
        )


def _regions(kernel: KernelAnalysis) -> Any:
    from rich import box
    from rich.table import Table

    title = (
        "Loops with most work, for one thread and one pass, code of inner loops left out"
        if kernel.loops
        else "The whole kernel (no loops)"
    )
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1),
    )
    columns = (
        "lines",
        "depth",
        "instr.",
        "FLOP",
        "global B",
        "shared B",
        "FLOP/g.B",
        "FLOP/s.B",
        "in flight",
        "limit (cycles)",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "lines" else "right", no_wrap=True)
    for region in kernel.regions:
        numbers = sorted({line for _, line, n in region.lines if n * 10 >= region.instructions})
        in_bulk = f"+{region.bulk_copies} bulk" if region.bulk_copies else ""
        table.add_row(
            ",".join(map(str, numbers[:3])), str(region.depth), str(region.instructions), units.significant(region.flops),
            f"{region.global_load_bytes + region.global_store_bytes}{in_bulk}", str(region.shared_load_bytes + region.shared_store_bytes),
            _ratio(region.flops_per_global_byte), _ratio(region.flops_per_shared_byte),
            f"{region.loads_in_flight} x {region.bytes_in_flight // max(1, region.loads_in_flight)} B" if region.loads_in_flight else "",
            f"{region.limit} {units.significant(region.cycles[region.limit])}",
        )  # fmt: skip
    return table


def _ratio(value: float | None) -> str:
    return "" if value is None else units.significant(value)


def _mix(screen: Any, region: Region) -> None:
    kinds = ", ".join(
        f"{kind} {units.percent(n / region.instructions, 2)}"
        for kind, n in list(region.kinds.items())[:6]
    )
    screen.print(f"Mix of the first: {kinds}", markup=False)
    if region.widths:
        widths = "; ".join(
            f"{base} " + ", ".join(f"{n} x {size} B" for size, n in sizes.items())
            for base, sizes in region.widths.items()
        )
        screen.print(f"Widths: {widths}", markup=False)
    cycles = ", ".join(
        f"{_UNITS[unit]} {units.significant(value)}"
        for unit, value in sorted(region.cycles.items(), key=lambda item: -item[1])
    )
    screen.print(
        f"Cycles an SM needs for one warp's pass, at least: {cycles}; dependencies {region.dependency_cycles} cycles for the warp itself",
        markup=False,
    )
