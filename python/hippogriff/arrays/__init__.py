"""NumPy's files, `.npy` and `.npz`, to and from GPUs by hippogriff's routes.

Examples
--------
>>> import numpy as np
>>> from hippogriff.arrays import load_npy, load_npz, open_npy, save_npy
>>> save_npy("features.npy", np.ones((5000, 16), np.float32))
>>> features = load_npy("features.npy")  # or "cuda:0", framework="pt"
>>> with open_npy("features.npy") as file:
...     batch = file[1000:2000]  # loads only that

Every array owns its memory. Files are untrusted input: nothing is ever unpickled, and nothing is
loaded from a file whose header is not entirely as the format says.
"""

from hippogriff.arrays._header import ArrayFormatError
from hippogriff.arrays._load import load_npy, load_npz, open_npy
from hippogriff.arrays._save import save_npy

__all__ = [
    "ArrayFormatError",
    "load_npy",
    "load_npz",
    "open_npy",
    "save_npy",
]
