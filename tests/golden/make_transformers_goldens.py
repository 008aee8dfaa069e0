#!/usr/bin/env python3
"""Makes the golden gradients of tests/golden from Hugging Face transformers.

    python3 -m venv v && v/bin/pip install torch transformers safetensors
    v/bin/python tests/golden/make_transformers_goldens.py

Writes llama.safetensors, gpt2.safetensors and marian.safetensors beside this file: a tiny randomly initialised model each,
its parameters under Meshloom's paths ("parameter/PATH"), a batch with ignored targets ("tokens", "targets"; of the encoder
"source" and, 0 where it is padding, "source_segments"), and what transformers computes from them in double precision:
"logits", "loss_sum" and the gradients of loss_sum ("gradient/PATH").
Made with torch 1.13.1 and transformers 4.36.2.
"""
import pathlib

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MarianConfig, MarianMTModel

BATCH, SEQUENCE, SOURCE, VOCABULARY = 2, 11, 7, 61
HERE = pathlib.Path(__file__).parent


def llama():
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0,
        tie_word_embeddings=False, initializer_range=0.2))
    paths = {"model.embed_tokens.weight": "decoder/embedding/weight", "model.norm.weight": "decoder/norm/weight",
             "lm_head.weight": "decoder/head/weight"}
    for i in range(2):
        theirs, ours = f"model.layers.{i}.", f"decoder/stack/layer{i}/"
        for name in "qkvo":
            paths[theirs + f"self_attn.{name}_proj.weight"] = ours + f"attention/{name}_proj/weight"
        for name in ("gate", "up", "down"):
            paths[theirs + f"mlp.{name}_proj.weight"] = ours + f"feed_forward/{name}_proj/weight"
        paths[theirs + "input_layernorm.weight"] = ours + "attention_norm/weight"
        paths[theirs + "post_attention_layernorm.weight"] = ours + "feed_forward_norm/weight"
    return model, lambda name, tensor: [(paths[name], tensor)]


def gpt2():
    torch.manual_seed(2)
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=2, n_positions=16, activation_function="gelu_new",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=1e-5, initializer_range=0.2))
    top = {"transformer.wte.weight": "decoder/embedding/weight", "transformer.wpe.weight": "decoder/positions/weight",
           "transformer.ln_f.weight": "decoder/norm/weight", "transformer.ln_f.bias": "decoder/norm/bias"}

    def translate(name, tensor):
        if name in top:
            return [(top[name], tensor)]
        _, _, layer, rest = name.split(".", 3)
        ours = f"decoder/stack/layer{layer}/"
        kind = rest.rsplit(".", 1)[1]
        if tensor.dim() == 2:  # Conv1D keeps (in, out)
            tensor = tensor.t()
        if rest.startswith("attn.c_attn"):
            return [(ours + f"attention/{n}_proj/{kind}", part) for n, part in zip("qkv", tensor.chunk(3, dim=0))]
        where = {"attn.c_proj": "attention/o_proj", "mlp.c_fc": "feed_forward/up_proj",
                 "mlp.c_proj": "feed_forward/down_proj", "ln_1": "attention_norm", "ln_2": "feed_forward_norm"}
        return [(ours + where[rest.rsplit(".", 1)[0]] + "/" + kind, tensor)]

    return model, translate


def marian():
    torch.manual_seed(4)
    model = MarianMTModel(MarianConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=40, decoder_ffn_dim=40, max_position_embeddings=16,
        activation_function="gelu", dropout=0.0, pad_token_id=VOCABULARY - 1, decoder_start_token_id=0, init_std=0.2))
    parts = {"self_attn": "attention", "self_attn_layer_norm": "attention_norm", "encoder_attn": "cross_attention",
             "encoder_attn_layer_norm": "cross_attention_norm", "fc1": "feed_forward/up_proj",
             "fc2": "feed_forward/down_proj", "final_layer_norm": "feed_forward_norm"}

    def translate(name, tensor):
        if name == "model.shared.weight":
            return [("encoder/embedding/weight", tensor)]
        _, side, _, layer, part, *rest = name.split(".")
        rest = "/".join(rest).replace("out_proj", "o_proj")
        return [(f"{side}/stack/layer{layer}/{parts[part]}/{rest}", tensor)]

    return model, translate


def write(name, model, translate):
    generator = torch.Generator().manual_seed(3)
    learning = {key: parameter for key, parameter in model.named_parameters() if parameter.requires_grad}
    for parameter in learning.values():  # norms and biases too, so that nothing is trivially 0 or 1
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    model.eval()
    exact = model.double()
    tokens = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    targets = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    targets[0, 3] = targets[1, 10] = -1
    inputs, more = {"input_ids": tokens}, {}
    if model.config.is_encoder_decoder:
        tokens %= VOCABULARY - 1  # the last one is padding
        source = torch.randint(0, VOCABULARY - 1, (BATCH, SOURCE), generator=generator)
        mask = torch.ones(BATCH, SOURCE, dtype=torch.int64)
        mask[1, 4:] = 0
        source[1, 4:] = VOCABULARY - 1
        inputs = {"input_ids": source, "attention_mask": mask, "decoder_input_ids": tokens}
        more = {"source": source.int(), "source_segments": mask.int()}
    logits = exact(**inputs).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), ignore_index=-1,
                                             reduction="sum")
    loss.backward()
    tensors = {"tokens": tokens.int(), "targets": targets.int(), "logits": logits.detach().float(),
               "loss_sum": loss.detach().float().reshape(1)} | more
    for key, parameter in exact.named_parameters():
        if key not in learning:
            continue
        for path, part in translate(key, parameter.data):
            tensors["parameter/" + path] = part.float().contiguous().clone()
        for path, part in translate(key, parameter.grad):
            tensors["gradient/" + path] = part.float().contiguous().clone()
    save_file(tensors, HERE / f"{name}.safetensors")
    print(name, len(tensors), "tensors, loss", loss.item())


torch.set_default_dtype(torch.float64)
write("llama", *llama())
write("gpt2", *gpt2())
write("marian", *marian())
