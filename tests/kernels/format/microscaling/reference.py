"""Writes rows.csv: rows as ml_dtypes (Google's number formats for NumPy) encodes them in mxfp8, mxfp4 and nvfp4.

The scales follow the formats' documents, in NumPy: OCP Microscaling Formats v1.0, section 6.3, and NVIDIA's
arXiv:2509.25149, the appendix on quantisation. The number formats and their rounding are ml_dtypes'. Nothing here is kvlab's, so that
microscaling_test.cc compares two implementations. To write the file again: pip install ml_dtypes, then run this.
"""

import csv
from pathlib import Path

import ml_dtypes
import numpy as np

F32 = np.float32
MX = {  # element, exponent of its largest power of two
    "mxfp8e4m3": (ml_dtypes.float8_e4m3fn, 8),
    "mxfp8e5m2": (ml_dtypes.float8_e5m2, 15),
    "mxfp4": (ml_dtypes.float4_e2m1fn, 2),
}
LENGTH = 32


def rounded(x, element):
    """To nearest even; saturates."""
    largest = float(ml_dtypes.finfo(element).max)
    return np.clip(x, -largest, largest).astype(element)


def mx(row, element, top_exponent):
    largest = np.abs(row).max()
    exponent = np.frexp(np.float64(largest))[1] - 1 - top_exponent if largest else -127
    exponent = max(int(exponent), -127)
    scale = np.float64(2.0) ** exponent
    stored = np.array([scale]).astype(ml_dtypes.float8_e8m0fnu)
    return "", stored.view(np.uint8), rounded(np.float64(row) / scale, element).view(np.uint8)


def nvfp4(row, whole):
    factor = F32(6 * 448) / np.abs(row).max() if whole and row.any() else F32(1)
    inverse = F32(1) / factor
    scales, codes = [], []
    for block in row.reshape(-1, 16):
        stored = rounded(np.abs(block).max() / F32(6) * factor, ml_dtypes.float8_e4m3fn)
        scale = F32(stored) * inverse
        codes.append(rounded(block * (F32(1) / scale) if scale else block * F32(0), ml_dtypes.float4_e2m1fn).view(np.uint8))
        scales.append(stored.view(np.uint8))
    return (np.array([inverse]).tobytes().hex() if whole else ""), np.array(scales), np.concatenate(codes)


def ties(element, top_exponent):
    """Rows of every number of the element's format, every middle between two, and both neighbours of it."""
    codes = np.arange(2 ** (ml_dtypes.finfo(element).bits - 1), dtype=np.uint8)
    values = codes.view(element).astype(F32) if element != ml_dtypes.float4_e2m1fn else codes.astype(np.uint8).view(element).astype(F32)
    values = values[np.isfinite(values)]
    middles = (values[1:] + values[:-1]) / F32(2)
    all_values = np.concatenate([values, middles, np.nextafter(middles, F32(0)), np.nextafter(middles, F32(np.inf))])
    all_values = all_values * np.where(np.arange(all_values.size) % 3 == 0, F32(-1), F32(1))
    top = F32(2.0**top_exponent)  # makes the scale 1
    for first in range(0, all_values.size, LENGTH - 1):
        part = all_values[first : first + LENGTH - 1]
        yield np.concatenate([part, np.full(LENGTH - part.size, top, F32)])


def common_rows():
    rng = np.random.default_rng(1)
    normal = rng.standard_normal(LENGTH).astype(F32)
    for scale in (1.0, 1e-3, 3e4, 1e-20, 1e30, 1e-38, 1e-42):
        yield normal * F32(scale)
    yield np.zeros(LENGTH, F32)
    yield -np.zeros(LENGTH, F32)
    yield np.concatenate([np.zeros(16, F32), normal[:16]])
    for top in (3.99, 4.0, 5.0, 7.0, 7.99):  # around the range that a power-of-two scale leaves above the largest element
        row = normal.copy()
        row[5] = F32(-top)
        yield row
    yield np.round(normal * 4) / F32(4)
    outlier = normal.copy()
    outlier[20] = F32(1000)
    yield outlier


def text(row):
    return row.astype("<f4").tobytes().hex()


def main():
    with open(Path(__file__).with_name("rows.csv"), "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["format", "row", "row_scale", "scales", "codes"])
        for name, (element, top_exponent) in MX.items():
            for row in [*common_rows(), *ties(element, top_exponent)]:
                row_scale, scales, codes = mx(row, element, top_exponent)
                out.writerow([name, text(row), row_scale, scales.tobytes().hex(), codes.tobytes().hex()])
        for name, whole in (("nvfp4", True), ("nvfp4one", False)):
            for row in [*common_rows(), *ties(ml_dtypes.float4_e2m1fn, 2)]:
                if whole and 0 < np.abs(row).max() < 1e-30:
                    continue  # the f32 would overflow; where kvlab limits it is its own choice
                row_scale, scales, codes = nvfp4(row, whole)
                out.writerow([name, text(row), row_scale, scales.tobytes().hex(), codes.tobytes().hex()])


main()
