"""The best parameters of a kernel for a GPU and size."""

COMMANDS = {"tune": "Find a kernel's best parameters for this GPU and size."}
GROUP = "Ladders"
