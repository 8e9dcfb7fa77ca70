"""Text: tokenizers and jinja2 as oracles."""

import json
import pathlib
import random
import shutil
import subprocess
import sys
import unicodedata

from common import ROOT, Failed, NotRun, need, program, weir

TEMPLATES = ROOT / "gpu" / "hf" / "template" / "testdata"
SCRIPTS = {
    "latin": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "digits": "0123456789٣४五Ⅷ²", "space": "  \t\n\r\u00a0\u3000\u2028\u200b",
    "marks": ".,;:!?'\"()[]{}<>|/\\@#$%^&*-_=+~`«»…—", "accents": "àéîõüçñšžøåßæœğı", "combining": "\u0301\u0308\u0327\u0323\u030a",
    "cyrillic": "абвгдежзийклмнопрстуфхцчшщъыьэюяё", "greek": "αβγδεζηθικλμνξοπρστυφχψωάέ", "hebrew": "אבגדהוזחטיכלמנסעפצקרשת",
    "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي", "devanagari": "अआइईउऊएकखगघचजटडणतदनपबमयरलवशसह\u093e\u093f\u0940", "thai": "กขคงจชซญดตถทนบปพมยรลวสหอ\u0e31\u0e34",
    "han": "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出", "kana": "あいうえおかきくけこアイウエオカキクケコ", "hangul": "가나다라마바사아자차카타파하\u1100\u1161\u11a8",
    "emoji": "😀😂🥰👍🏽👩\u200d👩\u200d👧🇸🇪❤️", "rare": "\x00\x01\x7f\u0085\ufeff\ufffd\U0001d54f\U0010fffd",
}  # fmt: skip
CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<bos>", "<search>", "<|im_", "it's", "WE'LL", "I'M"]
WORDS = "what is the capital of sweden ? which country has the number four question how many answer twelve box 4821 code search".split()


def strings(count):
    """Strings of all kinds, the published templates' texts among them."""
    r, out = random.Random(7), [""]
    for row in json.loads((TEMPLATES / "expected.json").read_text(encoding="utf-8")):
        if row.get("text"):
            out.append(row["text"])
    names = list(SCRIPTS)
    while len(out) < count:
        s = ""
        for _ in range(r.randint(1, 8)):
            k = r.random()
            if k < 0.35:
                s += r.choice(["", " "]) + r.choice(WORDS)
            elif k < 0.45:
                s += r.choice(CONTROL)
            elif k < 0.55:
                s += r.choice([" ", "\n", "\t"]) * r.randint(1, 5)
            else:
                s += "".join(r.choice(SCRIPTS[r.choice(names)] if r.random() < 0.1 else SCRIPTS[names[r.randrange(len(names))]]) for _ in range(r.randint(1, 6)))
        out.append(s)
    return out[:count]


def folders(s):
    """Model folders with tokenizers: Qwen2's shape by the example, and each family's where NumPy is here. Those missing are named."""
    scratch = pathlib.Path(s.scratch)
    subprocess.run([sys.executable, "-B", str(ROOT / "examples/own-chat/make_model.py"), str(scratch)], check=True, stdout=sys.stderr)
    out, missing = {"own-chat": scratch / "tiny"}, []
    for family in ("llama", "qwen2", "qwen3"):
        make = ROOT / "internal/cli/testdata/folders/make.py"
        p = subprocess.run([sys.executable, "-B", str(make), family, "5", str(scratch / family)], capture_output=True, encoding="utf-8")
        if p.returncode:
            missing = [f"the families' folders: {p.stderr.strip()[-120:]}"]
            break
        out[family] = scratch / family
    return out, missing


def encoded(folder, all_strings):
    lines = weir("tokenize", str(folder), stdin="".join(json.dumps(x) + "\n" for x in all_strings)).splitlines()
    if len(lines) != len(all_strings):
        raise Failed(f"weir tokenize wrote {len(lines)} lines for {len(all_strings)}")
    return lines


def round_trip(s):
    """weir tokenize and back: the text in the tokenizer's normal form."""
    program("weir")
    made, missing = folders(s)
    count = max(1000, s.strings // 10)
    for name, folder in made.items():
        spec = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        form = (spec.get("normalizer") or {}).get("type")
        texts = strings(count)
        back = weir("tokenize", "--decode", str(folder), stdin="\n".join(encoded(folder, texts)) + "\n").splitlines()
        added = any(t.get("normalized") for t in spec["added_tokens"])
        for text, line in zip(texts, back):
            want = unicodedata.normalize("NFC", text) if form == "NFC" else text
            if json.loads(line) != want and not added and form in (None, "NFC"):
                raise Failed(f"{name}: {text!r} comes back as {json.loads(line)!r}"[:300])
        if len(back) != len(texts):
            raise Failed(f"{name}: {len(back)} lines came back for {len(texts)}")
    return f"{count} strings by {', '.join(made)}", {"strings": count, "folders": len(made)}, missing


def tokenizers(s):
    """The ids of Hugging Face's tokenizers."""
    library = need("tokenizers")
    program("weir")
    made, missing = folders(s)
    texts = strings(s.strings)
    for name, folder in made.items():
        theirs = library.Tokenizer.from_file(str(folder / "tokenizer.json"))
        want = theirs.encode_batch(texts, add_special_tokens=False)
        wrong = [(t, e.ids, json.loads(line)) for t, e, line in zip(texts, want, encoded(folder, texts)) if e.ids != json.loads(line)]
        if wrong:
            t, theirs, ours = min(wrong, key=lambda x: len(x[0]))
            raise Failed(f"{name}: {len(wrong)} of {len(texts)} strings differ: {t!r}: {theirs} by tokenizers, {ours} by weir"[:400], wrong=len(wrong))
    return f"{len(texts)} strings by {', '.join(made)}", {"strings": len(texts), "folders": len(made)}, missing


def templates(s):
    """Every published template by this machine's jinja2, and by Weir's renderer in its own test over what jinja2 has just written."""
    jinja2 = need("jinja2")
    test = program("gpu-hf-template.test")
    copy = pathlib.Path(s.scratch) / "testdata"
    shutil.copytree(TEMPLATES, copy)
    (copy / "expected.json").unlink()
    p = subprocess.run([sys.executable, "-B", str(copy / "render.py")], capture_output=True, encoding="utf-8")
    if p.returncode:
        raise NotRun(f"jinja2 {jinja2.__version__} did not render: {p.stderr.strip()[-200:]}")
    cases = json.loads((copy / "expected.json").read_text(encoding="utf-8"))
    kept = json.loads((TEMPLATES / "expected.json").read_text(encoding="utf-8"))
    moved = sum(a.get("text") != b.get("text") for a, b in zip(cases, kept)) + abs(len(cases) - len(kept))
    name = "TestPublishedTemplatesAreRenderedAsByJinja"
    p = subprocess.run([test, "-test.v", "-test.run", f"^{name}$"], capture_output=True, encoding="utf-8", cwd=s.scratch)
    sys.stderr.write(p.stdout[-20000:] + p.stderr[-5000:])
    if p.returncode or f"--- PASS: {name}" not in p.stdout:
        raise Failed(f"Weir's renderer differs from jinja2 {jinja2.__version__}: see templates.log")
    excused = len(json.loads((copy / "known.json").read_text(encoding="utf-8")))
    why = f"jinja2 {jinja2.__version__}: {len(cases)} cases, {excused} of them known to differ; {moved} texts are not those of jinja2 3.1"
    return why, {"cases": len(cases), "known": excused, "moved": moved}
