import torch

from families._common import FIELDS, LINEAR, MODEL, YARN

# Six of a head's eight features rotate. The short texts of the tests have the short factors, and those of phi3-long the long ones.
PAIRS = dict(short_factor=[1.0, 1.25, 1.5], long_factor=[1.0, 4.5, 16.0])
LONGROPE = dict(type="longrope", **PAIRS)
PHI3 = dict(MODEL, hidden_size=32, pad_token_id=0, rms_norm_eps=1e-5)

MODELS = {
    "phi3": ("phi3", dict(PHI3, sliding_window=4, tie_word_embeddings=False), torch.bfloat16, {}),
    "phi3-mini": ("phi3", dict(PHI3, partial_rotary_factor=0.75, original_max_position_embeddings=16, sliding_window=128,
                               tie_word_embeddings=True, rope_scaling=LONGROPE), torch.bfloat16, {}),
    "phi3-long-5": ("phi3", dict(PHI3, partial_rotary_factor=0.75, original_max_position_embeddings=8, num_key_value_heads=None,
                                 tie_word_embeddings=False, rope_parameters=dict(
                                     rope_type="longrope", rope_theta=500.0, attention_factor=1.3, **PAIRS)),
                    torch.float32, {}),
}
BASE = dict(FIELDS, hidden_size=32, pad_token_id=0, rope_theta=50.0, sliding_window=4, resid_pdrop=0.1, embd_pdrop=0.2)
BASES = {
    "phi3": ("phi3", dict(BASE, partial_rotary_factor=0.5)),
    "phi3-longrope": ("phi3", dict(BASE, partial_rotary_factor=0.75, max_position_embeddings=64,
                                   original_max_position_embeddings=14, rope_scaling=LONGROPE)),
}
EDITS = [
    ("phi3", [], dict(partial_rotary_factor=1.0)),
    ("phi3", [], dict(partial_rotary_factor=0.3)),
    ("phi3", [], dict(head_dim=8)),
    ("phi3", [], dict(sliding_window=6, layer_types=["full_attention", "sliding_attention", "full_attention"])),
    ("phi3", [], dict(rope_scaling=LINEAR)),
    ("phi3", [], dict(rope_scaling=YARN)),
    ("phi3", [], dict(hidden_act="gelu", num_key_value_heads=4)),
    ("phi3", [], dict(lm_head_bias=False, full_attn_mod=1, interpolate_factor=1, attention_bias=False, mlp_bias=False)),
    ("phi3", [], dict(original_max_position_embeddings=2)),
    ("phi3-longrope", [], dict(rope_scaling=dict(LONGROPE, type="su"))),
    ("phi3-longrope", [], dict(rope_scaling=dict(LONGROPE, type="yarn"))),
    ("phi3-longrope", [], dict(rope_scaling=dict(LONGROPE, type="linear"))),
    ("phi3-longrope", [], dict(rope_scaling=dict(LONGROPE, factor=2.0))),
    ("phi3-longrope", [], dict(rope_scaling=dict(LONGROPE, attention_factor=1.5))),
    ("phi3-longrope", [], dict(rope_scaling=dict(LONGROPE, short_factor=[1.0, 1.25]))),
    ("phi3-longrope", [], dict(rope_scaling=dict(LONGROPE, long_factor=[1.0, 1.25, "2"]))),
    ("phi3-longrope", [], dict(rope_scaling=dict(LONGROPE, original_max_position_embeddings=40))),
    ("phi3-longrope", [], dict(max_position_embeddings=14)),
    ("phi3-longrope", [], dict(original_max_position_embeddings=32)),
    ("phi3-longrope", [], dict(original_max_position_embeddings=128)),
    ("phi3-longrope", ["partial_rotary_factor"], dict(rope_scaling=dict(LONGROPE, partial_rotary_factor=0.75))),
]
