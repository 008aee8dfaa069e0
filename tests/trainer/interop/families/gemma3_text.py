import torch

from families._common import FIELDS, LINEAR, LLAMA3, MODEL, YARN

HEADS = dict(head_dim=6, query_pre_attn_scalar=24)
FULL, SLIDING = "full_attention", "sliding_attention"

MODELS = {
    "gemma3": ("gemma3_text", dict(MODEL, num_hidden_layers=7, head_dim=6, query_pre_attn_scalar=6, sliding_window=5,
                                   rope_theta=1000.0, rope_local_base_freq=50.0, rope_scaling=dict(rope_type="linear", factor=8.0)),
               torch.bfloat16, {}),
    "gemma3-5": ("gemma3_text", dict(MODEL, **HEADS, num_hidden_layers=3, sliding_window=5, attention_bias=True,
                                     layer_types=[SLIDING, FULL, SLIDING], final_logit_softcapping=3.0, rope_parameters={
                                         FULL: dict(rope_type="linear", rope_theta=500.0, factor=4.0),
                                         SLIDING: dict(rope_type="default", rope_theta=20.0)}), torch.bfloat16, {}),
}
GEMMA3 = dict({k: v for k, v in FIELDS.items() if k != "hidden_act"}, **HEADS, hidden_activation="silu", sliding_window=4,
              final_logit_softcapping=3.0, attention_bias=True, rope_theta=50.0, rope_local_base_freq=20.0)
BASES = {
    "gemma3": ("gemma3_text", dict(GEMMA3, layer_types=[SLIDING, SLIDING, FULL])),
    "gemma3-scaled": ("gemma3_text", dict(GEMMA3, layer_types=[FULL, SLIDING, FULL], rope_scaling=dict(
        rope_type="linear", factor=8.0))),
}
EDITS = [
    ("gemma3", ["layer_types"], dict(sliding_window=3)),
    ("gemma3", ["layer_types"], dict(sliding_window_pattern=2)),
    ("gemma3", ["layer_types"], dict(sliding_window_pattern=1)),
    ("gemma3", ["layer_types"], dict(sliding_window_pattern=None)),
    ("gemma3", ["layer_types"], dict(num_hidden_layers=3)),
    ("gemma3", [], dict(sliding_window_pattern=2)),
    ("gemma3", [], dict(layer_types=[FULL] * 3)),
    ("gemma3", [], dict(layer_types=[SLIDING] * 3)),
    ("gemma3", [], dict(sliding_window=16)),
    ("gemma3", [], dict(sliding_window=64)),
    ("gemma3", [], dict(attn_logit_softcapping=2.0)),
    ("gemma3", [], dict(final_logit_softcapping=None)),
    ("gemma3", [], dict(hidden_act="relu")),
    ("gemma3", ["rope_scaling", "rope_theta", "rope_local_base_freq"], dict(rope_parameters=None)),
    ("gemma3", ["rope_scaling", "rope_theta"], dict(rope_parameters={FULL: dict(rope_type="default", rope_theta=9.0)})),
    ("gemma3", ["rope_scaling", "rope_theta", "rope_local_base_freq"],
     dict(rope_parameters={FULL: dict(LINEAR, rope_theta=9.0), SLIDING: dict(LINEAR, factor=4.0)})),
    ("gemma3", ["rope_scaling", "rope_theta", "rope_local_base_freq"],
     dict(rope_parameters={FULL: dict(YARN), SLIDING: dict(LLAMA3, rope_theta=30.0)})),
    ("gemma3", ["rope_parameters"], dict(rope_theta=40.0, rope_local_base_freq=30.0, rope_scaling=LLAMA3)),
    ("gemma3-scaled", [], dict(rope_scaling=dict(rope_type="linear", factor=2.0))),
]
