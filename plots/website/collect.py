"""The contents of a site: the results folders below the given ones, each with its machine and how far it can be trusted."""

import csv
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from claims import is_reproduction
from columns import BadResults
from data import Run, by_host, load_run, read_rows
from page import nested
from trust import Trust, trust_of

MARK = "kvlab-site.txt"  # in the folder of a site


@dataclass(frozen=True)
class Folder:
    run: Run
    machine: str
    name: str  # machine/run

    @property
    def config(self) -> str:
        return nested(self.run.env, "config", "name") or (nested(self.run.env, "config", "path") or self.run.name).removesuffix(".toml")

    @property
    def commit(self) -> str:
        return nested(self.run.env, "kvlab", "git_commit") or ""

    @property
    def dirty(self) -> bool:
        return nested(self.run.env, "kvlab", "git_dirty") is True

    @property
    def findings(self) -> list[str]:
        return [str(finding) for finding in self.run.env.get("findings") or []]

    @property
    def trust(self) -> Trust:
        return trust_of([self.run])


@dataclass(frozen=True)
class Claims:
    machine: str
    name: str
    folder: Path
    rows: list[dict[str, str]]


def collect(roots: list[Path]) -> tuple[list[Folder], list[Claims], list[tuple[Path, str]]]:
    """All folders below the roots that hold cells.csv or claims.csv, and those that are left out, with the reason. Throws
    BadResults."""
    left_out: list[tuple[Path, str]] = []
    folders: list[Folder] = []
    claims: list[Claims] = []
    names: dict[str, Path] = {}
    for root in roots:
        found = sorted(results_below(root, left_out))
        if not found:
            raise BadResults(f"{root}: no results folder is here or below: none holds cells.csv or claims.csv")
        for path in found:
            refuse_links(path)
            if is_reproduction(path):
                machine = machine_of(root, path)
                claims.append(Claims(machine, f"{machine}/{path.name}", path, list(claim_rows(path / "claims.csv"))))
                continue
            if "cell" not in read_rows(path / "cells.csv")[0]:
                left_out.append((path, "its cells.csv is no run's: it has no column 'cell'"))
                continue
            run = load_run(path, path.resolve().name)
            for part in by_host(run):
                machine = machine_of(root, path, part)
                name = f"{machine}/{path.resolve().name}"
                if name in names:
                    raise BadResults(f"{path}: the site has '{name}' already, from {names[name]}; rename one of them")
                names[name] = path
                folders.append(Folder(part, machine, name))
    return folders, claims, left_out


def results_below(root: Path, left_out: list[tuple[Path, str]]) -> Iterator[Path]:
    """The folders of results; not those inside another, as a reproduction's own runs, and none that nobody chose to publish."""
    if not root.is_dir():
        raise BadResults(f"{root}: no such folder; give results folders, or one above them")
    if any((root / name).exists() for name in ("cells.csv", "claims.csv")):
        yield root
        return
    for inside in sorted(path for path in root.iterdir() if path.is_dir()):
        if inside.is_symlink():
            left_out.append((inside, "a link"))
        elif inside.name == "local":
            left_out.append((inside, "runs of this machine alone; a site has them where they are given"))
        elif not (inside / MARK).exists() and not inside.name.startswith("."):
            yield from results_below(inside, left_out)


def refuse_links(folder: Path) -> None:
    """A site publishes a folder's files, and a link may point to any other."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise BadResults(f"{path}: a link or no file, which a site does not publish; put the file itself there")


def machine_of(root: Path, path: Path, run: Run | None = None) -> str:
    """RESULTS/MACHINE/RUN is that machine's; a merged run's rows are their host's; else the processor names it."""
    if run and run.host:
        return run.host
    path = path.resolve()
    if path != root.resolve() and path.parent != root.resolve().parent and path.parent.name not in ("local", "results"):
        return path.parent.name
    if (path.parent / "..").resolve().name == "results" and path.parent.name != "local":
        return path.parent.name
    model = nested(run.env, "cpu", "model") if run else ""
    cores = nested(run.env, "cpu", "cores") if run else None
    return slug(f"{model} {cores or ''}-core") if model else "unknown-machine"


def claim_rows(path: Path) -> Iterator[dict[str, str]]:
    header, rows, _ = read_rows(path)
    missing = [name for name in ("source", "claim", "figure", "verdict") if name not in header]
    if missing:
        raise BadResults(f"{path}: missing columns {', '.join(missing)}")
    for row in rows:
        yield dict(zip(header, row))


def slug(text: str) -> str:
    """A file's name for any text: no two texts have one."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:60] or "x"
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


csv.field_size_limit(2**31 - 1)
