"""Copy the public programs of public.toml out of fetched git directories.

python public.py MIRROR OUT [NAME ...]

MIRROR holds a git directory for each repository: owner+name/repo, owner/name or owner/name.git.
Writes OUT/<name>/before and after, each with its files and run.json, which run.py --public reads.
"""

import argparse
import json
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent


def git_directory(mirror, repository):
    """Where a repository's git directory lies under the mirror."""
    plus = repository.replace("/", "+")
    for place in (f"{plus}/repo", plus, repository, f"{repository}/.git", f"{repository}.git"):
        if (mirror / place / "objects").is_dir():
            return mirror / place
    raise FileNotFoundError(f"no git directory of {repository}: fetch it first")


def patched(text, patches, side, file):
    """A file's text as this side wants it."""
    for patch in patches:
        if patch["file"] != file or patch["side"] not in (side, "both"):
            continue
        count = text.count(patch["old"])
        if count != 1 and not (count and patch.get("all")):
            raise ValueError(f"{file}: {patch['old']!r} occurs {count} times")
        text = text.replace(patch["old"], patch["new"])
    return text


def copy(name, entry, mirror, out):
    """Write both sides of one program; healthy ones have only a before."""
    git = git_directory(mirror, entry["repository"])
    for side in ("before",) if entry.get("healthy") else ("before", "after"):
        folder = out / name / side
        for file in entry["files"]:
            text = subprocess.run(
                ["git", "-C", str(git), "show", f"{entry['commit']}:{file}"],
                capture_output=True,
                check=True,
            ).stdout.decode("utf-8")
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(patched(text, entry.get("patch", []), side, file), encoding="utf-8")
        for stub in entry.get("stubs", []):
            (folder / "stub").mkdir(exist_ok=True)
            (folder / "stub" / stub).write_text((HERE / "stub.h").read_text(encoding="utf-8"))
        run = {k: entry[k] for k in ("build", "time", "scale", "results", "passes") if k in entry}
        run["command"] = entry["command"] + entry.get("args", []) + entry.get(f"{side}_args", [])
        (folder / "run.json").write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mirror", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    entries = tomllib.loads((HERE / "public.toml").read_text(encoding="utf-8"))
    failed = 0
    for name in args.names or entries:
        try:
            copy(name, entries[name], args.mirror, args.out)
            print(name)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
