"""Writes rows.csv: rows as ggml itself encodes them, in the blocks of its files.

python3 reference.py libggml-base.so, of a ggml that was built without -march (or GGML_NATIVE) for that library, as its own build
does. Where ggml's Python package (pip install gguf) encodes a format, both must agree. q6_0 is ik_llama.cpp's and not here.
"""

import csv
import ctypes
import sys
from pathlib import Path

import gguf
import numpy as np

F32 = np.float32
LENGTH = 64
FORMATS = {"q8_0": 34, "q4_0": 18, "q4_1": 20, "q5_0": 22, "q5_1": 24, "iq4_nl": 18}  # bytes of 32 elements


def rows():
    rng = np.random.default_rng(1)
    for scale in (1.0, 1e-3, 100.0, 1e-6, 1e-12):
        yield rng.standard_normal(LENGTH).astype(F32) * F32(scale)
    yield rng.standard_normal(LENGTH).astype(F32) + F32(50)
    yield np.round(rng.standard_normal(LENGTH) * 4).astype(F32) / F32(4)
    yield (np.arange(LENGTH) % 32).astype(F32) - F32(15.5)
    yield (np.arange(LENGTH) % 16).astype(F32) / F32(2) - F32(4)
    outlier = rng.standard_normal(LENGTH).astype(F32)
    outlier[20] = F32(-300)
    yield outlier
    for _ in range(6):
        yield rng.standard_t(3, LENGTH).astype(F32)


def main():
    library = ctypes.CDLL(sys.argv[1])
    with open(Path(__file__).with_name("rows.csv"), "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["format", "row", "blocks"])
        for name, block_bytes in FORMATS.items():
            encode = getattr(library, f"quantize_row_{name}_ref")
            encode.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
            for row in rows():
                blocks = np.zeros(LENGTH // 32 * block_bytes, np.uint8)
                encode(row.ctypes.data, blocks.ctypes.data, LENGTH)
                if name != "iq4_nl":
                    of_package = gguf.quants.quantize(row, gguf.GGMLQuantizationType[name.upper()])
                    assert (of_package == blocks).all(), name
                out.writerow([name, row.astype("<f4").tobytes().hex(), blocks.tobytes().hex()])


main()
