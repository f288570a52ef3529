"""Files, functions and pages that can be read in one piece."""

import ast
import shutil
import subprocess

import pytest
from sources import PROJECT, sources

SOURCE_LINES = 400
FUNCTION_LINES = 60
WORDS = {
    "README.md": 650, "CONTRIBUTING.md": 900, "harness/README.md": 900, "kernels/README.md": 800, "variants/README.md": 2600, "results/README.md": 1500,
    "configs/README.md": 2500, "configs/claims/README.md": 1500, "plots/README.md": 700,
}  # fmt: skip


def lines_of(project, file):
    return len((project / file).read_text().splitlines())


def long_sources(project):
    for file in sources(project) + sources(project, {".py"}):
        if lines_of(project, file) > SOURCE_LINES:
            yield f"{file} has more than {SOURCE_LINES} lines"


def long_functions(project):
    """Python's functions; clang-tidy measures those of C++ (.clang-tidy)."""
    for file in sources(project, {".py"}):
        for node in ast.walk(ast.parse((project / file).read_text())):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= FUNCTION_LINES:
                yield f"{file}: {node.name} has more than {FUNCTION_LINES} lines"


def long_pages(project):
    for page, words in WORDS.items():
        if (project / page).exists() and len((project / page).read_text().split()) > words:
            yield f"{page} has more than {words} words"


RULES = [long_sources, long_functions, long_pages]


@pytest.mark.parametrize("rule", RULES)
def test_sources_are_short(rule):
    assert list(rule(PROJECT)) == []


@pytest.mark.skipif(not shutil.which("clang-tidy"), reason="no clang-tidy here")
@pytest.mark.parametrize("lines, found", [(61, 0), (62, 1)])
def test_a_long_function_is_found(tmp_path, lines, found):
    (tmp_path / "long.cc").write_text("int f(int x) {\n" + "  ++x;\n" * (lines - 3) + "  return x;\n}\n")
    done = subprocess.run(["clang-tidy", "--quiet", f"--config-file={PROJECT / '.clang-tidy'}", tmp_path / "long.cc", "--"], capture_output=True, text=True)
    assert (done.returncode, "function 'f' exceeds" in done.stdout) == (found, bool(found)), done.stdout + done.stderr


def test_a_long_python_function_is_found(tmp_path):
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots/a.py").write_text("def f():\n" + "    x = 1\n" * 60)
    assert list(long_functions(tmp_path)) == ["plots/a.py: f has more than 60 lines"]


def test_a_long_source_and_a_long_page_are_found(tmp_path):
    (tmp_path / "variants").mkdir()
    (tmp_path / "variants/a.h").write_text("//\n" * 400)
    (tmp_path / "README.md").write_text("word " * WORDS["README.md"])
    assert [found for rule in RULES for found in rule(tmp_path)] == []
    (tmp_path / "variants/a.h").write_text("//\n" * 401)
    (tmp_path / "README.md").write_text("word " * (WORDS["README.md"] + 1))
    assert [found for rule in RULES for found in rule(tmp_path)] == [
        "variants/a.h has more than 400 lines",
        "README.md has more than 650 words",
    ]
