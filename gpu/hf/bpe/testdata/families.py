"""Tokenizers of the pipelines that published families have, trained on some text, by the library tokenizers.

families.py make DIR: writes DIR/NAME.json, a tokenizer.json each, for every family.
families.py encode DIR TEXTS: the ids of the texts of a JSON file by every DIR/NAME.json, with the tokens of the template and without, and the
texts of the latter, as JSON by name.
"""

import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
MARK = "\u2581"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)


def level(prefix=False, regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


def llama(strip=True):
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


LEGACY = [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
SPECIAL = ["<unk>", "<s>", "</s>"]


def special(*texts, **more):
    return [AddedToken(t, special=True, normalized=False, **more) for t in texts]


def plain(*texts, **more):
    return [AddedToken(t, special=False, **{"normalized": False, **more}) for t in texts]


# By name: normalizer, pre-tokenizer, decoder, further tokens, and settings of the model.
FAMILIES = {
    # Characters with byte fallback.
    "llama2": (normalizers.Sequence(LEGACY), None, llama(), [], {}),
    "tinyllama": (normalizers.Sequence(LEGACY), None, llama(), plain("<pad>", "<late>", normalized=True), {}),
    "mistral1": (None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), llama(), special("[INST]", "[/INST]"), {}),
    "mistral3": (None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), llama(), special("[TOOL_CALLS]", "[INST]"), {"ignore_merges": True}),
    "gemma": (
        normalizers.Replace(" ", MARK), split(" ", "merged_with_previous"), llama(False),
        special("<start_of_turn>", "<end_of_turn>") + plain(*["\n" * n for n in range(2, 6)], *[MARK * n for n in range(2, 6)], "<table>", "</table>"), {},
    ),
    "phi3": (
        normalizers.Sequence(LEGACY), None, llama(),
        special("<|endoftext|>") + special("<|user|>", "<|end|>", "<|assistant|>", rstrip=True) + plain("<|late|>", normalized=True, rstrip=True), {},
    ),
    "metaspace": (
        normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="always"), decoders.Sequence([decoders.Metaspace(), decoders.Fuse()]),
        plain("<mask>", lstrip=True, normalized=True) + plain("caf\u00e9", single_word=True, normalized=True), {"fallback": False, "fuse_unk": False},
    ),
    "never": (
        normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(True, True), normalizers.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.Metaspace(prepend_scheme="never", split=True)]),
        decoders.Sequence([decoders.Metaspace(prepend_scheme="never"), decoders.Fuse()]), plain("<LATE>", normalized=True), {"fallback": False},
    ),
    "words": (
        normalizers.NFD(), pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"), split(Regex(r"[aeiou]+"), "merged_with_next")]),
        decoders.Fuse(), [], {"fallback": False, "fuse_unk": True},
    ),
    "inverted": (
        None, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), split(Regex(r"\p{L}+"), "merged_with_previous", True), split(Regex(r"\d"), "removed"),
                                       split(Regex("[.,]+"), "contiguous", True)]),
        llama(False), [], {"fuse_unk": False},
    ),
    # Bytes.
    "smollm2": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(True), level(regex=True)]), decoders.ByteLevel(), special("<|im_start|>", "<|im_end|>"), {}),
    "smollm3": (None, pre_tokenizers.Sequence([split(Regex(LLAMA3)), level()]), decoders.ByteLevel(), special("<|im_start|>") + plain("<tool_call>"), {"ignore_merges": True}),
    "olmo2": (None, pre_tokenizers.Sequence([split(Regex(LLAMA3), "removed", True), level()]), decoders.ByteLevel(), special("<|endoftext|>"), {}),
    "granite": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(True), level(regex=True)]), decoders.ByteLevel(), special("<|start_of_role|>", "<|end_of_role|>"), {}),
    "qwen35": (normalizers.NFC(), pre_tokenizers.Sequence([split(Regex(QWEN35)), level()]), decoders.ByteLevel(), special("<|im_start|>", "<|im_end|>"), {}),
    "gptoss": (None, pre_tokenizers.Sequence([split(Regex(GPT4O)), level()]), decoders.ByteLevel(), special("<|start|>", "<|end|>"), {"ignore_merges": True}),
    "gptneox": (normalizers.NFC(), level(regex=True), decoders.ByteLevel(), special("<|endoftext|>") + plain(*[" " * n for n in range(2, 7)], normalized=True), {}),
    "glm4": (None, pre_tokenizers.Sequence([split(Regex(LLAMA3)), level()]), decoders.ByteLevel(), special("[gMASK]", "<sop>") + plain("<think>"), {}),
    "deepseek3": (
        None, pre_tokenizers.Sequence([split(Regex(r"\p{N}{1,3}")), split(Regex("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+")), split(Regex(DEEPSEEK3)), level()]),
        decoders.ByteLevel(), special("<\uff5cbegin\u2581of\u2581sentence\uff5c>") + plain("<\uff5cUser\uff5c>"), {},
    ),
    "deepseek2": (
        None, pre_tokenizers.Sequence([split(Regex("[\r\n]")), split(Regex(r"\s?\p{L}+")), split(Regex(r"\s?\p{P}+")), split(Regex("[\u4e00-\u9fa5]+")),
                                       pre_tokenizers.Digits(True), level()]),
        decoders.ByteLevel(), special("<|EOT|>"), {},
    ),
    "falcon": (
        None, pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), level(regex=True), pre_tokenizers.Digits(False), split(Regex("[0-9][0-9][0-9]"))]),
        decoders.ByteLevel(), special(">>ABSTRACT<<", "<|endoftext|>"), {},
    ),
    "prefix": (None, level(prefix=True, regex=True), decoders.ByteLevel(), special("<mask>", lstrip=True), {}),
}


