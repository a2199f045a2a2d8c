"""Registers spill, or an array is indexed at run time, so "local" variables live in slow memory.

What it is
Local memory is private to a thread but lies in device memory, behind L1 and L2. The compiler puts variables there when
a thread needs more registers than it may have (spills), or when an array is indexed by a value not known at compile
time.

Why it costs time
Each access is a load or store like a global one: a slot of the load/store queue, L1 space, and for many threads L2 and
DRAM traffic. A spilled value in the inner loop is loaded again in every iteration.

How to confirm
Local sectors above zero, LDL and STL in the SASS with executions in the hot loop; ptxas reports spill bytes or a stack
frame.

What to change
Spills: give the thread more registers (a larger maxrregcount, smaller second argument to __launch_bounds__), shrink its
tile, shorten live ranges. Indexed arrays: unroll the loops fully so that indices are constants, or use shared memory.

When the advice is wrong
A few spills outside the hot loop that stay in L1 can be cheaper than the occupancy that more registers cost: look at
the predicted saving.

Source
CUDA C++ Programming Guide, "Local Memory"; CUDA C++ Best Practices Guide, "Register Pressure".
"""

from collections.abc import Mapping
from typing import Final, Literal

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.figures import SECTOR_BYTES
from ncu_toolkit.kernel.diagnosis.kernel import MOST_REGISTERS, Kernel, Outcome, Removal, percent
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, StaticFinding, evidence
from ncu_toolkit.kernel.sass import attribution
from ncu_toolkit.kernel.sass.opcodes import LOCAL, addresses, parts

TITLE: Final = "Local-memory traffic"
LIMIT: Final = "memory"
REQUIRES: Final = ("local_sectors",)
OPTIONAL: Final = ("stalls", "opcodes", "global_load_sectors")
COSTS: Final = (("local",), ("long_scoreboard", "lg_throttle", "mio_throttle"))
NCU: Final = (
    ("MemoryCacheAccessPattern", "local"), ("CPIStall", "lg throttle"), ("LocalMemory", ""),
)  # fmt: skip
CODE_RANK: Final = 1
#: Register 1 is the stack pointer.
STACK: Final = frozenset({1})


#: What lies in local memory, as far as the machine code tells.
Where = Literal["spills", "calls", "array", "both"]
#: Where fewer of the local loads than this are at computed places, the others are spills too. Where
#: more are, they may read the array: unrolled loops read some elements at a fixed place (the DCT of
#: the held-out set three does).
BESIDE: Final = 0.1


_WHY: Final[Mapping[Where | None, str]] = {
    "spills": "Registers spill",
    "calls": "Registers spill, or are saved around calls",
    "array": "An array is indexed at run time",
    "both": "Registers spill, and an array is indexed at run time",
    None: "Registers spill, or an array is indexed at run time",
}
_ADVICE: Final[Mapping[str, tuple[str, ...]]] = {
    "cuda": ("If ptxas reports spills, allow more registers per thread (maxrregcount, __launch_bounds__ with fewer blocks), or use smaller tiles "
             "per thread.",
             "If an array is indexed at run time, unroll the loop fully so that indices are constants, or use shared memory."),
    "triton": ("Registers spill: use a smaller block, or more warps for it (num_warps). Where maxnreg is set, raise it.",
               "Fewer stages (num_stages) and narrower accumulators need fewer registers too."),
    "numba": ("If registers spill, raise max_registers where @cuda.jit sets it, or give each thread less work.",
              "If a cuda.local.array is indexed at run time, use constant indices, scalars or a shared array."),
    "warp": ("If registers spill, give each thread less work, or drop launch_bounds where @wp.kernel sets it.",
             "If a vector or matrix is indexed at run time, use constant indices (loops with constant bounds are unrolled)."),
}  # fmt: skip


