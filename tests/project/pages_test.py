"""Pages: their links lead somewhere, every command of theirs runs in its smallest form, their examples print what they show, and
lists name every file."""

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
    "MODEL.gguf": MODEL, "Llama-3.2-1B.gguf": MODEL, "TEXT": f"{MODEL}/sample.txt", "book.txt": f"{MODEL}/sample.txt",
    "BEFORE": "results/epyc-2core/quickstart", "AFTER": "results/epyc-2core/quickstart", "path/to/config.json": f"{MODEL}/config.json",
    "FOLDER": "results/epyc-2core/quickstart", "results/MACHINE/quickstart": "results/epyc-2core/quickstart", "FILE": "configs/ci.toml",
}  # fmt: skip
OPTIONS_ALONE = {  # commands of which the options are compared with the help, and why nothing runs
    "choose": "measures for minutes", "calibrate": "reads a model that it downloads", "merge": "needs the shards of several runs",
    "gpu-check": "needs a GPU", "test": "builds all tests", "peers": "installs engines", "plot": "draws for a minute", "site": "copies all results",
    "models": "downloads a model", "reproduce": "computes for minutes", "check-results": "computes all again; cli_check_test.py runs it",
}  # fmt: skip

MANY_WEIGHTS = {"configs/model.toml", "configs/hybrid.toml"}  # even --dry-run makes a billion random ones


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
    start = [sys.executable, script] if script else [PROGRAM, words[0]] if words[0] not in ("gpu-check", "test", "peers") else ["./kvlab", words[0]]
    done = subprocess.run([*start, *words[1:]], cwd=PROJECT, capture_output=True, text=True, timeout=120, env={**os.environ, "KVLAB_HOME": str(PROJECT), "COLUMNS": "100"})
    assert done.returncode == 0, (words, done.stderr or done.stdout)
    return done.stdout


def smallest(words, tmp):
    """The words with files that are here, and no measurement."""
    words = [STANDS_FOR.get(word, word) for word in words]
    if words[0] == "eval" and words[1:]:
        words[1] = str(tmp / "dump.safetensors")
        printed("eval", "--example", words[1])
        words += ["--no-plots"]
    if words[0] == "run":
        words = [*(word for word in words if word not in ("--resume", "--device", "cuda")), *["--dry-run"] * ("--list-shards" not in words)]
    words += ["--measure", "0B"] * (words[0] == "tables")
    for i, word in enumerate(words):
        if word in ("--out", "--hit-curve"):
            words[i + 1] = str(tmp / Path(words[i + 1]).name)
        for name, line in TRACES.items():
            if name in word:
                (tmp / name).write_text(line)
                words[i] = word.replace(name, str(tmp / name))
    return words


TRACES = {
    "azure2023_conv.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n2023-11-16 18:17:04.0319600,396,109\n",
    "mooncake_conversation.jsonl": '{"timestamp": 0, "input_length": 900, "output_length": 20, "hash_ids": [1, 2]}\n' * 2,
}


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page) and page.name not in ("CHANGELOG.md", "claims.md", "LOG.md")], **named)
def test_commands_run(page, tmp_path):
    for words in commands(page):
        own = printed(words[0], "--help") if words[0] not in ("plot", "site", "models", "test") or "--" in " ".join(words) else ""
        assert [word for word in words if word.startswith("--") and own and f"{word.partition('=')[0]} " not in own.replace(",", " ")] == [], words
        if words[0] not in OPTIONS_ALONE and words[1:] and not MANY_WEIGHTS & set(words):
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
