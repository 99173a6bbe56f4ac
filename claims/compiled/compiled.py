"""What lies between tensor operations, in compiled code of our own (`compiled.cpp`): C++, for Rust is not built here.

The compiler is the one that torch.compile needs. What it makes is kept in the cache, under the source's digest.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llama_workbench.cache import cache_directory, partial_folder

Floats = NDArray[np.float32]
FLAGS = ("-O3", "-std=c++20", "-shared", "-fPIC")
HEADS, SIZE, WIDTH = 32, 128, 288


def library() -> ctypes.CDLL:
    """The compiled functions. Raises ImportError where there is no compiler."""
    source = Path(__file__).with_suffix(".cpp")
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX") or "g++", "clang++", "c++"))), None)
    if compiler is None:
        raise ImportError("needs a C++ compiler (g++, clang++, c++): install g++")
    kept = cache_directory() / "compiled"
    name = f"{hashlib.sha256(source.read_bytes() + repr((compiler, FLAGS)).encode()).hexdigest()[:24]}.so"
    if not (kept / name).is_file():
        with partial_folder(kept, name, needed_bytes=0) as partial:
            subprocess.run([compiler, *FLAGS, "-o", partial / name, source], check=True)
            os.replace(partial / name, kept / name)
    return ctypes.CDLL(str(kept / name))


COMPILED = library()
for made in (COMPILED.masks_made, COMPILED.masks_found):
    made.restype, made.argtypes = ctypes.c_double, [ctypes.c_size_t, ctypes.c_size_t]
FLOATS = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
for turned in (COMPILED.rope_gathered, COMPILED.rope_one_pass):
    turned.restype, turned.argtypes = None, [*[FLOATS] * 4, *[ctypes.c_size_t] * 4]
for passed in (COMPILED.layers_called, COMPILED.layers_in_one):
    passed.restype, passed.argtypes = None, [FLOATS, ctypes.c_size_t]


# -- masks: how many keys are hidden, over all of them ----------------------------------------------------------------


def masks_made(length: int, times: int) -> float:
    return COMPILED.masks_made(length, times)


def masks_found(length: int, times: int) -> float:
    return COMPILED.masks_found(length, times)


def masks_1(seed: int) -> tuple[int, int]:
    return 1, 50_000 + seed % 97


def masks_8(seed: int) -> tuple[int, int]:
    return 8, 30_000 + seed % 97


def masks_32(seed: int) -> tuple[int, int]:
    return 32, 10_000 + seed % 97


def masks_128(seed: int) -> tuple[int, int]:
    return 128, 2_000 + seed % 97


# -- RoPE: x [T, H, D], cos and sin [T, D/2], and how many times ------------------------------------------------------


def rope_gathered(x: Floats, cos: Floats, sin: Floats, times: int) -> Floats:
    out = np.empty_like(x)
    COMPILED.rope_gathered(x, cos, sin, out, *x.shape, times)
    return out


def rope_one_pass(x: Floats, cos: Floats, sin: Floats, times: int) -> Floats:
    out = np.empty_like(x)
    COMPILED.rope_one_pass(x, cos, sin, out, *x.shape, times)
    return out


def queries(seed: int, tokens: int) -> tuple[Floats, Floats, Floats, int]:
    x = np.random.default_rng(seed).standard_normal((tokens, HEADS, SIZE), dtype=np.float32)
    angles = np.outer(np.arange(tokens), 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE))
    return x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), 256 // tokens


def queries_1(seed: int) -> tuple[Floats, Floats, Floats, int]:
    return queries(seed, 1)


def queries_8(seed: int) -> tuple[Floats, Floats, Floats, int]:
    return queries(seed, 8)


def queries_32(seed: int) -> tuple[Floats, Floats, Floats, int]:
    return queries(seed, 32)


def queries_128(seed: int) -> tuple[Floats, Floats, Floats, int]:
    return queries(seed, 128)


# -- layers: x [E] after some decode steps ----------------------------------------------------------------------------


def layers_called(x: Floats, times: int) -> Floats:
    out = x.copy()
    COMPILED.layers_called(out, times)
    return out


def layers_in_one(x: Floats, times: int) -> Floats:
    out = x.copy()
    COMPILED.layers_in_one(out, times)
    return out


def token(seed: int) -> tuple[Floats, int]:
    return np.random.default_rng(seed).standard_normal(WIDTH, dtype=np.float32), 4
