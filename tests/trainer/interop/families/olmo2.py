import torch

from families._common import FIELDS, MODEL, YARN

MODELS = {
    "olmo2": ("olmo2", dict(MODEL, rope_theta=500000.0, tie_word_embeddings=False, num_key_value_heads=None), torch.float32, {}),
    "olmo2-5": ("olmo2", dict(MODEL, tie_word_embeddings=True, attention_bias=True, rms_norm_eps=1e-6, rope_parameters=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=500.0)), torch.bfloat16, {}),
}
BASES = {
    "olmo2": ("olmo2", dict(FIELDS, rope_theta=50.0, attention_bias=True)),
    "olmo2-linear": ("olmo2", dict(FIELDS, rope_theta=50.0, rope_scaling=dict(type="linear", factor=2.0), tie_word_embeddings=False)),
}
EDITS = [
    ("olmo2", [], dict(rope_scaling=YARN)),
    ("olmo2", [], dict(head_dim=4)),
    ("olmo2", [], dict(clip_qkv=None)),
    ("olmo2", [], dict(hidden_act="relu", num_key_value_heads=4)),
    ("olmo2", [], dict(sliding_window=4)),
    ("olmo2-linear", [], dict(num_key_value_heads=None)),
]
