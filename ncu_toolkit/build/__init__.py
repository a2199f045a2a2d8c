"""Kernel files to cubins."""
