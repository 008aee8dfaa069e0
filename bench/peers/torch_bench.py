#!/usr/bin/env python3
"""Times PyTorch on the shapes of `meshloom bench` and prints rows of the same form, to be given as --vs or --baseline.

    bench/peers/torch_bench.py matmul --shapes 2048x2048x2048 > torch.json       # --dtype bf16 --device cuda on a GPU of NVIDIA
    meshloom bench matmul --shapes 2048x2048x2048 --vs torch.json
    meshloom bench --model gpt2-124m --json ours.json; bench/peers/torch_bench.py --rows ours.json > torch.json

Ops: matmul, flash_attention, flash_attention_grad (scaled dot product attention where PyTorch has it, else the plain
formula), rms_norm, layer_norm, cross_entropy, adamw. Rows of other ops in --rows are passed over and counted on stderr.
On CUDA, calls are timed by the device's clock (events), and f32 products are in full precision, not TF32.
Debian: apt install python3-torch.
"""
import argparse
import json
import math
import re
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("torch_bench: PyTorch must be installed (package python3-torch); found none")


def fail(text):
    sys.exit("torch_bench: " + text)


DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32}


def parse_call(text):
    """'bf16(4, 64), f32(64) {eps=1e-05}' -> (['bf16', 'f32'], [(4, 64), (64,)], {'eps': 1e-05})"""
    head, _, tail = text.partition("{")
    inputs = re.findall(r"(\w+)\(([^)]*)\)", head)
    dtypes = [dtype for dtype, _ in inputs]
    shapes = [tuple(int(d) for d in dims.split(",") if d.strip()) for _, dims in inputs]
    attrs = {}
    for name, value in re.findall(r"(\w+)=(\"[^\"]*\"|\[[^\]]*\]|[^,}]+)", tail):
        value = value.strip()
        attrs[name] = {"true": True, "false": False}.get(value) if value in ("true", "false") else json.loads(value)
    return dtypes, shapes, attrs


def text_of(dtypes, shapes, attrs):
    def value(x):
        if isinstance(x, bool):
            return "true" if x else "false"
        if isinstance(x, str):
            return '"' + x + '"'
        return repr(x)
    text = ", ".join(dtype + "(" + ", ".join(map(str, s)) + ")" for dtype, s in zip(dtypes, shapes))
    return text + (" {" + ", ".join(f"{k}={value(attrs[k])}" for k in sorted(attrs)) + "}" if attrs else "")


def shorthand(op, text):
    """The subset of meshloom's shorthands that needs no options but :ta :tb :full."""
    dims, *options = text.split(":")
    d = [int(x) for x in re.split("[x,]", dims)]
    if op == "matmul" and len(d) in (3, 4):
        g, (m, n, k) = d[:-3], d[-3:]
        ta, tb = "ta" in options, "tb" in options
        attrs = {name: True for name, on in (("trans_a", ta), ("trans_b", tb)) if on}
        return [(*g, k, m) if ta else (*g, m, k), (*g, n, k) if tb else (*g, k, n)], attrs
    if op.startswith("flash_attention") and len(d) == 5 and not set(options) - {"full"}:
        b, s, h, kv, size = d
        q, k = (b, s, h, size), (b, s, kv, size)
        attrs = {"scale": 1 / math.sqrt(size), **({} if "full" in options else {"causal": True})}
        return [q, k, k] + ([q, (b, h, s), q] if op.endswith("grad") else []), attrs
    if op == "rms_norm" and len(d) == 2:
        return [tuple(d), (d[1],)], {"eps": 1e-5}
    if op == "layer_norm" and len(d) == 2:
        return [tuple(d), (d[1],), (d[1],)], {"eps": 1e-5}
    fail(f"op {op} takes no shape '{text}'")


def attention(q, k, v, attrs):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    causal, scale = attrs.get("causal", False), attrs["scale"]
    if q.is_cuda:  # its kernels read grouped heads themselves
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True).transpose(1, 2)
    if k.shape[1] != q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale).transpose(1, 2)
    scores = (q @ k.transpose(-1, -2)) * scale
    if causal:
        s, t = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(s, t, dtype=torch.bool).triu(1 + t - s), -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


