"""Calls functions of a user's file for kvlab: a line of JSON in, a line of JSON out, arrays in shared memory.

    call.py FILE FUNCTION
    call.py FILE ENCODE+DECODE

A policy's function gets k and v [kv_heads, tokens, dim], attention [kv_heads, tokens] or None, and position [kv_heads, tokens],
which it can read where they lie, and returns scores [kv_heads, tokens]. A codec's get a row [1, dim] and return bytes, and get
these bytes with the shape (1, dim) and return a row.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import random
import sys
import traceback
import zlib
from pathlib import Path

SHARED = 3  # the file of shared floats


class Unsupported(Exception):
    """There is no such function."""


def load(file: Path, names: list[str]) -> list:
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as why:
        raise Unsupported(told(why, file)) from None
    for name in names:
        if not callable(getattr(module, name, None)):
            raise Unsupported(f"{file.name} has no function {name}")
    return [getattr(module, name) for name in names]


def wrong(function, kind: type[Exception], text: str) -> Exception:
    error = kind(text)
    error.function = function
    return error


def told(why: BaseException, file: Path) -> str:
    """One line with the line of the file that the error comes from, or where the function begins."""
    lines = [frame.lineno for frame in traceback.extract_tb(why.__traceback__) if Path(frame.filename) == file]
    if isinstance(why, SyntaxError) and why.filename == str(file):
        lines = [why.lineno]
    begins = getattr(getattr(getattr(why, "function", None), "__code__", None), "co_firstlineno", 1)
    text = (str(why).strip().splitlines() or [""])[0][:300]
    return f"{file.name}:{lines[-1] if lines else begins}: {type(why).__name__}{': ' * bool(text)}{text}"


def seed(of: bytes) -> None:
    """Draws depend on what is scored or encoded alone, so that a run can be repeated."""
    import numpy as np

    random.seed(zlib.crc32(of))
    np.random.seed(zlib.crc32(of))


def score(functions: list, request: dict, shared: mmap.mmap) -> dict:
    import numpy as np

    (function,) = functions
    heads, tokens = request["kv_heads"], request["tokens"]
    floats, at = np.frombuffer(shared, np.float32), 0

    def taken(*shape, kind=np.float32):
        nonlocal at
        begin, at = at, at + int(np.prod(shape))
        array = floats[begin:at].view(kind).reshape(shape)
        array.flags.writeable = False
        return array

    k, v = taken(heads, tokens, request["key_dim"]), taken(heads, tokens, request["value_dim"])
    attention = taken(heads, tokens) if request["weighs"] else None
    position = taken(heads, tokens, kind=np.int32)
    seed(position[:, -1].tobytes() + k[:, -1].tobytes())
    scores = np.asarray(function(k, v, attention, position), np.float32)
    if scores.shape != (heads, tokens):
        raise wrong(function, ValueError, f"it returned an array of shape {scores.shape}, not {(heads, tokens)}")
    if np.isnan(scores).any():
        raise wrong(function, ValueError, "a score is NaN")
    floats[at : at + scores.size] = scores.ravel()
    return {}


def recode(functions: list, request: dict, shared: mmap.mmap) -> dict:
    """Rows by what they decode to, each on its own: what is stored must not depend on the rows that come with it."""
    import numpy as np

    encode, decode = functions
    rows = np.frombuffer(shared, np.float32, request["rows"] * request["dim"]).reshape(-1, 1, request["dim"])
    given = rows.view()
    given.flags.writeable = False
    codes = []
    for row in given:
        seed(row.tobytes())
        codes.append(encode(row))
        if not isinstance(codes[-1], bytes):
            raise wrong(encode, TypeError, f"it returned {type(codes[-1]).__name__}, not bytes")
    for row, code in zip(rows, codes):
        seed(code)
        decoded = np.asarray(decode(code, row.shape), np.float32)
        if decoded.shape != row.shape:
            raise wrong(decode, ValueError, f"it returned an array of shape {decoded.shape}, not {row.shape}")
        if not np.isfinite(decoded).all():
            raise wrong(decode, ValueError, "a value is NaN or infinite")
        row[:] = decoded
    return {"bytes": sum(map(len, codes))}


def main(file: Path, name: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the function prints must not look like an answer
    functions = shared = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "open":
                functions, answer = load(file, name.split("+")), {}
            else:
                size = os.fstat(SHARED).st_size
                if shared is None or len(shared) < size:
                    shared = mmap.mmap(SHARED, size)
                answer = {"score": score, "recode": recode}[request["do"]](functions, request, shared)
        except MemoryError:
            answer = {"error": "ran out of memory", "kind": "memory"}
        except Unsupported as why:
            answer = {"error": str(why), "kind": "unsupported"}
        except Exception as why:  # ends one cell, not the run
            answer = {"error": told(why, file)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
