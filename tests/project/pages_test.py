"""Pages: their links lead somewhere, every command of theirs runs in its smallest form, their examples print what they show, and
lists name every file; a release has one version, and the container the README's commands."""

import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import keys_page
import pytest
from sources import PROJECT

PROGRAM = os.environ.get("KVLAB_PROGRAM", str(PROJECT / ".build/release/harness/kvlab"))
FOLDERS = ["harness", "variants", "kernels", "configs", "results", "plots", "tests"]
PAGES = [p for p in (*PROJECT.glob("*.md"), *(p for f in FOLDERS for p in sorted((PROJECT / f).rglob("*.md")))) if "local" not in p.parts]
named = {"ids": lambda page: str(page.relative_to(PROJECT))}
MODEL = "configs/models/kvlab-recall-1m"
STANDS_FOR = {  # files and folders of the reader's own
    **dict.fromkeys(["MODEL.gguf", "Llama-3.2-1B.gguf"], MODEL), **dict.fromkeys(["TEXT", "book.txt"], f"{MODEL}/sample.txt"),
    **dict.fromkeys(["BEFORE", "AFTER", "FOLDER"], "results/epyc-2core/quickstart"), "path/to/config.json": f"{MODEL}/config.json", "FILE": "configs/ci.toml",
}  # fmt: skip
OPTIONS_ALONE = {  # commands, and files in commands, of which only the options are compared with the help, and why
    "choose": "measures for minutes", "calibrate": "reads a model that it downloads", "merge": "needs the shards of several runs",
    "gpu-check": "needs a GPU", "test": "builds all tests", "peers": "installs engines", "plot": "draws for a minute", "site": "copies all results",
    "models": "downloads a model", "reproduce": "computes for minutes", "check-results": "cli_check_test.py runs it", "eval": "cli_help_test.py runs it",
    **dict.fromkeys(["azure2023_conv.csv", "mooncake_conversation.jsonl"], "needs a trace that is downloaded"),
    **dict.fromkeys(["configs/model.toml", "configs/hybrid.toml"], "makes a billion random weights, even to plan"),
}  # fmt: skip


def commands(page):
    """Those of blocks and of sentences, as words, once each."""
    text = re.sub(r"\\\n\s*", " ", page.read_text())
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.S))
    spans = re.findall(r"`(\./kvlab [^`]*)`", re.sub(r"```.*?```", "", text, flags=re.S))
    lines = [line for line in [*blocks.splitlines(), *spans] if line.startswith("./kvlab ")]
    found = {tuple(shlex.split(re.split(r" [|>] ", line)[0], comments=True)[1:]): None for line in lines}
    return [words for words in found if words and not words[0].startswith("-")]


@cache
def printed(*words):
    script = {"plot": "plots/report.py", "site": "plots/publish.py", "models": "harness/model/model_packages.py"}.get(words[0])
    start = [sys.executable, script] if script else ["./kvlab" if words[0] in ("gpu-check", "test", "peers") else PROGRAM, words[0]]
    environment = {**os.environ, "KVLAB_HOME": str(PROJECT), "COLUMNS": "100"}
    done = subprocess.run([*start, *words[1:]], cwd=PROJECT, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, (words, done.stderr or done.stdout)
    return done.stdout


def smallest(words, tmp):
    """The words with files that are here, and no measurement."""
    words = [STANDS_FOR.get(word, word) for word in words if word not in ("--resume", "--device", "cuda")]
    for at in (i for i, word in enumerate(words[:-1]) if word == "--out"):
        words[at + 1] = str(tmp / Path(words[at + 1]).name)
    words += ["--dry-run"] * (words[0] == "run" and "--list-shards" not in words) + ["--measure", "0B"] * (words[0] == "tables")
    return words


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page) and page.name not in ("CHANGELOG.md", "claims.md", "LOG.md")], **named)
def test_commands_run(page, tmp_path):
    for words in commands(page):
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        known = re.findall(r"--[\w-]+", printed(words[0], "--help")) if options else []
        assert words[0] == "test" or [option for option in options if option not in known] == [], words
        if words[1:] and not any(name == word.rpartition("=")[2] for word in words for name in OPTIONS_ALONE):
            printed(*smallest(list(words), tmp_path))


EXAMPLE = re.compile(r"`\./kvlab ([^`]*)` prints[^\n]*:\n```text\n(.*?)```", re.S)


@pytest.mark.parametrize("page", [page for page in PAGES if EXAMPLE.search(page.read_text())], **named)
def test_an_example_prints_what_is_shown(page):
    """Figures aside; of the output, the page may show a part."""
    for command, shown in EXAMPLE.findall(page.read_text()):
        part, whole = (re.sub(r"[\d.,]+", "0", " ".join(text.split())) for text in (shown, printed(*shlex.split(command))))
        assert part in whole, command


def slug(heading):
    return re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, **named)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert ":" in link or target.exists(), link
        assert ":" in link or not anchor or anchor in map(slug, re.findall(r"^#+ (.*)$", target.read_text(), re.M)), link


def test_lists_name_every_file():
    assert [f.name for f in (PROJECT / "configs").glob("*.toml") if f"`{f.name}`" not in (PROJECT / "configs/README.md").read_text()] == []
    runs = {f.parent for f in (PROJECT / "results").glob("*/*/env.json") if "local" not in f.parts}
    assert [run for run in runs if f"]({run.relative_to(PROJECT / 'results')})" not in (PROJECT / "results/README.md").read_text()] == []
    assert [run for run in runs if not (run / "README.md").is_file()] == []


def test_the_keys_are_the_programs():
    assert keys_page.page(json.loads(printed("schema"))["properties"], keys_page.PAGE.read_text()) == keys_page.PAGE.read_text()


def text(name):
    return (PROJECT / name).read_text(encoding="utf-8")


def test_one_version():
    """env.json and the program are held to it by cli_help_test.py, Python by bindings_test.py."""
    version = re.search(r"^project\(kvlab VERSION (\S+)", text("CMakeLists.txt"), re.M)[1]
    assert re.search(r"^## (\S+),? ", text("CHANGELOG.md"), re.M)[1].rstrip(",") == version
    assert 'input = "CMakeLists.txt"' in text("pyproject.toml") and "version =" not in text("pyproject.toml").split("[project.optional")[0]


def test_the_container_runs_the_two_commands():
    block = re.search(r"## Two commands\n```sh\n(.*?)```", text("README.md"), re.S)[1]
    commands = [line.partition("#")[0].strip() for line in block.splitlines()]
    assert len(commands) == 2
    ran = [line.removeprefix("RUN ") for line in text(".container/Containerfile").splitlines() if line.startswith("RUN ./kvlab")]
    assert [line.partition(" --out")[0] for line in ran] == commands
