"""token(mode=symmetric) of variants/codec/token.cc: codes of 8 bits under one f32 scale a row."""

import numpy as np


def encode(row):
    scale = np.maximum(np.abs(row).max() / np.float32(127), np.float32(2**-126))
    return scale.tobytes() + np.rint(row * (np.float32(1) / scale)).astype(np.int8).tobytes()


def decode(code, shape):
    return np.frombuffer(code, np.int8, offset=4).reshape(shape) * np.frombuffer(code, np.float32, 1)
