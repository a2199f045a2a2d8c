"""Run a program with other constants: `python short.py PROGRAM NAME=VALUE...`, as `BLOCKS=2`, so that
it takes fewer steps. Each constant stands on its own line at the top of the program."""

import re
import sys


def changed(text: str, changes: list[str]) -> str:
    """A program's text with other constants. Raises ValueError for one that it does not have."""
    for change in changes:
        name, _, value = change.partition("=")
        text, count = re.subn(rf"(?m)^{name} = .+$", f"{name} = {int(value)}", text)
        if count != 1:
            raise ValueError(f"the program has no constant {name}")
    return text


if __name__ == "__main__":
    path, *asked = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        source = changed(file.read(), asked)
    sys.argv = [path]
    exec(compile(source, path, "exec"), {"__name__": "__main__", "__file__": path})
