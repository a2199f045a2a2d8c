"""The static signature of compiled code, and whether it keeps what a rung's [expect.sass]
promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ncu_toolkit.base.model.profile import matches_opcode
from ncu_toolkit.kernel.build.nvcc import BuiltCubin
from ncu_toolkit.kernel.ladder.rung import SassExpectation
from ncu_toolkit.kernel.sass.opcodes import Function


class Code(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a signature asks of one function. `registers` are of a thread, None for a function that
    is no kernel; spills are in bytes; `released` and `claimed` hold the registers that each
    USETMAXREG asks for."""

    opcodes: dict[str, int]
    registers: int | None = None
    spill_stores: int = 0
    spill_loads: int = 0
    released: tuple[int, ...] = ()
    claimed: tuple[int, ...] = ()


def signature(cubin: BuiltCubin, functions: Sequence[Function]) -> dict[str, Code]:
    """The code of each function of a compiled rung, by name."""
    found = {}
    for function in functions:
        used = cubin.entries.get(function.name)
        counts = Counter(row.opcode for row in function.instructions)
        found[function.name] = Code(
            dict(sorted(counts.items())),
            used.registers if used else None,
            used.spill_stores if used else 0,
            used.spill_loads if used else 0,
            _amounts(function, "DEALLOC"),
            _amounts(function, "TRY_ALLOC"),
        )
    return found


def check_signature(expected: SassExpectation, code: Mapping[str, Code]) -> list[str]:
    """Where a rung's code differs from its static signature, a sentence each with what was found;
    empty where nothing differs. A pattern is present where any function has it, absent where none
    has."""
    counts: Counter[str] = Counter()
    for function in code.values():
        counts.update(function.opcodes)
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
    for name, function in code.items():
        used, most = function.registers or 0, expected.max_registers
        if most is not None and used > most:
            problems.append(f"{name} uses {used} registers, at most {most} are promised")
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


def check_register_pool(code: Mapping[str, Code], threads: Mapping[str, int]) -> list[str]:
    """Kernels that claim more registers by setmaxnreg than their block was launched with: the
    last claim would wait for ever. One warpgroup is taken to release at each USETMAXREG.DEALLOC,
    and all others to claim.

    Args:
        threads: threads of a block, by kernel.
    """
    found = []
    for name, function in code.items():
        if not function.claimed or name not in threads:
            continue
        groups = threads[name] // 128
        wanted = sum(function.released) + (groups - len(function.released)) * max(function.claimed)
        registers = function.registers or 0
        if wanted > groups * registers:
            found.append(
                f"{name} claims {wanted} registers for {groups} warpgroups, which have {groups} x {registers}: it would hang"
            )
    return found


def _amounts(function: Function, kind: str) -> tuple[int, ...]:
    """The registers that each USETMAXREG of a kind asks for."""
    return tuple(
        int(row.sass.split()[-1].rstrip(";"), 16)
        for row in function.instructions
        if row.opcode.startswith(f"USETMAXREG.{kind}")
    )
