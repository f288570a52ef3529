"""Vega, Vega-Lite and vega-embed as one script, which a report carries along: it needs no network."""

import gzip
import os
import zlib
from contextlib import suppress
from pathlib import Path

import vl_convert

VEGALITE = "6.1"  # what Altair 6.0 writes
KEPT = Path(__file__).parent / "__pycache__" / f"vega-{VEGALITE}-{vl_convert.__version__}.js.gz"


def javascript() -> str:
    """The script. Putting it together takes a second and gives the same each time: it is kept beside Python's own compiled files."""
    with suppress(OSError, EOFError, zlib.error):  # not there yet, or damaged: what is compressed carries a checksum
        if script := gzip.decompress(KEPT.read_bytes()).decode():
            return script
    script = vl_convert.javascript_bundle(vl_version=VEGALITE)
    with suppress(OSError):  # of a folder that cannot be written
        keep(KEPT, gzip.compress(script.encode()))
    return script


def keep(path: Path, content: bytes) -> None:
    """Others that draw at the same time see the whole file or none."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    path.parent.mkdir(exist_ok=True)
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
