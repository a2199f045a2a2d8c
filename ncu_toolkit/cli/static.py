"""`ncu-toolkit static`: what a kernel's code and resources say, without a GPU."""

from pathlib import Path
from typing import Final

import click

from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.base.core.files import REPORT_SUFFIXES
from ncu_toolkit.cli import _complete
from ncu_toolkit.cli._common import DEFAULT_ARCH, here
from ncu_toolkit.cli._options import COUNT, Output, argument, formats, option, options, parse_params
from ncu_toolkit.kernel.build.nvcc import parse_arch
from ncu_toolkit.kernel.diagnosis.static import analyse_cubin, analyse_rung, analyse_source
from ncu_toolkit.kernel.explain.code import of_code
from ncu_toolkit.kernel.ladder.catalogue import find_rung, load_rung, rung_files

FORMATS: Final = ("text", "markdown", "json", "html")
PAGE: Final = "ncu-static.html"


@click.command("static")
@options(
    what=argument(metavar="KERNEL|FILE.cu|FILE.cubin", shell_complete=_complete.kernel_or_file),
    arch=option(f"Architecture to compile for.  [default: this GPU's, else {DEFAULT_ARCH}]", "--arch", "-a", metavar="sm_NN"),
    size="Problem size of a ladder's kernel, for its launch.  [default: the family's largest usual one]",
    dtype="Element type of a ladder's kernel, where the family has several.",
    params="Tile parameter of a ladder's kernel, or macro of a .cu file; can be repeated.",
    block=option("Threads per block, for a .cu or .cubin file.", type=click.IntRange(1, 1024), metavar="THREADS"),
    shared=option("Dynamic shared memory per block, for a .cu or .cubin file.", type=click.IntRange(0), default=0, metavar="BYTES"),
    sm_count=option("Number of SMs of the GPU, for the number of waves.  [default: this GPU's, else not computed]", type=COUNT, metavar="N"),
    form=formats(FORMATS, "html writes a page with the diagnosis, the loops and the code."),
    output=f"File to write; for html the page (default {PAGE}).",
)  # fmt: skip
def command(
    what: str, arch: str | None, size: str | None, dtype: str | None, params: tuple[str, ...], block: int | None, shared: int,
    sm_count: int | None, out: Output,
) -> None:  # fmt: skip
    """Analyse a kernel's compiled code: resources, occupancy, hot loops and the bottlenecks that
    can be found without counters.

    Needs nvcc and nvdisasm, but no GPU. A line below the diagnosis names what only a profile can show.
    """
    values = parse_params(params, (what,))
    path = Path(what)
    if not values and path.suffix == ".cu" and path.resolve() in rung_files():
        path = Path(what := load_rung(path.resolve()).name)  # its ladder defines its macros
    sources = {}
    if path.suffix in (".cu", ".cubin"):
        if size or dtype:
            raise UsageProblem(
                "--size and --dtype apply to a ladder's kernel, not to a file",
                "Give --block and --shared for a file",
            )
        if path.suffix == ".cubin":
            found = analyse_cubin(path, block=block, shared=shared)
        else:
            macros = {name: str(value) for name, value in values.items()}
            arch = arch or here()[0]
            found = analyse_source(path, arch, macros=macros, block=block, shared=shared)
            sources[path.name] = path.read_text(encoding="utf-8", errors="replace")
    elif path.suffix:
        kind, remedy = "not a .cu or .cubin file", "`ncu-toolkit list` shows the kernels"
        if path.name.lower().endswith(REPORT_SUFFIXES):
            kind, remedy = "a report", "`ncu-toolkit analyze` reads reports"
        raise UsageProblem(f"'{what}' is {kind}, and no kernel of a ladder has this name", remedy)
    else:
        if block is not None or shared:
            raise UsageProblem(
                "--block and --shared apply to a file. The file of a ladder's kernel declares its launch",
                "Use --param and --size",
            )
        chosen, count = here()
        rung = find_rung(what)
        if arch is None and rung.unsupported_on(parse_arch(chosen)):
            chosen = f"sm_{rung.minimum_cc[0]}{rung.minimum_cc[1]}"
        known = sm_count or (count if arch is None else None)
        found = analyse_rung(
            rung, arch or chosen, size=size, dtype=dtype, parameters=values, sm_count=known
        )
        sources[rung.path.name] = rung.path.read_text(encoding="utf-8")
    if out.form == "json":
        out.plain(found.as_document())
    else:
        out.answer(of_code(found, sources), f"Compiled code of {found.subject}, not run", PAGE)
