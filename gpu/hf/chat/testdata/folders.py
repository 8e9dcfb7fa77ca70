"""Model folders in the shapes of Mistral 7B Instruct 0.1 and 0.3 and of Phi-3-mini, small, and what Transformers makes of texts and conversations in them.

folders.py make DIR [--weights]: writes DIR/NAME, a folder each, with the published chat template; its tokenizer is BPE of characters with byte
fallback, as SentencePiece's is, trained on some text by the library tokenizers. --weights draws numbers, which needs PyTorch.
folders.py logprobs FOLDER IDS: the log-probability of each id after the first, by Transformers, as JSON. Its tokenizer and template are tried too.
folders.py read DIR: random texts, their ids and the ids' texts by the library, and conversations, their texts and ids by Transformers, as JSON by name.
"""

import json
import os
import pathlib
import random
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
MARK = "\u2581"
TEXTS = 10_000
SPECIAL = ["<unk>", "<s>", "</s>"]
PUBLISHED = {t["name"]: t["template"] for t in json.loads((HERE.parents[1] / "template" / "testdata" / "templates.json").read_text(encoding="utf-8"))}
# That of Phi-3-mini-4k-instruct.
PHI3 = (
    "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}"
    "{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}"
    "{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
SHAPE = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512)
# What conversations of the tests' tasks hold, so that they take few tokens.
SAID = "system user assistant What is the code of box 1? The code of box 1 is 1. <search>box 1</search> <information> nothing found. </information>\n" * 40


def metaspace():
    return None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)


def legacy():
    return normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]), None


def control(*texts, **more):
    return [AddedToken(t, special=True, normalized=False, **more) for t in texts]


# By name: model_type and keys of config.json, the pipeline, further tokens, the template, the token that ends a text.
FOLDERS = {
    "mistral1": ("mistral", dict(sliding_window=64), legacy, [], PUBLISHED["TheBloke/Mistral-7B-Instruct-v0.1-GPTQ"], "</s>"),
    "mistral3": (
        "mistral", dict(sliding_window=None), metaspace,
        control("[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        PUBLISHED["mistralai/Mistral-7B-Instruct-v0.3 (JSON Schema)"], "</s>",
    ),
    "phi3": (
        "phi3", dict(sliding_window=128, original_max_position_embeddings=512), legacy,
        control("<|endoftext|>") + control("<|assistant|>", "<|system|>", "<|end|>", "<|user|>", rstrip=True), PHI3, "<|endoftext|>",
    ),
}  # fmt: skip


def tokenizer(name):
    _, _, pipeline, added, _, _ = FOLDERS[name]
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    made.normalizer, pre = pipeline()
    if pre is not None:
        made.pre_tokenizer = pre
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(steps)
    text = (HERE.parents[1] / "bpe" / "testdata" / "corpus.txt").read_text(encoding="utf-8") + SAID
    words = [w for line in text.splitlines(keepends=True) for w in line.split(" ")]
    trainer = trainers.BpeTrainer(vocab_size=900, show_progress=False, special_tokens=SPECIAL + [f"<0x{b:02X}>" for b in range(256)], limit_alphabet=300)
    made.train_from_iterator(words if pipeline is legacy else [" " + w for w in words], trainer)
    kept = json.loads(made.to_str())
    kept["added_tokens"] = [t for t in kept["added_tokens"] if t["content"] in SPECIAL]
    kept["model"]["byte_fallback"] = True
    made = Tokenizer.from_str(json.dumps(kept))
    made.add_tokens(added)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


def make(home, weights):
    for name, (kind, keys, _, _, template, end) in FOLDERS.items():
        folder = home / name
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer(name), bos_token="<s>", eos_token=end, unk_token="<unk>", pad_token=end)
        fast.chat_template = template
        fast.save_pretrained(folder)
        if weights:
            import torch
            from transformers import CONFIG_MAPPING, AutoModelForCausalLM

            torch.manual_seed(5)
            ids = dict(vocab_size=len(fast), pad_token_id=fast.pad_token_id, bos_token_id=1, eos_token_id=fast.eos_token_id)
            AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind].from_dict(dict(SHAPE, **ids, **keys))).save_pretrained(folder)


def texts(tokens):
    """Texts of many scripts, with the control tokens among them."""
    r = random.Random(23)
    corpus = (HERE.parents[1] / "bpe" / "testdata" / "corpus.txt").read_text(encoding="utf-8")
    runs = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x391, 0x3A1), (0x410, 0x44F), (0x5D0, 0x5EA), (0x905, 0x939), (0x3041, 0x3096), (0x4E00, 0x9FA5), (0x1F300, 0x1F5FF)]

    def piece():
        kind = r.randrange(5)
        if kind == 0:
            lo, hi = r.choice(runs)
            return "".join(chr(r.randint(lo, hi)) for _ in range(r.randint(1, 8)))
        if kind == 1:
            return r.choice([" ", "  ", "\n", "\n\n", "\t", MARK, " \n ", "\u3000", ""])
        if kind == 2:
            return r.choice(tokens)
        at = r.randrange(len(corpus))
        return corpus[at : at + r.randint(1, 30)]

    out = ["", " ", "a", " a ", MARK, "<0x41>", "<s>", " <s> a"]
    while len(out) < TEXTS:
        out.append("".join(piece() for _ in range(r.randint(1, 6))))
    return out


def conversations(name):
    words = ["What is 2 < 3 & 'x' \"y\"?\n\n  caf\u00e9 \U0001f642 ", "Yes.", " And now?", "It is \u4e2d\u6587, or \u0131\u0307.", "  ", "a\n"]
    turns = [{"role": ("user", "assistant")[i % 2], "content": w} for i, w in enumerate(words)]
    out = [turns[:n] for n in (1, 2, 3, 5, 6)]
    if name == "phi3":
        out += [[{"role": "system", "content": "Be brief.\n"}, *turns[:n]] for n in (1, 3)]
    return out


def read(home):
    out = {}
    for name in FOLDERS:
        fast = PreTrainedTokenizerFast.from_pretrained(home / name)
        library = Tokenizer.from_file(str(home / name / "tokenizer.json"))
        drawn = texts([t.content for t in library.get_added_tokens_decoder().values()])
        ids = [e.ids for e in library.encode_batch(drawn, add_special_tokens=False)]
        told = []
        for messages in conversations(name):
            prompt = messages[-1]["role"] == "user"
            text = fast.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
            told.append(dict(messages=messages, prompt=prompt, text=text, ids=fast(text, add_special_tokens=False)["input_ids"]))
        out[name] = dict(texts=drawn, ids=ids, decoded=library.decode_batch(ids, skip_special_tokens=False), conversations=told)
    json.dump(out, sys.stdout)


def logprobs(folder, ids):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoTokenizer.from_pretrained(folder).apply_chat_template([{"role": "user", "content": "Hello"}])
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()(torch.tensor([ids])).logits[0, :-1]
    json.dump(logits.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist(), sys.stdout)


def main():
    home = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "make":
        make(home, "--weights" in sys.argv)
    elif sys.argv[1] == "logprobs":
        logprobs(home, json.loads(sys.argv[3]))
    else:
        read(home)


main()
