"""Reads sources just far enough to find their blocks: namespaces, types, functions."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
CPP = {".h", ".cc", ".cu", ".cuh"}
CODE_FOLDERS = ["kernels", "variants", "harness", "tests", "plots"]

# Comments, and what may look like one or hide a brace: raw strings, strings, characters; `SKIPPED` by the scan for braces, with
# preprocessor lines.
TOKENS = (
    r"//+(?P<line>[^\n]*)"
    r"|/\*(?P<block>.*?)\*/"
    r'|R"(?P<delimiter>[^(\s"]*)\(.*?\)(?P=delimiter)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-zA-Z])'(?:\\.|[^'\\\n])+'"
)
SKIPPED = re.compile(TOKENS + r"|^[ \t]*\#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE)
NAMESPACE = re.compile(r"\b(?:inline\s+)?namespace\b\s*([\w:]*)\s*$")
TYPE = re.compile(r"\b(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+(?:alignas\([^)]*\)\s*)?([\w:]+)[^()=]*$")
MEMBER_INITIALISER = re.compile(r"\)[^{}]*(?<!:):(?!:)(?:.*,)?\s*[\w:<>]+\s*$", re.DOTALL)  # A() : x_{1}
NAME = re.compile(r"([\w:~]+(?:\s*[^\w\s(]+)?)\s*\(")


@dataclass
class Block:
    kind: str  # namespace, type, function or other
    name: str  # qualified
    scope: str  # the name of the block around it
    first: int  # lines, both included
    last: int


def sources(project, suffixes=CPP, folders=CODE_FOLDERS):
    """Paths below the project, sorted."""
    found = [f for folder in folders for f in (project / folder).rglob("*") if f.suffix in suffixes and f.is_file()]
    return sorted(f.relative_to(project) for f in found)


def blank(text):
    """The text without comments, strings and preprocessor lines, its line breaks as they were."""
    return SKIPPED.sub(lambda match: "\n" * match.group().count("\n") or " ", text)


def kind_of(head, parent):
    """What the brace after `head` opens, and its name. `parent`: the kind of block that it stands in."""
    namespace = NAMESPACE.search(head)
    if namespace:
        return "namespace", namespace.group(1) or "(anonymous)"
    if parent not in ("namespace", "type"):
        return "other", ""
    named = re.sub(r"\btemplate\s*<.*?>(?=\s*(?:class|struct|union|enum|requires)\b)", "", head, flags=re.DOTALL)
    declared = TYPE.search(named)
    if declared:
        return "type", declared.group(1)
    function = NAME.search(head)
    if function and not re.search(r"=\s*$", head) and not MEMBER_INITIALISER.search(head):
        return "function", function.group(1)
    return ("namespace", "") if re.search(r"\bextern\s*$", head) else ("other", "")


def blocks(text):
    """All blocks of a C++ source, in the order in which they end."""
    code, found, open_blocks = blank(text), [], []
    head_start, line, parentheses = 0, 1, 0
    for at, c in enumerate(code):
        if c == "\n":
            line += 1
        elif c in "()":
            parentheses += 1 if c == "(" else -1
        elif c == "{":
            parent = open_blocks[-1][0] if open_blocks else Block("namespace", "", "", 1, 1)
            head = code[head_start:at]
            kind, name = ("other", "") if parentheses else kind_of(head, parent.kind)
            qualified = "::".join(part for part in (parent.name, name) if part)
            first = line - head.lstrip().count("\n")
            open_blocks.append((Block(kind, qualified, parent.name, first, line), parentheses, head_start))
            parentheses = 0
            head_start = at + 1
        elif c == "}" and open_blocks:
            block, parentheses, head_start = open_blocks.pop()
            block.last = line
            found.append(block)
            head_start = head_start if block.kind == "other" else at + 1
        elif c == ";" and not parentheses:
            head_start = at + 1
    return found


def python_functions(text):
    """Functions of a Python source with their lines, decorators and docstrings included."""
    tree = ast.parse(text)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [Block("function", n.name, "", n.lineno, n.end_lineno) for n in ast.walk(tree) if isinstance(n, kinds)]
