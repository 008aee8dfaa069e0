"""What the tiny models, and the config.json files, of most families share."""
# Of models that make_models.py writes.
MODEL = dict(vocab_size=61, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.2)
# Of files that make_fields.py edits: values that no family has by default, so that leaving one out shows.
FIELDS = dict(vocab_size=31, hidden_size=16, intermediate_size=20, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=16, rms_norm_eps=0.05, hidden_act="gelu_pytorch_tanh",
              attention_dropout=0.25, tie_word_embeddings=True, initializer_range=0.3)
WINDOWS = dict(use_sliding_window=True, sliding_window=4, max_window_layers=1)
LINEAR = dict(rope_type="linear", factor=2.0)
YARN = dict(rope_type="yarn", factor=3.0, original_max_position_embeddings=8, beta_fast=2.0, beta_slow=0.5, mscale=0.7,
            mscale_all_dim=1.3, truncate=False)
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=3.0,
              original_max_position_embeddings=8)
