"""The search for a kernel's best parameters."""
