"""The report of `kvlab reproduce`: every published figure with what was computed and measured, and the verdict.

    python claims.py COMMITTED FRESH [SOURCE...]  do two folders agree on every verdict that does not depend on the machine, of all sources or these?
"""

import argparse
import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from columns import BadResults

COLUMNS = """
    source claim figure check replica machine published computed measured verdict reason note text title document where
    quote setting
""".split()
# Columns that folders of earlier versions lack, and what stands for them.
LATER = {"how": "", "run": "", "kind": "", "role": "decides", "reading": "no", "decides": "yes"}
# A file of a repository at a commit, an address, a preprint.
ADDRESSES = re.compile(
    r"(https://github\.com/[\w.-]+/[\w.-]+), file (?P<file>.+?) at commit (?P<commit>[0-9a-f]{7,40})"
    r"|https://[^\s,;()]+[^\s,;().]|arXiv:(?P<preprint>\d{4}\.\d{4,5})"
)
CHECKS = {  # the setting of a claim that states none
    "closed form": "bytes by the closed form of a cache of this size, and counted by the ledger where it is small enough to build",
    "formula": "arithmetic on the source's own figures",
    "bound": "arithmetic: the most, or of a time the least, that is possible",
    "roofline": "arithmetic on bytes and bandwidths: the most, or of a time the least, that is possible",
    "measurement": "measured here",
    "ordering": "measured here, one against the other",
    "growth law": "the exponent over lengths",
    "test": "a test of the project holds it, which `./kvlab test` runs; nothing was run here",
    "none": "nothing was run",
}
csv.field_size_limit(2**31 - 1)  # the module's own limit is shorter than a quotation may be
# The verdicts of harness/claims/verdict.h: (style in templates/style.css, meaning).
VERDICTS = {
    "reproduced": ("reproduced", "the computed value agrees, and so does all of the measured 95 % interval"),
    "consistent": ("consistent", "a bound, or a figure given as “up to”, allows it; nothing here reaches it"),
    "true by construction": ("construction", "agrees, and would have agreed whatever was computed or measured"),
    "inconclusive": ("inconclusive", "the measured interval crosses the edge of the tolerance"),
    "differs in this replica": ("differs", "disagrees, on other hardware, inputs or another size or model"),
    "contradicted": ("contradicted", "disagrees, by the source’s own numbers or in its own setting"),
    "not testable here": ("untestable", "needs what is missing: a GPU, a large model, another codec"),
}


class BadClaims(BadResults):
    """A file cannot be used as it is; the message is one line: what is wrong, and where."""


@dataclass
class Claim:
    first: dict[str, str]  # its first figure, for the columns that all of them share
    figures: list[dict[str, str]]
    notes: list[str]

    @property
    def checks(self) -> str:
        return "; ".join(dict.fromkeys(CHECKS.get(row["check"], row["check"]) for row in self.figures))

    @property
    def hows(self) -> list[tuple[str, str]]:
        """(how they were checked, names of the figures that were checked so)"""
        figures: dict[str, list[str]] = {}
        for row in self.figures:
            if row["how"]:
                figures.setdefault(row["how"], []).append(row["figure"])
        return [(how, "# " + "; ".join(names)) for how, names in figures.items()]

    @property
    def runs(self) -> list[str]:
        return list(dict.fromkeys(row["run"] for row in self.figures if row["run"]))


@dataclass
class Source:
    name: str  # the claim file's
    title: str
    document: str
    claims: list[Claim]
    counts: Counter[str]  # published figures by verdict

    @property
    def address(self) -> str:
        """Its address; empty if its document names none."""
        return next((address for _, address in linked(self.document) if address), "")


def linked(document: str) -> list[tuple[str, str]]:
    """The text in parts, each with the address that it is a link to, or with an empty one."""
    parts, end = [], 0
    for found in ADDRESSES.finditer(document):
        address = found[0]
        if found["preprint"]:
            address = f"https://arxiv.org/abs/{found['preprint']}"
        elif found["file"]:
            address = f"{found[1]}/blob/{found['commit']}/{quote(found['file'])}"
        parts += [(document[end : found.start()], ""), (found[0], address)]
        end = found.end()
    return [(text, address) for text, address in [*parts, (document[end:], "")] if text]


