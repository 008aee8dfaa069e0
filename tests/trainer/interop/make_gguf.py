"""Writes gguf_blocks.safetensors, which gguf_test.cpp reads: blocks of random bits of every type, and their values by the gguf
package; numbers, and what it makes of them in the types that are written.

    python tests/trainer/interop/make_gguf.py
"""
import pathlib

import gguf
import numpy as np
from safetensors.numpy import save_file

rng = np.random.default_rng(7)
tensors = {}
for name, scales in {"F32": None, "F16": None, "BF16": None, "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0],
                     "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}.items():
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = 512 // elements
    if scales is None:
        numbers = rng.standard_normal(count, dtype=np.float32)
        blocks = gguf.quants.quantize(numbers, kind).view(np.uint8).reshape(-1)
    else:
        blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for at in scales:
            blocks[:, at:at + 2] = rng.standard_normal((count, 1)).astype(np.float16).view(np.uint8)
    tensors[name + "/blocks"] = blocks.reshape(-1)
    typed = blocks.reshape(-1)
    if scales is None:
        typed = typed.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))
    tensors[name + "/values"] = gguf.quants.dequantize(typed, kind).astype(np.float32).reshape(-1)
numbers = rng.standard_normal(256, dtype=np.float32)
numbers[:32] = 0
numbers[32:64] = np.arange(32) - 16  # ties
tensors["quantized/values"] = numbers
for name in ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"):
    tensors["quantized/" + name] = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[name]).reshape(-1)
save_file(tensors, pathlib.Path(__file__).with_name("gguf_blocks.safetensors"))
