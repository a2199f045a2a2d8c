"""The workflows, the action and the GitLab template: valid by the hosts' published schemas, and
their steps run.

Steps run with bash in a temporary folder, in order, with their expressions substituted, on a small
report in the recording's place. Nothing is installed, built or uploaded: `curl` and `python -m` of
pip, build and twine are stand-ins that write down their arguments. The `ncu-toolkit` that runs is
this checkout's, and actions of others are written down by name."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest
import recorded
import report_files
from click.testing import CliRunner

from ncu_toolkit import __version__
from ncu_toolkit.cli import cli

check_jsonschema = pytest.importorskip("check_jsonschema", reason="not installed (make setup)")
yaml = pytest.importorskip("ruamel.yaml")  # a dependency of check-jsonschema

ROOT = recorded.ROOT
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EXAMPLE = next(
    text
    for text in re.findall(
        r"```yaml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    if "runs-on" in text
)
#: A value in an expression: a string, or names with dots.
TOKEN = re.compile(r"'(?:[^']|'')*'|always\(\)|&&|\|\||==|!=|[A-Za-z_][\w.-]*|[()]|\s+|.")


def loaded(source: Path | str) -> Any:
    return yaml.YAML(typ="safe", pure=True).load(source)


def evaluated(expression: str, known: Mapping[str, Any]) -> Any:
    """A GitHub expression of comparisons, `&&`, `||` and `always()`. A name that is not in `known`
    is an error, but below `github.event`, where what an event lacks is empty."""

    def python(token: str) -> str:
        if token.startswith("'"):
            return repr(token[1:-1].replace("''", "'"))
        if not re.match(r"[A-Za-z_]", token) or token == "always()":
            return {"&&": " and ", "||": " or ", "always()": "True"}.get(token, token)
        value: Any = known
        for name in token.split("."):
            value = "" if value == "" and token.startswith("github.event.") else value[name]
        return repr(value)

    return eval("".join(map(python, TOKEN.findall(expression))), {"__builtins__": {}})


def substituted(text: Any, known: Mapping[str, Any]) -> str:
    def value(found: re.Match[str]) -> str:
        made = evaluated(found[1].strip(), known)
        return str(made).lower() if isinstance(made, bool) else str(made)

    return re.sub(r"\$\{\{(.*?)\}\}", value, str(text))


@dataclass
class Runner:
    """Runs steps as GitHub does. `used` holds the actions of others that were reached."""

    folder: Path
    github: dict[str, Any]
    used: list[str] = field(default_factory=list)
    code: int = 0

    def run(self, steps: list[dict[str, Any]], **contexts: Any) -> None:
        known: dict[str, Any] = {"github": self.github, "steps": {}, **contexts}
        for step in steps:
            unknown = set(step) - {"id", "name", "if", "uses", "with", "run", "shell", "env"}
            assert not unknown, unknown
            condition = str(step.get("if", ""))
            if self.code and "always()" not in condition:
                continue
            if condition and not evaluated(condition, known):
                continue
            values = {k: substituted(v, known) for k, v in step.get("with", {}).items()}
            environment = {k: substituted(v, known) for k, v in step.get("env", {}).items()}
            if "run" in step:
                outputs = self.bash(substituted(step["run"], known), environment)
                if "id" in step:
                    known["steps"][step["id"]] = {"outputs": outputs}
            elif str(step["uses"]).startswith("./"):
                self.action(self.folder / step["uses"], values)
            else:
                self.used.append(str(step["uses"]).partition("@")[0])
                for name in ("path", "sarif_file"):
                    assert (self.folder / values.get(name, "")).exists(), f"nothing at {values}"

    def action(self, folder: Path, values: Mapping[str, str]) -> None:
        action = loaded(folder / "action.yml")
        unknown = set(values) - set(action["inputs"])
        assert not unknown, unknown
        for name, about in action["inputs"].items():
            assert name in values or not about.get("required"), f"{name} is missing"
        inputs = {name: values.get(name, about.get("default")) for name, about in action["inputs"].items()}  # fmt: skip
        self.github["action_path"] = str(folder)
        self.run(action["runs"]["steps"], inputs=inputs)

    def bash(self, script: str, environment: Mapping[str, str]) -> dict[str, str]:
        """A step's outputs; GitHub takes the first failure as the job's."""
        message, page = self.folder / ".output", self.folder / ".page"
        message.write_text("")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder,
            env={
                **os.environ, **environment, "GITHUB_OUTPUT": str(message), "GITHUB_STEP_SUMMARY": str(page),
                "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(ROOT),
                "GITHUB_ACTION_PATH": self.github.get("action_path", ""), "GITHUB_REF_NAME": self.github["ref_name"],
            },
            check=False,
            timeout=120,
        )  # fmt: skip
        self.code = self.code or done.returncode
        lines = message.read_text().splitlines()
        return {"comment": "", "sarif": "", **dict(line.split("=", 1) for line in lines)}


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """In a folder whose name has a space, with five launches where the recording lies."""
    folder = tmp_path / "a job"
    shutil.copytree(ROOT / "ci", folder / "ci")
    recording = folder / "ncu_toolkit" / "data" / "recordings" / "h200-gemm-fp32"
    recording.mkdir(parents=True)
    (recording / "profile.ncu-rep").write_bytes(report_files.many_launches(5))
    (folder / "ncu_toolkit" / "__init__.py").write_text(f'__version__ = "{__version__}"\n')
    (folder / "dist").mkdir()
    python = shlex.quote(sys.executable)
    asked = shlex.quote(str(folder / "asked"))
    for name, script in {
        "python": f'case "$2" in pip|build|twine) echo "$*" >> {asked};; *) exec {python} "$@";; esac',
        "ncu-toolkit": f'exec {python} -P -m ncu_toolkit "$@"',  # the folder has one too
        "curl": f'echo "curl $*" >> {asked}',
    }.items():
        path = folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    github = {
        "event_name": "push",
        "event": "",
        "repository": "me/app",
        "ref_name": f"v{__version__}",
    }
    return Runner(folder, github)


PULL = {"pull_request": {"head": {"repo": {"full_name": "me/app"}}}}


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS), ("github-actions", [ROOT / "ci" / "action.yml"]),
        ("gitlab-ci", [ROOT / "ci" / "gitlab.yml"]),
    ],
)  # fmt: skip
def test_they_are_valid_by_the_published_schemas(
    schema: str, files: list[Path], tmp_path: Path
) -> None:
    if schema == "github-workflows":
        (tmp_path / "example.yml").write_text(EXAMPLE)
        files = [*files, tmp_path / "example.yml"]
    assert files
    words = ["--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = CliRunner().invoke(check_jsonschema.main, words)
    assert done.exit_code == 0, done.output


def test_the_example_workflow_and_the_action_run(runner: Runner) -> None:
    job = loaded(ROOT / ".github" / "workflows" / "compare.yml")["jobs"]["recordings"]
    runner.run(job["steps"])
    assert runner.code == 0
    assert (runner.folder / "asked").read_text() == "-m pip install --quiet .\n"
    assert (runner.folder / "ncu-comment.md").read_text().startswith("<!-- ncu-toolkit compare -->")
    assert json.loads((runner.folder / "ncu.sarif").read_text())["version"] == "2.1.0"
    others = ["actions/checkout", "actions/setup-python"]
    assert runner.used == others, "a push has nothing to comment on"


def test_the_action_fails_after_it_has_commented(runner: Runner) -> None:
    runner.github |= {"event_name": "pull_request", "event": PULL}
    here = "ncu_toolkit/data/recordings/h200-gemm-fp32"
    runner.action(
        runner.folder / "ci", {"old": here, "new": here, "fail-on": "registers_per_thread>1"}
    )
    assert runner.code == 1
    (install,) = (runner.folder / "asked").read_text().splitlines()
    installed = Path(install.removeprefix("-m pip install --quiet "))
    assert installed.samefile(runner.folder), "the package is on no index"
    assert runner.used == ["actions/github-script", "github/codeql-action/upload-sarif"]
    assert "limit exceeded" in (runner.folder / ".page").read_text()


def test_the_action_fails_where_there_is_nothing_to_compare(runner: Runner) -> None:
    runner.action(runner.folder / "ci", {"old": "main", "new": "ncu_toolkit", "package": ""})
    assert runner.code == 4
    assert not (runner.folder / "asked").exists()
    assert runner.used == []


@pytest.mark.parametrize(("gate", "code"), [("", 0), ("registers_per_thread>1", 1)])
def test_the_gitlab_job_runs(runner: Runner, gate: str, code: int) -> None:
    job = loaded(ROOT / "ci" / "gitlab.yml")[".ncu-toolkit-compare"]
    here = "ncu_toolkit/data/recordings/h200-gemm-fp32"
    variables = {
        **job["variables"], "PACKAGE": "git+https://HOST/PROJECT", "OLD": here, "NEW": here, "GATES": gate, "GITLAB_TOKEN": "secret",
        "CI_MERGE_REQUEST_IID": "7", "CI_API_V4_URL": "https://host/api/v4", "CI_PROJECT_ID": "3",
    }  # fmt: skip
    runner.bash("\n".join(job["script"]), variables)
    assert runner.code == code
    install, comment = (runner.folder / "asked").read_text().splitlines()
    assert install == "-m pip install --quiet git+https://HOST/PROJECT"
    assert "body@ncu-comment.md https://host/api/v4/projects/3/merge_requests/7/notes" in comment
    assert all((runner.folder / name).is_file() for name in job["artifacts"]["paths"])


def test_the_gitlab_job_asks_for_the_package(runner: Runner) -> None:
    """It is on no index, and a template does not know where it was included from."""
    job = loaded(ROOT / "ci" / "gitlab.yml")[".ncu-toolkit-compare"]
    runner.bash("\n".join(job["script"]), job["variables"])
    assert runner.code
    assert not (runner.folder / "asked").exists()


def test_documents_install_from_a_clone() -> None:
    folders = ("", "guide", "lab")
    paths = [path for name in folders for path in (ROOT / "docs" / name).glob("*.md")]
    paths = [*paths, ROOT / "README.md", *(ROOT / "ci").iterdir()]
    found = {
        path.name: re.findall(r"pip install [^\n]*?(?<![/\w-])ncu-toolkit\b.*", path.read_text())
        for path in paths
        if path.name != "commands.md"  # extras of what is installed already
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_release_wants_the_tag_of_the_version(runner: Runner) -> None:
    job = loaded(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["build"]
    runner.run(job["steps"])
    asked = ["-m pip install build twine", "-m build", "-m twine check --strict dist/*"]
    assert (runner.folder / "asked").read_text().splitlines() == asked
    assert (runner.code, runner.used[-1]) == (0, "actions/upload-artifact")
    runner.github["ref_name"] = "v0.0.0.other"
    runner.run(job["steps"])
    assert runner.code == 1


def steps_of(workflow: Any) -> list[str]:
    return [
        str(step["run"])
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_steps_are_bash_and_name_targets_and_scripts_that_exist(path: Path) -> None:
    for script in steps_of(loaded(path)):
        subprocess.run(["bash", "-n", "-c", script], check=True)
        for target in re.findall(r"^\s*make (\S+)$", script, flags=re.MULTILINE):
            asked = ["make", "--dry-run", "--always-make", target]
            done = subprocess.run(asked, cwd=ROOT, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr
        for name in re.findall(r"^\s*(\.\S*/\S+)$", script, flags=re.MULTILINE):
            assert (ROOT / name).stat().st_mode & stat.S_IXUSR
            subprocess.run(["bash", "-n", ROOT / name], check=True)


def test_commands_of_the_example_in_the_documentation_are_ones() -> None:
    lines = [shlex.split(line) for text in steps_of(loaded(EXAMPLE)) for line in text.splitlines()]
    ours = [words[1:] for words in lines if words[:1] == ["ncu-toolkit"]]
    assert [words[0] for words in ours] == ["doctor", "profile", "baseline"]
    group: Any = cli
    # click keeps the help option that a command has in its first context
    top = click.Context(group, **group.context_settings)
    for name, *words in ours:
        command = group.get_command(top, name)
        if isinstance(command, click.Group):
            command, words = command.commands[words[0]], words[1:]
        command.make_context(
            name, words, parent=top
        )  # raises for an option or a value that is none
    actions = [
        step for step in loaded(EXAMPLE)["jobs"]["gate"]["steps"] if "/ci" in step.get("uses", "")
    ]
    assert set(actions[0]["with"]) <= set(loaded(ROOT / "ci" / "action.yml")["inputs"])
