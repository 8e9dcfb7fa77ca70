#!/usr/bin/env python3
"""Compares two model folders with a parser of its own: read.py SOURCE SAVED. Every file must be there and have the same bytes, but for
the numbers of the weights, which must be finite. It prints how many numbers there are, how many differ and by how much at most."""
import json
import os
import sys

import numpy as np

import common


def main():
    source, saved = sys.argv[1:3]
    if sorted(os.listdir(source)) != sorted(os.listdir(saved)):
        raise SystemExit(f"other files: {sorted(set(os.listdir(source)) ^ set(os.listdir(saved)))}")
    numbers = differ = tensors = 0
    most = 0.0
    for name in sorted(os.listdir(source)):
        a, b = os.path.join(source, name), os.path.join(saved, name)
        if not name.endswith(".safetensors"):
            if open(a, "rb").read() != open(b, "rb").read():
                raise SystemExit(f"{name} differs")
            continue
        head, before = common.read(a)
        again, after = common.read(b)
        if head != again:
            raise SystemExit(f"{name}: the header differs")
        for tensor, (dtype, _, x) in before.items():
            x, y = common.decode(x, dtype), common.decode(after[tensor][2], dtype)
            if not np.isfinite(y).all():
                raise SystemExit(f"{name}: {tensor}: not finite")
            tensors += int((x != y).any())
            numbers, differ, most = numbers + x.size, differ + int((x != y).sum()), max(most, float(np.abs(x - y).max()))
    print(json.dumps({"numbers": numbers, "differ": differ, "tensors": tensors, "most": most}))


main()
