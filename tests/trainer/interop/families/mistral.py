import torch

from families._common import FIELDS, MODEL, YARN

MODELS = {
    "mistral": ("mistral", dict(MODEL, rope_theta=1000000.0, sliding_window=None, tie_word_embeddings=False),
                torch.float16, {}),
    "mistral-5": ("mistral", dict(MODEL, head_dim=6, sliding_window=4, rope_parameters=dict(
        rope_type="linear", factor=2.0, rope_theta=500.0), layer_types=["full_attention", "sliding_attention"]),
                  torch.bfloat16, {}),
}
BASES = {
    "mistral": ("mistral", dict(FIELDS, head_dim=6, rope_theta=50.0, sliding_window=4)),
}
EDITS = [
    ("mistral", [], dict(layer_types=["full_attention", "sliding_attention", "full_attention"])),
    ("mistral", [], dict(max_window_layers=2, use_sliding_window=False)),
    ("mistral", [], dict(rope_scaling=YARN)),
]
