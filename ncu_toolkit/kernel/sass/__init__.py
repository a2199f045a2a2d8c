"""Machine code: instructions, registers, control flow, loops and what they cost."""
