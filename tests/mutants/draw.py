#!/usr/bin/env python3
"""Draws bugs for matrix.csv: five per 1,000 lines of every room's product code, each an expression or statement of one line.

    python3 -m venv .build/mutants/venv && .build/mutants/venv/bin/pip install -r tests/mutants/requirements.txt
    .build/mutants/venv/bin/python tests/mutants/draw.py [ROOM...]

A bug is known by its file, its line's text and its place there. Files are ranked by their names' hash, a file's lines by theirs: where
code stays, its bugs stay. Rows whose line is gone are dropped, and others drawn until each room has its number again. A file gives
three at most, and a kind is a third at most. Needs Clang, whose headers libclang reads: seconds a file.
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from math import ceil
from pathlib import Path
from typing import Iterator, NamedTuple

from table import HOME, Bug, read_table, rooms, write_table

LEFT_OUT = re.compile(r"kernels/cuda/|_benchmark\.cc$|\.cu$|CMake|/cmake/")
CONSTANT_EXPRESSION = re.compile(r"constexpr|consteval|static_assert|\bcase\b|\btemplate\b|noexcept|\brequires\b|alignas|^\s*#|\breserve\(|\bassert\(|HWY_|__name__")
COMPARED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
SIGNS = {"+": "-", "-": "+", "+=": "-=", "-=": "+="}
FORGOTTEN = "skipped"
MOST_OF_A_FILE = 3


class Site(NamedTuple):
    kind: str
    start: int  # bytes of the file
    end: int
    new: str


def number(text: str) -> str:
    """Another number: the next one, or half as much again."""
    if re.fullmatch(r"0[xXbB][0-9a-fA-F']+[uUlLzZ]*|[0-9][0-9']*[uUlLzZ]*", text):
        return f"{text} + 1"
    return f"{text} + 1" if re.fullmatch(r"[0.]+f?", text) else f"{text} * 1.5{'f' if text.endswith('f') else ''}"


# C++, through libclang
def cpp_sites(path: Path) -> Iterator[Site]:
    from clang.cindex import CursorKind as Kind

    content = path.read_bytes()
    bodies = {Kind.LAMBDA_EXPR, Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.FUNCTION_TEMPLATE, Kind.DESTRUCTOR, Kind.CONVERSION_FUNCTION}

    def text(a: int, b: int) -> str:
        return content[a:b].decode()

    def span(cursor) -> tuple[int, int]:
        return cursor.extent.start.offset, cursor.extent.end.offset

    def is_number(cursor) -> bool:
        return cursor.type.get_canonical().spelling.removeprefix("const ").removesuffix(" &") in NUMBERS

    def operator(cursor, parts) -> Iterator[Site]:
        """For `a OP b`, whose operator stands between its operands."""
        (a, left), (right, b) = span(parts[0]), span(parts[-1])
        sign = text(left, right).strip()
        if not re.fullmatch(r"[-+<>=!&|]{1,2}", sign):
            return
        for kind, others in (("comparison", COMPARED), ("sign", SIGNS)):
            if sign in others and (kind == "comparison" or is_number(cursor) or "dependent" in cursor.type.spelling):
                yield Site(kind, a, b, text(a, left) + f" {others[sign]} " + text(right, b))

    def here(cursor, parts, within) -> Iterator[Site]:
        kind, (a, b) = cursor.kind, span(cursor)
        if kind in (Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR) and len(parts) == 2:
            yield from operator(cursor, parts)
        elif kind in (Kind.INTEGER_LITERAL, Kind.FLOATING_LITERAL) and re.match(r"[0-9.]", text(a, b)):
            yield Site("constant", a, b, number(text(a, b)))
        elif kind == Kind.UNARY_OPERATOR and text(a, b).startswith("-"):
            yield Site("sign", a, b, text(a + 1, b))
        elif kind == Kind.ARRAY_SUBSCRIPT_EXPR or (kind == Kind.CALL_EXPR and cursor.spelling == "operator[]"):
            if len(parts) > 1 and is_number(parts[-1]):
                yield Site("index", *span(parts[-1]), f"({text(*span(parts[-1]))}) + 1")
        elif kind == Kind.IF_STMT and len(parts) == 2 and parts[1].kind in (Kind.RETURN_STMT, Kind.CONTINUE_STMT, Kind.CXX_THROW_EXPR):
            if parts[0].kind.is_expression():
                yield Site(FORGOTTEN, *span(parts[0]), "false")
        if within == Kind.COMPOUND_STMT and kind.is_expression() and content[b : b + 1] == b";":
            yield Site(FORGOTTEN, a, b + 1, "")

    def walk(cursor, within, in_body) -> Iterator[Site]:
        parts = list(cursor.get_children())
        if in_body:
            yield from here(cursor, parts, within)
        for part in parts[1:] if cursor.kind == Kind.CASE_STMT else parts:
            body = in_body or (cursor.kind in bodies and part.kind == Kind.COMPOUND_STMT)
            if part.kind != Kind.STATIC_ASSERT and (part.location.file and part.location.file.name == str(path)):
                yield from walk(part, cursor.kind, body)

    yield from walk(parsed(path).cursor, None, False)


NUMBERS = {f"{sign}{name}" for sign in ("", "unsigned ") for name in ("char", "short", "int", "long", "long long")} | {"float", "double", "signed char", "bool"}


@cache
def index():
    from clang.cindex import Index

    return Index.create(), subprocess.run(["clang", "-print-resource-dir"], capture_output=True, text=True, check=True).stdout.strip()


def parsed(path: Path):
    reader, headers = index()
    generated = [f"-I{folder}" for folder in HOME.glob(".build/*/harness/generated")][:1]
    includes = [f"-I{HOME}", *generated, "-isystem/usr/include/eigen3"]
    return reader.parse(str(path), ["-xc++", "-std=c++20", "-fopenmp", f"-resource-dir={headers}", "-DKVLAB_ABSENT_TARGETS=0", '-DKVLAB_VERSION=""', *includes])


# Python
def python_sites(path: Path) -> Iterator[Site]:
    content = path.read_bytes()
    starts = [0]
    for line in content.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)

    def span(node) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def text(node) -> str:
        return content[slice(*span(node))].decode()

    compared = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
                ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"}  # fmt: skip

    def is_text(node) -> bool:
        return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))

    def other(node, left, right, sign: str) -> str:
        """The text with this sign between its operands, whatever brackets they have."""
        (begin, end), (_, a), (b, _) = span(node), span(left), span(right)
        return content[begin:a].decode() + re.sub(r"[-+<>=!]+|\b(?:not in|in|is not|is)\b", sign, content[a:b].decode(), count=1) + content[b:end].decode()

    def here(node) -> Iterator[Site]:
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield Site("comparison", *span(node), other(node, node.left, node.comparators[0], compared[type(node.ops[0])]))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and not (is_text(node.left) or is_text(node.right)):
            yield Site("sign", *span(node), other(node, node.left, node.right, "-" if isinstance(node.op, ast.Add) else "+"))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield Site("constant", *span(node), number(text(node)))
        elif isinstance(node, ast.Subscript) and (isinstance(node.slice, ast.Name) and len(node.slice.id) == 1 or type(getattr(node.slice, "value", "")) is int):
            yield Site("index", *span(node.slice), f"{text(node.slice)} + 1")
        elif isinstance(node, ast.If) and not node.orelse and isinstance(node.body[0], (ast.Return, ast.Continue, ast.Raise)):
            yield Site(FORGOTTEN, *span(node.test), "False")
        elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield Site(FORGOTTEN, *span(node), "")

    def walk(node) -> Iterator[Site]:
        if not isinstance(node, (ast.JoinedStr, ast.MatchValue)):
            yield from here(node) if hasattr(node, "lineno") else ()
            for part in set(ast.iter_child_nodes(node)) - {getattr(node, name, None) for name in ("annotation", "returns")}:
                yield from walk(part)

    yield from walk(ast.parse(content))


@cache
def sites_of(path: Path) -> dict[int, list[Site]]:
    """Sites by their line's number."""
    content, found = path.read_bytes(), {}
    for site in set((python_sites if path.suffix == ".py" else cpp_sites)(path)):
        if b"\n" not in content[site.start : site.end] and site.start < site.end:
            found.setdefault(content.count(b"\n", 0, site.start), []).append(site)
    return found


