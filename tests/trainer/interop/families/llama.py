import torch

from families._common import FIELDS, LINEAR, LLAMA3, MODEL, YARN

MODELS = {
    "llama": ("llama", dict(MODEL, rms_norm_eps=1e-5, tie_word_embeddings=False), torch.float32,
              dict(max_shard_size="12KB")),
    "llama-tied": ("llama", dict(MODEL, rms_norm_eps=1e-6, rope_theta=100000.0, tie_word_embeddings=True, head_dim=6,
                                 attention_bias=True, mlp_bias=True), torch.bfloat16, {}),
    "llama3": ("llama", dict(MODEL, num_attention_heads=2, num_key_value_heads=1, rope_theta=500.0,
                             tie_word_embeddings=True, rope_scaling=dict(
                                 rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                 original_max_position_embeddings=32)), torch.bfloat16, {}),
    "linear": ("llama", dict(MODEL, tie_word_embeddings=True, rope_scaling=dict(rope_type="linear", factor=4.0)),
               torch.bfloat16, {}),
}
BASES = {
    "llama": ("llama", dict(FIELDS, head_dim=6, rope_theta=50.0, attention_bias=True, mlp_bias=True)),
    "llama-linear": ("llama", dict(FIELDS, rope_theta=50.0, rope_scaling=LINEAR, tie_word_embeddings=False)),
    "llama-yarn": ("llama", dict(FIELDS, head_dim=6, rope_theta=50.0, rope_scaling=YARN)),
    "llama3": ("llama", dict(FIELDS, head_dim=6, rope_theta=50.0, rope_scaling=LLAMA3)),
}
EDITS = [
    ("llama", [], dict(rope_scaling=LINEAR, rope_parameters=dict(rope_type="default", rope_theta=7.0))),
    ("llama", ["rope_theta"], dict(rope_scaling=LINEAR, rope_parameters=dict(rope_type="default", rope_theta=7.0))),
    ("llama", ["rope_theta", "rope_scaling"],
     dict(rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=7.0))),
    ("llama", ["rope_theta"], dict(rope_scaling={}, rope_parameters=dict(rope_theta=7.0))),
    ("llama", [], dict(rope_scaling=dict(type="linear", factor=3.0), rope_parameters=None)),
    ("llama", [], dict(sliding_window=4)),
    ("llama", [], dict(layer_types=["full_attention"] * 3)),
    ("llama", [], dict(num_key_value_heads=2, hidden_act="relu")),
    ("llama", [], dict(hidden_act="swish")),
    ("llama", [], dict(hidden_act="gelu")),
    ("llama-yarn", [], dict(original_max_position_embeddings=4)),
    ("llama-yarn", [], dict(rope_scaling=dict(rope_type="yarn", factor=3.0), original_max_position_embeddings=8)),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, mscale=0))),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, mscale_all_dim=0.0))),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, beta_fast=0, beta_slow=0))),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, truncate=None))),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, factor=None))),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, attention_factor=1.5))),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, type="linear"))),
    ("llama3", [], dict(original_max_position_embeddings=4)),
]
