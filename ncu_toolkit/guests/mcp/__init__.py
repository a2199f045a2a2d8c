"""Reports for a model, by the Model Context Protocol."""

COMMANDS = {"mcp": "Serve reports to a model (Model Context Protocol)."}
