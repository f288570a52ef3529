"""The tables of configs/keys.md: keys, their values and experiments from `kvlab schema`, defaults and meanings from the page itself.

    ./kvlab schema | python3 tests/project/keys_page.py     writes the page anew
"""

import json
import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "configs/keys.md"
TABLES = ["model", "workload", "sweep", "measure", "task", "serve", "speculate", "replay", "sensitivity"]
OWN = {"serve": ["context", "prompt"], "replay": ["memory", "prompt", "step_tokens"]}  # that mean something else there than in [measure]


def shape(value: dict) -> str:
    """The values of a key in a few words."""
    if "anyOf" in value:
        first, *others = map(shape, value["anyOf"])
        return f"{first}, or a list" if value["anyOf"][-1].get("type") == "array" else f"{first}, or text as `4K`" if others else first
    if "enum" in value:
        return ", ".join(f"`{name}`" for name in value["enum"])
    if "properties" in value:
        return "table: " + ", ".join(f"`{name}`" for name in value["properties"])
    if "pattern" in value:
        return "bytes, as `4GiB`"
    kind = {"string": "text", "boolean": "true, false", None: "text or list"}.get(value.get("type"), value.get("type"))
    ends = [f"{value[end]:g}" if value[end] < 1e6 else "" for end in ("minimum", "maximum") if end in value]
    return f"{kind} {'…'.join([*ends, ''][:2])}" if ends else kind


def properties(value: dict) -> dict:
    return next((part["properties"] for part in (value, *value.get("anyOf", [])) if "properties" in part), {})


def users(schema: dict, key: str) -> str:
    """The experiments whose tables may have a key of [sweep] or [measure]."""
    tables = {name: properties(value) for name, value in schema.items() if "variants" in properties(value) and name != "sweep"}
    having, lacking = ([name.replace("whole_", "") for name in tables if (key in tables[name] and key not in OWN.get(name, ())) == has] for has in (True, False))
    shorter = having if len(having) <= len(lacking) else lacking
    return "all" if not lacking else "all but " * (shorter is lacking) + ", ".join(f"`{name}`" for name in shorter)


def tables(schema: dict) -> dict[str, list[list[str]]]:
    """The lines of each section's table, without default and meaning."""
    common = {*properties(schema["sweep"]), *properties(schema["measure"])}
    made = {"Top level": [[f"`{key}`", shape(value)] for key, value in schema.items() if not properties(value)]}
    for name in TABLES:
        shared = name in ("sweep", "measure")
        keys = [(key, value) for key, value in properties(schema[name]).items() if shared or name in TABLES[:2] or key not in common or key in OWN.get(name, ())]
        made[f"[{name}]"] = [[f"`{key}`", shape(value), *([users(schema, key)] if shared else [])] for key, value in keys]
    return made


def page(schema: dict, old: str) -> str:
    for heading, rows in tables(schema).items():
        body = old[old.index(f"## {heading}\n") :].partition("\n## ")[0]
        said = {line[0].strip(): line[-2:] for line in (re.split(r" \| ", row.strip("| ")) for row in re.findall(r"^\| `.*", body, re.M))}
        head = ["key", "values", *(["experiments"] if len(rows[0]) > 2 else []), "default", "meaning"]
        lines = [head, ["---"] * len(head), *([*row, *said.get(row[0], ["", "?"])] for row in rows)]
        table = "".join("| " + " | ".join(line) + " |\n" for line in lines)
        old = old.replace(body, re.sub(r"^\|.*\n(\|.*\n)*", lambda _: table, body + "\n" * (body[-1] != "\n"), count=1, flags=re.M).rstrip("\n") + "\n")
    return old


if __name__ == "__main__":
    PAGE.write_text(page(json.load(sys.stdin)["properties"], PAGE.read_text()))
