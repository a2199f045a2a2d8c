"""The metrics read from reports."""
