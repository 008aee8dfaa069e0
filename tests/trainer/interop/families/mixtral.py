import torch

from families._common import FIELDS, MODEL, YARN

MODELS = {
    "mixtral": ("mixtral", dict(MODEL, num_local_experts=4, num_experts_per_tok=2, rope_theta=1000000.0,
                                sliding_window=None, tie_word_embeddings=False), torch.bfloat16, {}),
    "mixtral-5": ("mixtral", dict(MODEL, num_local_experts=3, num_experts_per_tok=1, sliding_window=4), torch.bfloat16, {}),
}
BASES = {
    "mixtral": ("mixtral", dict(FIELDS, head_dim=6, rope_theta=50.0, sliding_window=4, num_local_experts=4,
                                num_experts_per_tok=3)),
}
EDITS = [
    ("mixtral", [], dict(rope_scaling=YARN)),
    ("mixtral", [], dict(num_experts_per_tok=1)),
    ("mixtral", [], dict(num_experts=5)),
    ("mixtral", ["num_local_experts"], dict(num_experts=4)),
]
