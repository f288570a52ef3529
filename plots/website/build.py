"""Writes the pages of a site, their data, and the raw files that they link to."""

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from claims import VERDICTS, published
from page import nested
from style import bytes_text
from templating import file, render
from vega import javascript
from website.collect import Claims, Folder, slug
from website.questions import Question, questions
from website.records import COLUMNS, Record, command_lines, folder_data, raw_path, records

SHARED = {
    "style.css": ["style.css", "website/site.css"],
    "site.js": ["common.js", "website/site.js"],
    "charts.js": ["website/charts.js"],
}  # files that all pages load, each joined from files of templates/
RAW = ["cells.csv", "columns.json", "env.json", "config.toml", "benchmark.json", "positions.csv", "texts.csv"]


def build(out: Path, folders: list[Folder], claims: list[Claims]) -> None:
    """Writes all of the site's files into a new folder."""
    for inside in ("questions", "machines", "configs", "variants", "data", "raw"):
        (out / inside).mkdir(parents=True, exist_ok=True)
    for name, parts in SHARED.items():
        (out / name).write_text("".join(map(file, parts)), encoding="utf-8")
    # In a scope of its own: its names of one letter would meet those of other scripts.
    (out / "vega.js").write_text(f"(() => {{\n{javascript()}\n}})();\n", encoding="utf-8")
    described = [folder_data(folder, number) for number, folder in enumerate(folders)]
    everything = [record for number, folder in enumerate(folders) for record in records(folder, number)]
    for number, folder in enumerate(folders):
        copy_raw(folder.run.folder, out / raw_path(folder), RAW)
        write_script(out / "data" / f"commands-{number}.js", f"commands[{number}]", command_lines(folder))
    for of in claims:
        copy_raw(of.folder, out / claims_path(of), ["claims.csv", "claims.md", "env.json"])
    machines = grouped(everything, lambda record: record.folder.machine)
    configs = grouped(everything, lambda record: record.folder.config)
    variants = grouped(everything, lambda record: record.variant)
    for kind, pages in (("machine", machines), ("config", configs), ("variant", variants)):
        for name, rows in pages.items():
            write_cells_page(out, kind, name, rows, described)
    asked = questions(folders)
    for question in asked:
        write_page(out / question.page, "question.html", root="../", question=question, described=described, limits=said_limits(folders[0]))
    write_page(
        out / "index.html",
        "index.html",
        questions=[question_line(question) for question in asked],
        machines=[machine_line(name, rows, claims) for name, rows in machines.items()],
        configs=[line("config", name, rows) for name, rows in configs.items()],
        variants=[line("variant", name, rows) for name, rows in variants.items()],
        folders=described,
        cells=len(everything),
        has_claims=bool(claims),
    )
    if claims:
        write_claims_page(out, claims)


def write_page(path: Path, template: str, root: str = "", **values) -> None:
    """`root` is the way from the page to the site's folder."""
    path.write_text(render(f"website/{template}", root=root, **values), encoding="utf-8")


def grouped(rows: list[Record], name_of) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = defaultdict(list)
    for row in rows:
        groups[name_of(row)].append(row)
    return dict(sorted(groups.items()))


def write_cells_page(out: Path, kind: str, name: str, rows: list[Record], described: list[dict]) -> None:
    folders = {record.row[0]: described[record.row[0]] for record in rows}
    limits = {column: limit["said"] for column, limit in rows[0].folder.run.answers["limits"].items()}
    data = {"kind": kind, "name": name, "columns": COLUMNS, "limits": limits, "rows": [record.row for record in rows], "folders": folders}
    at = f"{kind}s/{slug(name)}"
    write_script(out / "data" / f"{at.replace('/', '-')}.js", "page", data)
    facts = machine_facts(rows[0].folder.run.env) if kind == "machine" else []
    write_page(
        out / f"{at}.html",
        "cells.html",
        root="../",
        kind=kind,
        name=name,
        facts=facts,
        limits=said_limits(rows[0].folder),
        folders=list(folders.values()),
        data=f"{at.replace('/', '-')}.js",
    )


def said_limits(folder: Folder) -> str:
    return " or ".join(limit["said"] for limit in folder.run.answers["limits"].values())


def write_script(path: Path, name: str, value) -> None:
    """Data as a script: a page that is opened from a disk may not fetch a file."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    path.write_text(f"kvlab.{name}={text}\n", encoding="utf-8")


def copy_raw(source: Path, to: Path, names: list[str]) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (source / name).exists():
            shutil.copyfile(source / name, to / name)


def machine_facts(env: Mapping) -> list[tuple[str, str]]:
    memory = env.get("memory_bytes")
    facts = {
        "processor": nested(env, "cpu", "model"),
        "cores": nested(env, "cpu", "cores"),
        "memory": bytes_text(memory) if isinstance(memory, (int, float)) else None,
        "L2": bytes_text(nested(env, "cpu", "l2_bytes")),
        "L3": bytes_text(nested(env, "cpu", "l3_bytes")),
        "instructions": env.get("isa"),
        "device": nested(env, "device", "name"),
        "compiler": env.get("compiler"),
        "system": env.get("os"),
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "", "–")]


def machine_line(name: str, rows: list[Record], claims: list[Claims]) -> dict:
    facts = dict(machine_facts(rows[0].folder.run.env))
    counts = Counter(row["verdict"] for of in claims if of.machine == name for row in published(of.rows))
    return {
        "name": name,
        "page": f"machines/{slug(name)}.html",
        "processor": facts.get("processor", "not recorded"),
        "cores": facts.get("cores", ""),
        "memory": facts.get("memory", ""),
        "folders": len({record.row[0] for record in rows}),
        "cells": len(rows),
        "claims": ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]),
    }


def question_line(question: Question) -> dict:
    answer, point = question.first
    return {"title": question.title, "page": question.page, "said": point.sentences, "folder": answer.folder.name, "config": f"configs/{slug(answer.folder.config)}.html"}


def line(kind: str, name: str, rows: list[Record]) -> dict:
    """A config's or a variant's line of the index."""
    return {
        "name": name or "no variant",
        "page": f"{kind}s/{slug(name)}.html",
        "title": nested(rows[0].folder.run.env, "config", "title") or "",
        "machines": ", ".join(sorted({record.folder.machine for record in rows})),
        "cells": len(rows),
    }


def claims_path(of: Claims) -> str:
    return f"raw/{slug(of.machine)}/{slug(of.name.partition('/')[2])}"


def write_claims_page(out: Path, claims: list[Claims]) -> None:
    """A row a figure of a claim, a column a folder of verdicts."""
    rows: dict[tuple[str, str, str], dict] = {}
    for of in claims:
        for row in of.rows:
            at = rows.setdefault((row["source"], row["claim"], row["figure"]), {"row": row, "verdicts": {}})
            at["verdicts"][of.name] = row
    write_page(
        out / "claims.html",
        "claims.html",
        columns=[(of, claims_path(of)) for of in claims],
        headings=[*((words, True) for words in ("claim", "figure", "published")), *((of.machine, True, of.name.partition("/")[2]) for of in claims)],
        rows=rows,
        styles={verdict: style for verdict, (style, _) in VERDICTS.items()},
        verdicts=VERDICTS,
    )
