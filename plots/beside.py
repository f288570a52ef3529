"""Commands that write files: all of them or, where something fails, none, and one line that says why."""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from columns import BadResults, printable

UNFINISHED = ".unfinished-"  # begins the name of a folder that a killed command leaves behind


def exit_code(work: Callable[[], None]) -> int:
    """0; or 2 after one line on standard error, for bad results and for a system that refuses to read or write."""
    try:
        work()
        sys.stdout.flush()
        return 0
    except BadResults as error:
        complaint = str(error)
    except OSError as error:
        complaint = f"{error.filename or 'standard output'}: cannot be written ({error.strerror})"
        if not error.filename:  # Python writes what is left of it once more at its end, and complains at length
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    print(f"kvlab: {printable(complaint)}", file=sys.stderr)
    return 2


class Arguments(argparse.ArgumentParser):
    """Whose mistakes are one line, as all others."""

    def error(self, message: str) -> NoReturn:
        raise BadResults(f"{message} (--help shows how)")


def given_folder(text: str) -> Path:
    """An option's folder. Throws BadResults where it is empty, as a script's unset variable, which would mean the current folder."""
    if not text:
        raise BadResults("--out is empty; it needs a folder")
    return Path(text)


@contextmanager
def beside(out: Path, entry: str, mark: str = "") -> Iterator[Path]:
    """A folder to write into, whose files afterwards take their places in `out`; nothing there changes where anything fails.
    `entry`, the page that leads to the others, goes first and comes last: without it nobody takes a killed command's part for
    the whole. `mark`, which says whose folder this is, comes first. The folder lies inside `out`, which is on the disk that they go to."""
    is_new = not out.exists()
    unfinished = out / f"{UNFINISHED}{os.getpid()}"
    try:
        for left in [unfinished, *out.glob(f"{UNFINISHED}*")]:
            if left == unfinished or not Path("/proc", left.name.removeprefix(UNFINISHED)).exists():  # a killed command's
                shutil.rmtree(left, ignore_errors=True)
        unfinished.mkdir(parents=True)
        yield unfinished
        files = sorted((path for path in unfinished.rglob("*") if not path.is_dir()), key=lambda path: (path == unfinished / entry, path != unfinished / mark, path))
        for path in files:
            to = out / path.relative_to(unfinished)
            if to.is_dir():
                raise IsADirectoryError(None, "a folder has its name", str(to))
            to.parent.mkdir(parents=True, exist_ok=True)
        (out / entry).unlink(missing_ok=True)
        for path in files:
            path.replace(out / path.relative_to(unfinished))
    except OSError as error:
        inside = not error.filename or str(error.filename).startswith(str(unfinished))
        raise OSError(error.errno, error.strerror, str(out) if inside else error.filename) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        with suppress(OSError):  # where it holds something by now
            if is_new:
                out.rmdir()
