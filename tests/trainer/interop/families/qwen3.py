import torch

from families._common import FIELDS, MODEL, WINDOWS, YARN

MODELS = {
    "qwen3": ("qwen3", dict(MODEL, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=False, head_dim=6),
              torch.float32, {}),
    "yarn": ("qwen3", dict(MODEL, head_dim=12, rope_theta=50.0, tie_word_embeddings=True, max_position_embeddings=128,
                           rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32,
                                             beta_fast=4, beta_slow=1)), torch.bfloat16, {}),
}
BASES = {
    "qwen3": ("qwen3", dict(FIELDS, head_dim=6, rope_theta=50.0, attention_bias=True, **WINDOWS)),
}
EDITS = [
    ("qwen3", [], dict(use_sliding_window=False, layer_types=None)),
    ("qwen3", ["layer_types"], dict(max_window_layers=2)),
    ("qwen3", [], dict(rope_scaling=YARN)),
]
