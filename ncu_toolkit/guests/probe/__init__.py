"""What limits a program's kernels where counters are locked."""

COMMANDS = {"probe": "Find what limits a program's kernels where counters are locked."}
GROUP = "Profile"
