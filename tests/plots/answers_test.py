"""Conclusions are the program's: those committed beside cells.csv, and those asked for where a folder has none of its cells."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import answers
import pytest
from columns import BadResults
from data import load_run
from synthetic import HOME

FOLDERS = sorted(path.parent for path in HOME.glob("results/*/*/answers.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(HOME / "results")))
def test_what_is_committed_is_what_the_program_concludes(folder):
    """Another wording or rule: `./kvlab summary` of each folder writes its answers.json again."""
    program = os.environ.get("KVLAB_PROGRAM", str(HOME / ".build/release/harness/kvlab"))
    done = subprocess.run([program, "summary", folder, "--answers"], capture_output=True, check=True)
    assert done.stdout == (folder / "answers.json").read_bytes()


def test_a_folder_needs_a_program_only_where_its_answers_are_not_of_its_cells(tmp_path, monkeypatch):
    folder = Path(shutil.copytree(FOLDERS[0], tmp_path / "run"))
    monkeypatch.setattr(answers, "PROGRAMS", [])
    monkeypatch.delenv("KVLAB_PROGRAM", raising=False)
    committed = load_run(folder, "run").answers
    assert committed["points"]
    with (folder / "cells.csv").open("a") as file:
        file.write("\n")
    with pytest.raises(BadResults, match="has no answers.json of its cells.csv; `./kvlab summary .*` writes it"):
        load_run(folder, "run")
