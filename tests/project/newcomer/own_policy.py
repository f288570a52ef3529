"""A newcomer's policy: weights of a prompt's last queries, over the norm of the key."""

import numpy as np


def score(k, v, attention, position):
    norm = np.linalg.norm(k, axis=2)
    return attention / norm
