"""Where what was worked out once is kept: cubins, disassembly, tuned parameters, searches.

Imported by the rule that runs inside Nsight Compute, whose Python lacks many of the standard library's compiled modules (tests/test_ncu_rule.py).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

CACHE_VARIABLE = "NCU_TOOLKIT_CACHE"


def cache_folder() -> Path:
    """$NCU_TOOLKIT_CACHE, else $XDG_CACHE_HOME/ncu-toolkit, else ~/.cache/ncu-toolkit."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ncu-toolkit"


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that other processes see the old content or the new, never a part; folders are made. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".making-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # mkstemp makes it private; a staged source is for others to read too
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
