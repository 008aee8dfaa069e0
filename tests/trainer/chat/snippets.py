"""Small templates that check_templates.py renders with Jinja2 and with Meshloom."""

VARIABLES = {
    "text": "Hello, World",
    "word": "Straße",
    "spaced": "  two  words \n",
    "lines": "a\nb\r\nc\n\nd",
    "empty": "",
    "number": 7,
    "minus": -3,
    "real": 2.5,
    "yes": True,
    "no": False,
    "nothing": None,
    "list": [3, 1, 2],
    "words": ["pear", "Apple", "fig", "apple"],
    "nested": [[1, 2], [3, [4, None]]],
    "none_list": [],
    "dict": {"b": 1, "a": [True, None], "ü": "x"},
    "users": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cem", "age": 30, "ok": True}],
}

VALUES = ["text", "word", "spaced", "empty", "number", "minus", "real", "yes", "nothing", "list", "words", "nested", "none_list",
          "dict", "users", "missing", "(1, 'a')", "range(3)", "dict.items()", "list|map('string')", "'a\"b\\'c'", "1e20", "0.1 + 0.2"]


def printed(*expressions):
    return ["{{ " + expression + " }}" for expression in expressions]


def each(pattern, values):
    return ["{{ " + pattern.replace("X", value) + " }}" for value in values]


SNIPPETS = []

# Every value as text, as JSON, through filters and tests.
SNIPPETS += each("X", VALUES[:18] + VALUES[20:]) + each("[X]", VALUES[:18])
SNIPPETS += each("X|tojson", VALUES) + each("X|length", VALUES) + each("X|list", VALUES)
SNIPPETS += each("X|first|default('D')", VALUES) + each("X|last|default('D')", VALUES)
SNIPPETS += each("'y' if X else 'n'", VALUES) + each("X|string|upper", VALUES[:18]) + each("X|join('-')", VALUES)
SNIPPETS += each("X|int(5)", VALUES[:16]) + each("X|float(5)", VALUES[:16]) + each("X|abs", VALUES[4:10])
SNIPPETS += each("X|sort", VALUES) + each("X|reverse|list", VALUES) + each("X|unique|list", VALUES) + each("X|sum", VALUES)
for test in ["defined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "true",
             "callable", "undefined"]:
    SNIPPETS.append("{% for _ in [1] %}" + ", ".join(f"{{{{ {value} is {test} }}}}" for value in VALUES) + "{% endfor %}")

# Operators.
SNIPPETS += printed(
    "1 + 2 * 3 - 4", "7 / 2", "8 / 2", "7 // 2", "-7 // 2", "7 % 3", "-7 % 3", "7 % -3", "2 ** 10", "2 ** -1", "-2 ** 2",
    "7.5 // 2", "-7.5 // 2", "7.5 % 2", "-7.5 % 2", "1 / 0", "1 // 0", "1 % 0", "1.0 / 0", "0 ** -1", "2 ** 0.5", "1e3", "1_000",
    "0x1f", "0b11", "0o17", "1e16", "1e15", "123456789012345678.0", "1.5e-7", "0.0001", "0.00001", "-0.0", "1e400",
    "9223372036854775807", "true + true", "true * 3", "-true", "+'a'", "-'a'", "'a' + 'b'", "'a' + 1", "1 + 'a'", "'ab' * 3",
    "3 * 'ab'", "'ab' * -1", "[1] * 2", "(1,) * 2", "[1] + [2]", "(1,) + (2,)", "[1] + (2,)", "'a' * 'b'", "[1] - [1]",
    "'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1] ~ missing", "1 == 1.0", "1 == true", "'1' == 1", "[1, 2] == [1, 2]", "[1] == (1,)",
    "{'a': 1, 'b': 2} == {'b': 2, 'a': 1}", "none == none", "missing == missing2", "missing == none", "1 < 2 < 3", "1 < 3 < 2",
    "1 != 2 != 1", "'a' < 'b'", "'a' < 1", "[1, 2] < [1, 3]", "[1] < [1, 0]", "none < 1", "missing < 1", "1 in [1, 2]",
    "1 not in [1, 2]", "'ell' in text", "'x' not in text", "'a' in dict", "1 in 'a'", "1 in 5", "'a' in missing",
    "missing in 'a'", "[1] in dict", "(1, 2) in [(1, 2)]", "not 1", "not not 1", "1 and 0", "0 or 'x'", "'' or none",
    "none and missing.x", "1 or missing.x", "not missing", "1 if 0", "(1 if 0) is defined", "1 if 0 else 2 if 0 else 3",
    "'%s and %s' % (1, 'a')", "'%s' % [1]", "'%s' % (1,)", "'%d' % 3.7", "'%5.2f|' % 3.14159", "'%-5s|' % 'ab'",
    "'%05d' % 42", "'%x' % 255", "'%e' % 12345.678", "'%g' % 0.00001", "'%%'", "'%%' % ()", "'%s' % ()", "'%s %s' % 1",
    "'a' % 1", "'a' % {}", "'%(a)s' % {'a': 5}", "'%(b)s' % {'a': 5}", "'%r' % 'a'", "'%d' % 'a'", "'%s' % none",
    "'%+d' % 3", "'%.3s' % 'abcdef'", "'%*d' % (5, 3)", "'%q' % 1", "'%s' % missing", "1 if number is odd else 2",
    "number is even", "number is divisibleby 7", "number is divisibleby(2)", "'a' is odd", "number is gt 3",
    "number is eq 7", "number is ne(7)", "number is in [7]", "number is not in [7]", "text is lower", "'abc' is lower",
    "'ABC' is upper", "'1' is upper", "none is sameas none", "dict is sameas dict", "'upper' is filter", "'nope' is filter",
    "'odd' is test", "5 is sameas 5.0", "number is not none and text is string", "not number is none", "- number|abs",
    "(-number)|abs", "number is number is true")

