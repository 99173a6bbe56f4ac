"""llama.cpp through the C interface of `llama-cpp-python`: its own graph, kernels and KV cache, float32 throughout, or
with its matrices in Q8_0.

The weights go through a GGUF file in the cache and are mapped from there. The library's own choices are left as they
are (weights repacked for the processor, say) except two that cost precision: K and V are kept in float32, not in
float16, and flash attention is off, for with it the logits of the small gate are off by 7e-4 of the largest, without
by 4e-7.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping
from typing import Any

import llama_cpp as library
import numpy as np
import torch
from torch import Tensor

from .. import gguf_file
from ..config import LlamaConfig
from . import files
from .files import EngineError

F32 = 0  # ggml_type
MOST_SEQUENCES = 16
"""Rows of a batch that a model has room for."""


@library.llama_log_callback
def _only_errors(level: int, text: bytes, data: Any) -> None:
    if level == 4:  # GGML_LOG_LEVEL_ERROR
        print(text.decode(errors="replace"), end="", flush=True)


class LlamaCpp:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one; row b is llama.cpp's sequence b. It runs
    on as many threads as torch has. `q8`: its matrices are rounded to Q8_0. Raises EngineError for weights that are not
    float32, or where the library refuses."""

    def __init__(
        self, config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int, q8: bool = False
    ) -> None:
        dtype = weights["model.norm.weight"].dtype
        if dtype != torch.float32:
            raise EngineError(f"llama.cpp is given float32 weights here, not {str(dtype).removeprefix('torch.')}")
        library.llama_log_set(_only_errors, ctypes.c_void_p(0))
        library.llama_backend_init()

        def write(folder: Any) -> None:
            file = folder / "model.gguf"
            gguf_file.write(file, config, weights, lambda writer: writer.add_tokenizer_model("no_vocab"), q8=q8)

        path = files.folder("gguf-q8-1" if q8 else "gguf-1", config, weights, write) / "model.gguf"
        settings = library.llama_model_default_params()
        settings.n_gpu_layers = 0
        self.model = library.llama_model_load_from_file(str(path).encode(), settings)
        if not self.model:
            raise EngineError(f"llama.cpp cannot load {path.name}; its message is above")
        weakref.finalize(self, library.llama_model_free, self.model)
        self.vocab_size = config.vocab_size
        self.max_length = max_length
        self.context: Any = None
        self.rows = 0

    def _start(self, rows: int) -> None:
        """A context with room for `rows` sequences; one that is large enough is kept."""
        if self.context is not None and rows == self.rows:
            return
        if rows > MOST_SEQUENCES:
            raise EngineError(f"a batch of {rows}: at most {MOST_SEQUENCES} sequences")
        settings = library.llama_context_default_params()
        settings.n_seq_max = rows
        settings.n_ctx = rows * (-(-self.max_length // 256) * 256)
        settings.n_batch = settings.n_ubatch = rows * self.max_length
        settings.n_threads = settings.n_threads_batch = torch.get_num_threads()
        settings.type_k = settings.type_v = F32
        settings.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_DISABLED
        settings.no_perf = True
        context = library.llama_init_from_model(self.model, settings)
        if not context:
            raise EngineError(f"llama.cpp has no context of {settings.n_ctx} positions; its message is above")
        self.context, self.rows = context, rows
        room = rows * self.max_length
        self.batch = batch = library.llama_batch_init(room, 0, 1)
        weakref.finalize(self, library.llama_batch_free, batch)
        weakref.finalize(self, library.llama_free, context)
        # Views of the batch's own arrays: to fill them value by value through ctypes costs microseconds a token.
        self.tokens = np.ctypeslib.as_array(batch.token, (room,))
        self.positions = np.ctypeslib.as_array(batch.pos, (room,))
        self.wanted = np.ctypeslib.as_array(batch.logits, (room,))
        np.ctypeslib.as_array(batch.n_seq_id, (room,))[:] = 1
        for place in range(room):
            batch.seq_id[place][0] = 0

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        """Logits [B, V], float32."""
        rows, length = tokens.shape
        self._start(rows)
        count = rows * length
        self.batch.n_tokens = count
        self.tokens[:count] = tokens.flatten().numpy()
        self.positions[:count].reshape(rows, length)[:] = np.arange(position, position + length)
        self.wanted[:count] = 0
        self.wanted[length - 1 : count : length] = 1
        if rows > 1:
            for place in range(count):
                self.batch.seq_id[place][0] = place // length
        if code := library.llama_decode(self.context, self.batch):
            raise EngineError(f"llama_decode answered {code} to {rows} x {length} tokens at position {position}")
        ends = range(length - 1, count, length)
        rows_out = [library.llama_get_logits_ith(self.context, end) for end in ends]
        return torch.from_numpy(np.stack([np.ctypeslib.as_array(row, (self.vocab_size,)) for row in rows_out]))

    def reset(self) -> None:
        """Forget the sequences; the buffers are kept."""
        if self.context is not None:
            library.llama_memory_clear(library.llama_get_memory(self.context), False)


build = LlamaCpp
