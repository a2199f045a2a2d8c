"""What the products do without: a folder a guest, which can be deleted."""
