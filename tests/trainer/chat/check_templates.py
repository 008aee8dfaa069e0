#!/usr/bin/env python3
"""Holds Meshloom's chat templates to transformers' apply_chat_template, byte for byte.

    scripts/build default render_chat && scripts/fetch-chat-templates
    v/bin/pip install transformers jinja2
    v/bin/python tests/trainer/chat/check_templates.py                  # published templates and the snippets
    v/bin/python tests/trainer/chat/check_templates.py --golden         # writes tests/trainer/chat/snippets.jsonl, what the C++ test reads

An error must be an error on both sides. What Meshloom refuses by name though Jinja2 runs it is listed in REFUSED.
"""
import argparse
import collections
import datetime
import itertools
import json
import pathlib
import subprocess
import sys

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from snippets import REFUSED, SNIPPETS, VARIABLES

HERE = pathlib.Path(__file__).parent
NOW = 1700000000


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.utcfromtimestamp(NOW)


chat_template_utils.datetime = FixedTime

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a \"city\" <now> & later.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Köln, 東京 …"},
                "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                "days": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["city"],
        },
        "return": {"type": "number", "description": "degrees"},
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time.",
                                          "parameters": {"type": "object", "properties": {}}}}


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


CALL = {"id": "call12345", "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": [1, 2], "exact": True, "note": None}}}
TEXT_CALL = {"id": "call12345", "type": "function",
             "function": {"name": "get_weather", "arguments": '{"city": "Köln"}'}}


def part(text):
    return [{"type": "text", "text": text}]


