"""Many reports at once, gates, tables, the Python interface."""
