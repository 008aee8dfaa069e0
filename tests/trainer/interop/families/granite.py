import torch

from families._common import FIELDS, LLAMA3, MODEL, YARN

SCALES = dict(embedding_multiplier=12, attention_multiplier=0.125, residual_multiplier=0.22, logits_scaling=8.0)
MODELS = {
    "granite": ("granite", dict(MODEL, rms_norm_eps=1e-5, rope_theta=10000000.0, tie_word_embeddings=True, **SCALES),
                torch.bfloat16, {}),
    "granite-5": ("granite", dict(MODEL, hidden_size=24, head_dim=8, tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
                                  rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=500.0),
                                  embedding_multiplier=0.5, attention_multiplier=0.3, residual_multiplier=1.5,
                                  logits_scaling=0.7), torch.float32, {}),
}
BASES = {
    "granite": ("granite", dict(FIELDS, rope_theta=50.0, attention_bias=True, mlp_bias=True, **SCALES)),
    "granite-yarn": ("granite", dict(FIELDS, rope_theta=50.0, rope_scaling=YARN, tie_word_embeddings=False, residual_multiplier=0.5)),
}
EDITS = [
    ("granite", [], dict(embedding_multiplier=3, attention_multiplier=1, residual_multiplier=2, logits_scaling=4)),
    ("granite", [], dict(logits_scaling="4")),
    ("granite", [], dict(rope_scaling=LLAMA3)),
    ("granite", [], dict(head_dim=4)),
    ("granite", [], dict(sliding_window=4)),
    ("granite", [], dict(hidden_act="relu", num_key_value_heads=4)),
    ("granite-yarn", [], dict(rope_scaling=dict(YARN, attention_factor=1.5))),
]
