"""Reports in a browser, here or on another machine."""

COMMANDS = {"view": "Show reports in a browser, here or on another machine."}
GROUP = "Diagnose"
