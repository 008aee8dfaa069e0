import torch

from families._common import FIELDS, MODEL, WINDOWS

MODELS = {
    "qwen2": ("qwen2", dict(MODEL, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True),
              torch.bfloat16, {}),
}
BASES = {
    "qwen2": ("qwen2", dict(FIELDS, rope_theta=50.0, **WINDOWS)),
}
EDITS = [
    ("qwen2", [], dict(use_sliding_window=False, layer_types=None)),
    ("qwen2", ["layer_types"], dict(max_window_layers=2)),
    ("qwen2", ["layer_types"], dict(max_window_layers=0)),
    ("qwen2", [], dict(layer_types=["sliding_attention", "full_attention", "attention"])),
    ("qwen2", [], dict(head_dim=6)),
    ("qwen2", [], dict(sliding_window=None, layer_types=None)),
]
