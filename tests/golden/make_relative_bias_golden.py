#!/usr/bin/env python3
"""Makes relative_bias.safetensors: the biases of Hugging Face transformers' T5 (T5Attention.compute_bias) and their
gradients, and the buckets of far distances.

    python3 -m venv v && v/bin/pip install torch transformers safetensors
    v/bin/python tests/golden/make_relative_bias_golden.py

Made with torch 2.1.2 and transformers 4.51.3.
"""
import pathlib

import torch
from safetensors.torch import save_file
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

HEADS, LENGTH, FAR = 3, 24, 200


def attention(buckets, distance, bidirectional):
    return T5Attention(T5Config(d_model=12, d_kv=4, num_heads=HEADS, relative_attention_num_buckets=buckets,
                                relative_attention_max_distance=distance, is_decoder=not bidirectional),
                       has_relative_attention_bias=True)


tensors = {}
for name, bidirectional in (("backward", False), ("both", True)):
    torch.manual_seed(3)
    layer = attention(8, 20, bidirectional)
    weight = layer.relative_attention_bias.weight
    torch.nn.init.normal_(weight)
    bias = layer.compute_bias(LENGTH, LENGTH)
    cotangent = torch.randn_like(bias)
    bias.backward(cotangent)
    tensors |= {f"{name}/weight": weight.detach().clone(), f"{name}/bias": bias.detach().contiguous(),
                f"{name}/cotangent": cotangent.contiguous(), f"{name}/gradient": weight.grad.clone()}
    # Key minus query, from -FAR to FAR.
    for buckets, distance in ((32, 128), (64, 200), (16, 40)):
        tensors[f"{name}/buckets_{buckets}_{distance}"] = T5Attention._relative_position_bucket(
            torch.arange(-FAR, FAR + 1), bidirectional=bidirectional, num_buckets=buckets,
            max_distance=distance).to(torch.int32)
save_file(tensors, str(pathlib.Path(__file__).parent / "relative_bias.safetensors"))
