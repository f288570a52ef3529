"""A site of results folders, of any number of machines: static pages that open from a disk, without a network."""

import sys
from pathlib import Path

from beside import UNFINISHED, Arguments, beside, exit_code, given_folder
from columns import BadResults
from website.build import build
from website.collect import MARK, collect


def main(words: list[str] | None = None) -> int:
    arguments = Arguments(prog="kvlab site", description=__doc__)
    arguments.add_argument("results", nargs="+", type=Path, help="results folders, or folders above them")
    arguments.add_argument("--out", type=given_folder, required=True, help="the site's folder: a new one, or an earlier site's")
    return exit_code(lambda: publish(**vars(arguments.parse_args(words))))


def publish(results: list[Path], out: Path) -> None:
    """Makes the site, and says so. Throws BadResults and OSError."""
    if out.exists() and not is_site(out):
        raise BadResults(f"--out {out}: holds other files than an earlier site's; a new folder is needed")
    folders, claims, left_out = collect(results)
    for path, reason in left_out:
        print(f"left out: {path}, {reason}")
    if not folders:
        raise BadResults(f"{results[0]}: holds claims alone; a site needs a results folder with cells.csv")
    with beside(out, "index.html", MARK) as unfinished:
        build(unfinished, folders, claims)
        (unfinished / MARK).write_text("made by kvlab site, which may replace the files here\n", encoding="utf-8")
    print(out / "index.html")


def is_site(folder: Path) -> bool:
    return folder.is_dir() and ((folder / MARK).is_file() or all(path.name.startswith(UNFINISHED) for path in folder.iterdir()))


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="surrogateescape")  # a path is printed as it is, and may be no UTF-8
    sys.exit(main())