# Text.
METHODS = [
    "upper()", "lower()", "title()", "capitalize()", "swapcase()", "strip()", "lstrip()", "rstrip()", "strip('Hd ')",
    "split()", "split(None, 1)", "rsplit(None, 1)", "split(' ')", "split('l')", "split('l', 1)", "rsplit('l', 1)", "split('')",
    "splitlines()", "splitlines(true)", "startswith('H')", "endswith(('d', 'x'))", "startswith('e', 1)", "find('o')",
    "rfind('o')", "find('zz')", "index('zz')", "count('l')", "count('')", "replace('l', 'LL')", "replace('l', '', 1)",
    "replace('', '-')", "isalpha()", "isdigit()", "isalnum()", "isspace()", "isupper()", "islower()", "zfill(15)",
    "center(17)", "center(16, '*')", "ljust(15, '.') ~ '|'", "rjust(15)", "removeprefix('Hel')", "removesuffix('ld')",
    "partition(', ')", "rpartition('o')", "partition('zz')", "rpartition('zz')", "join(['a', 'b'])", "join([1])", "join('xyz')",
]
for value in ["text", "word", "spaced"]:
    SNIPPETS += [f"{{{{ [{value}.{method}] }}}}" for method in METHODS]
SNIPPETS += printed(
    "lines.splitlines()", "lines|indent", "lines|indent(2, true)", "lines|indent('> ', blank=true)", "lines|indent(width=1)",
    "word|upper", "'ǆ ΑΣ ﬁn'|title", "'ΑΣ'|lower", "'ΑΣ'.title()", "'they''re bill-ted (x) [y]'|title", "\"they're\".title()",
    "word|capitalize", "spaced|trim ~ '|'", "text|trim('Hd')", "text|replace('o', '0', 1)", "number|replace(7, 8)",
    "text|center(20) ~ '|'", "text|truncate(5)", "text|truncate(8, true, leeway=0)", "'a b c d e f'|truncate(6, leeway=0)",
    "text|truncate(5, end='', leeway=0)", "'%s-%s'|format(1, 2)", "'%(a)s'|format(a=1)", "'{} {}'.format(1, 'a')",
    "'{0}{1}{0}'.format('a', 'b')", "'{a}{{}}'.format(a=1)", "'{a[x]}{b.c}'.format(a={'x': 1}, b={'c': 2})", "'{!r}'.format('a')",
    "'{}'.format()", "'{'.format(1)", "'{}{0}'.format(1)", "text[0]", "text[-1]", "text[99]", "text[99] is defined", "word[4]",
    "word[4:]", "text[1:5]", "text[::-1]", "text[::2]", "text[-3:]", "text[:-3]", "text[5:1]", "word[::-1]", "text['upper']()",
    "text.nope", "text.nope is defined", "text.nope.x", "text|e", "'<a href=\"x\">&\\'</a>'|e", "'<'|e ~ '<'", "('<'|e) + '<'",
    "('<'|safe) + '<'", "'<' + ('>'|safe)", "('<b>'|safe)|upper", "('<b>'|safe)|e", "('<b>'|safe).replace('b', '<')",
    "('a'|safe).join(['<', '>'|safe])", "['<'|safe]", "('<'|safe)|string|e", "'<'|e|forceescape", "('<'|safe) is escaped",
    "'x' is escaped", "'a' 'b'", "'\\n\\t\\\\\\'\\x41\\u00e9\\101\\q'", "'\\ud800'", "'\\U0001F642'", "'tab\\tin ' ~ \"it's\"",
    "['it\\'s', 'a\"b', '\\n', '\\x00', 'é', '\\u200b', '🙂']", "'12'|int", "'1_2'|int", "' 12 '|int", "'12.9'|int", "'1e3'|int",
    "'0x1A'|int(0, 16)", "'z'|int", "'z'|int(default=9)", "3.99|int", "-3.99|int", "'inf'|int", "'nan'|float", "'1.5e3'|float",
    "'x'|float", "'.5'|float", "'-.5e1'|float", "'+7'|int", "'--7'|int", "none|int", "missing|int", "42.55|round", "42.55|round(1)",
    "2.5|round", "3.5|round", "2.675|round(2)", "42.55|round(1, 'floor')", "42.51|round(1, 'ceil')", "5|round", "'a'|round",
    "'a'|round('x')", "1e22|int", "'a-b_c'.split('-')[1].split('_')|last", "'x'.encode is defined", "'x'.isidentifier()", "text.append('x')")

