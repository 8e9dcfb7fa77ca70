"""Byte-level BPE, the slow and plain way: reference.py tokenizer.json, with a base64 text a line in and a JSON list of ids a line
out. Shares nothing with the Go package but the file format."""

import base64
import json
import os
import sys
import unicodedata

import regex


def byte_alphabet():
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {b: chr(b) for b in shown}
    for n, b in enumerate(b for b in range(256) if b not in table):
        table[b] = chr(256 + n)
    return table


with open(os.path.join(os.path.dirname(__file__), "younger.json")) as file:
    YOUNGER = regex.compile("([" + "".join(f"{chr(a)}-{chr(b)}" for a, b in json.load(file)) + "]+)")


class Reference:
    def __init__(self, spec):
        model = spec["model"]
        self.vocab = model["vocab"]
        self.ranks = {}
        for rank, m in enumerate(model["merges"]):
            self.ranks[tuple(m.split(" ")) if isinstance(m, str) else tuple(m)] = rank
        self.whole = model["ignore_merges"]
        self.alphabet = byte_alphabet()
        self.nfc = (spec["normalizer"] or {}).get("type") == "NFC"
        pre = spec["pre_tokenizer"]
        if pre["type"] == "Sequence":
            split, level = pre["pretokenizers"]
            assert split["behavior"] == "Isolated" and level["use_regex"] is False
            pattern = split["pattern"]["Regex"]
        else:
            pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
        self.pattern = regex.compile(pattern)
        self.raw = [t for t in spec["added_tokens"] if not t["normalized"]]
        self.late = [t for t in spec["added_tokens"] if t["normalized"]]

    def cut(self, text, tokens, key):
        """Pairs of a text and None, or of a token's text and its id."""
        out, done, i = [], 0, 0
        while i < len(text):
            here = [t for t in tokens if text.startswith(key(t), i)]
            if not here:
                i += 1
                continue
            token = max(here, key=lambda t: len(key(t)))
            begin, end = i, i + len(key(token))
            i = end
            if token["single_word"] and (
                begin and regex.match(r"\w", text[begin - 1]) or end < len(text) and regex.match(r"\w", text[end])
            ):
                continue
            if token["lstrip"]:
                while begin > done and regex.match(r"\s", text[begin - 1]):
                    begin -= 1
            if token["rstrip"]:
                while end < len(text) and regex.match(r"\s", text[end]):
                    end += 1
            if begin > done:
                out.append((text[done:begin], None))
            out.append((text[begin:end], token["id"]))
            done = i = end
        if done < len(text):
            out.append((text[done:], None))
        return out

    def normal(self, text):
        if not self.nfc:
            return text
        # The characters of younger.json stay where they are, and nothing crosses them.
        return "".join(part if i % 2 else unicodedata.normalize("NFC", part) for i, part in enumerate(YOUNGER.split(text)))

    def piece(self, text):
        parts = [self.alphabet[b] for b in text.encode("utf-8", "surrogateescape")]
        if self.whole and "".join(parts) in self.vocab:
            return [self.vocab["".join(parts)]]
        while len(parts) > 1:
            ranked = [(self.ranks[p], i) for i, p in enumerate(zip(parts, parts[1:])) if p in self.ranks]
            if not ranked:
                break
            _, i = min(ranked)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        return [self.vocab[p] for p in parts]

    def plain(self, text):
        out, done = [], 0
        for m in self.pattern.finditer(text):
            assert m.start() == done
            done = m.end()
            out += self.piece(m.group())
        assert done == len(text)
        return out

    def encode(self, text, added=True):
        if not added:
            return self.plain(self.normal(text))
        out = []
        for part, found in self.cut(text, self.raw, lambda t: t["content"]):
            if found is not None:
                out.append(found)
                continue
            for part, found in self.cut(self.normal(part), self.late, lambda t: self.normal(t["content"])):
                out += [found] if found is not None else self.plain(part)
        return out


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        reference = Reference(json.load(f))
    for line in sys.stdin:
        text = base64.b64decode(line).decode("utf-8", "surrogateescape")
        print(json.dumps([reference.encode(text), reference.encode(text, added=False)]))


if __name__ == "__main__":
    main()
