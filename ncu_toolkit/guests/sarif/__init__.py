"""Findings on source lines, for code hosts."""