def find(k: Kernel) -> Outcome:
    sectors = k["local_sectors"] or 0.0
    measured = k.fact("local_sectors")
    if sectors == 0:
        return k.ruled_out("The kernel does not touch local memory.", measured)
    others = (k["l1_global_bytes"] or 0.0) / SECTOR_BYTES
    part = sectors / (sectors + others)
    where, (addresses, constants) = _where(k), _unneeded(k)
    integer, moved, asked = k["kind_share:integer"], k["dram_bytes"], figures.asked_bytes(k.profile)
    # Device memory then moves at most what the lanes asked of global memory; without that its part
    # goes in proportion to the sectors.
    dram = min(1.0, asked / moved) if moved and asked else 1 - part
    address_work = 1 - min(1.0, addresses / integer) if integer else 1.0
    # Loads from it are waited for, and stores to it need at once what a register could take whenever it comes.
    late = k.blame("long_scoreboard", "local") + k.sampled_at("long_scoreboard", k.places("local"))
    removal = Removal(
        "without local memory",
        stalls=k.shrink(0.0, ("local",), "lg_throttle", "mio_throttle")
        | {"long_scoreboard": max(0.0, 1 - late), "drain": 1 - part},
        loads=dict.fromkeys(("l1_tag", "l1_data", "l1_writeback", "l1", "l2", "fill"), 1 - part)
        | {"lsu": 1 - k.pipe_part("local", part), "dram": dram}
        | dict.fromkeys(("alu", "fmaheavy"), address_work)
        | {"constant": 1 - constants},
        instructions=1 - ((k["kind_share:local"] or 0.0) + addresses),
    )
    return k.finding(
        f"{_WHY[where]}: {percent(part)} of its local and global sectors are local-memory traffic.",
        removal,
        (
            measured,
            "kind_share:local",
            k.stated("local_part", part),
            k.stated("local_addresses", addresses) if addresses else None,
            "stall_share:lg_throttle stall_share:long_scoreboard registers_per_thread",
        ),
        _advice(k, where),
        "No LDL and STL in the SASS, and no local sectors.",
        locations=k.locate_executed("local", "local-memory instructions"),
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    used = [i for i in facts.function.instructions if i.base in LOCAL]
    spilled = facts.resources.spill_stores + facts.resources.spill_loads
    if not used and not spilled:
        return None
    inside = [i for region in facts.regions if region.depth for i in region.code if i.base in LOCAL]
    stack, where = (
        facts.resources.stack,
        "but no loop touches it" if facts.looped else "once per thread",
    )
    if inside:
        where = f"{len(inside)} of its loads and stores are inside loops"
    why = "registers are spilled, or an array is indexed at run time"
    if spilled:
        why = f"ptxas ran out of registers and spills {units.count(spilled)} bytes"
    elif stack:
        why = f"an array of {units.count(stack)} bytes on the stack is indexed at run time, or a call saves registers there"
    return facts.finding(
        "certain" if inside and spilled else "likely" if inside or not facts.looped else "possible",
        f"Local memory is used: {why}; {where}.",
        (
            evidence("spilled_bytes", "Spilled bytes", spilled, "B", "Bytes that ptxas stores and loads because registers ran out.", (0, ">")),
            evidence("local_instructions", "LDL and STL in the code", len(used), "count", "Loads and stores of local memory."),
            evidence("local_in_loops", "of these in loops", len(inside), "count", "Executed again in every iteration.", (0, ">")),
            evidence("stack", "Stack frame", stack, "B", "Bytes of local memory a thread has."),
        ),
        "If ptxas spills, allow more registers (__launch_bounds__), or give each thread less work. If an array is "
        "indexed, unroll fully, so that every index is a constant.",
        "Local sectors above 0, and LG throttle and long scoreboard stalls at LDL and STL.",
        inside or used, "local-memory instructions",
    )  # fmt: skip


def _where(k: Kernel) -> Where | None:
    """What lies in local memory: the compiler reaches spilled and saved registers at fixed places of
    the stack, and an array that is indexed at run time at computed ones. None where the report does
    not hold the code, or holds no load of local memory."""
    rows = k.instructions
    if not rows:
        code = k.profile.code
        accesses = sum(code.opcodes.get(name, 0) for name in LOCAL)
        if not accesses or 0 < code.indexed < accesses / 2:
            return None
        return "array" if code.indexed else "spills"
    flow = attribution.flow_of(rows)
    fixed = computed = 0
    for i, row in enumerate(rows):
        if row.base == "LDL":
            address = addresses(row.opcode, parts(row.sass)[1])
            written = (flow.reads[j] for r in address - STACK for j in flow.sources(i, r))
            if all(read <= STACK for read in written):
                fixed += row.executed or 0
            else:
                computed += row.executed or 0
    loads = fixed + computed
    if not loads:
        return None
    if computed:
        return "array" if computed >= BESIDE * loads else "both"
    calls = any(row.base == "CALL" and row.executed for row in rows)
    return "calls" if calls else "spills"


def _advice(k: Kernel, where: Where | None) -> tuple[str, ...]:
    """Advice on what lies there. More registers are no advice where a thread has the most there is."""
    registers = k["registers_per_thread"] or 0.0
    first, second = k.advice(**_ADVICE)
    triton = k.language == "triton"
    if registers >= MOST_REGISTERS:
        smaller = "tile per thread, or more threads for the same tile"
        if triton:
            smaller = "block, or more warps for it (num_warps)"
        first = f"Each thread has {units.count(registers)} registers, the most there is. Use a smaller {smaller}."
    if where == "array" and not triton:
        return (second,)
    return (first,) if where in ("spills", "calls") and not triton else (first, second)


def _unneeded(k: Kernel) -> tuple[float, float]:
    """Part of the executed instructions that do nothing but compute addresses of local memory, or that loops
    over it need and unrolled code does not: an array indexed at run time has them, a spill not. And the part
    of the loads of constants among them."""
    executed = [row.executed or 0 for row in k.instructions]
    accesses, constants = k.places("local"), k.places("constant")
    if not accesses or not sum(executed):
        return 0.0, 0.0
    flow = attribution.flow_of(k.instructions)
    control, loaded = flow.gone_if_unrolled(accesses)
    only = flow.only_for_addresses_of({*accesses, *loaded}, control) | control | loaded
    part = sum(executed[i] for i in loaded) / (sum(executed[i] for i in constants) or 1)
    return sum(executed[i] for i in only.difference(accesses)) / sum(executed), part
