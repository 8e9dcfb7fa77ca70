"""Renders templates.json with jinja2, as Hugging Face's transformers sets it up, and writes expected.json beside it:

    python3 render.py

Each template is rendered with its own data, and with the conversations of conversations.json as apply_chat_template passes them."""

import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

here = pathlib.Path(__file__).parent


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what the assistant says; the text is what stands in it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("said"), [], [], body).set_lineno(line)

    def said(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime(2025, 7, 10, 12).strftime(form)
    return env


def render(env, template, data):
    try:
        return {"text": env.from_string(template).render(**data)}
    except Exception as fault:  # of the template, such as roles that do not alternate
        return {"fault": f"{type(fault).__name__}: {fault}"}


def main():
    env = environment()
    templates = json.loads((here / "templates.json").read_text(encoding="utf-8"))
    conversations = json.loads((here / "conversations.json").read_text(encoding="utf-8"))
    out = []
    for t in templates:
        own = render(env, t["template"], t["data"])
        out.append({"template": t["name"], "case": "own", **own})
        if own.get("text") != t["target"]:
            print(f"{t['name']}: jinja2 differs from the text in the source: {own.get('fault')}")
        tokens = {k: v for k, v in t["data"].items() if k.endswith("_token")}
        for c in conversations:
            data = {"tools": None, "documents": None, **tokens, **c["data"]}
            out.append({"template": t["name"], "case": c["name"], **render(env, t["template"], data)})
    text = json.dumps(out, ensure_ascii=False, indent=0)
    (here / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
