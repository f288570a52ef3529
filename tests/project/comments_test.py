"""Comments begin with their subject: at most 3 % open with Of, What, Where, As, Which or Whether."""

import io
import re
import tokenize
from collections import Counter

from sources import CPP, PROJECT, TOKENS, sources

FILE = re.compile(r"(?<![\w./*-])[\w/-]*\w\.(?:h|cc|cu|py)\b(?!\.)")
# Other projects', and files that a test or a user writes.
FOREIGN = {"compare.py", "convert_llama_weights_to_hf.py", "modeling_rope_utils.py", "NAME.py", "test_all.py",
           "vllm/config/cache.py", "triton_reshape_and_cache_flash.py", "transformers/cache_utils.py", "grouped.py"}
OPENER = re.compile(r"(of|what|where|as|which|whether)\b", re.IGNORECASE)


def cpp_comments(text):
    """Each line's comment: line number, whether it stands alone on its line, text."""
    for match in re.finditer(TOKENS, text, re.DOTALL):
        said = match["line"] if match["line"] is not None else match["block"]
        if said is not None:
            before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
            yield text.count("\n", 0, match.start()) + 1, not before.strip(), said


def python_comments(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], not token.line[: token.start[1]].strip(), token.string.lstrip("#")


def comments(file, text):
    """First words of comments: a run of lines with nothing else is one, and so is one behind code."""
    previous = None
    for line, alone, said in (python_comments if file.suffix == ".py" else cpp_comments)(text):
        if not (alone and previous == line - 1):
            yield line, said.strip()
        previous = line if alone else None


def openers(project):
    """The number of comments, and of each file those that open with one of the words."""
    count, found = 0, Counter()
    for file in sources(project, CPP | {".py"}):
        said = [text for _, text in comments(file, (project / file).read_text())]
        count += len(said)
        found[str(file)] += sum(bool(OPENER.match(text)) for text in said)
    return count, +found


def test_comments_open_with_their_subject():
    count, found = openers(PROJECT)
    assert found.total() <= 0.03 * count, f"{found.total()} of {count} comments: {dict(found.most_common())}"


def missing_files(project):
    """Source files that comments name and that are not there."""
    there = sources(project, CPP | {".py"})
    for file in there:
        for line, _, said in (python_comments if file.suffix == ".py" else cpp_comments)((project / file).read_text()):
            for name in FILE.findall(said):
                if name not in FOREIGN and not any(f"/{path}".endswith(f"/{name}") for path in there):
                    yield f"{file}:{line}: {name}"


def test_files_that_comments_name_exist():
    assert list(missing_files(PROJECT)) == []


def test_a_missing_file_is_found(tmp_path):
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "a.cc").write_text("// As plots/a.cc and b/a.cc have it; so has NAME.py.\n")
    assert list(missing_files(tmp_path)) == ["plots/a.cc:1: b/a.cc"]


def test_openers_are_really_found(tmp_path):
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "a.cc").write_text(
        'f("// Of text");  // what follows code\n// Whether alone,\n// as one run\n\nint x = 1\'000;  // Whatever\n')
    (tmp_path / "plots" / "a.py").write_text('"# Of text"\nx = 1  # Where\n# A run\n# of two\n')
    assert openers(tmp_path) == (5, {"plots/a.cc": 2, "plots/a.py": 1})
