"""Whether grammars of JSON schemas take the documents that the JSON-Schema-Test-Suite calls valid, and no others, and whether a
server whose model has random weights writes texts of the form that is asked for (scripts/check-serving text). The suite is
Debian's package json-schema-test-suite."""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys

from serving import PERSON, Server, model_of

# Groups whose drafts mean another thing than the later standard, which is what grammars follow.
OTHER_MEANING = {"$ref prevents a sibling $id from changing the base uri", "ref overrides any sibling keywords",
                 "$ref sibling"}


class Matcher:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **asked):
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def target(root, reference):
    here = root
    for part in reference.lstrip("#").strip("/").split("/") if reference != "#" else []:
        part = part.replace("~1", "/").replace("~0", "~").replace("%25", "%").replace("%22", '"')
        here = here[int(part)] if isinstance(here, list) else here[part]
    return here


def names_in_order(schema, root, depth=0):
    """The properties of a schema in the order in which its grammar has them."""
    if not isinstance(schema, dict) or depth > 8:
        return {}
    found = {}

    def add(others):
        for name, values in others.items():
            found.setdefault(name, []).extend(values)

    for name, value in schema.get("properties", {}).items():
        found.setdefault(name, []).append(value)
    if isinstance(schema.get("$ref"), str) and schema["$ref"].startswith("#"):
        add(names_in_order(target(root, schema["$ref"]), root, depth + 1))
    for kind in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(kind, []):
            add(names_in_order(part, root, depth + 1))
    for name in schema.get("required", []):
        found.setdefault(name, [])
    return found


def canonical(value, schemas, root):
    """The document with properties in the schema's order and whole numbers as such."""
    for schema in schemas:  # an object that is listed comes as it is listed
        listed = schema.get("enum", []) + [schema.get("const")] if isinstance(schema, dict) else []
        if same := [each for each in listed if isinstance(each, (dict, list)) and each == value]:
            return same[0]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e18:
        return int(value)
    if isinstance(value, list):
        inner = []
        for schema in schemas:
            if isinstance(schema, dict) and isinstance(schema.get("$ref"), str) and schema["$ref"].startswith("#"):
                schema = target(root, schema["$ref"])
            if isinstance(schema, dict) and isinstance(schema.get("items"), dict):
                inner.append(schema["items"])
        return [canonical(each, inner, root) for each in value]
    if not isinstance(value, dict):
        return value
    order = {}
    more = []
    for schema in schemas:
        for name, values in names_in_order(schema, root).items():
            order.setdefault(name, []).extend(values)
        if isinstance(schema, dict) and isinstance(schema.get("additionalProperties"), dict):
            more.append(schema["additionalProperties"])
    names = [name for name in order if name in value] + [name for name in value if name not in order]
    return {name: canonical(value[name], order.get(name, []) or more, root) for name in names}


def is_person(text):
    person = json.loads(text)
    return (list(person) in (["name", "age"], ["name", "age", "tags"]) and 1 <= len(person["name"]) <= 12
            and isinstance(person["age"], int) and 0 <= person["age"] <= 150
            and len(person.get("tags", [])) <= 3 and set(person.get("tags", [])) <= {"red", "blue"})


# What is asked for, and whether a whole text is of this form.
FORMS = [
    ({"guided_json": PERSON}, is_person),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": PERSON}}}, is_person),
    ({"response_format": {"type": "json_object"}}, lambda text: isinstance(json.loads(text), dict)),
    ({"guided_regex": r"[A-Z]\w{2,9} (is|was) \d{1,3}\."}, lambda text: re.fullmatch(r"[A-Z]\w{2,9} (is|was) \d{1,3}\.", text, re.A)),
    ({"guided_choice": ["yes", "no", "maybe"]}, lambda text: text in ("yes", "no", "maybe")),
    ({"structured_outputs": {"grammar": 'root ::= "(" root ")" | [a-z]{1,3}'}},
     lambda text: re.fullmatch(r"\(*[a-z]{1,3}\)*", text) and text.count("(") == text.count(")")),
]


def check_server(program, texts):
    """Asks until so many texts are whole, each of which is checked, or twice as many were asked for."""
    server = Server(program, model_of(program, "tiny", "f32", "build/serving"), "--max-sequences", "8")
    wrong = []

    def ask(index):
        form, fits = FORMS[index % len(FORMS)]
        answer = server.completion({"prompt": f"text {index}", "seed": index, "max_tokens": 200, "logprobs": 0,
                                    "ignore_eos": index % 4 == 0, "temperature": (index % 3) / 2, **form})
        if answer["finish"] == "length":  # random weights may not close a string
            return 0
        if not fits(answer["text"]):
            wrong.append(f"{form}: {answer['text']!r}")
        return 1

    asked = whole = 0
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        while whole < texts and asked < 2 * texts:
            more = range(asked, asked + texts - whole)
            whole += sum(pool.map(ask, more))
            asked = more.stop
    ended = server.end()
    print("\n".join(wrong + [f"texts of a form: {whole} of {asked} whole, at least {texts} wanted, {len(wrong)} of these wrong"]))
    return bool(wrong) or whole < texts or ended != 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="build/meshloom; match_grammar stands beside its tests")
    parser.add_argument("--suite", default="/usr/share/json-schema-test-suite/tests")
    parser.add_argument("--drafts", nargs="*", default=["draft4", "draft6", "draft7"])
    parser.add_argument("--show", action="store_true", help="schemas that are refused, by the keyword")
    parser.add_argument("--texts", type=int, default=500, help="whole texts that a server writes")
    options = parser.parse_args()
    suite = pathlib.Path(options.suite)
    if not suite.is_dir():
        sys.exit("check_text.py: install the package json-schema-test-suite")
    matcher = Matcher(str(pathlib.Path(options.program).parent / "tests" / "match_grammar"))
    taken = refused = agree = other = 0
    disagree, why = [], {}
    for draft in options.drafts:
        for file in sorted((suite / draft).glob("*.json")):
            for group in json.loads(file.read_text(encoding="utf-8")):
                schema = group["schema"]
                if group["description"] in OTHER_MEANING or any(group["description"].startswith(each) for each in OTHER_MEANING):
                    other += 1
                    continue
                documents = [json.dumps(canonical(test["data"], [schema], schema), ensure_ascii=False, separators=(",", ":"))
                             for test in group["tests"]]
                answer = matcher.ask(schema=schema, documents=documents)
                if "error" in answer:
                    refused += 1
                    why.setdefault(answer["error"].split("; found")[0].split(": ", 1)[-1], []).append(f"{draft}/{file.stem}")
                    continue
                taken += 1
                for test, text, found in zip(group["tests"], documents, answer["taken"]):
                    if found == test["valid"]:
                        agree += 1
                    else:
                        disagree.append(f"{draft}/{file.stem}, {group['description']}, {test['description']}: {text} is "
                                        f"{'taken' if found else 'refused'}, and {'valid' if test['valid'] else 'invalid'}; "
                                        f"{json.dumps(schema)}")
    if options.show:
        for rule, places in sorted(why.items(), key=lambda item: -len(item[1])):
            print(f"{len(places):4} {rule} ({', '.join(sorted(set(places))[:4])})")
    for line in disagree:
        print(line)
    print(f"schemas: {taken} taken, {refused} refused by name, {other} that the drafts give another meaning; "
          f"documents: {agree} agree, {len(disagree)} disagree")
    failed = options.texts > 0 and check_server(options.program, options.texts)
    sys.exit(1 if disagree or not taken or failed else 0)


if __name__ == "__main__":
    main()
