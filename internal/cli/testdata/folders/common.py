"""What make.py, read.py and logprobs.py share: safetensors files and bfloat16, read and written without a library of theirs."""
import json
import os
import struct

import numpy as np

SIZES = {"F32": 4, "BF16": 2, "F16": 2}


def to_bf16(x):
    """Rounds to nearest, ties to even, and gives the upper halves."""
    bits = np.ascontiguousarray(x, dtype="<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def encode(x, dtype):
    if dtype == "BF16":
        return to_bf16(x).tobytes()
    return np.ascontiguousarray(x, dtype={"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def decode(b, dtype):
    if dtype == "BF16":
        return (np.frombuffer(b, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(b, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float32)


def write(path, tensors):
    """tensors is a list of (name, dtype, array)."""
    header, at, body = {"__metadata__": {"format": "pt"}}, 0, []
    for name, dtype, x in tensors:
        b = encode(x, dtype)
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [at, at + len(b)]}
        at += len(b)
        body.append(b)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(body))


def read(path):
    """Gives the header's bytes and {name: (dtype, shape, bytes)}."""
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack("<Q", data[:8])
    header, body, out = json.loads(data[8 : 8 + n]), data[8 + n :], {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        lo, hi = t["data_offsets"]
        if hi - lo != SIZES[t["dtype"]] * int(np.prod(t["shape"], dtype=np.int64)) or hi > len(body):
            raise SystemExit(f"{path}: {name}: offsets {lo}, {hi} are not those of {t['shape']}")
        out[name] = (t["dtype"], t["shape"], body[lo:hi])
    return data[: 8 + n], out


def weights(folder):
    """Gives {name: float64 array} of a folder, through its index where it has one."""
    index = os.path.join(folder, "model.safetensors.index.json")
    files = ["model.safetensors"]
    if os.path.exists(index):
        with open(index) as f:
            files = sorted(set(json.load(f)["weight_map"].values()))
    out = {}
    for file in files:
        for name, (dtype, shape, b) in read(os.path.join(folder, file))[1].items():
            out[name] = decode(b, dtype).astype(np.float64).reshape(shape)
    return out
