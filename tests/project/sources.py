"""Reads sources just far enough to find what is defined in them, and in which namespace."""

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
CPP = {".h", ".cc", ".cu", ".cuh"}
CODE_FOLDERS = ["kernels", "variants", "harness", "tests", "plots"]

# Comments, and what may look like one or hide a brace: raw strings, strings, characters; `SKIPPED` by the search for definitions,
# with preprocessor lines.
TOKENS = (
    r"//+(?P<line>[^\n]*)"
    r"|/\*(?P<block>.*?)\*/"
    r'|R"(?P<delimiter>[^(\s"]*)\(.*?\)(?P=delimiter)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-zA-Z])'(?:\\.|[^'\\\n])+'"
)
SKIPPED = re.compile(TOKENS + r"|^[ \t]*\#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE)
NAMESPACE = re.compile(  # none with declarations alone
    r"^(?:inline )?namespace ?(?P<opened>[\w:]*) ?\{$(?!(?:\n(?:class|struct|enum) [^\n]*;[^\n]*)+\n\}$)|^(?P<closed>\})  // namespace", re.MULTILINE)
DEFINITION = re.compile(
    r"^(?:(?:class|struct|union|enum(?: class)?) (?:alignas\([^)]*\) )?(?P<type>[\w:]+)[^;{()]*"
    r"|(?=\w)(?!namespace|inline namespace)[^;{}()]*?(?<![\w:~])(?P<function>[\w:~]+)\([^;{}]*)\{", re.MULTILINE)  # fmt: skip


def sources(project, suffixes=CPP, folders=CODE_FOLDERS):
    """Paths below the project, sorted."""
    found = [f for folder in folders for f in (project / folder).rglob("*") if f.suffix in suffixes and f.is_file()]
    return sorted(f.relative_to(project) for f in found)


def definitions(text):
    """Types and functions that begin a line, as clang-format writes those of a namespace: (kind, name, namespace)."""
    code = SKIPPED.sub(lambda skipped: re.sub(r"[^\n]", " ", skipped.group()), text)
    namespaces = []
    for found in sorted([*NAMESPACE.finditer(text), *DEFINITION.finditer(code)], key=lambda found: found.start()):
        if found.lastgroup == "opened":
            namespaces.append(found["opened"] or "(anonymous)")
        elif found.lastgroup == "closed":
            namespaces.pop()
        else:
            yield found.lastgroup, found[found.lastgroup], "::".join(namespaces)
