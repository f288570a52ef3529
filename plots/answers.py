"""A run's conclusions: which variants its answers name, their ranking, ties, fronts and verdicts. The program draws them, in
harness/answers, and writes them into a folder as answers.json; nothing here ranks."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import polars as pl
from columns import BadResults, printable, read_json

HOME = Path(__file__).resolve().parents[1]
PROGRAMS = [HOME / ".build" / preset / "harness" / "kvlab" for preset in ("release", "cuda")] + [HOME / "bin" / "kvlab"]  # bin: the package's
FORMAT = 1  # of answers.json
UNRELIABLE = "unreliable"  # the verdict on times compared with a baseline that is noisy or differs from itself


def read_answers(folder: Path) -> dict:
    """The folder's answers.json if it belongs to the present cells.csv, else the program's answers. Throws BadResults."""
    path = folder / "answers.json"
    found = read_json(path) if path.exists() else {}
    if isinstance(found, dict) and (found.get("format"), found.get("of")) == (FORMAT, hash_of(folder / "cells.csv")):
        return found
    program = next((name for name in [os.environ.get("KVLAB_PROGRAM"), *PROGRAMS] if name and Path(name).is_file()), None)
    if program is None:
        raise BadResults(f"{folder}: has no answers.json of its cells.csv; `./kvlab summary {folder}` writes it")
    done = subprocess.run([program, "summary", folder, "--answers"], capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode:
        raise BadResults(f"{folder}: {done.stderr.strip().removeprefix('error: ')}")
    return printable(json.loads(done.stdout))


def hash_of(path: Path) -> str:
    """That of harness/io/hash.h: FNV-1a, 64 bits."""
    found = 0xCBF29CE484222325
    for byte in path.read_bytes():
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{found:016x}"


def with_conclusions(cells: pl.DataFrame, answers: Mapping) -> pl.DataFrame:
    """Adds `point`, the number of a cell's sweep point among those of `answers`; how it stands there: `rank`, `told`, `on_front`, `ranked` (best
    or tied) and `note`; the first sentence there, `answer`; and `within_limit` of error. The verdict on times that cannot be trusted is unreliable, in folders of earlier versions, too."""
    found = {}
    for at, point in enumerate(answers["points"]):
        judged = {entry["cell"]: entry | {"rank": rank} for rank, entry in enumerate(point["ranked"])}
        said = "".join(point["sentences"][:1]).replace("`", "").removesuffix(".")
        beyond, unreliable = set(point["beyond_limit"]), set(point["unreliable"])
        for name in point["cells"]:
            own = judged.get(name, {})
            found[point["host"], name] = {
                "point": at, "answer": said, "rank": own.get("rank"), "told": own.get("told", ""), "on_front": own.get("front", ""), "ranked": own.get("place", ""),
                "note": own.get("note", ""), "within_limit": name not in beyond, "is_unreliable": name in unreliable,
            }  # fmt: skip
    hosts = cells["host"].fill_null("") if "host" in cells.columns else [""] * cells.height
    try:
        more = pl.DataFrame([found[key] for key in zip(hosts, cells["cell"].fill_null(""))], schema_overrides={"rank": pl.Int64}, infer_schema_length=None)
    except KeyError as absent:
        raise BadResults(f"answers.json does not speak of cell {absent}") from None
    cells = pl.concat([cells.drop(name for name in more.columns if name in cells.columns), more], how="horizontal")
    return cells.with_columns(verdict=pl.when("is_unreliable").then(pl.lit(UNRELIABLE)).otherwise("verdict")).drop("is_unreliable")
