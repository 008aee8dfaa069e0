"""What a server does about slow, wrong and vanishing clients (scripts/check-serving abuse)."""
import argparse
import asyncio
import json
import random
import resource
import sys
import time

from serving import Server, model_of

SLOW, VANISHING = 512, 1000
short = False


def check(name, holds, found):
    global short
    short |= not holds
    print(f"{name}: {found}" + ("" if holds else "  FALLS SHORT"), flush=True)


def request(path, body, method="POST"):
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def answer(reader):
    """The status of a whole response, which is read to its end, and whether the connection stays open."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = {k.strip().lower(): v.strip().lower() for k, _, v in (line.partition(":") for line in lines[1:])}
    if "chunked" in fields.get("transfer-encoding", ""):
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    else:
        await reader.readexactly(int(fields.get("content-length", "0")))
    return int(lines[0].split()[1]), fields.get("connection") != "close"


class Clients:
    def __init__(self, server):
        self.port = int(server.url.rsplit(":", 1)[1])
        self.server = server

    def open(self):
        return asyncio.open_connection("127.0.0.1", self.port)

    def resident(self):
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    async def health(self):
        begun = time.monotonic()
        reader, writer = await self.open()
        writer.write(request("/health", b"", "GET"))
        status, _ = await answer(reader)
        writer.close()
        return time.monotonic() - begun, status

    async def slow(self, count, seconds):
        """A byte a second of a request that never ends; what /health takes meanwhile."""
        async def one():
            try:
                reader, writer = await self.open()
                for byte in request("/v1/completions", b"{}")[:int(seconds)]:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(1)
                writer.close()
            except ConnectionError:
                pass

        clients = [asyncio.create_task(one()) for _ in range(count)]
        await asyncio.sleep(1)
        took, statuses = [], set()
        end = time.monotonic() + seconds - 2
        while time.monotonic() < end:
            each, status = await self.health()
            took.append(each)
            statuses.add(status)
            await asyncio.sleep(0.01)
        await asyncio.gather(*clients)
        return sorted(took), statuses

    async def mutated(self, count, at_once=16):
        rng = random.Random(3)
        bodies = [
            {"prompt": "In the beginning", "max_tokens": 1, "n": 2, "stop": ["a", "bc"], "logprobs": 2, "seed": 5, "temperature": 0.5},
            {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 1, "logprobs": True, "top_logprobs": 2},
            {"prompt": [5, 6, 7], "max_tokens": 1, "logit_bias": {"5": 2}, "stream": True, "stream_options": {"include_usage": True}},
            {"prompt": "a", "max_tokens": 1, "guided_json": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}}},
            {"prompt": "a", "max_tokens": 1, "guided_regex": "(a|b)+[0-9]{2,3}"},
            {"prompt": "a", "max_tokens": 1, "guided_grammar": 'root ::= "a" [b-d]* root?'},
            {"prompt": "abc"}, {"tokens": [5, 6]}]
        paths = ["/v1/completions", "/v1/chat/completions", "/v1/completions", "/v1/completions", "/v1/completions", "/v1/completions",
                 "/tokenize", "/detokenize"]
        left, statuses = count, {}

        def mutate(body):
            data = bytearray(json.dumps(body).encode())
            for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
                at = rng.randrange(len(data) + 1)
                kind = rng.randrange(5)
                if kind == 0:
                    data[at:at + 1] = bytes([rng.randrange(256)])
                elif kind == 1:
                    data[at:at] = rng.choice([b"[", b"{", b'"', b"-", b"1e308", b"9" * 20, b"null", b"\\ud800", b"\xff", b"NaN", b"true"])
                elif kind == 2:
                    del data[at:at + rng.randrange(1, 9)]
                elif kind == 3:
                    data[at:at] = data[rng.randrange(len(data) + 1):][:rng.randrange(1, 30)]
                else:
                    data[at:at + 1] = rng.choice(b'0123456789[]{}",:-.eE').to_bytes(1, "big")
            return bytes(data)

        async def one():
            nonlocal left
            writer = None
            while left > 0:
                left -= 1
                which = rng.randrange(len(bodies))
                if writer is None:
                    reader, writer = await self.open()
                writer.write(request(paths[which], mutate(bodies[which])))
                status, stays = await answer(reader)
                statuses[status] = statuses.get(status, 0) + 1
                if not stays:
                    writer.close()
                    writer = None

        await asyncio.gather(*[one() for _ in range(at_once)])
        return statuses

    async def vanish(self, count):
        """Requests for long texts whose clients leave; how long their pages stay in use."""
        body = json.dumps({"prompt": "a" * 100, "max_tokens": 800, "ignore_eos": True, "stream": True}).encode()

        async def one():
            _, writer = await self.open()
            writer.write(request("/v1/completions", body))
            await writer.drain()
            await asyncio.sleep(random.random())
            writer.transport.abort()

        await asyncio.gather(*[one() for _ in range(count)])
        begun = time.monotonic()
        while time.monotonic() < begun + 30:
            busy = sum(self.server.metric(name) for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"))
            if busy == 0:
                break
            await asyncio.sleep(0.02)
        return time.monotonic() - begun


async def run(clients, options):
    # First a little of each, after which memory is to stay as it is.
    await clients.slow(SLOW, 4)
    await clients.vanish(VANISHING)
    await clients.mutated(max(20_000, options.requests // 2))
    before = clients.resident()
    took, statuses = await clients.slow(SLOW, 9)
    p99 = took[int(len(took) * 0.99)]
    check(f"/health beside {SLOW} slow clients", p99 <= 0.1 and statuses == {200},
          f"99th percentile {p99 * 1000:.1f} ms of {len(took)}, statuses {sorted(statuses)}")
    statuses = await clients.mutated(options.requests)
    check(f"{options.requests} mutated requests", all(200 <= each < 300 or 400 <= each < 500 for each in statuses),
          ", ".join(f"{each}: {count}" for each, count in sorted(statuses.items())))
    took = await clients.vanish(VANISHING)
    check(f"{VANISHING} clients vanish", took <= 1, f"their pages are back after {took:.2f} s")
    after = clients.resident()
    check("resident memory", after <= before * 1.01, f"{before / 1024:.1f} -> {after / 1024:.1f} MiB")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--requests", type=int, default=100_000)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    model = model_of(options.program, "tiny", "f32", "build/serving")
    server = Server(options.program, model)
    asyncio.run(run(Clients(server), options))
    if server.end() != 0:
        sys.exit("the server did not exit with 0")
    print("abuse: " + ("FALLS SHORT" if short else "holds"))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
