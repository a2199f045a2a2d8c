"""What limits a program's kernels without access to performance counters."""

COMMANDS = {"probe": "Find what limits a program's kernels without access to performance counters."}
GROUP = "Profile"
