"""Traces of programs: reading them, and finding the step, its account and the launches that matter."""
