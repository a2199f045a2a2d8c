"""A kernel profiled again after each save."""

COMMANDS = {"watch": "Profile a kernel again after each save, and show what changed."}
GROUP = "Profile"
