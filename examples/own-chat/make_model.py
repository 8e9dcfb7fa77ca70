"""Makes a small model folder in the layout of Qwen2, with random weights, in place of one that you download, and a task for it. Nothing
but the standard library:

    python3 make_model.py FOLDER [EXAMPLE...]
    python3 make_model.py FOLDER --format FORMAT

FOLDER/tiny is the model: byte-level BPE, and ChatML with tools in Qwen's format as its chat template. FOLDER/codes has the task: codes of
boxes, which a search finds. No box of the questions is one of the demonstrations'.

Where folders of other examples are named, FOLDER/NAME is a model for each, with tokens for the words of its demonstrations.jsonl.

With --format, FOLDER/FORMAT is a model whose chat is made for that format of tool calls: harmony, with gpt-oss's channels for a template, or tag, code
or fence, with ChatML that knows no tools. FOLDER/sums has a task that code answers, beside FOLDER/codes."""

import collections
import json
import pathlib
import random
import re
import struct
import sys

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# What every conversation holds: it is made of few tokens.
ALWAYS = """system user assistant
{"name": "search", "description": "Finds the passage that best matches the words of a query.", "parameters": {"type": "object", "properties":
{"query": {"type": "string"}}, "required": ["query"]}}
{"name": "search", "arguments": {"query": "box 1"}}
{"name": "search", "arguments": {"query":"box 1"}}
What is the code of box 1?
The code of box 1 is 1.
nothing found.
""" * 50
HIDDEN, LAYERS, HEADS, MERGES, POSITIONS = 64, 2, 4, 400, 256
# What a tool is described by takes tokens of every conversation: the models for examples are shown the beginning alone.
SHORT = 24