# Sequences and dicts.
SNIPPETS += printed(
    "list[0]", "list[-1]", "list[9]", "list[9] is defined", "list['x'] is defined", "list[1:]", "list[::-1]", "list[::0]",
    "list.0", "nested.1.1.0", "list[true]", "list[0:2][1]", "(1, 2, 3)[1:]", "range(10)[2:8:2]", "range(10)[-1]", "range(5)|list",
    "range(2, 10, 3)|list", "range(5, 0, -2)|list", "range(0)", "range(3) is sequence", "range(1, 2, 0)", "range(200000)",
    "range('a')", "range(3) == range(0, 3)", "5 in range(10)", "dict.b", "dict['a']", "dict.nope", "dict['nope'].x", "dict.get('b')",
    "dict.get('x')", "dict.get('x', 'D')", "dict.items()", "dict.keys()", "dict.values()", "dict.items()|list", "dict.keys()|length",
    "dict.pop('b')", "dict.update({})", "dict.items is callable", "list.append(1)", "list.append is defined",
    "list.index(1)", "list.index(9)", "list.count(1)", "{'items': 1}.items is callable", "{'items': 1}['items']", "{}['items']() | list",
    "{1: 'a', 'b': 2, none: 3, (1, 2): 4, true: 5}", "{[1]: 2}", "{'a': 1, 'a': 2}", "{'a': {'b': [1]}}.a.b[0]", "{}", "[]", "()",
    "(1,)", "[1, 2,]", "{'a': 1,}", "1, 2", "(1, 2)|join(',')", "dict(a=1, b=2)", "dict([('a', 1)])", "dict({'a': 1}, b=2)",
    "dict(5)", "list|min", "list|max", "words|min", "words|max", "words|max(case_sensitive=true)", "none_list|min is defined",
    "users|max(attribute='age')", "words|sort", "words|sort(case_sensitive=true)", "words|sort(reverse=true)",
    "users|sort(attribute='name')|map(attribute='name')|list", "users|sort(attribute='age,name')|map(attribute='name')|list",
    "[1, 'a']|sort", "words|unique|list", "words|unique(true)|list", "[[1], [1]]|unique|list", "[1, 1.0, true]|unique|list",
    "users|map(attribute='name')|join(', ')", "users|map(attribute='tags.0', default='-')|list", "users|map(attribute='nope')|list",
    "users|map('length')|list", "words|map('upper')|list", "words|map('replace', 'p', 'P')|list", "words|map('nope')|list",
    "words|map|list", "users|selectattr('ok')|list|length", "users|selectattr('age', 'gt', 26)|map(attribute='name')|list",
    "users|selectattr('ok', 'defined')|map(attribute='name')|list", "users|rejectattr('age', 'equalto', 30)|list",
    "users|rejectattr('ok', 'undefined')|list", "list|select('odd')|list", "list|reject('odd')|list", "[0, 1, '']|select|list",
    "[0, 1, '']|reject|list", "list|select('nope')|list", "list|select('>', 1)|list", "users|selectattr('name', 'in', ['Ann'])|list",
    "users|groupby('age')|list", "users|groupby('age')|map(attribute='grouper')|list", "users|groupby('age')|map(attribute='list')|map('length')|list",
    "users|groupby('tags', default=[])|length", "list|batch(2)|list", "list|batch(2, 'x')|list", "list|slice(2)|list",
    "list|slice(2, 'x')|list", "list|sum", "users|sum(attribute='age')", "list|sum(start=10)", "words|sum", "[[1], [2]]|sum(start=[])",
    "dict|dictsort", "{'b': 1, 'A': 2}|dictsort(true)", "{'b': 1, 'A': 2}|dictsort(by='value', reverse=true)", "dict|items|list",
    "list|items|list", "missing|items|list", "dict|list", "dict|first", "dict|last", "text|first", "text|last", "text|list|length",
    "list|select('odd')|length", "list|select('odd')|last", "list|select('odd')|first", "(list|select('odd'))[0] is defined",
    "'T' if none_list|select('odd') else 'F'", "list|reverse|first", "text|reverse", "word|reverse", "list|attr('x') is defined",
    "text|attr('upper')()", "missing|default('d')", "none|default('d')", "none|default('d', true)", "''|d('d', boolean=true)",
    "missing|default", "missing.x|default('d')", "dict.x|default(dict.b)", "list|count", "nested|map('sum')|list",
    "nested|map('list')|list", "words|join('-', attribute='0')", "users|join(', ', attribute='name')", "list|join|int + 1",
    "list|random is defined", "words|wordcount", "text|upper|lower|title", "list|length > 2", "(list|length) > 2", "list|nope")

