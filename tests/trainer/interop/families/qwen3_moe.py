import torch

from families._common import FIELDS, MODEL, WINDOWS, YARN

MODELS = {
    "qwen3-moe": ("qwen3_moe", dict(MODEL, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=False, head_dim=6,
                                    num_experts=6, num_experts_per_tok=3, moe_intermediate_size=10,
                                    norm_topk_prob=False), torch.float32, {}),
    "qwen3-moe-dense": ("qwen3_moe", dict(MODEL, num_hidden_layers=3, tie_word_embeddings=True, head_dim=6, num_experts=4,
                                          num_experts_per_tok=2, moe_intermediate_size=10, norm_topk_prob=True,
                                          mlp_only_layers=[1]), torch.bfloat16, {}),
    "qwen3-moe-5": ("qwen3_moe", dict(MODEL, head_dim=6, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8,
                                      norm_topk_prob=True, use_sliding_window=True, sliding_window=4), torch.bfloat16, {}),
}
BASES = {
    "qwen3_moe": ("qwen3_moe", dict(FIELDS, head_dim=6, rope_theta=50.0, num_experts=4, num_experts_per_tok=3,
                                    norm_topk_prob=True, moe_intermediate_size=8, attention_bias=True,
                                    mlp_only_layers=[1], **WINDOWS)),
}
EDITS = [
    ("qwen3_moe", [], dict(max_window_layers=2)),
    ("qwen3_moe", [], dict(layer_types=["full_attention", "sliding_attention", "full_attention"])),
    ("qwen3_moe", [], dict(num_experts_per_tok=1)),
    ("qwen3_moe", ["num_experts"], dict(num_local_experts=4)),
    ("qwen3_moe", [], dict(num_local_experts=5)),
    ("qwen3_moe", [], dict(rope_scaling=YARN)),
]
