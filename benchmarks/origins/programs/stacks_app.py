"""Launches per kernel of a library from nested Python functions."""

import ctypes
from pathlib import Path

LIBRARY = ctypes.CDLL(str(Path(__file__).resolve().parents[1] / "bin" / "stacks-library"))


def train_step():
    return LIBRARY.work()


def main():
    for _ in range(1):
        train_step()


main()
