"""The values that flow between stages: report file -> Profile -> Diagnosis -> view. Frozen, plain
data."""

from ncu_toolkit.model.finding import (
    Comparison,
    Diagnosis,
    Evidence,
    Finding,
    Headroom,
    Location,
    NoFinding,
)
from ncu_toolkit.model.profile import (
    SCHEMA_VERSION,
    Context,
    Device,
    Frame,
    Instruction,
    InstructionMix,
    Launch,
    MachineCode,
    Origin,
    Presence,
    Profile,
    Reading,
    RuleMessage,
    Series,
    StallStack,
    finite,
    matches_opcode,
)
from ncu_toolkit.model.timing import Timing

__all__ = [
    "SCHEMA_VERSION", "Comparison", "Context", "Device", "Diagnosis", "Evidence", "Finding",
    "Frame", "Headroom", "Instruction", "InstructionMix", "Launch", "Location", "MachineCode",
    "NoFinding", "Origin", "Presence", "Profile", "Reading", "RuleMessage", "Series",
    "StallStack", "Timing", "finite", "matches_opcode",
]  # fmt: skip
