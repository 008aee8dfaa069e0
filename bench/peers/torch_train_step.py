#!/usr/bin/env python3
"""Times whole train steps in PyTorch, eager and compiled, of the models that `meshloom bench train_step` times.

    bench/peers/torch_train_step.py gpt2-124m --batch 4 --sequence 64
    meshloom bench train_step gpt2-124m --device cpu --set batch=4 --set sequence=64

A step is forward, loss, backward, the global gradient norm with clipping, and fused AdamW, on random tokens. One
JSON line per mode: seconds (the median), spread (its interquartile range as a part), tokens/s and the process's peak
memory up to then, on CUDA that of its tensors; give one --mode to compare memory. Needs PyTorch (a current one from PyPI, or Debian's python3-torch).
"""
import argparse
import json
import resource
import statistics
import sys
import time

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    sys.exit("torch_train_step: PyTorch must be installed; found none")

# width, layers, query heads, key heads, hidden width, vocabulary, context, base of the rotations
MODELS = {
    "gpt2-124m": (768, 12, 12, 12, 3072, 50257, 1024, 1e4),
    "smollm2-135m": (576, 30, 9, 3, 1536, 49152, 2048, 1e5),
    "llama-1b": (2048, 16, 32, 8, 8192, 128256, 131072, 5e5),
}


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, 1e-5) if hasattr(F, "rms_norm") else \
            x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden, gpt2):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.gpt2 = heads, kv_heads, width // heads, gpt2
        self.norm1 = nn.LayerNorm(width) if gpt2 else RMSNorm(width)
        self.norm2 = nn.LayerNorm(width) if gpt2 else RMSNorm(width)
        self.q = nn.Linear(width, heads * self.size, bias=gpt2)
        self.k = nn.Linear(width, kv_heads * self.size, bias=gpt2)
        self.v = nn.Linear(width, kv_heads * self.size, bias=gpt2)
        self.o = nn.Linear(heads * self.size, width, bias=gpt2)
        self.up = nn.Linear(width, hidden, bias=gpt2)
        self.gate = None if gpt2 else nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=gpt2)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        h = self.norm1(x)
        q = self.q(h).view(b, s, self.heads, self.size).transpose(1, 2)
        k = self.k(h).view(b, s, self.kv_heads, self.size).transpose(1, 2)
        v = self.v(h).view(b, s, self.kv_heads, self.size).transpose(1, 2)
        if not self.gpt2:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        grouped = {}
        if self.kv_heads != self.heads and q.is_cuda:
            grouped["enable_gqa"] = True  # its kernels read grouped heads themselves
        elif self.kv_heads != self.heads:
            group = self.heads // self.kv_heads
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, -1))
        h = self.norm2(x)
        h = F.gelu(self.up(h), approximate="tanh") if self.gpt2 else F.silu(self.gate(h)) * self.up(h)
        return x + self.down(h)


class Model(nn.Module):
    def __init__(self, name, sequence):
        super().__init__()
        width, layers, heads, kv_heads, hidden, self.vocabulary, context, base = MODELS[name]
        gpt2 = name.startswith("gpt2")
        self.embedding = nn.Embedding(self.vocabulary, width)
        self.positions = nn.Embedding(context, width) if gpt2 else None
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads, hidden, gpt2) for _ in range(layers))
        self.norm = nn.LayerNorm(width) if gpt2 else RMSNorm(width)
        size = width // heads
        angles = torch.outer(torch.arange(sequence), base ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        s = tokens.shape[1]
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[:s]
        for block in self.blocks:
            x = block(x, self.cos[:s], self.sin[:s])
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.float().view(-1, self.vocabulary), targets.view(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warm", type=int, default=2, help="steps before those that are timed")
    parser.add_argument("--threads", type=int, default=0, help="0: as PyTorch chooses")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="bf16: autocast around f32 parameters")
    parser.add_argument("--device", default="cpu", help="PyTorch's name of the device: cpu or cuda")
    parser.add_argument("--mode", choices=("eager", "compiled", "both"), default="both")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    for mode in ("eager", "compiled") if args.mode == "both" else (args.mode,):
        torch.manual_seed(0)
        model = Model(args.model, args.sequence).to(args.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        forward = torch.compile(model) if mode == "compiled" else model

        def step():
            tokens = torch.randint(model.vocabulary, (args.batch, args.sequence + 1), device=args.device)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bf16"):
                loss = forward(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.item()

        for _ in range(args.warm):
            step()
        times = []
        for _ in range(args.steps):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
        times.sort()
        seconds = statistics.median(times)
        spread = (times[(3 * len(times)) // 4] - times[len(times) // 4]) / seconds
        print(json.dumps({
            "model": args.model, "batch": args.batch, "sequence": args.sequence, "dtype": args.dtype,
            "variant": f"pytorch {torch.__version__} {mode}", "threads": torch.get_num_threads(), "seconds": seconds,
            "spread": round(spread, 3), "tokens_per_second": args.batch * args.sequence / seconds,
            "peak_memory_bytes": torch.cuda.max_memory_allocated() if args.device == "cuda" else
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}), flush=True)


if __name__ == "__main__":
    main()
