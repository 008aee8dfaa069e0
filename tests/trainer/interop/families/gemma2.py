import torch

from families._common import FIELDS, LINEAR, MODEL

MODELS = {
    "gemma2": ("gemma2", dict(MODEL, num_hidden_layers=3, head_dim=6, sliding_window=5, query_pre_attn_scalar=24,
                              attn_logit_softcapping=2.0, final_logit_softcapping=3.0, tie_word_embeddings=True),
               torch.bfloat16, {}),
}
BASES = {
    "gemma2": ("gemma2", dict({k: v for k, v in FIELDS.items() if k != "hidden_act"}, head_dim=6, rope_theta=50.0,
                              hidden_activation="silu", sliding_window=4, query_pre_attn_scalar=24,
                              attn_logit_softcapping=2.0, final_logit_softcapping=3.0, attention_bias=True,
                              layer_types=["full_attention", "sliding_attention", "sliding_attention"])),
}
EDITS = [
    ("gemma2", ["layer_types"], dict(sliding_window=3)),
    ("gemma2", [], dict(hidden_act="relu")),
    ("gemma2", [], dict(rope_scaling=LINEAR)),
]