def make(name):
    normalizer, pre, decoder, added, settings = FAMILIES[name]
    bytes_level = isinstance(decoder, decoders.ByteLevel)
    fallback = settings.get("fallback", True) and not bytes_level
    tokenizer = Tokenizer(models.BPE(unk_token=None if bytes_level else "<unk>", fuse_unk=settings.get("fuse_unk", True) and not bytes_level))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoder
    tokens = SPECIAL + ([f"<0x{b:02X}>" for b in range(256)] if fallback else [])
    trainer = trainers.BpeTrainer(
        vocab_size=900, show_progress=False, special_tokens=tokens, initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if bytes_level else [], limit_alphabet=1000 if bytes_level else 400
    )
    text = (HERE / "corpus.txt").read_text()
    words = [w for line in text.splitlines(keepends=True) for w in line.split(" ")]
    if name == "tinyllama":  # merges that reach over words
        words = [w + " " for w in words]
    elif name not in ("llama2", "phi3"):
        words = [" " + w for w in words]
    tokenizer.train_from_iterator(words, trainer)
    made = json.loads(tokenizer.to_str())
    made["added_tokens"] = [t for t in made["added_tokens"] if t["content"] in SPECIAL]
    if fallback:
        made["model"]["byte_fallback"] = True
    made["model"]["ignore_merges"] = settings.get("ignore_merges", False)
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.add_tokens(added)
    if name not in ("words", "olmo2", "prefix"):
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A" + (" </s>" if name == "metaspace" else ""), special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def main():
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "make":
        for name in FAMILIES:
            text = json.dumps(json.loads(make(name).to_str()), separators=(",", ":"), ensure_ascii=False)
            (folder / f"{name}.json").write_text(text)
        return
    texts = json.loads(pathlib.Path(sys.argv[3]).read_text())
    out = {}
    for path in sorted(folder.glob("*.json")):
        tokenizer = Tokenizer.from_file(str(path))
        bare = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
        whole = [e.ids for e in tokenizer.encode_batch(texts)]
        out[path.stem] = {"bare": bare, "whole": whole, "texts": tokenizer.decode_batch(bare, skip_special_tokens=False)}
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
