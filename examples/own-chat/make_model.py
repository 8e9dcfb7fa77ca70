"""Makes a small model folder in the layout of Qwen2, with random weights, in place of one that you download, and a task for it. Nothing
but the standard library:

    python3 make_model.py FOLDER

FOLDER/tiny is the model: byte-level BPE, and ChatML with tools in Qwen's format as its chat template. FOLDER/codes has the task: codes of
boxes, which a search finds. No box of the questions is one of the demonstrations'."""

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


def tokenizer(text):
    letters, merges = train(text)
    tokens = list(dict.fromkeys(letters + ["".join(m) for m in merges]))
    added = [
        {"id": len(tokens) + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": c in SPECIAL}
        for i, c in enumerate(SPECIAL + ADDED)
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


def main():
    task(pathlib.Path(sys.argv[1]) / "codes")
    folder = pathlib.Path(sys.argv[1]) / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    spec = tokenizer(ALWAYS)
    vocab = len(spec["model"]["vocab"]) + len(spec["added_tokens"])
    end = next(t["id"] for t in spec["added_tokens"] if t["content"] == "<|im_end|>")
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": vocab, "hidden_size": HIDDEN, "intermediate_size": 4 * HIDDEN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "max_position_embeddings": POSITIONS,
        "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "hidden_act": "silu", "initializer_range": 0.02,
        "bos_token_id": None, "eos_token_id": end, "torch_dtype": "float32", "use_sliding_window": False, "attention_dropout": 0.0,
    }  # fmt: skip
    files = {
        "config.json": config, "tokenizer.json": spec, "generation_config.json": {"eos_token_id": end},
        "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "model_max_length": POSITIONS},
    }  # fmt: skip
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    (folder / "model.safetensors").write_bytes(weights(vocab))
    print(f"{folder}: {vocab} tokens")


main()
