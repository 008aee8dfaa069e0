"""What it gains and costs that another server computes the prompts (scripts/check-serving apart): the time to the first token, the time between
tokens of other texts while long prompts come, and the bytes that are moved. Both servers run on this machine, and share its cores."""
import argparse
import asyncio
import random
import statistics
import sys

from check_load import Client
from serving import Server, model_of

LENGTH, DECODING, LONG = 2304, 4, 2000


async def first_token(client, rng, count):
    begun, times, *_ = await client.complete(client.prompt(rng, count), 2)
    return times[0] - begun


async def between_tokens(client, prompts, pause):
    """The times between tokens of texts while prompts of LONG tokens come, one at a time."""
    rng = random.Random(1)
    texts = [asyncio.create_task(client.complete(client.prompt(rng, 32), 400, seed)) for seed in range(DECODING)]
    await asyncio.sleep(1)
    for _ in range(prompts):
        await client.complete(client.prompt(rng, LONG), 1)
        await asyncio.sleep(pause)
    gaps = []
    for text in texts:
        _, times, *_ = await text
        gaps += [b - a for a, b in zip(times, times[1:])]
    gaps.sort()
    return statistics.median(gaps), gaps[int(0.99 * len(gaps))], gaps[-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--recipe", default="smollm2-135m")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    options = parser.parse_args()
    run = model_of(options.program, options.recipe, options.dtype, "build/serving")
    size = ["--max-length", str(LENGTH), "--max-sequences", str(DECODING + 2)]
    large = [*size, "--step-tokens", "512"]
    other = Server(options.program, run, *large, "--role", "prefill", "--listen-pages", "127.0.0.1:0")
    servers = {"one server": Server(options.program, run, *size),
               "one server, steps of 512 tokens": Server(options.program, run, *large),
               "prefill apart": Server(options.program, run, *size, "--role", "decode", "--prefill", other.pages)}
    clients = {way: Client(server.url, run.rsplit("/", 1)[-1], 256) for way, server in servers.items()}
    rng = random.Random(2)
    for count in (64, 512, LONG):
        seconds = {way: [] for way in clients}
        for _ in range(options.rounds if count > 64 else 1):  # in turn, as other work on the machine comes and goes
            for way, client in clients.items():
                seconds[way].append(asyncio.run(first_token(client, rng, count)))
        for way, each in seconds.items():
            if count > 64:
                print(f"{way}: {statistics.median(each) * 1e3:.0f} ms to the first token behind {count} tokens "
                      f"({min(each) * 1e3:.0f} to {max(each) * 1e3:.0f})", flush=True)
    for way, client in clients.items():
        median, worst, longest = asyncio.run(between_tokens(client, options.prompts, 1))
        print(f"{way}: {median * 1e3:.1f} ms between tokens of {DECODING} texts while prompts of {LONG} tokens come, "
              f"99th percentile {worst * 1e3:.1f} ms, longest {longest * 1e3:.0f} ms", flush=True)
    received, tokens, fallbacks = (servers["prefill apart"].metric(name) for name in (
        "kv_transfer_bytes_received_total", "external_prefix_cache_hits_total", "kv_transfer_fallbacks_total"))
    print(f"prefill apart: {received / max(tokens, 1):.0f} bytes for each token, {fallbacks:.0f} prompts computed by the decoding side")
    short = tokens == 0 or fallbacks > 0
    for server in [*servers.values(), other]:
        short |= server.end() != 0
    print("apart: " + ("FALLS SHORT" if short else "holds"))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
