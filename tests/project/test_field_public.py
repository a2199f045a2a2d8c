"""Pairs of public repositories, without a GPU: fetching their sources, and what happens without them."""

from __future__ import annotations

import hashlib
import lzma
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import field
from benchmarks.field import __main__ as command
from benchmarks.field import public, running
from ncu_toolkit.base.core import cache
from ncu_toolkit.base.core.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INPUT,
    EXIT_OK,
    EXIT_USAGE,
    InputProblem,
)

PATH = "dev/kernel.cu"
TEXT = b"__global__ void kernel() {}\n"


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", folder, *who, *words], capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> public.Repository:
    """A repository of one file, the only one pinned, as llm.c; nothing of it is fetched yet."""
    field.names()  # reads the pairs while the true pins are there
    folder = tmp_path / "upstream"
    (folder / "dev").mkdir(parents=True)
    (folder / PATH).write_bytes(TEXT)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    commit = git(folder, "rev-parse", "HEAD")
    files = {PATH: hashlib.sha256(TEXT).hexdigest()}
    repository = public.Repository("llm.c", f"file://{folder}", commit, "MIT", (), files)
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(public, "repositories", lambda: {"llm.c": repository})
    return repository


@pytest.mark.parametrize("local", [False, True], ids=["network", "clone"])
def test_files_are_fetched_once_into_the_cache_folder(
    pinned: public.Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str], local: bool
) -> None:
    words = ["fetch"]
    if local:
        bare = tmp_path / "bare"
        git(tmp_path, "clone", "--quiet", "--bare", str(tmp_path / "upstream"), str(bare))
        words += ["--from", f"llm.c={bare}"]
    for new in (1, 0):
        assert command.main(words) == EXIT_OK
        assert f"1 files, {new} of them new" in capsys.readouterr().out
        for clone in tmp_path.glob("[ub]*"):  # the second call has nothing to fetch
            clone.rename(clone.with_name(f"gone-{clone.name}"))
    assert pinned.folder.is_relative_to(tmp_path / "cache")
    assert (public.fetched("llm.c") / PATH).read_bytes() == TEXT


def test_a_sum_that_does_not_match_ends_with_4_and_nothing_is_kept(
    pinned: public.Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(pinned, files={PATH: "0" * 64})
    monkeypatch.setattr(public, "repositories", lambda: {"llm.c": other})
    assert command.main(["fetch"]) == EXIT_INPUT
    assert PATH in capsys.readouterr().err
    assert not (pinned.folder / PATH).exists()


def test_a_clone_without_the_commit_and_a_url_that_leads_nowhere_are_named(
    pinned: public.Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    git(tmp_path, "init", "--quiet", str(tmp_path / "empty"))
    assert command.main(["fetch", "--from", f"llm.c={tmp_path / 'empty'}"]) == EXIT_INPUT
    assert "empty" in capsys.readouterr().err
    lost = replace(pinned, url=f"file://{tmp_path / 'nowhere'}")
    monkeypatch.setattr(public, "repositories", lambda: {"llm.c": lost})
    assert command.main(["fetch"]) == EXIT_ENVIRONMENT
    assert "--from llm.c=FOLDER" in capsys.readouterr().err
    assert command.main(["fetch", "--from", "other=."]) == EXIT_USAGE


def test_a_pair_that_is_not_fetched_is_named_with_the_command(
    pinned: public.Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "public_llmc_gelu_1_2"
    pair = field.find(name)
    assert isinstance(pair, field.ExternalPair)
    monkeypatch.setattr(running, "_arch", lambda: "sm_90")
    assert command.main([name, "--variant", "before"]) == EXIT_ENVIRONMENT
    assert public.COMMAND in capsys.readouterr().err
    monkeypatch.setattr(field, "names", lambda: (name,))
    assert command.main(["--list"]) == EXIT_OK
    assert "not fetched" in capsys.readouterr().out
    monkeypatch.setattr(running.cuda, "cards", lambda: ["0"])
    message = f"error: 1 of 1 source files. Run `{public.COMMAND}`"
    monkeypatch.setattr(running, "_record_in_child", lambda *given: message)
    assert command.main(["record", "--out", str(tmp_path), name]) == EXIT_ENVIRONMENT
    assert message in capsys.readouterr().err
    assert public.COMMAND in (tmp_path / "failed.json").read_text()


def test_every_pair_takes_its_files_from_the_pinned_ones() -> None:
    used: dict[str, set[str]] = {name: set() for name in public.repositories()}
    for name in (each for each in field.names() if field.language(each) == "public"):
        text = (field.FOLDER / "pairs/public" / f"{name.removeprefix('public_')}.cu").read_text()
        files = public.repositories()[field.repository(name)].files
        included = {
            line.split('"')[1] for line in text.splitlines() if line.startswith('#include "')
        } - {"public.cuh"}
        assert included, name
        assert included <= set(files), name
        used[field.repository(name)] |= included
    assert all(used.values())
    assert sum(map(len, used.values())) > 25


def test_a_recording_with_text_of_a_public_repository_is_refused(
    pinned: public.Repository, tmp_path: Path
) -> None:
    packed = tmp_path / "public_llmc_gelu_1_2-before.ncu-rep.xz"
    packed.write_bytes(lzma.compress(b"gelu_forward_kernel1 gpu__time_duration"))
    running._refuse_source("public_llmc_gelu_1_2", packed)
    for text in (TEXT, b"folder/kernel.cu"):
        packed.write_bytes(lzma.compress(text))
        with pytest.raises(InputProblem, match=r"text of llm\.c"):
            running._refuse_source("public_llmc_gelu_1_2", packed)
        assert not packed.exists()


def test_no_recording_holds_text_of_a_public_repository() -> None:
    for packed in field.RECORDINGS.glob("*/public_*.ncu-rep.xz"):
        name = packed.name.partition("-")[0]
        repository = public.repositories()[field.repository(name)]
        assert public.holds_source(lzma.decompress(packed.read_bytes()), repository) == "", packed
