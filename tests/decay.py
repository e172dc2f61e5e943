"""Files as they are after years on a disk."""

import numpy as np


def decayed(content, seed=0, n_flips=200, n_cuts=50):
    """The same file with a bit flipped, or cut short."""
    rng = np.random.default_rng(seed)
    for place, bit in zip(rng.integers(0, len(content), n_flips), rng.integers(0, 8, n_flips), strict=True):
        yield content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]
    for end in rng.integers(0, len(content), n_cuts):
        yield content[:end]


def attempt(read, path):
    """What is read, or why it is refused; anything but a ValueError is a failure."""
    try:
        return read(path), None
    except ValueError as error:
        return None, str(error)