# tojson.
SNIPPETS += printed(
    "dict|tojson(indent=2)", "nested|tojson(indent=1)", "users|tojson(indent='  ')", "dict|tojson(ensure_ascii=true)",
    "'🙂é\\x7f<>&'|tojson", "'🙂é\\x7f'|tojson(ensure_ascii=true)", "{'b': 1, 'a': 2}|tojson(sort_keys=true)",
    "dict|tojson(separators=(',', ':'))", "{}|tojson(indent=2)", "[]|tojson(indent=2)", "{'a': []}|tojson(indent=2)",
    "'\\n\\r\\t\\b\\f\\\\\"\\x01'|tojson", "{1: 2, none: 3, true: 4, 1.5: 5}|tojson", "{(1, 2): 3}|tojson", "1.0|tojson", "1e100|tojson",
    "(1, 2)|tojson", "('<'|safe)|tojson", "namespace()|tojson", "range(2)|tojson", "[missing]|tojson", "1|tojson(indent=2)",
    "none|tojson ~ true|tojson", "'a'|tojson|safe", "dict|tojson(2)", "[1, [2, {'a': 3}]]|tojson(indent=0)", "dict|tojson(foo=1)")

# Statements and white space.
SNIPPETS += [
    "{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %}", "{% if missing %}a{% else %}b{% endif %}", "{% if 1 %}a",
    "{% endif %}", "{% if %}a{% endif %}", "{% if 1, 2 %}a{% endif %}", "{% nope %}", "{% if 1 -%}  a  {%- endif %}|",
    "{%- if 1 %} a {% endif -%} b", "a  \n  {%- if 1 %}\nb\n{% endif %}\nc", "  {% if 1 %}\n    b\n  {% endif %}\nc\n",
    "  {%+ if 1 %}\nb{% endif +%}\nc", "x {# note #}\n y", "  {# note #}\ny", "x {#- note -#} y", "x {#+ n +#}\ny", "{# open",
    "{{ 1 }}\n{{ 2 }}\n", "{{ 1 -}}  \n  {{- 2 }}", "  {{- 1 }}", "  {{ 1 }}  ", "a\n\n", "a\r\nb\rc\n", "\n", "", "{", "{ {", "{}",
    "}}", "%}", "{{ '}}' }}", "{{ {'a': {'b': 1}} }}", "{{ '{{' }}{{ '%}' }}", "{{ }}", "{{ 1", "{% set x = %}", "{{ 'a }}",
    "{{ 1 2 }}", "{{ a b }}", "{{ [1, }}", "{{ (1 }}", "{{ 1) }}", "{{ {1} }}", "{{ a.'b' }}", "{{ $ }}", "{{ a ! b }}", "{{ a; b }}",
    "{% raw %}{{ x }}{% endraw %}", "a {%- raw -%} {% x %} {%- endraw -%} b", "{% raw %}\n {{ x }}\n{% endraw %}\ny", "{% raw %}",
    "  {% raw %} a\n  {% endraw %}\nb", "{% for x in list %}{{ x }},{% endfor %}", "{% for x in missing %}a{% else %}b{% endfor %}",
    "{% for x in none %}a{% endfor %}", "{% for x in 5 %}a{% endfor %}", "{% for c in word %}{{ c }}.{% endfor %}",
    "{% for k in dict %}{{ k }}{% endfor %}", "{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in nested %}{{ a }}/{{ b }};{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}",
    "{% for a, b in list %}{% endfor %}", "{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for x in list if x > 1 %}{{ x }}{{ loop.index }}/{{ loop.length }}{% endfor %}",
    "{% for x in list if x > 9 %}a{% else %}none{% endfor %}", "{% for x in list if missing %}a{% endfor %}",
    "{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in list %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in list %}{{ loop }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.nope }}{% endfor %}",
    "{% for x in list|select('odd') %}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{% endfor %}",
    "{% for x in list %}{% for y in list %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in list %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in [1] %}{% continue %}{% else %}E{% endfor %}", "{% for x in [1] %}{% break %}{% else %}E{% endfor %}", "{% break %}",
    "{% for x in [1, 2] %}{% set y %}{% if x == 1 %}{% continue %}{% endif %}v{% endset %}[{{ y }}]{% endfor %}",
    "{% for x in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for x in list recursive %}{{ x }}{% endfor %}",
    "{% for loop in list %}{% endfor %}", "{% for x in list %}{% set loop = 5 %}{{ loop }}{% endfor %}", "{{ loop }}", "{{ loop.index }}",
    "{% for x in list %}{% set y = x %}{% endfor %}{{ y }}", "{% set y = 0 %}{% for x in list %}{% set y = y + x %}{{ y }},{% endfor %}{{ y }}",
    "{% for x in [1, 2] %}{{ y }}{% set y = x %}{% endfor %}", "{% for x in [1, 2] %}{% if x == 1 %}{% set y = 5 %}{% endif %}{{ y }};{% endfor %}",
    "{% set ns = namespace(a=0) %}{% for x in list %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}", "{% set ns = namespace() %}{{ ns.x }}{{ ns['x'] }}",
    "{% set ns = namespace(a=1) %}{{ ns }}{{ ns.a }}{{ ns['a'] }}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}",
    "{% set ns = namespace(_a=1) %}", "{% set ns.x = 1 %}", "{% set text.x = 1 %}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace() %}{% set ns.x %}hi{% endset %}{{ ns.x }}", "{% set x = 1, 2 %}{{ x }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = [1] %}", "{% set (a, b) = (1, 2) %}{{ a }}", "{% set a = b = 1 %}", "{% set true = 1 %}", "{% set 'a' = 1 %}",
    "{% set x %}a{{ 1 }}b{% endset %}[{{ x }}]", "{% set x | upper | replace('A', 'X') %}ab{% endset %}{{ x }}",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y }}", "{% if 1 %}{% set x = 5 %}{% endif %}{{ x }}", "{% set text = 'new' %}{{ text }}",
    "{% filter upper %}a{{ 'b' }}{% endfilter %}", "{% filter replace('a', 'x')|upper %}aab{% endfilter %}", "{% filter upper %}{% set q = 1 %}{% endfilter %}{{ q }}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}x{% endwith %}",
    "{% print 1, 'a' %}", "{% do 1 %}", "{% generation %}a{{ text }}{% endgeneration %}b", "{% generation %}{% set x = 1 %}{% endgeneration %}{{ x }}",
    "{% for x in list %}{% generation %}{{ x }}{% endgeneration %}{% endfor %}", "{% for x in list %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% if 0 %}{{ 1|nope }}{% endif %}a", "{% if 1 %}{{ 1|nope }}{% endif %}",
    "{% if 0 %}{{ 1 is nope }}{% endif %}a", "{{ 1 is nope }}", "{% if 1: %}a{% endif %}", "{% if 1 %}a{% endif x %}",
    "{% set x = namespace(l=[]) %}{% for i in range(3) %}{% set x.l = x.l + [i] %}{% endfor %}{{ x.l }}",
    "{% set s = 'a' %}{% for i in range(3) %}{% if loop.last %}{{ s }}{{ i }}{% endif %}{% endfor %}",
    "{% set j = joiner('; ') %}{% for x in list %}{{ j() }}{{ x }}{% endfor %}", "{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}",
    "{{ cycler() }}", "{{ raise_exception('no') }}", "{{ strftime_now('%d %b %Y %H:%M') }}", "{{ strftime_now('') }}", "{{ strftime_now is defined }}",
    "{{ strftime_now('%Y%%%j %A') }}", "{{ bos_token }}{{ eos_token }}{{ pad_token }}", "{{ messages }}", "{{ tools }}{{ documents }}", "{{ add_generation_prompt }}",
    "{{ messages[0].content }}{{ messages[0]['role'] }}", "{{ undefined_function() }}", "{{ text() }}", "{{ range is callable }}", "{{ self }}",
]

