"""Judge of the template interpreter: the same templates under Jinja's own immutable sandbox, as chat templates are run.

Reads {"cases": [{"template", "variables"}], "random": N, "seed": S} from stdin, writes a list of
{"template", "variables", "text" | "error"}: first the given cases, then N made up from the grammar below.
"""
import copy
import json
import random
import re
import sys
import warnings

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

warnings.simplefilter("ignore")  # SyntaxWarning, of nonsense such as 1[0]


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


ENV = environment()
VARIABLES = {
    "s": "Hello, wörld! ", "t": "  a-b_c\n\tx  ", "e": "", "u": "日本 😀 Straße", "n": 7, "z": 0, "m": -3, "f": 2.5, "g": -0.125, "big": 1e22,
    "yes": True, "no": False, "nil": None, "xs": [3, 1, 2], "ws": ["b", "a", "C", "a"], "empty": [], "mix": [1, "1", None, True, 2.0, [1], {"a": 1}],
    "d": {"b": 1, "a": [1, {"k": "v"}], "items": "shadow", "é": None}, "deep": {"x": {"y": {"z": [10, 20, 30]}}},
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi <think>no</think> there"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1, "b": "x", "c": [1.5, None]}}}]},
        {"role": "tool", "content": [{"type": "text", "text": "r1"}, {"type": "image"}]},
        {"role": "assistant", "content": "<think>why</think>\n\nanswer"},
    ],
}


