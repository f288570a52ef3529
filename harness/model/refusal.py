"""A user's mistake: its text is the one line that he reads."""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


class Refusal(Exception):
    pass


@contextmanager
def refused_failures(what: str) -> Iterator[None]:
    """What `tokenizers` raises for a broken file is of no type of its own. It is Rust: a panic is no Exception either, and has written
    a backtrace to standard error before it arrives here."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    except (ImportError, KeyboardInterrupt, OSError, Refusal, SystemExit):
        raise
    except BaseException as error:
        raise Refusal(f"{what}: {error}; expected a tokenizer.json of the `tokenizers` package") from error
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
