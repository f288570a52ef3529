"""An experiment is named in its folder, the list, its figures, configs, documentation and tests, and nowhere else."""

import re
from pathlib import Path

from sources import PROJECT, sources

# Names that are words elsewhere, too: a table, a column, a key, a workload, growth.csv, a chapter, a peer's command.
ALSO_WORDS = {"batch", "budget", "decode", "growth", "model", "prefill", "quality", "serve"}


def names():
    return sorted(folder.name for folder in (PROJECT / "harness/experiments").iterdir() if folder.is_dir())


def named_outside():
    """Files that hold an experiment's name as a text, or compare with it."""
    for file in sources(PROJECT, {".cc", ".h", ".py"}, ["kernels", "variants", "harness", "plots"]):
        text = (PROJECT / file).read_text()
        for name in names():
            own = file.is_relative_to(f"harness/experiments/{name}") or file.is_relative_to("plots/figures")
            if own or file in (Path("harness/experiments/list.h"),):
                continue
            said = rf'(?:kExperiment\]|experiment|kind)"?\]?\)? *[!=]= *"{name}"' if name in ALSO_WORDS else rf'"{name}"'
            found = re.search(said, text) or re.search(rf"experiments/{name}/", text)
            if found:
                yield f"{file}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]}"


def test_experiments_are_found():
    assert {"decode", "recall", "replay"} <= set(names())


def test_no_experiment_is_named_outside_its_own_files():
    assert list(named_outside()) == []
