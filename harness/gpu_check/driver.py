"""Asks NVIDIA's driver for a GPU, before anything is built."""

from __future__ import annotations

import ctypes

COMPUTE_CAPABILITY = (75, 76)  # CUdevice_attribute: major, minor
LEAST = (8, 0)


def supported_cuda() -> int:
    """The newest CUDA that the driver supports, in its numbers (12040 is 12.4), or 0."""
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return 0
    return version.value


def find_gpu() -> tuple[str, tuple[int, int] | None]:
    """("", compute capability) of the first GPU, or (reason, None) if none can be used."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver here (libcuda.so.1 is missing)", None
    error = cuda.cuInit(0)
    count = ctypes.c_int()
    if error == 0:
        error = cuda.cuDeviceGetCount(ctypes.byref(count))
    if error != 0 or count.value == 0:
        return f"the NVIDIA driver sees no GPU (its error {error})", None
    device = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    values = []
    for attribute in COMPUTE_CAPABILITY:
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        values.append(value.value)
    capability = (values[0], values[1])
    if capability < LEAST:
        return f"this GPU has compute capability {values[0]}.{values[1]}, but kvlab needs at least 8.0 (Ampere)", None
    return "", capability