def rank(*words: object) -> int:
    return int(hashlib.sha256("|".join(map(str, words)).encode()).hexdigest()[:7], 16)


def bugs_of_line(room: str, path: Path, lines: list[bytes], at: int) -> list[Bug]:
    file, line = str(path.relative_to(HOME)), lines[at]
    begin = sum(len(before) + 1 for before in lines[:at]) + len(line) - len(line.lstrip())
    found = []
    for site in sites_of(path).get(at, []):
        old, column = line.lstrip()[site.start - begin : site.end - begin].decode(), site.start - begin
        if not ("throw" in line.decode() and site.kind in ("constant", "sign")):
            name = f"{rank(file, line.strip().decode(), column, site.new):07x}"
            found.append(Bug(name, room, file, site.kind, line.strip().decode(), str(column), old, site.new))
    return sorted(found)


def draw(room: str, files: list[Path], kept: list[Bug]) -> list[Bug]:
    texts = {path: path.read_bytes().split(b"\n") for path in files}
    number = max(3, ceil(sum(map(len, texts.values())) / 200)) if texts else 0
    places = []
    for path, lines in texts.items():
        count = Counter(line.strip() for line in lines)
        places += [(rank(path.relative_to(HOME)), rank(line.strip().decode()), path, at) for at, line in enumerate(lines)
                   if count[line.strip()] == 1 and not CONSTANT_EXPRESSION.search(line.decode()) and re.search(rb"[-+<>=&|\[\d]|;$|\)$", line)]
    drawn, taken = kept[:number], {(bug.file, bug.line) for bug in kept}
    for _, _, path, at in sorted(places):
        if len(drawn) >= number:
            break
        if sum(bug.file == str(path.relative_to(HOME)) for bug in drawn) >= MOST_OF_A_FILE:
            continue
        kinds = Counter(bug.kind for bug in drawn)
        new = [bug for bug in bugs_of_line(room, path, texts[path], at) if kinds[bug.kind] < ceil(0.3 * number)]
        if new and (new[0].file, new[0].line) not in taken:
            drawn.append(new[0])
    return drawn


def main(chosen: list[str]) -> None:
    for room in chosen or rooms():
        files = [path for path in rooms()[room] if not LEFT_OUT.search(str(path.relative_to(HOME)))]
        drawn = draw(room, files, [bug for bug in read_table() if bug.room == room and bug.planted()]) if len(files) > 1 else []
        write_table([bug for bug in read_table() if bug.room != room] + drawn)
        print(f"{room}: {len(drawn)} bugs", dict(Counter(bug.kind for bug in drawn)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