def measured_of(row: dict[str, str]) -> tuple[str, str]:
    """The value as printed, and its interval or why it has none."""
    value, bracket, interval = row["measured"].partition(" (")
    if not value:
        return "–", ""
    if not bracket:
        return value, "counted: no interval" if row["check"] == "closed form" else "one value: no interval"
    return value, interval.removesuffix(")")


def is_reproduction(folder: Path) -> bool:
    return (folder / "claims.csv").exists()


def read_claims(folder: Path) -> list[dict[str, str]]:
    path = folder / "claims.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, restval=""))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadClaims(f"{path}: cannot be read ({error})") from None
    missing = [column for column in COLUMNS if rows and column not in rows[0]]
    if missing:
        raise BadClaims(f"{path}: missing column{'s' * (len(missing) > 1)} {', '.join(missing)}")
    for line, row in enumerate(rows, start=2):
        row.update({column: row.get(column, usual) for column, usual in LATER.items()})
        if row["verdict"] not in VERDICTS:
            raise BadClaims(f"{path}:{line}: the verdict '{row['verdict'][:40]}' is none of {', '.join(VERDICTS)}")
    return rows


def published(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """One row a published figure: that of the check which decides it."""
    return [row for row in rows if row.get("decides", "yes") == "yes"]


def sources(rows: list[dict[str, str]]) -> Iterator[Source]:
    """In the order of the file."""
    for (name, title, document), group in groupby(rows, key=lambda row: (row["source"], row["title"], row["document"])):
        group = list(group)
        claims = []
        for _, figures in groupby(group, key=lambda row: row["claim"]):
            figures = list(figures)
            notes = list(dict.fromkeys(row["note"] for row in figures if row["note"]))
            claims.append(Claim(figures[0], figures, notes))
        yield Source(name, title, document, claims, Counter(row["verdict"] for row in published(group)))


def write_claims(folder: Path, out: Path) -> Path:
    """Writes report.html, which opens without a network, and the same as Markdown; templates escape every value."""
    from claims_markdown import markdown, summary
    from data import read_env  # needs polars, which comparing two folders does not
    from page import flatten, nested
    from templating import render

    rows = read_claims(folder)
    env = read_env(folder / "env.json")
    (out / "claims.md").write_text(markdown(rows), encoding="utf-8")
    (out / "summary.md").write_text(summary(rows), encoding="utf-8")
    path = out / "report.html"
    page = render(
        "claims.html",
        title="published claims",
        counts=Counter(row["verdict"] for row in published(rows)),
        quick=env.get("quick", False),
        styles={verdict: style for verdict, (style, _) in VERDICTS.items()},
        meanings={verdict: meaning for verdict, (_, meaning) in VERDICTS.items()},
        sources=list(sources(rows)),
        linked=linked,
        measured_of=measured_of,
        env=list(flatten(env)),
        machine=nested(env, "cpu", "model") or "machine not recorded",
    )
    path.write_text(page, encoding="utf-8")
    return path


def disagreements(committed: list[dict[str, str]], fresh: list[dict[str, str]]) -> list[str]:
    """Figures that do not depend on the machine and have another verdict, or are in only one of the two."""

    def settled(rows: list[dict[str, str]]) -> dict[tuple[str, ...], str]:
        return {
            (row["source"], row["claim"], row["figure"]): row["verdict"] for row in rows if row["machine"] == "no"
        }

    old, new = settled(committed), settled(fresh)
    lines = []
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key, "no such figure"), new.get(key, "no such figure")
        name = "/".join(part for part in key if part)
        if before != after:
            lines.append(f"{name}: committed {before}, fresh {after}")
    return lines


def compare(committed: Path, fresh: Path, of: list[str]) -> int:
    old, new = ([row for row in read_claims(folder) if not of or row["source"] in of] for folder in (committed, fresh))
    differing = disagreements(old, new)
    for line in differing:
        print(line)
    print(f"{len(differing)} verdicts differ between {committed} and {fresh}")
    return 1 if differing else 0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("first", type=Path, help="the committed folder")
    arguments.add_argument("second", type=Path, help="a fresh folder")
    arguments.add_argument("sources", nargs="*", help="compare only these sources")
    options = arguments.parse_args()
    try:
        return compare(options.first, options.second, options.sources)
    except (BadClaims, OSError) as error:
        print(f"kvlab: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