ACTIVATIONS = {"relu": torch.relu, "silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}


def make(op, dtypes, shapes, attrs, device):
    """A function that runs the call once, or None."""
    dtype = DTYPES.get(dtypes[0])
    if dtype is None or any(d not in (dtypes[0], "f32", "i32") for d in dtypes):
        return None

    def random(shape, of=dtype):
        return (torch.rand(shape, device=device) * 2 - 1).to(of)
    if op == "matmul":
        x = [random(s) for s in shapes]
        a = x[0].transpose(-1, -2) if attrs.get("trans_a") else x[0]
        b = x[1].transpose(-1, -2) if attrs.get("trans_b") else x[1]
        rest = x[2:]
        bias = rest.pop(0) if attrs.get("bias") else None
        residual = rest.pop(0) if attrs.get("residual") else None
        act = ACTIVATIONS.get(attrs.get("activation"))

        def run():
            y = torch.addmm(bias, a, b) if bias is not None and a.dim() == 2 else a @ b
            if bias is not None and a.dim() != 2:
                y = y + bias
            if act:
                y = act(y)
            return y + residual if residual is not None else y
        return run
    if op.startswith("flash_attention") and set(attrs) - {"causal", "scale"}:
        return None  # windows, segments and the like
    if op == "flash_attention":
        q, k, v = (random(s) for s in shapes)
        return lambda: attention(q, k, v, attrs)
    if op == "flash_attention_grad":
        q, k, v = (random(s).requires_grad_() for s in shapes[:3])
        do = random(shapes[5])
        with torch.enable_grad():
            o = attention(q, k, v, attrs)
        return lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True)
    if op == "rms_norm":
        x, w = (random(s) for s in shapes[:2])
        return lambda: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + attrs["eps"]) * w
    if op == "layer_norm":
        x, w, b = (random(s) for s in shapes[:3])
        return lambda: F.layer_norm(x, w.shape, w, b, attrs["eps"])
    if op == "cross_entropy":
        x = random(shapes[0])
        targets = torch.randint(0, shapes[0][1], (shapes[0][0],), device=device)
        return lambda: F.cross_entropy(x, targets, reduction="none")
    if op == "adamw":
        p, m, v, g = (random(shapes[0]) for _ in range(4))

        def run():
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.95).addcmul_(g, g, value=0.05)
            p.addcdiv_(m, v.abs().sqrt().add_(1e-8), value=-1e-3)
        return run
    return None


class Clock:
    """Seconds that calls take: the device's own on CUDA, the host's elsewhere."""

    def __init__(self, device):
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device.startswith("cuda") else None

    def time(self, run, calls):
        if self.events:
            self.events[0].record()
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        if not self.events:
            return time.perf_counter() - begin
        self.events[1].record()
        self.events[1].synchronize()
        return self.events[0].elapsed_time(self.events[1]) / 1000


def measure(run, seconds, clock):
    def once():
        return clock.time(run, 1)
    once()
    calls = max(1, min(256, math.ceil(max(1e-3, min(seconds / 50, 20e-3)) / max(once(), 1e-9))))
    samples, begin = [], time.perf_counter()
    while len(samples) < 400 and (len(samples) < 5 or time.perf_counter() - begin < seconds):
        samples.append(clock.time(run, calls) / calls)
        if len(samples) > 1 and time.perf_counter() - begin > 4 * seconds:
            break
    median = statistics.median(samples)
    quartiles = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [median] * 3
    spread = (quartiles[2] - quartiles[0]) / median
    return {"seconds": median, "fastest": min(samples), "spread": spread, "samples": len(samples),
            "calls_per_sample": calls, "noisy": len(samples) < 3 or spread > 0.10}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("op", nargs="?")
    parser.add_argument("--shapes", action="append", default=[], help="as for meshloom bench, separated by ';'")
    parser.add_argument("--rows", help="a file of meshloom bench --json: the calls of its rows")
    parser.add_argument("--device", default="cpu", help="PyTorch's name of the device")
    parser.add_argument("--dtype", choices=("f32", "f16", "bf16"), default="f32", help="of the shapes' inputs")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--time-per-case", type=float, default=0.5)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    calls = []
    if options.rows:
        try:
            with open(options.rows, encoding="utf-8") as file:
                rows = json.load(file)["rows"]
        except (OSError, ValueError, KeyError) as error:
            fail(f"--rows must be what meshloom bench --json wrote; found {error}")
        seen = set()
        for row in rows:
            if row["call"] not in seen:
                seen.add(row["call"])
                calls.append((row["op"], row["shape"], row["call"], *parse_call(row["call"].partition(" ")[2])))
    elif options.op and options.shapes:
        for part in ";".join(options.shapes).split(";"):
            for text in part.split(",") if "x" in part else [part]:
                shapes, attrs = shorthand(options.op, text.strip())
                dtypes = [options.dtype] * len(shapes)
                if options.op == "flash_attention_grad":
                    dtypes[4] = "f32"  # the log-sum-exp of scores
                calls.append((options.op, text.strip(), options.op + " " + text_of(dtypes, shapes, attrs), dtypes, shapes, attrs))
    else:
        fail("needs an op with --shapes, or --rows FILE")
    torch.backends.cuda.matmul.allow_tf32 = False
    clock = Clock(options.device)
    result, skipped = [], 0
    for op, shape, call, dtypes, shapes, attrs in calls:
        run = make(op, dtypes, shapes, attrs, options.device)
        if run is None:
            skipped += 1
            continue
        with torch.no_grad():
            numbers = measure(run, options.time_per_case, clock)
        result.append({"op": op, "shape": shape, "call": call, "dtype": dtypes[0], "device": "torch " + options.device,
                       "variant": "torch", "buffers": "warm", **numbers})
    if skipped:
        print(f"torch_bench: {skipped} calls of ops that it has no counterpart of were passed over", file=sys.stderr)
    header = {"device": "torch " + options.device, "torch": torch.__version__, "threads": str(torch.get_num_threads())}
    json.dump({"schema": "meshloom-bench/1", "header": header, "rows": result}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
