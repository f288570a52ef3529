"""A site of results folders, of any number of machines: static pages that open from a disk, without a network."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from claims import BadClaims
from data import BadResults
from website.build import build
from website.collect import collect


def main(words: list[str] | None = None) -> int:
    arguments = argparse.ArgumentParser(prog="kvlab site", description=__doc__)
    arguments.add_argument("results", nargs="+", type=Path, help="results folders, or folders above them")
    arguments.add_argument("--out", type=Path, required=True, help="the site's folder: a new one, or an earlier site's")
    options = arguments.parse_args(words)
    try:
        if options.out.exists() and not is_site(options.out):
            raise BadResults(f"--out {options.out}: holds other files; a new folder is needed")
        folders, claims = collect(options.results)
        if not folders:
            raise BadResults(f"{options.results[0]}: holds claims alone; a site needs a results folder with cells.csv")
        print(build(options.out, folders, claims))
    except (BadClaims, BadResults) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename}: cannot be used ({error.strerror})", file=sys.stderr)
        return 2
    return 0


def is_site(folder: Path) -> bool:
    return folder.is_dir() and ((folder / "data").is_dir() or not any(folder.iterdir()))


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="surrogateescape")  # a path is printed as it is, and may be no UTF-8
    sys.exit(main())
