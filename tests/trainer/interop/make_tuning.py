#!/usr/bin/env python3
"""Fine-tunes the tiny models of tests/trainer/interop/models with PyTorch in double precision, and keeps what tuning_test.cpp
holds Meshloom's trainer to: tests/trainer/interop/tuning/NAME.safetensors.

    v/bin/python tests/trainer/interop/make_tuning.py       # the environment of make_models.py

Each file: "stream", the tokens, which are cut into windows of SEQUENCE that follow one another and are read again from
the start; "losses" and "norms" (STEPS): the mean loss per token and the norm of the gradient before clipping; for
adapters "start/NAME", what their first factors start as; and "end/NAME", some parameters after the last step, under
transformers' names. The metadata says how it was trained.
"""
import pathlib

import torch
import transformers
from safetensors.torch import save_file

STEPS, BATCH, SEQUENCE, WINDOWS, VOCABULARY = 10, 4, 11, 8, 61
HERE = pathlib.Path(__file__).parent
RATE, DECAY, BETAS, EPS, CLIP = 4e-3, 0.1, (0.9, 0.95), 1e-8, 1.0

# name: (model, accumulation, LoRA's rank and alpha or None, where)
CASES = {
    "llama-full": ("llama", 1, None, ()),
    "llama-lora": ("llama", 2, (2, 8.0), ("q_proj", "v_proj")),
    "qwen3-moe-full": ("qwen3-moe", 2, None, ()),
    "qwen3-moe-lora": ("qwen3-moe", 1, (3, 6.0), ("q_proj", "k_proj", "v_proj", "o_proj")),
}
KEPT = ("embed_tokens", "lm_head", "layers.0.self_attn.q_proj", "layers.1.self_attn.o_proj", "layers.1.input_layernorm",
        "layers.0.mlp.down_proj", "layers.0.mlp.gate.", "layers.1.mlp.experts.2.up_proj", "layers.1.self_attn.k_norm")


class Lora(torch.nn.Module):
    """W x + alpha / rank B (A x), with W frozen (Hu et al., 2021)."""

    def __init__(self, base, rank, alpha, generator):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.lora_a = torch.nn.Parameter(torch.randn(rank, base.in_features, generator=generator) / base.in_features**0.5)
        self.lora_b = torch.nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.lora_a.T) @ self.lora_b.T


def adapt(model, rank, alpha, names):
    generator = torch.Generator().manual_seed(7)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for block in model.model.layers:
        for name in names:
            setattr(block.self_attn, name, Lora(getattr(block.self_attn, name), rank, alpha, generator))


def run(name):
    kind, accumulation, lora, where = CASES[name]
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "models" / kind, torch_dtype=torch.float64,
                                                              attn_implementation="eager").train()
    tensors, metadata = {}, {"model": kind, "accumulation": str(accumulation), "batch": str(BATCH),
                             "sequence": str(SEQUENCE), "rate": str(RATE), "decay": str(DECAY), "beta1": str(BETAS[0]),
                             "beta2": str(BETAS[1]), "eps": str(EPS), "clip": str(CLIP)}
    if lora:
        adapt(model, *lora, where)
        metadata |= {"rank": str(lora[0]), "alpha": str(lora[1])}
        for key, parameter in model.named_parameters():
            if key.endswith("lora_a"):
                # The first values are stored in f32: train from those.
                tensors["start/" + key] = parameter.detach().float().clone()
                parameter.data = tensors["start/" + key].double()
    learning = [(key, p) for key, p in model.named_parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": [p for _, p in learning if p.ndim >= 2], "weight_decay": DECAY},
                                   {"params": [p for _, p in learning if p.ndim < 2], "weight_decay": 0.0}],
                                  lr=RATE, betas=BETAS, eps=EPS)
    stream = torch.randint(0, VOCABULARY, (WINDOWS * SEQUENCE + 1,), generator=torch.Generator().manual_seed(5))
    losses, norms = [], []
    for step in range(STEPS):
        starts = [(step * BATCH + row) % WINDOWS * SEQUENCE for row in range(BATCH)]
        tokens = torch.stack([stream[s:s + SEQUENCE] for s in starts])
        targets = torch.stack([stream[s + 1:s + SEQUENCE + 1] for s in starts])
        optimizer.zero_grad()
        total = 0.0
        for part in range(accumulation):
            rows = slice(part * BATCH // accumulation, (part + 1) * BATCH // accumulation)
            logits = model(tokens[rows]).logits
            loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets[rows].reshape(-1)) / accumulation
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_([p for _, p in learning], CLIP).item())
        optimizer.step()
        losses.append(total)
    tensors |= {"stream": stream.int(), "losses": torch.tensor(losses, dtype=torch.float32),
                "norms": torch.tensor(norms, dtype=torch.float32)}
    for key, parameter in learning:
        if lora or any(kept in key for kept in KEPT):
            tensors["end/" + key] = parameter.detach().float().contiguous().clone()
    (HERE / "tuning").mkdir(exist_ok=True)
    save_file(tensors, HERE / "tuning" / (name + ".safetensors"), metadata)
    print(name, len(tensors), "tensors; losses", [round(x, 4) for x in losses], "norms", [round(x, 2) for x in norms])


torch.set_default_dtype(torch.float64)
for name in CASES:
    run(name)
