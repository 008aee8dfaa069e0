"""What OpenAI's own client gets of a server (scripts/check-serving api)."""
import argparse
import asyncio
import base64
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import openai

from serving import Server, model_of

KEY = "a-key"
done, failed = 0, 0


def check(name, holds, found=None):
    global done, failed
    done += 1
    if not holds:
        failed += 1
        print(f"FAILS: {name}" + (f"; found {found!r}" if found is not None else ""), flush=True)


def equal(name, found, wanted):
    check(name, found == wanted, (found, wanted))


def refused(name, call, kind=openai.BadRequestError, param=None):
    """The call raises an error of the kind, whose body is as OpenAI has it and names the field."""
    try:
        found = call()
    except kind as error:
        body = error.body if isinstance(error.body, dict) else {}
        check(name, bool(body.get("message")) and "type" in body and "code" in body and body.get("param") == param, body)
    except Exception as error:  # another kind
        check(name, False, error)
    else:
        check(name, False, found)


def completions(client, model):
    def complete(prompt="In the beginning", **options):
        return client.completions.create(model=model, prompt=prompt, **{"max_tokens": 12, "temperature": 0, **options})

    plain = complete()
    choice = plain.choices[0]
    equal("object", plain.object, "text_completion")
    equal("model", plain.model, model)
    check("an id", plain.id.startswith("cmpl-"), plain.id)
    check("a time", plain.created > 1.7e9, plain.created)
    check("text", isinstance(choice.text, str) and choice.text != "", choice.text)
    check("a reason", choice.finish_reason in ("length", "stop"), choice.finish_reason)
    equal("no log-probabilities unless asked for", choice.logprobs, None)
    equal("tokens add up", plain.usage.total_tokens, plain.usage.prompt_tokens + plain.usage.completion_tokens)
    equal("a byte is a token", plain.usage.prompt_tokens, len("In the beginning"))
    equal("greedy twice", complete().choices[0].text, choice.text)
    equal("top_p near 0 is greedy", complete(temperature=1, top_p=1e-9).choices[0].text, choice.text)
    equal("top_k 1 is greedy", complete(temperature=1, extra_body={"top_k": 1}).choices[0].text, choice.text)
    equal("min_p 1 is greedy", complete(temperature=1, extra_body={"min_p": 1}).choices[0].text, choice.text)
    long = complete(max_tokens=30, extra_body={"ignore_eos": True})
    equal("ignore_eos writes all", long.usage.completion_tokens, 30)
    equal("and ends by length", long.choices[0].finish_reason, "length")
    equal("the default length", client.completions.create(model=model, prompt="a", extra_body={"ignore_eos": True}).usage.
          completion_tokens, 16)

    seeded = [complete(temperature=1, seed=seed, max_tokens=30).choices[0].text for seed in (1, 1, 2)]
    equal("a seed repeats", seeded[0], seeded[1])
    check("another seed differs", seeded[0] != seeded[2], seeded)
    free = [complete(temperature=1, max_tokens=30).choices[0].text for _ in range(2)]
    check("no seed is random", free[0] != free[1], free)
    several = complete(temperature=1, seed=1, max_tokens=30, n=3)
    equal("n choices", [each.index for each in several.choices], [0, 1, 2])
    equal("the first has the seed", several.choices[0].text, seeded[0])
    equal("the second the next seed", several.choices[1].text, seeded[2])
    equal("usage of all choices", several.usage.completion_tokens >= 3, True)

    echoed = complete(echo=True)
    equal("echo", echoed.choices[0].text, "In the beginning" + choice.text)
    scored = complete(logprobs=3).choices[0].logprobs
    equal("a log-probability a token", len(scored.token_logprobs), len(scored.tokens))
    check("they are at most 0", all(each <= 0 for each in scored.token_logprobs), scored.token_logprobs)
    equal("three alternatives", {len(each) for each in scored.top_logprobs}, {3})
    check("greedy takes the best", all(math.isclose(each, max(top.values())) for each, top in
                                       zip(scored.token_logprobs, scored.top_logprobs)), scored)
    equal("offsets begin at 0", scored.text_offset[0], 0)
    equal("no alternatives", complete(logprobs=0).choices[0].logprobs.token_logprobs, scored.token_logprobs)
    whole = complete(echo=True, logprobs=1, max_tokens=0).choices[0]
    equal("a prompt alone", whole.text, "In the beginning")
    equal("its first token has no score", whole.logprobs.token_logprobs[0], None)
    equal("all others have", sum(each is not None for each in whole.logprobs.token_logprobs), len("In the beginning") - 1)
    again = complete(echo=True, logprobs=1).choices[0].logprobs.token_logprobs
    equal("scores of a prompt are the same with more", again[1:len("In the beginning")], whole.logprobs.token_logprobs[1:])

    ids = [ord(c) for c in "In the beginning"]
    equal("token ids", complete(ids).choices[0].text, choice.text)
    both = complete(["In the beginning", "And God"])
    equal("two texts", [each.index for each in both.choices], [0, 1])
    equal("the first is as alone", both.choices[0].text, choice.text)
    equal("the second is as alone", both.choices[1].text, complete("And God").choices[0].text)
    equal("lists of ids", [each.text for each in complete([ids, ids]).choices], [choice.text] * 2)

    text = complete(max_tokens=30, extra_body={"ignore_eos": True}).choices[0].text
    stop = text[5:8]
    cut = complete(max_tokens=30, stop=stop, extra_body={"ignore_eos": True}).choices[0]
    equal("stop", cut.text, text[:text.index(stop)])
    equal("stop is the reason", cut.finish_reason, "stop")
    equal("a list of stops", complete(max_tokens=30, stop=["\x01\x02", stop], extra_body={"ignore_eos": True}).choices[0].text, cut.text)
    biased = complete(logit_bias={str(ord("Q")): 100}, extra_body={"ignore_eos": True})
    equal("logit_bias", biased.choices[0].text, "Q" * 12)
    spread = complete(max_tokens=20, logit_bias={str(ord(c)): 90 for c in "ABC"}, frequency_penalty=2, presence_penalty=2,
                      extra_body={"ignore_eos": True}).choices[0].text
    check("penalties", set(spread) == set("ABC"), spread)
    distinct = complete(max_tokens=20, logprobs=0, extra_body={"ignore_eos": True, "repetition_penalty": 10}).choices[0].logprobs.tokens
    equal("repetition_penalty", len(set(distinct)), 20)

    for name, options in {"stream": {}, "stream at a temperature": {"temperature": 1, "seed": 5}, "stream with echo": {"echo": True},
                          "stream with a stop": {"stop": stop, "max_tokens": 30}}.items():
        options = {**options, "extra_body": {"ignore_eos": True}}
        chunks = list(complete(stream=True, **options))
        equal(name, "".join(each.choices[0].text for each in chunks), complete(**options).choices[0].text)
        equal(f"{name}: the reason comes last", [each.choices[0].finish_reason is not None for each in chunks],
              [False] * (len(chunks) - 1) + [True])
    chunks = list(complete(stream=True, stream_options={"include_usage": True}))
    equal("usage at the end", (chunks[-1].choices, chunks[-1].usage.prompt_tokens), ([], len("In the beginning")))
    check("and not before", all(each.usage is None for each in chunks[:-1]))
    chunks = list(complete(stream=True, logprobs=2))
    streamed = [each for chunk in chunks if chunk.choices[0].logprobs for each in chunk.choices[0].logprobs.token_logprobs]
    equal("log-probabilities of a stream", streamed, scored.token_logprobs)

    for name, options, param in [
            ("n 17", {"n": 17}, "n"), ("n 0", {"n": 0}, "n"), ("n of another type", {"n": "2"}, "n"),
            ("temperature 3", {"temperature": 3}, "temperature"), ("temperature below 0", {"temperature": -1}, "temperature"),
            ("top_p 0", {"top_p": 0}, "top_p"), ("top_p 2", {"top_p": 2}, "top_p"), ("logprobs 21", {"logprobs": 21}, "logprobs"),
            ("max_tokens below 0", {"max_tokens": -1}, "max_tokens"), ("max_tokens 1e308", {"max_tokens": 1e308}, "max_tokens"),
            ("seed below 0", {"seed": -1}, "seed"), ("seed 2^63", {"seed": 2**63}, "seed"),
            ("17 stops", {"stop": ["a"] * 17}, "stop"), ("an empty stop", {"stop": ""}, "stop"),
            ("logit_bias 101", {"logit_bias": {"5": 101}}, "logit_bias"), ("logit_bias of no id", {"logit_bias": {"x": 1}}, "logit_bias"),
            ("logit_bias beyond", {"logit_bias": {"99999": 1}}, "logit_bias"), ("best_of", {"best_of": 4}, "best_of"),
            ("suffix", {"suffix": "end"}, "suffix"), ("presence_penalty 3", {"presence_penalty": 3}, "presence_penalty"),
            ("frequency_penalty -3", {"frequency_penalty": -3}, "frequency_penalty"), ("echo of another type", {"echo": 1}, "echo"),
            ("stream_options alone", {"stream_options": {"include_usage": True}}, "stream_options"),
            ("min_p 2", {"extra_body": {"min_p": 2}}, "min_p"), ("top_k -2", {"extra_body": {"top_k": -2}}, "top_k"),
            ("repetition_penalty 0", {"extra_body": {"repetition_penalty": 0}}, "repetition_penalty"),
            ("two grammars", {"extra_body": {"guided_regex": "a", "guided_choice": ["b"]}}, "guided_choice"),
            ("a schema keyword that is not known", {"extra_body": {"guided_json": {"type": "object", "frobnicate": 1}}}, "guided_json"),
            ("an open regular expression", {"extra_body": {"guided_regex": "("}}, "guided_regex")]:
        refused(name, lambda: complete(**options), param=param)
    refused("no text", lambda: complete(""), param="prompt")
    refused("an empty list", lambda: complete([]), param="prompt")
    refused("ids beyond", lambda: complete([5, 99999]), param="prompt[1]")
    refused("a prompt that is too long", lambda: complete("a" * 5000), param="prompt")
    refused("another model", lambda: client.completions.create(model="other", prompt="a"), openai.NotFoundError, "model")


