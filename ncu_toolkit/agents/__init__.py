"""What a model gets of reports: answers as JSON within a budget, over MCP."""