class Maker:
    """Templates from the grammar, mostly well-typed, sometimes not."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.locals = []
        self.macros = []

    def pick(self, *options):
        return self.r.choice(options)

    def name(self):
        return self.r.choice(list(VARIABLES) + ["missing", "ns", "loop"] + self.locals * 3)

    def atom(self):
        p = self.pick
        return p(
            self.name, self.name, self.name,
            lambda: p("0", "1", "2", "-1", "3", "10", "1.5", "0.1", "2e3", "1_000", "0x1f"),
            lambda: p("'a'", "\"b\"", "'Hello'", "' '", "''", "'\\n'", "'é'", "'a' 'b'", "'\\u0041\\x42'", "'{{'", "'%}'", "\"it's\""),
            lambda: p("true", "false", "none", "True", "None"),
            lambda: "messages[%s].%s" % (p("0", "1", "-1", "2", "9"), p("role", "content", "tool_calls", "nope")),
            lambda: "deep.x.y.z[%s]" % p("0", "-1", "5"), lambda: "d['%s']" % p("b", "a", "items", "nope", "é"), lambda: "d.%s" % p("a", "b", "c"),
            lambda: p("xs", "ws", "messages", "s", "t", "u", "d", "deep"),
        )()

    def args(self, count):
        return ", ".join(self.expr(1) for _ in range(count))

    def filter(self):
        p = self.pick
        return p(
            "upper", "lower", "trim", "capitalize", "title", "length", "first", "last", "list", "string", "int", "float", "tojson", "reverse", "sort",
            "unique", "join", "sum", "min", "max", "items", "abs", "default('D')", "default('D', true)", "d", "join(', ')", "join('|', attribute='role')",
            "replace('a', 'b')", "replace('l', '', 1)", "tojson(indent=2)", "tojson(ensure_ascii=True)", "tojson(separators=(',', ':'))", "tojson(sort_keys=true)",
            "map('upper')", "map('string')", "map(attribute='role')", "map(attribute='content', default='-')", "select", "reject", "select('string')",
            "select('odd')", "reject('none')", "selectattr('role', 'equalto', 'user')", "rejectattr('content', 'none')", "selectattr('tool_calls')",
            "selectattr('content', 'string')", "map('length')", "sort(reverse=true)", "sort(attribute='role')", "dictsort", "dictsort(reverse=true)", "round",
            "round(1)", "round(method='floor')", "indent", "indent(2)", "indent(2, true)", "wordcount", "escape", "safe", "attr('x')", "count", "trim('a ')",
            "int(5)", "float(1.5)", "select('in', [1, 2])", "map('int')", "unique(case_sensitive=true)", "sum(start=10)", "list|length", "join|length", "first|string",
        )

    def test(self):
        return self.pick(
            "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence", "true", "false", "odd", "even",
            "divisibleby 2", "divisibleby(3)", "eq 1", "equalto 'a'", "ne 1", "gt 1", "lt(5)", "ge 2", "le 2", "in [1, 2, 'a']", "in ws", "sameas none", "upper", "lower",
            "callable", "== 1", "not string", "not none", "not defined", "filter", "test",
        ).replace("== 1", "eq(1)")

    def method(self):
        p = self.pick
        return p(
            "upper()", "lower()", "strip()", "lstrip()", "rstrip()", "strip('a ')", "split()", "split(',')", "split('a')", "split('a', 1)", "rsplit('a', 1)", "rsplit()",
            "split(none, 1)", "startswith('H')", "endswith('! ')", "startswith(('a', 'H'))", "replace('l', 'L')", "replace('', '-')", "replace('l', 'L', 1)", "find('l')",
            "rfind('l')", "count('a')", "capitalize()", "title()", "splitlines()", "splitlines(true)", "partition(',')", "rpartition('-')", "isdigit()", "isalpha()",
            "isspace()", "isupper()", "islower()", "zfill(8)", "join(ws)", "removeprefix('He')", "removesuffix(' ')", "get('a')", "get('nope', 1)", "items()", "keys()",
            "values()", "index(1)", "items()|list", "keys()|list|sort", "append(1)", "update({})", "isalnum()", "index('l')", "nosuch()", "split('</think>')[0]",
            "split('</think>')[-1].lstrip('\\n')", "startswith('l', 2)", "endswith('l', 0, 4)", "get", "strip",
        )

    def expr(self, depth):
        p = self.pick
        if depth <= 0:
            return self.atom()
        sub = lambda: self.expr(depth - 1)
        return p(
            self.atom, self.atom,
            lambda: "%s %s %s" % (sub(), p("+", "-", "*", "/", "//", "%", "~", "~", "~", "+"), sub()),
            lambda: "%s %s %s" % (sub(), p("==", "!=", "<", ">", "<=", ">="), sub()),
            lambda: "%s %s %s" % (sub(), p("and", "or"), sub()), lambda: "not %s" % sub(), lambda: "(%s)" % sub(), lambda: "-%s" % sub(),
            lambda: "%s %s %s" % (sub(), p("in", "not in"), sub()), lambda: "%s if %s else %s" % (sub(), sub(), sub()), lambda: "%s if %s" % (sub(), sub()),
            lambda: "%s|%s" % (sub(), self.filter()), lambda: "(%s)|%s" % (sub(), self.filter()), lambda: "%s|%s|%s" % (sub(), self.filter(), self.filter()),
            lambda: "%s is %s" % (sub(), self.test()), lambda: "(%s) is %s" % (sub(), self.test()), lambda: "%s.%s" % (self.atom(), self.method()),
            lambda: "(%s).%s" % (sub(), self.method()), lambda: "%s[%s]" % (self.atom(), sub()),
            lambda: "%s[%s:%s]" % (self.name(), p("", "1", "-2", "0"), p("", "2", "-1", "99")),
            lambda: "%s[%s:%s:%s]" % (self.name(), p("", "1", "-2", "3"), p("", "2", "-1", "-9"), p("", "-1", "2", "-2")),
            lambda: "[%s, %s]" % (sub(), sub()), lambda: "(%s, %s)" % (sub(), sub()), lambda: "{'k': %s, 'l': %s}" % (sub(), sub()),
            lambda: "%s < %s <= %s" % (sub(), sub(), sub()), lambda: "(2 ** %s)" % self.atom(), lambda: "range(%s)|list" % p("3", "1, 4", "5, 0, -2", "0"),
            lambda: "dict(a=%s)" % sub(), lambda: "namespace(a=%s).a" % sub(), self.call,
        )()

    def call(self):
        if not self.macros:
            return self.atom()
        macro = self.r.choice(self.macros)
        return "%s(%s)" % (macro, self.pick("", self.expr(1), self.expr(1) + ", " + self.expr(1), "y=" + self.expr(1), self.expr(0) + ", y=" + self.expr(0)))

    def ws(self):
        return self.pick("", "", "", " ", "\n", "  ", "\n  ", " text ", "\n\n", "\t", "x")

    def tag(self, text):
        return "{%" + self.pick("", "-", "-", "+") + " " + text + " " + self.pick("", "-", "-", "+") + "%}"

    def out(self, text):
        return "{{" + self.pick("", "-", "") + " " + text + " " + self.pick("", "-", "") + "}}"

    def body(self, depth, loop=False):
        return self.ws() + "".join(self.stmt(depth, loop) + self.ws() for _ in range(self.r.randint(1, 3)))

    def stmt(self, depth, loop):
        p = self.pick
        if depth <= 0:
            return self.out(self.expr(self.pick(1, 1, 2)))
        kind = p("out", "out", "out", "if", "for", "set", "setblock", "macro", "comment", "raw", "with", "filter", "ns", "loopvar", "ctl")
        if kind == "out":
            return self.out(self.expr(self.pick(1, 1, 1, 2, 3)))
        if kind == "comment":
            return "{#" + p("", "-") + " c " + p("", "-") + "#}"
        if kind == "raw":
            return self.tag("raw") + p(" {{ x }} ", "\n{% if %}\n", "") + self.tag("endraw")
        if kind == "if":
            return (self.tag("if " + self.expr(2)) + self.body(depth - 1, loop) + p("", self.tag("elif " + self.expr(2)) + self.body(depth - 1, loop)) +
                    p("", self.tag("else") + self.body(depth - 1, loop)) + self.tag("endif"))
        if kind == "set":
            name = p("v", "w")
            text = self.tag("set %s = %s" % (name, self.expr(2)))
            self.locals.append(name)
            return text
        if kind == "setblock":
            self.locals.append("v")
            return self.tag("set v" + p("", " | upper", " | trim")) + self.body(depth - 1) + self.tag("endset")
        if kind == "ns":
            return self.tag("set ns = namespace(a=%s)" % self.expr(1)) + self.tag("set ns.a = %s" % self.expr(1)) + self.out("ns.a")
        if kind == "with":
            self.locals.append("v")
            return self.tag("with v = %s" % self.expr(2)) + self.body(depth - 1) + self.tag("endwith")
        if kind == "filter":
            return self.tag("filter " + p("upper", "trim", "replace('a', 'b')", "indent(2)|trim")) + self.body(depth - 1) + self.tag("endfilter")
        if kind == "macro":
            name = p("mac", "other")
            saved = self.locals
            self.locals = ["x", "y"]
            text = self.tag("macro %s(x, y=%s)" % (name, self.expr(0))) + self.body(depth - 1) + self.tag("endmacro")
            self.locals = saved
            self.macros.append(name)
            return text
        if kind == "loopvar" and loop:
            return self.out("loop." + p("index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "cycle('a', 'b')", "changed(1)", "depth"))
        if kind == "ctl" and loop:
            return self.tag("if " + self.expr(1)) + self.tag(p("break", "continue")) + self.tag("endif")
        if kind == "for":
            target = p("i", "i", "i", "k, v")
            source = p("messages", "xs", "ws", "range(4)", "d.items()", "d|items", "d", "s", "xs[::-1]", "messages|selectattr('tool_calls')", self.expr(2))
            if target == "k, v":
                source = p("d.items()", "d|items", "[(1, 2), (3, 4)]", "d|dictsort", source)
            saved = list(self.locals)
            self.locals += ["i"] if target == "i" else ["k", "v"]
            text = self.tag("for %s in %s%s" % (target, source, p("", "", "", " if " + self.expr(1)))) + self.body(depth - 1, True)
            text += p("", "", self.tag("else") + self.body(depth - 1, loop)) + self.tag("endfor")
            self.locals = saved
            return text
        return self.out(self.expr(2))


def judge(case):
    out = dict(case)
    try:
        out["text"] = ENV.from_string(case["template"]).render(**copy.deepcopy(case.get("variables", {})))  # indent changes a list that it is given
    except Exception as error:  # whatever it is, a template must not get away with it
        out["error"] = "%s: %s" % (type(error).__name__, error)
    return out


def main():
    task = json.load(sys.stdin)
    cases = [judge(c) for c in task["cases"]]
    for i in range(task["random"]):
        maker = Maker(task["seed"] * 1_000_003 + i)
        cases.append(judge({"template": maker.body(i % 4), "variables": VARIABLES}))
    # A template that prints one of Python's objects proves nothing.
    json.dump([c for c in cases if not re.search("[ab]t 0x|Markup\\(|<Namespace|<LoopContext|<Macro", c.get("text", ""), re.I)], sys.stdout)


main()
