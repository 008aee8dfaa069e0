import torch

from families._common import FIELDS, LINEAR, MODEL, YARN

# The tokens that transformers has by default are more than these vocabularies.
TOKENS = dict(pad_token_id=None, bos_token_id=1, eos_token_id=2)
NO_ROPE = dict(no_rope_layers=[1, 0, 1], no_rope_layer_interval=2)

MODELS = {
    "smollm3": ("smollm3", dict(MODEL, **TOKENS, num_hidden_layers=5, rope_theta=5000000.0), torch.bfloat16, {}),
    "smollm3-5": ("smollm3", dict(MODEL, **TOKENS, num_hidden_layers=3, no_rope_layers=[0, 1, 0], use_sliding_window=True,
                                  sliding_window=5, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
                                  rope_parameters=dict(rope_type="default", rope_theta=500.0)), torch.bfloat16, {}),
}
BASES = {
    "smollm3": ("smollm3", dict(FIELDS, **TOKENS, **NO_ROPE, rope_theta=50.0, attention_bias=True, mlp_bias=True,
                                use_sliding_window=True, sliding_window=4)),
    "smollm3-plain": ("smollm3", dict(FIELDS, **TOKENS, rope_theta=50.0, num_hidden_layers=4, tie_word_embeddings=False)),
}
EDITS = [
    ("smollm3", ["layer_types"], {}),
    ("smollm3", ["layer_types"], dict(use_sliding_window=False)),
    ("smollm3", ["layer_types"], dict(sliding_window=None)),
    ("smollm3", ["layer_types"], dict(no_rope_layers=[0, 1, 0])),
    ("smollm3", ["no_rope_layers", "layer_types"], dict(no_rope_layer_interval=1)),
    ("smollm3", ["no_rope_layers", "layer_types"], dict(no_rope_layer_interval=0)),
    ("smollm3", ["no_rope_layers", "no_rope_layer_interval", "layer_types"], dict(sliding_window=2)),
    ("smollm3", [], dict(layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    ("smollm3", [], dict(use_sliding_window=False)),
    ("smollm3", [], dict(no_rope_layers=[1, 0])),
    ("smollm3", [], dict(no_rope_layers=[1, 0, 1, 0])),
    ("smollm3", [], dict(head_dim=6)),
    ("smollm3", [], dict(rope_scaling=YARN)),
    ("smollm3-plain", [], dict(rope_scaling=LINEAR)),
    ("smollm3-plain", [], dict(layer_types=["full_attention", "sliding_attention"] * 2)),
    ("smollm3-plain", [], dict(layer_types=["full_attention", "sliding_attention"] * 2, sliding_window=3)),
]