TEMPLATE = """{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool.function | tojson }}
{% endfor %}<tool_call>{"name": , "arguments": }</tool_call><|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}<|im_start|>user
<tool_response>{{ m.content }}</tool_response><|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content }}
{%- for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


# gpt-oss's channels, as https://cookbook.openai.com/articles/openai-harmony has them.
HARMONY_SPECIAL = ["<|endoftext|>", "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"]
HARMONY = """<|start|>developer<|message|># Tools
{% for tool in tools or [] %}{{ tool.function.name }}: {{ tool.function.description }}
{% endfor %}<|end|>
{%- set ns = namespace(called="") -%}
{%- for m in messages -%}
{%- if m.role == "assistant" and m.tool_calls -%}
{%- set ns.called = m.tool_calls[0].function.name -%}
{%- if m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif -%}
<|start|>assistant<|channel|>commentary to=functions.{{ ns.called }} <|constrain|>json<|message|>{{ m.tool_calls[0].function.arguments | tojson }}<|call|>
{%- elif m.role == "assistant" -%}
<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>
{%- elif m.role == "tool" -%}
<|start|>functions.{{ ns.called }} to=assistant<|channel|>commentary<|message|>{{ m.content }}<|end|>
{%- else -%}
<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"""
# What the system message says of the tools in formats that a template has no part in, and what a turn looks like.
TOLD = {
    "harmony": "developer assistant analysis commentary final to=functions.search to=functions.search json search: Finds the passage that best matches the words of a query.\n# Tools\n",
    "tag": "You can call tools in their tags, and what they say comes back between <information> and </information>.\n<search>query</search> Finds the passage that best matches the words of a query.\n<search>box 1</search>\n<information>\n",
    "code": "Code that you write so is run, and what it shows comes back between <interpreter> and </interpreter>.\n<code>\n```python\n...\n```\n</code>\n",
    "fence": "Code that you write so is run, and what it shows comes back between <interpreter> and </interpreter>.\n```python\n...\n```\n",
}
STARLARK = """Runs a cell of Starlark, a dialect of Python without imports, classes and exceptions. Variables stay from cell to cell.
What the cell prints and the value of its last expression are shown.
What is 1 * 1 + 1?
1 * 1 + 1
system user assistant
"""


def alphabet():
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def train(text):
    """Merges for the words of a text, the most frequent pair first."""
    letters = alphabet()
    words = collections.Counter(re.findall(r" ?[^\W\d_]+|\d| ?[^\s\w]+|\s+", text))
    parts = {w: [letters[b] for b in w.encode()] for w in words}
    merges = []
    while len(merges) < MERGES:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(parts[word], parts[word][1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        for p in parts.values():
            i = 0
            while i + 1 < len(p):
                if (p[i], p[i + 1]) == best:
                    p[i : i + 2] = ["".join(best)]
                i += 1
    return [*letters.values()], merges


def tokenizer(text, special=SPECIAL, added=ADDED):
    letters, merges = train(text)
    tokens = list(dict.fromkeys(letters + ["".join(m) for m in merges]))
    added = [
        {"id": len(tokens) + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": c in special}
        for i, c in enumerate(special + added)
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "post_processor": level, "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
            "byte_fallback": False, "ignore_merges": False, "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [" ".join(m) for m in merges],
        },
    }  # fmt: skip


def tensors(vocab):
    yield "model.embed_tokens.weight", [vocab, HIDDEN], 0.1
    yield "model.norm.weight", [HIDDEN], None
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}{name}.weight", [HIDDEN], None
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield f"{layer}self_attn.{name}.weight", [HIDDEN, HIDDEN], HIDDEN**-0.5
            if name != "o_proj":
                yield f"{layer}self_attn.{name}.bias", [HIDDEN], 0
        for name, shape in (("gate_proj", [4 * HIDDEN, HIDDEN]), ("up_proj", [4 * HIDDEN, HIDDEN]), ("down_proj", [HIDDEN, 4 * HIDDEN])):
            yield f"{layer}mlp.{name}.weight", shape, shape[1] ** -0.5


def weights(vocab):
    draw, header, data = random.Random(1), {"__metadata__": {"format": "pt"}}, bytearray()
    for name, shape, std in tensors(vocab):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * count if std is None else [draw.gauss(0, 1) * std for _ in range(count)]
        begin = len(data)
        data += struct.pack(f"<{count}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def task(folder):
    """Files of passages, questions and demonstrations."""
    draw = random.Random(2)
    boxes = draw.sample(range(1000, 10000), 4000)
    rows = {"corpus": [], "questions": [], "demonstrations": []}
    for i, box in enumerate(boxes):
        question, code = f"What is the code of box {box}?", str(draw.randint(100, 999))
        text = f"The code of box {box} is {code}."
        if i < 400:
            split = "train" if i < 300 else "validation" if i < 350 else "test"
            rows["corpus"].append({"title": f"box {box}", "text": text})
            rows["questions"].append({"question": question, "answers": [code], "split": split})
        else:
            rows["demonstrations"].append({"question": question, "steps": [{"search": f"box {box}", "info": text}], "answer": code})
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines), encoding="utf-8")


def sums(folder):
    """Files of questions that code answers, and of demonstrations with other numbers."""
    draw = random.Random(3)
    asked = draw.sample([(a, b, c) for a in range(2, 30) for b in range(2, 10) for c in range(2, 10)], 1200)
    rows = {"questions": [], "demonstrations": []}
    for i, (a, b, c) in enumerate(asked):
        question, code, answer = f"What is {a} * {b} + {c}?", f"{a} * {b} + {c}", str(a * b + c)
        if i < 300:
            rows["questions"].append({"question": question, "answers": [answer], "split": "train" if i < 200 else "validation" if i < 250 else "test"})
        else:
            rows["demonstrations"].append({"question": question, "steps": [{"search": code, "info": answer}], "answer": answer})
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines), encoding="utf-8")


def words(example):
    """What the conversations of an example hold, as its demonstrations show them."""
    text = []
    for line in (example / "demonstrations.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        text += ["system user assistant", row["question"], row.get("answer", "")]
        for step in row.get("steps", []):
            arguments = step.get("arguments") or {"query": step["search"]}
            text += [json.dumps({"name": step.get("tool", ""), "arguments": arguments}), step.get("info", "")]
    return "\n".join(text)


def main():
    models = pathlib.Path(sys.argv[1])
    if "--format" in sys.argv:
        name = sys.argv[sys.argv.index("--format") + 1]
        task(models / "codes")
        sums(models / "sums")
        text = ALWAYS + (TOLD[name] + (STARLARK if name in ("code", "fence") else "")) * 50
        if name == "harmony":
            model(models / name, text, HARMONY, POSITIONS, HARMONY_SPECIAL, [], "<|return|>")
        else:
            model(models / name, text, TEMPLATE, POSITIONS)
        return
    for example in map(pathlib.Path, sys.argv[2:]):
        short = TEMPLATE.replace("{{ tool.function | tojson }}", "{{ tool.function.name }}: {{ tool.function.description[:%d] }}" % SHORT)
        model(models / example.name, words(example), short, 2 * POSITIONS)
    if len(sys.argv) == 2:
        task(models / "codes")
        model(models / "tiny", ALWAYS, TEMPLATE, POSITIONS)


def model(folder, text, template, positions, special=SPECIAL, added=ADDED, end_of_turn="<|im_end|>"):
    folder.mkdir(parents=True, exist_ok=True)
    spec = tokenizer(text, special, added)
    vocab = len(spec["model"]["vocab"]) + len(spec["added_tokens"])
    end = next(t["id"] for t in spec["added_tokens"] if t["content"] == end_of_turn)
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": vocab, "hidden_size": HIDDEN, "intermediate_size": 4 * HIDDEN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "max_position_embeddings": positions,
        "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "hidden_act": "silu", "initializer_range": 0.02,
        "bos_token_id": None, "eos_token_id": end, "torch_dtype": "float32", "use_sliding_window": False, "attention_dropout": 0.0,
    }  # fmt: skip
    files = {
        "config.json": config, "tokenizer.json": spec, "generation_config.json": {"eos_token_id": end},
        "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "eos_token": end_of_turn, "pad_token": "<|endoftext|>", "model_max_length": positions},
    }  # fmt: skip
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    (folder / "model.safetensors").write_bytes(weights(vocab))
    print(f"{folder}: {vocab} tokens")


main()