# Macros.
SNIPPETS += [
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=4) }}{{ m(b=5, a=6) }}",
    "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}{{ m(none) }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}", "{% macro m(**k) %}{% endmacro %}",
    "{% macro m() %}{{ caller() }}!{% endmacro %}{% call m() %}body{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a + b }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}body{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% if caller %}y{% else %}n{% endif %}{% endmacro %}{{ m() }}", "{% call 5 %}{% endcall %}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}", "{% macro m() %}{% set x = 1 %}{% endmacro %}{{ m() }}{{ x }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m() %}x{% endmacro %}{{ m }}{{ m.name }}{{ m.arguments }}",
    "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, b='x') -%}  {{ a ~ b }}  {%- endmacro %}[{{ m('q') }}]",
    "{% for x in [1, 2] %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "{{ m() }}{% macro m() %}{% endmacro %}",
    "{% macro m(x) %}{{ x|upper }}{% endmacro %}{{ m('a') ~ m('b')|length }}", "{% macro m() %}<{% endmacro %}{{ m()|e }}{{ m() == '<' }}",
    "{% macro m(l) %}{% for x in l %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}{% endmacro %}{{ m(list) }}{{ m(l=words) }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}{{ m(*[5], **{'b': 6}) }}", "{{ dict(**{'a': 1}) }}",
    "{{ dict(a=1, a=2) }}", "{{ dict(**{1: 2}) }}", "{{ range(*[1, 3])|list }}", "{% set m = namespace(f=none) %}{% macro g() %}G{% endmacro %}{% set m.f = g %}{{ m.f() }}",
    "{% macro m(x=missing) %}{{ x is defined }}{% endmacro %}{{ m() }}", "{% macro m(loop) %}{{ loop }}{% endmacro %}{{ m(3) }}",
    "{% for x in list %}{{ caller }}{% endfor %}", "{% macro outer() %}{% macro inner() %}I{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}",
    "{% set x = 1 %}{% macro m(y=x) %}{{ y }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% macro m() %}{{ kwargs.a }}{% endmacro %}{{ m(a=1) }}{{ m() }}",
    "{% macro m() %}{{ varargs|length }}{% endmacro %}{{ m(1, 2) }}", "{% with x = 5 %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endwith %}",
]

# What Jinja2 runs and Meshloom refuses by name.
REFUSED = {
    "{% for x in list recursive %}{{ x }}{% endfor %}",
    "{{ list|random is defined }}",
    "{{ words|wordcount }}",
    "{{ 'x'.isidentifier() }}",
    "{{ 'x'.encode is defined }}",
    "{{ 1e22|int }}",
    "{{ self }}",
}
