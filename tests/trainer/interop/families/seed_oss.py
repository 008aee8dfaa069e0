import torch

from families._common import FIELDS, LINEAR, MODEL, YARN

MODELS = {
    "seed-oss-5": ("seed_oss", dict(MODEL, head_dim=6, attention_out_bias=True, tie_word_embeddings=False, rope_parameters=dict(
        rope_type="default", rope_theta=10000000.0)), torch.bfloat16, {}),
}
BASES = {
    "seed_oss": ("seed_oss", dict(FIELDS, head_dim=6, rope_theta=50.0, attention_out_bias=True, mlp_bias=True)),
    "seed_oss-plain": ("seed_oss", dict(FIELDS, rope_theta=50.0, attention_bias=False, tie_word_embeddings=False)),
}
EDITS = [
    ("seed_oss", [], dict(rope_scaling=YARN)),
    ("seed_oss", [], dict(rope_scaling=LINEAR)),
    ("seed_oss", [], dict(attention_bias=False)),
    ("seed_oss", [], dict(hidden_act="relu", num_key_value_heads=4)),
    ("seed_oss-plain", [], dict(head_dim=128)),
    ("seed_oss-plain", [], dict(attention_dropout=0.3, residual_dropout=0.2)),
]
