"""safetensors files to and from GPUs: the functions of safetensors, by hippogriff's routes.

Examples
--------
>>> from hippogriff.safetensors import load_file, save_file
>>> weights = load_file("model.safetensors", device="cuda:0")
>>> save_file(weights, "copy.safetensors")

Every tensor owns its memory. Files are untrusted input: nothing is loaded from one whose header is
not entirely as the format says.
"""

from hippogriff._report import FileReport, LoadReport
from hippogriff.safetensors._header import SafetensorError
from hippogriff.safetensors._into import LoadedNames, load_into
from hippogriff.safetensors._load import load_file
from hippogriff.safetensors._open import Slice, safe_open
from hippogriff.safetensors._save import save_file
from hippogriff.safetensors._several import load_plan

__all__ = [
    "FileReport",
    "LoadReport",
    "LoadedNames",
    "SafetensorError",
    "Slice",
    "load_file",
    "load_into",
    "load_plan",
    "safe_open",
    "save_file",
]
