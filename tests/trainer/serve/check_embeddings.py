"""Embeddings that OpenAI's client gets of a server, beside the hidden states that transformers computes (scripts/check-serving embeddings)."""
import argparse
import base64
import os
import random
import struct
import sys

import openai
import torch
import transformers

from serving import Server, exported, model_of

ERROR = 1e-4  # the distance of an embedding from transformers', both of length 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--recipe", default="smollm2-135m")
    options = parser.parse_args()
    run = model_of(options.program, options.recipe, "f32", "build/serving")
    model = transformers.AutoModel.from_pretrained(exported(options.program, run), dtype=torch.float32).eval()
    rng = random.Random(4)
    inputs = [[rng.randrange(250) for _ in range(count)] for count in (1, 2, 7, 64, 129, 200, 500, 33)]
    with torch.no_grad():
        states = [model(torch.tensor([ids])).last_hidden_state[0].double() for ids in inputs]
    short = False
    for pooling in ("last", "mean"):
        wanted = [torch.nn.functional.normalize(rows[-1] if pooling == "last" else rows.mean(0), dim=0) for rows in states]
        server = Server(options.program, run, "--pooling", pooling)
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)

        def embed(ids, **fields):
            return [each.embedding for each in client.embeddings.create(model=os.path.basename(run), input=ids, **fields).data]

        def distance(found):
            return max((torch.tensor(a, dtype=torch.float64) - b).norm().item() for a, b in zip(found, wanted, strict=True))

        together = embed(inputs, encoding_format="float")
        packed = [struct.unpack(f"<{len(text) * 3 // 4 // 4}f", base64.b64decode(text)) for text in embed(inputs, encoding_format="base64")]
        alone = [embed([ids])[0] for ids in inputs]  # the client asks for base64 itself
        equal = all(struct.pack(f"<{len(a)}f", *a) == struct.pack(f"<{len(b)}f", *b) == struct.pack(f"<{len(c)}f", *c)
                    for a, b, c in zip(together, packed, alone))
        worst = distance(together)
        fewer = embed([inputs[3]], dimensions=64)[0]
        cut = torch.nn.functional.normalize(wanted[3][:64], dim=0)
        worst = max(worst, (torch.tensor(fewer, dtype=torch.float64) - cut).norm().item())
        print(f"--pooling {pooling}: {worst:.2g} from those of transformers {transformers.__version__} at most, {ERROR:g} allowed; alone, together "
              f"and in base64 {'the same bits' if equal else 'they DIFFER'}")
        short |= not worst <= ERROR or not equal or bool(server.end())
    print("embeddings: " + ("FALL SHORT" if short else "hold"))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
