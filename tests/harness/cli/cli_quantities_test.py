"""Every number of bytes that a command prints, recomputed from its own CSV or JSON, with the unit that the text names."""

import json
import re

import pytest
from cli_choose_test import ASKED
from program import ENV, HOME, kvlab, succeeded, table

UNITS = {"B": 1, "bytes": 1} | {f"{prefix}{kind}": base**power for kind, base in (("iB", 1024), ("B", 1000))
                                for power, prefix in enumerate("KMGTP", 1)} | {"kB": 1000}  # fmt: skip
QUANTITY = re.compile(rf"(?<![\w.])(\d[\d,]*(?:\.(\d+))?) ({'|'.join(sorted(UNITS, key=len, reverse=True))})\b(?!/s)")
WIDE = {**ENV, "COLUMNS": "400"}
FOLDER = "results/epyc-2core/everything"


def quantities(text):
    """(bytes, half of what the last digit stands for, as printed)"""
    for number, decimals, unit in QUANTITY.findall(" ".join(text.split("\n"))):
        yield float(number.replace(",", "")) * UNITS[unit], UNITS[unit] * 0.5 / 10 ** len(decimals), f"{number} {unit}"


def lengths(rows):
    found = {}
    for row in rows:
        found.setdefault(str(row["seq_len"]), []).append(row["bytes"])
    return found


TABLES = ("tables", "--model", "llama-3.1-8b", "--measure", "0B")
PLAN = ("plan", "--model", "llama-3.1-8b", "--memory", "24GB", "--context", "32K", "--users", "2")
CHOOSE = ("choose", *(word for name, value in ASKED.items() for word in ("--" + name, value)))
COMMANDS = {  # its words, the lines that begin with a label and the bytes that they have, and what a sentence derives from the rows
    "tables": (TABLES, lengths, None),
    "tables, decimal": ((*TABLES, "--units", "decimal"), lengths, None),
    "tables of a budget": ((*TABLES, "--budget", "16GiB", "--weights", "8.5GB"), None,
                           lambda row: [row["budget_bytes"] - row["weights_bytes"]]),
    "plan": (PLAN, lambda rows: {row["variant"]: [row["held_bytes"]] for row in rows if "held_bytes" in row},
             lambda row: [row["held_bytes"] / 2] if "held_bytes" in row else []),
    "choose": (CHOOSE, None, None),
    "list": (("list", "--models"), lambda rows: {row["name"]: [row["f16_bytes_at_8192"]] for row in rows}, None),
    "summary": (("summary", HOME / FOLDER, "--table", "full"), None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_printed_bytes_are_those_of_the_rows(name):
    words, labelled, derived = COMMANDS[name]
    text = succeeded(kvlab(*words, env=WIDE)).stdout
    if name == "summary":
        rows = [{key: float(value) for key, value in row.items() if "bytes" in key and value} for row in table(HOME / FOLDER / "cells.csv")]
    else:
        rows = json.loads(succeeded(kvlab(*words, "--json")).stdout)
    there = [value for row in rows for name, value in row.items() if "bytes" in name and isinstance(value, (int, float))]
    there += [value for row in rows if derived for value in derived(row)]
    said = list(quantities(text))
    assert said
    for value, half, printed in said:
        assert any(abs(value - x) <= 1.000001 * half for x in there), printed
    for label, values in (labelled(rows) if labelled else {}).items():
        line = re.search(rf"^ *{re.escape(label)} .*$", text, re.M)[0]
        own = list(quantities(line))
        assert len(own) == len(values), line
        assert all(abs(value - x) <= 1.000001 * half for (value, half, _), x in zip(own, values)), line


def test_a_plan_tells_a_sequence_from_all_of_them():
    text = " ".join(succeeded(kvlab(*PLAN)).stdout.split())
    (best, *_) = json.loads(kvlab(*PLAN, "--json").stdout)
    (one, half, _), (all_of_them, half_of_all, _) = list(quantities(re.search(r"it takes (.*?) in all", text)[1]))
    assert abs(one - best["held_bytes"] / 2) <= half and abs(all_of_them - best["held_bytes"]) <= half_of_all


def test_a_claims_figures_are_said_in_the_unit_that_they_have(tmp_path):
    """4,800 MiB, which a source prints as 4.8 GB, are 5.03 GB."""
    done = succeeded(kvlab("reproduce", "004/memory-fp32", "--tables", "--quick", "--measure", "0B", "--no-plots", "--out", tmp_path / "out", env=WIDE))
    checked = 0
    for row in table(tmp_path / "out" / "claims.csv"):
        for text, number in (("computed", "computed_value"), ("measured", "measured_value")):
            for value, half, printed in quantities(row[text].partition(" (")[0]):
                checked += 1
                assert abs(value - float(row[number])) <= max(half, 0.0005 * value), (row["claim"], row["figure"], printed)
                assert printed in done.stdout or not row["table"]
    assert checked > 6