def chats(client, model):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who are you?"}]

    def chat(messages=messages, **options):
        return client.chat.completions.create(model=model, messages=messages, **{"max_tokens": 12, "temperature": 0, **options})

    plain = chat()
    message = plain.choices[0].message
    equal("a chat's object", plain.object, "chat.completion")
    check("a chat's id", plain.id.startswith("chatcmpl-"), plain.id)
    equal("the role", message.role, "assistant")
    check("the content", isinstance(message.content, str), message.content)
    equal("no tool calls", message.tool_calls, None)
    equal("a chat's tokens add up", plain.usage.total_tokens, plain.usage.prompt_tokens + plain.usage.completion_tokens)
    parts = [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
             {"role": "user", "content": [{"type": "text", "text": "Who are you?"}]}]
    equal("content in parts", chat(parts).choices[0].message.content, message.content)
    ends = {"extra_body": {"ignore_eos": True}}
    equal("max_completion_tokens", client.chat.completions.create(model=model, messages=messages, max_completion_tokens=7, **ends).usage.
          completion_tokens, 7)
    several = chat(n=2, temperature=1, seed=3)
    equal("two answers", [each.index for each in several.choices], [0, 1])
    scored = chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    equal("two alternatives", {len(each.top_logprobs) for each in scored} or {2}, {2})
    equal("bytes of tokens", b"".join(bytes(each.bytes) for each in scored).decode(errors="replace")[:len(message.content)], message.content)
    chunks = list(chat(stream=True))
    equal("a stream begins with the role", chunks[0].choices[0].delta.role, "assistant")
    equal("a stream of a chat", "".join(each.choices[0].delta.content or "" for each in chunks), message.content)
    usage = list(chat(stream=True, stream_options={"include_usage": True}))[-1].usage
    equal("usage of a stream", usage.prompt_tokens, plain.usage.prompt_tokens)
    equal("the same prompt is found again", chat(messages * 8).usage.prompt_tokens_details is None or
          chat(messages * 8).usage.prompt_tokens_details.cached_tokens > 0, True)

    free = {"max_tokens": 200, "temperature": 1, "seed": 1}
    answer = chat(response_format={"type": "json_object"}, **free).choices[0]
    check("json_object", answer.finish_reason == "length" or isinstance(json.loads(answer.message.content), dict), answer)
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
              "required": ["name", "age"], "additionalProperties": False}
    for seed in range(3):
        answer = chat(response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}},
                      **{**free, "seed": seed}).choices[0]
        value = json.loads(answer.message.content)
        check(f"json_schema, seed {seed}", set(value) == {"name", "age"} and 0 <= value["age"] <= 150 and len(value["name"]) <= 10 and
              answer.finish_reason == "stop", value)
    equal("guided_choice", chat(extra_body={"guided_choice": ["yes", "no"]}, temperature=1).choices[0].message.content in ("yes", "no"), True)
    found = chat(extra_body={"guided_regex": r"\d{3}-[a-f]{2}"}, temperature=1).choices[0].message.content
    check("guided_regex", re.fullmatch(r"\d{3}-[a-f]{2}", found), found)
    found = chat(extra_body={"guided_grammar": 'root ::= "a" ("b" | "c")* "d"'}, **{**free, "max_tokens": 40}).choices[0].message.content
    check("guided_grammar", re.match(r"a[bc]*d?$", found), found)
    found = chat(extra_body={"structured_outputs": {"regex": "x{5}"}}).choices[0].message.content
    equal("structured_outputs", found, "xxxxx")

    for name, options, param in [("top_logprobs alone", {"top_logprobs": 2}, "top_logprobs"), ("top_logprobs 21", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
                                 ("a response_format that is not known", {"response_format": {"type": "xml"}}, "response_format.type"),
                                 ("two lengths", {"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
                                 ("audio", {"modalities": ["audio"]}, "modalities")]:
        refused(name, lambda: chat(**options), param=param)
    refused("no messages", lambda: chat([]), param="messages")
    refused("a message of no object", lambda: chat(["a"]), param="messages[0]")
    refused("a picture", lambda: chat([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
            param="messages[0].content[0]")


def embeddings(client, model):
    def embed(given="In the beginning", **options):
        return client.embeddings.create(model=model, input=given, **options)

    plain = embed()
    vector = plain.data[0].embedding
    equal("a list of embeddings", (plain.object, plain.model, plain.data[0].object, plain.data[0].index), ("list", model, "embedding", 0))
    check("numbers", len(vector) > 1 and all(isinstance(each, float) for each in vector), vector[:3])
    check("of length 1", math.isclose(math.hypot(*vector), 1, rel_tol=1e-6), math.hypot(*vector))
    equal("tokens of an input", (plain.usage.prompt_tokens, plain.usage.total_tokens), (len("In the beginning"),) * 2)
    numbers = embed(encoding_format="float").data[0].embedding  # without it the client asks for base64
    equal("float and base64", list(struct.pack(f"<{len(numbers)}f", *numbers)), list(struct.pack(f"<{len(vector)}f", *vector)))
    text = embed(encoding_format="base64").data[0].embedding
    equal("base64 as text", base64.b64decode(text), struct.pack(f"<{len(vector)}f", *vector))
    ids = [ord(c) for c in "In the beginning"]
    equal("token ids are embedded", embed(ids).data[0].embedding, vector)
    both = embed(["And God", "In the beginning"])
    equal("two inputs", ([each.index for each in both.data], both.data[1].embedding), ([0, 1], vector))
    equal("lists of ids are embedded", [each.embedding for each in embed([ids, ids[:3]]).data][0], vector)
    many = embed([f"Number {i}" for i in range(300)])
    equal("300 inputs", [each.index for each in many.data], list(range(300)))
    equal("one of 300 is as alone", many.data[7].embedding, embed("Number 7").data[0].embedding)
    fewer = embed(dimensions=8).data[0].embedding
    check("dimensions", len(fewer) == 8 and math.isclose(math.hypot(*fewer), 1, rel_tol=1e-6), fewer)
    for name, given, options, param in [
            ("no input", [], {}, "input"), ("an empty input", "", {}, "input"), ("an empty one of two", ["a", ""], {}, "input[1]"),
            ("ids beyond the vocabulary", [5, 99999], {}, "input[1]"), ("an input that is too long", "a" * 5000, {}, "input"),
            ("dimensions beyond", "a", {"dimensions": 99999}, "dimensions"), ("dimensions 0", "a", {"dimensions": 0}, "dimensions"),
            ("an encoding that is not known", "a", {"encoding_format": "int8"}, "encoding_format")]:
        refused(name, lambda: embed(given, **options), param=param)
    refused("embeddings of another model", lambda: client.embeddings.create(model="other", input="a"), openai.NotFoundError, "model")


def model_with_tools(program, folder):
    """A model whose chat template has tools, and writes calls as those of Hermes do."""
    os.makedirs(folder, exist_ok=True)
    with open("tests/trainer/interop/tokenizers/gpt2.json", encoding="utf-8") as file:
        tokens = json.load(file)
    tokens["added_tokens"][-1]["content"] = "<tool_call>"
    with open(f"{folder}/tools.json", "w", encoding="utf-8") as file:
        json.dump(tokens, file)
    with open(f"{folder}/tools.jinja", "w", encoding="utf-8") as file:
        file.write("{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{% for message in messages %}"
                   "{{ message.role }}: {{ message.content or '' }}{% for call in message.tool_calls or [] %}"
                   "<tool_call>{{ call.function.arguments.a }}</tool_call>{% endfor %} {% endfor %}assistant: ")
    return model_of(program, "tiny", "f32", folder, "-tools",
                    ["model.vocab_size=421", f'input.tokenizer=TokenizerJson{{file="{folder}/tools.json", '
                                             f'chat_template="{folder}/tools.jinja"}}'])


def tools(client, model):
    parameters = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"]}
    functions = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in ("add", "take")]
    messages = [{"role": "user", "content": "Call."}]

    def chat(messages=messages, **options):
        return client.chat.completions.create(model=model, messages=messages, tools=functions, max_tokens=200, parallel_tool_calls=False,
                                              **{"seed": 1, **options})

    def valid(call, names=("add", "take")):
        return call.type == "function" and call.id.startswith("call_") and call.function.name in names and \
            0 <= json.loads(call.function.arguments)["a"] <= 99

    for seed in range(5):
        choice = chat(tool_choice="required", seed=seed).choices[0]
        equal(f"required, seed {seed}", (choice.finish_reason, choice.message.content, len(choice.message.tool_calls)), ("tool_calls", None, 1))
        check(f"required, seed {seed}: the call", valid(choice.message.tool_calls[0]), choice)
    named = {"type": "function", "function": {"name": "take"}}
    call = chat(tool_choice=named).choices[0].message.tool_calls[0]
    check("a named function", valid(call, ("take",)), call)
    free = chat().choices[0]
    check("auto", free.message.tool_calls or isinstance(free.message.content, str), free)
    equal("none", chat(tool_choice="none").choices[0].message.tool_calls, None)
    chunks = [each.choices[0] for each in chat(tool_choice=named, stream=True)]
    calls = [each for chunk in chunks for each in chunk.delta.tool_calls or []]
    equal("a stream of a call", ([each.index for each in calls], chunks[-1].finish_reason), ([0], "tool_calls"))
    check("a stream of a call: it is whole", valid(calls[0], ("take",)), calls)
    with client.chat.completions.stream(model=model, messages=messages, tools=functions, tool_choice=named, max_tokens=200,
                                        parallel_tool_calls=False, seed=1) as stream:
        gathered = stream.get_final_completion().choices[0].message.tool_calls
    check("the client gathers the same call", len(gathered) == 1 and gathered[0].function.arguments == call.function.arguments, gathered)
    message = {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]}
    result = {"role": "tool", "tool_call_id": call.id, "content": "3"}
    check("results go back", chat([*messages, message, result]).usage.prompt_tokens > chat().usage.prompt_tokens)
    for name, options, param in [("a tool that is not there", {"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice.function.name"),
                                 ("a choice that is not known", {"tool_choice": "maybe"}, "tool_choice"),
                                 ("tools and a form", {"tool_choice": "required", "response_format": {"type": "json_object"}}, "tool_choice")]:
        refused(name, lambda: chat(**options), param=param)


def others(client, url, model):
    equal("the list of models", [each.id for each in client.models.list()], [model])
    equal("a model", client.models.retrieve(model).id, model)
    refused("a model that is not there", lambda: client.models.retrieve("none"), openai.NotFoundError, "model")
    refused("no key", lambda: openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0).models.list(), openai.AuthenticationError)

    def ask(method, path, body=None, key=KEY):
        request = urllib.request.Request(url + path, body, {"Authorization": f"Bearer {key}"}, method=method)
        try:
            answer = urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            answer = error
        return answer.status, answer.read()

    equal("health needs no key", ask("GET", "/health", key="")[0], 200)
    equal("metrics need one", ask("GET", "/metrics", key="")[0], 401)
    equal("a route that is not there", ask("GET", "/v1/nothing")[0], 404)
    equal("another method", ask("GET", "/v1/completions")[0], 405)
    equal("no JSON", ask("POST", "/v1/completions", b"{")[0], 400)
    equal("deep JSON", ask("POST", "/v1/completions", b"[" * 100 + b"]" * 100)[0], 400)
    equal("bytes that are no UTF-8", ask("POST", "/v1/completions", b'{"prompt":"\xff"}')[0], 400)
    equal("a body of 9 MiB", ask("POST", "/v1/completions", b" " * (9 << 20))[0], 413)
    status, body = ask("POST", "/tokenize", b'{"prompt":"abc"}')
    equal("tokenize", (status, json.loads(body)["tokens"]), (200, [97, 98, 99]))
    status, body = ask("POST", "/detokenize", b'{"tokens":[97,98,99]}')
    equal("detokenize", (status, json.loads(body)["prompt"]), (200, "abc"))

    async def at_once():
        client = openai.AsyncOpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0)
        calls = [client.completions.create(model=model, prompt=f"Number {i % 8}", seed=i % 8, max_tokens=20, temperature=1)
                 for i in range(24)]
        return [each.choices[0].text for each in await asyncio.gather(*calls)]

    texts = asyncio.run(at_once())
    equal("24 at once give the texts of 8", texts[:8] * 3, texts)
    return ask("GET", "/metrics")[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--promtool", default="promtool")
    options = parser.parse_args()
    run = model_of(options.program, "tiny", "f32", "build/serving")
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write(KEY + "\n")
        keys.flush()
        server = Server(options.program, run, "--api-key-file", keys.name)
        client = openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0)
        model = os.path.basename(run)
        completions(client, model)
        chats(client, model)
        embeddings(client, model)
        metrics = others(client, server.url, model)
        promtool = subprocess.run([options.promtool, "check", "metrics"], input=metrics, capture_output=True)
        equal("promtool check metrics", (promtool.returncode, promtool.stdout + promtool.stderr), (0, b""))
        equal("the server ends with 0", server.end(), 0)
    run = model_with_tools(options.program, "build/serving")
    server = Server(options.program, run)
    tools(openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0), os.path.basename(run))
    server.end()
    print(f"api: {done} checks with openai {openai.__version__}, {failed} fail")
    return 1 if failed or done < 160 else 0


if __name__ == "__main__":
    sys.exit(main())