CONVERSATIONS = {
    "user": [turn("user", "Hello, who are you?")],
    "system": [turn("system", "Be brief."), turn("user", "Hi")],
    "two turns": [turn("user", "1 + 1?"), turn("assistant", "2"), turn("user", "Sure?"), turn("assistant", "Yes.")],
    "system and turns": [turn("system", "You count."), turn("user", "one"), turn("assistant", "two"),
                         turn("user", "three"), turn("assistant", "four"), turn("user", "five")],
    "white space": [turn("system", "  a\n\n"), turn("user", "\n x \t\n"), turn("assistant", " \n y  \n\n"),
                    turn("user", "")],
    "letters": [turn("user", "„Straße“ 東京 🙂 \u2028 \x07 \\ / <|im_end|> {{ x }} {% y %}"),
                turn("assistant", "'single' \"double\" `back`\r\nline\ttab é\u00a0")],
    "parts": [turn("system", part("Be kind.")), turn("user", part("What is it?")), turn("assistant", part("A text.")),
              turn("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
    "image": [turn("user", [{"type": "image"}, {"type": "text", "text": "What is it?"}])],
    "thinking": [turn("user", "2 + 2?"), turn("assistant", "<think>\nadd\n</think>\n\n4"), turn("user", "And 3 + 3?"),
                 turn("assistant", "<think>\nagain\n</think>\n\n6")],
    "reasoning": [turn("user", "2 + 2?"), turn("assistant", "4", reasoning_content="two and two"), turn("user", "5 + 5?"),
                  turn("assistant", "10", reasoning_content="five twice")],
    "tool call": [turn("system", "Use tools."), turn("user", "Weather in Köln?"),
                  turn("assistant", "", tool_calls=[CALL]),
                  turn("tool", '{"degrees": 3.5}', name="get_weather", tool_call_id="call12345"),
                  turn("assistant", "3.5 degrees."), turn("user", "Thanks")],
    "tool calls": [turn("user", "Weather, twice?"),
                   turn("assistant", "Looking.", tool_calls=[CALL, {**CALL, "id": "call67890"}]),
                   turn("tool", "3", name="get_weather", tool_call_id="call12345"),
                   turn("tool", "4", name="get_weather", tool_call_id="call67890")],
    "text arguments": [turn("user", "Weather?"), turn("assistant", None, tool_calls=[TEXT_CALL]),
                       turn("tool", "3", name="get_weather", tool_call_id="call12345"), turn("assistant", "3")],
    "assistant first": [turn("assistant", "Welcome."), turn("user", "Hi"), turn("assistant", "Hello")],
    "two users": [turn("user", "a"), turn("user", "b"), turn("assistant", "c"), turn("assistant", "d")],
    "developer": [turn("developer", "Rules."), turn("user", "Hi")],
    "strange role": [turn("narrator", "Once"), turn("user", "Hi")],
    "null and more": [turn("user", "x", name="Ann", extra={"a": [1, 2.5, False, None]}), turn("assistant", None)],
    "no content": [{"role": "user"}],
}
OPTIONS = [
    {},
    {"add_generation_prompt": True},
    {"tools": [WEATHER, CLOCK], "add_generation_prompt": True},
    {"add_generation_prompt": True, "enable_thinking": False},
    {"enable_thinking": True, "add_generation_prompt": True, "documents": [{"title": "T", "text": "D é"}]},
    {"bos_token": "", "eos_token": ""},
]


def tokenizer(bos, eos):
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>")))
    if bos:
        made.bos_token = bos
    if eos:
        made.eos_token = eos
    return made


TOKENIZERS = {(b, e): tokenizer(b, e) for b, e in itertools.product(["<s>", ""], ["</s>", ""])}


def by_transformers(case):
    try:
        made = TOKENIZERS[case.get("bos_token", ""), case.get("eos_token", "")]
        variables = dict(case["variables"])
        text = made.apply_chat_template(case["messages"], chat_template=case["template"], tokenize=False,
                                        add_generation_prompt=case.get("add_generation_prompt", False), **variables)
        text.encode()
        return {"text": text}
    except RecursionError:
        return {"error": "recursion"}
    except Exception as error:  # whatever a template can raise
        return {"error": f"{type(error).__name__}: {error}"}


def by_meshloom(program, cases):
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run([program], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert len(answers) == len(cases)
    return answers


def compare(what, cases, answers):
    count = collections.Counter()
    for (name, case), answer in zip(cases, answers):
        expected = by_transformers(case)
        if "error" in expected and "error" in answer:
            count["errors on both sides"] += 1
        elif expected == answer:
            count["equal"] += 1
        else:
            refused = name in REFUSED and "error" in answer
            count["refused" if refused else "DIFFERENT"] += 1
            if not refused:
                print(f"{name}\n    transformers {json.dumps(expected)[:700]}\n    meshloom     {json.dumps(answer)[:700]}")
    print(f"{what}: {len(cases)} renderings, " + ", ".join(f"{n} {k}" for k, n in sorted(count.items())))
    return count


def template_cases(folder):
    for path in sorted(folder.glob("*.jinja")):
        for name, messages in CONVERSATIONS.items():
            for i, options in enumerate(OPTIONS):
                options = dict(options)
                case = {"template": path.read_text(), "messages": messages, "now": NOW,
                        "bos_token": options.pop("bos_token", "<s>"), "eos_token": options.pop("eos_token", "</s>"),
                        "add_generation_prompt": options.pop("add_generation_prompt", False), "variables": options}
                yield f"{path.stem} / {name} / {i}", case


def snippet_case(template):
    return {"template": template, "messages": [turn("user", "Hi")], "variables": VARIABLES, "bos_token": "<s>",
            "eos_token": "</s>", "now": NOW}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--golden", action="store_true")
    parser.add_argument("--program", default="build/tests/render_chat")
    parser.add_argument("--templates", default="build/chat-templates", type=pathlib.Path)
    asked = parser.parse_args()
    snippets = [(snippet, snippet_case(snippet)) for snippet in SNIPPETS]
    if asked.golden:
        with open(HERE / "snippets.jsonl", "w") as file:
            file.write(json.dumps({"variables": VARIABLES}) + "\n")
            for name, case in snippets:
                expected = by_transformers(case)
                row = {"template": name, **({"error": True} if "error" in expected else expected)}
                if name in REFUSED:
                    row = {"template": name, "refused": True}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{len(snippets)} snippets written")
        return
    cases = list(template_cases(asked.templates))
    if not cases:
        sys.exit(f"no templates in {asked.templates}: run scripts/fetch-chat-templates")
    count = compare("templates", cases, by_meshloom(asked.program, [case for _, case in cases]))
    count += compare("snippets", snippets, by_meshloom(asked.program, [case for _, case in snippets]))
    sys.exit(count["DIFFERENT"] > 0)


if __name__ == "__main__":
    main()
