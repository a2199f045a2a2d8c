"""Whether compiled code keeps what a rung's [expect.sass] promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ncu_toolkit.ladder.rung import SassExpectation
from ncu_toolkit.model.profile import matches_opcode
from ncu_toolkit.sass.disassembly import Function


def check_signature(
    expected: SassExpectation, functions: Sequence[Function], registers: Mapping[str, int]
) -> list[str]:
    """Where a rung's code differs from its static signature, a sentence each with what was found;
    empty where nothing differs.

    Args:
        expected: the header's [expect.sass].
        functions: the rung's disassembly; a pattern is present where any function has it, absent
            where none has.
        registers: registers per thread by kernel, from ptxas.
    """
    counts: Counter[str] = Counter()
    for function in functions:
        counts.update(i.opcode for i in function.instructions)
    problems = []
    for pattern in expected.present:
        if not any(matches_opcode(opcode, pattern) for opcode in counts):
            problems.append(
                f"{pattern} is promised, but the code has none; nearest are {_relatives(pattern, counts)}"
            )
    for pattern in expected.absent:
        found = {opcode: n for opcode, n in counts.items() if matches_opcode(opcode, pattern)}
        if found:
            problems.append(f"{pattern} must be absent, but the code has {_listed(found)}")
    if expected.max_registers is not None:
        for kernel, used in registers.items():
            if used > expected.max_registers:
                problems.append(
                    f"{kernel} uses {used} registers, at most {expected.max_registers} are promised"
                )
    return problems


def _relatives(pattern: str, counts: Mapping[str, int]) -> str:
    bases = tuple(alternative.strip().partition(".")[0] for alternative in pattern.split("|"))
    return (
        _listed({opcode: n for opcode, n in counts.items() if opcode.startswith(bases)}) or "none"
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{n} x {opcode}" for opcode, n in sorted(counts.items(), key=lambda item: -item[1])
    )


def check_register_pool(
    functions: Sequence[Function], registers: Mapping[str, int], threads: Mapping[str, int]
) -> list[str]:
    """Kernels that claim more registers by setmaxnreg than their block was launched with: the
    last claim would wait for ever. One warpgroup is taken to release at each USETMAXREG.DEALLOC,
    and all others to claim.

    Args:
        functions: the disassembly. registers, threads: of a thread and of a block, by kernel.
    """
    found = []
    for function in functions:
        released, claimed = _amounts(function, "DEALLOC"), _amounts(function, "TRY_ALLOC")
        if not claimed or function.name not in threads:
            continue
        groups = threads[function.name] // 128
        wanted = sum(released) + (groups - len(released)) * max(claimed)
        if wanted > groups * registers[function.name]:
            found.append(
                f"{function.name} claims {wanted} registers for {groups} warpgroups, which have {groups} x {registers[function.name]}: it would hang"
            )
    return found


def _amounts(function: Function, kind: str) -> list[int]:
    """The registers that each USETMAXREG of a kind asks for."""
    return [
        int(row.sass.split()[-1].rstrip(";"), 16)
        for row in function.instructions
        if row.opcode.startswith(f"USETMAXREG.{kind}")
    ]
