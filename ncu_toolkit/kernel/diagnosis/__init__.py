"""From a profile to a verdict."""
