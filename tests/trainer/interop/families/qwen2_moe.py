import torch

from families._common import FIELDS, MODEL, WINDOWS

MODELS = {
    "qwen2-moe": ("qwen2_moe", dict(MODEL, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=False,
                                    num_experts=5, num_experts_per_tok=2, moe_intermediate_size=10,
                                    shared_expert_intermediate_size=14, norm_topk_prob=True), torch.float32, {}),
    "qwen2-moe-step": ("qwen2_moe", dict(MODEL, num_hidden_layers=4, tie_word_embeddings=False, num_experts=3,
                                         num_experts_per_tok=2, moe_intermediate_size=8, intermediate_size=20,
                                         shared_expert_intermediate_size=12, decoder_sparse_step=2), torch.bfloat16, {}),
    "qwen2-moe-5": ("qwen2_moe", dict(MODEL, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8,
                                      shared_expert_intermediate_size=6, use_sliding_window=True, sliding_window=4,
                                      max_window_layers=1, qkv_bias=False), torch.bfloat16, {}),
}
BASES = {
    "qwen2_moe": ("qwen2_moe", dict(FIELDS, rope_theta=50.0, num_experts=4, num_experts_per_tok=3, norm_topk_prob=True,
                                    moe_intermediate_size=8, shared_expert_intermediate_size=6, mlp_only_layers=[1],
                                    **WINDOWS)),
    "qwen2_moe-plain": ("qwen2_moe", dict(FIELDS, rope_theta=50.0, num_experts=6, num_experts_per_tok=2, qkv_bias=False,
                                          moe_intermediate_size=8, shared_expert_intermediate_size=6,
                                          decoder_sparse_step=2)),
}
EDITS = [
    ("qwen2_moe", ["layer_types"], dict(max_window_layers=2)),
    ("qwen2_moe", ["layer_types"], dict(max_window_layers=3)),
    ("qwen2_moe", ["layer_types", "max_window_layers"], {}),
    ("qwen2_moe", [], dict(layer_types=["full_attention", "sliding_attention", "sliding_attention"])),
    ("qwen2_moe", [], dict(num_experts_per_tok=1)),
    ("qwen2_moe", [], dict(num_experts_per_tok=1, norm_topk_prob=False)),
    ("qwen2_moe-plain", [], dict(sliding_window=0)),
]
