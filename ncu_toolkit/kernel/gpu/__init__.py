"""What needs a GPU: launching, timing, running ncu."""
