import torch

from families._common import FIELDS, MODEL

MODELS = {
    "gpt2": ("gpt2", dict(vocab_size=MODEL["vocab_size"], n_embd=16, n_layer=2, n_head=2, n_positions=16, resid_pdrop=0.0,
                          embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.2), torch.float32, {}),
}
BASES = {
    "gpt2": ("gpt2", dict(vocab_size=FIELDS["vocab_size"], n_embd=16, n_layer=2, n_head=2, n_positions=16, n_inner=20,
                          activation_function="silu", layer_norm_epsilon=0.05, tie_word_embeddings=False)),
}
EDITS = [
    ("gpt2", [], dict(hidden_size=32)),
    ("gpt2", ["n_embd", "n_head", "n_layer", "n_positions"],
     dict(hidden_size=16, num_attention_heads=2, num_hidden_layers=2, max_position_embeddings=16)),
    ("gpt2", [], dict(num_attention_heads=4)),
]
