"""The verdicts of claims.csv as Markdown: all figures with quotes and arithmetic, and the summary by source and claim."""

import re
from collections import Counter

from claims import VERDICTS, Source, published, sources

Row = dict[str, str]
RANKS = ["contradicted", "differs in this replica", "inconclusive", "not testable here", "consistent", "true by construction"]
CONTRADICTED_SHOWN = 3  # a source in the summary


def line(*fields: str) -> str:
    cells = (re.sub(r"[|<]", r"\\\g<0>", field.replace("\n", " ")) for field in fields)
    return "|" + "".join(f" {cell} |" for cell in cells) + "\n"


def head(*names: str) -> str:
    return line(*names) + "|" + "---|" * len(names) + "\n"


def verdicts(rows: list[Row]) -> str:
    """`7 reproduced, 2 contradicted`; the verdict alone for a single figure."""
    counts = Counter(row["verdict"] for row in rows)
    return ", ".join(f"{counts[v]} {v}" if len(rows) > 1 else v for v in VERDICTS if counts[v])


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def claims_of(rows: list[Row]) -> str:
    return counted(len({(row["source"], row["claim"]) for row in rows}), "claim")


def total(rows: list[Row]) -> str:
    """Published figures by verdict; the contradicted ones by mistake, as one note tells it, since one can be in a whole table."""
    figures, sums = published(rows), [row for row in rows if row.get("role") == "sum"]
    wrong = Counter((row["source"], row["note"] or row["claim"]) for row in figures if row["verdict"] == "contradicted")
    text = f"{counted(len(figures), 'published figure')} of {claims_of(rows)}, in {counted(len(rows), 'check')}" + f": {verdicts(figures)}" * bool(figures)
    text += f". {counted(len(wrong), 'mistake')} make{'s' * (len(wrong) == 1)} the contradicted ones" * bool(wrong)
    text += f", one of them {max(wrong.values())}" if len(wrong) > 1 else ""
    return text + f". The sources' own sums: {verdicts(sums)}" * bool(sums) + ".\n"


def is_replica(row: Row) -> bool:
    return row["replica"] != "exact"


def markdown(rows: list[Row]) -> str:
    text = "# Published claims, and what became of them\n\n" + total(rows)
    for source in sources(rows):
        text += f"\n## {source.title}\n\n{source.document}\n"
        for claim in source.claims:
            first = claim.first
            text += f"\n### {first['claim']}\n\n{first['text']} ({first['where']})\n\n> {first['quote']}\n\n"
            text += f"Setting: {first['setting']}\n\n" if first["setting"] else ""
            text += head("figure", "published", "computed", "measured (95 %)", "verdict", "check", "why")
            for row in claim.figures:
                check = row["check"] + ", qualitative" * is_replica(row) + ", this machine" * (row["machine"] == "yes")
                role = row.get("role", "decides")
                check += ", a reading" * (row["reading"] == "yes") + f", {role}{' nothing' * (role == 'decides')}" * (row["decides"] == "no" and role != "sum")
                values = (row["computed"] or "–", row["measured"] or "–")
                text += line(row["figure"], row["published"], *values, row["verdict"], check, row["reason"])
            text += "".join(f"\nNote: {note}\n" for note in claim.notes)
    return text


def contradicted(source: Source) -> str:
    """The first contradicted figure of each claim; those that arithmetic settles come before replicas, and times come last."""
    first = [next((row for row in published(claim.figures) if row["verdict"] == "contradicted"), None) for claim in source.claims]
    found = sorted(filter(None, first), key=lambda row: is_replica(row) + 2 * (row["machine"] == "yes"))
    shown = [f"{row['text']} ({row['figure']}{': ' * bool(row['figure'])}{row['published']}, here {row['measured'] or row['computed']})"
             for row in found[:CONTRADICTED_SHOWN]]  # fmt: skip
    return "; ".join(shown + [f"and {len(found) - CONTRADICTED_SHOWN} more"] * (len(found) > CONTRADICTED_SHOWN))


def from_to(rows: list[Row], column: str) -> str:
    """The first and the last row's text: `0.67 MB … 21.990 GB`."""
    first, last = rows[0][column] or "–", rows[-1][column] or "–"
    return first if first == last else f"{first} … {last}"


def why(rows: list[Row]) -> str:
    """The claim file's note on the figure whose verdict needs explaining most, else that figure's reason."""
    ranked = [row for verdict in RANKS for row in rows if row["verdict"] == verdict]
    return ("qualitative replica: " * is_replica(ranked[0]) + (ranked[0]["note"] or ranked[0]["reason"])) if ranked else ""


def by_source(rows: list[Row]) -> str:
    given = [verdict for verdict in VERDICTS if any(row["verdict"] == verdict for row in published(rows))]
    text = total(rows) + "\n" + head("source", *given, "what was contradicted")
    for source in sources(rows):
        text += line(source.title, *(str(source.counts[verdict]) for verdict in given), contradicted(source))
    return text


def summary(rows: list[Row]) -> str:
    """Documents apart from papers: nobody has reviewed them."""
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in dict.fromkeys(row["kind"] for row in rows)}
    by_kind = "\n".join((f"**{kind.capitalize()}s.** " if kind else "") + by_source(part) for kind, part in kinds.items())
    by_claim = head("source", "claim", "published", "computed", "measured (95 %)", "verdict", "why")
    for source in sources(rows):
        for i, claim in enumerate(source.claims):
            figures = claim.figures
            name = claim.first["text"] + (f" ({len(figures)} checks)" if len(figures) > 1 else "")
            decided = published(figures) or figures
            values = (from_to(decided, column) for column in ("published", "computed", "measured"))
            by_claim += line("" if i else source.title, name, *values, verdicts(decided), why(decided))
    return f"# Verdicts by source\n\n{by_kind}\n<details><summary>Every claim</summary>\n\n{by_claim}\n</details>\n"
