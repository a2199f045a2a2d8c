"""How reading and judging a report grows with its launches: `python tests/scale.py 500 2000` prints launches per second and peak memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_CHILD = """
import resource, sys, time
from ncu_toolkit import analyze
start = time.monotonic()
result = analyze.read_file(sys.argv[1], analyze.Options())
seconds = time.monotonic() - start
peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(len(result.launches), seconds, peak / 1024)
"""


def main(counts: list[int]) -> None:
    import report_files

    print("launches   file MiB   seconds   launches/s   peak MiB of a process")
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        files = {str(count): report_files.many_launches(count) for count in counts}
        files["recording"] = report_files.recorded.report_bytes()
        for name, data in files.items():
            path = Path(folder) / f"{name}.ncu-rep"
            path.write_bytes(data)
            answer = subprocess.run([sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, check=True, cwd=ROOT).stdout
            launches, seconds, peak = (float(word) for word in answer.split())
            print(f"{launches:8.0f} {len(data) / 2**20:10.1f} {seconds:9.2f} {launches / seconds:12.1f} {peak:23.0f}")


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    main([int(word) for word in sys.argv[1:]] or [500, 2000])
