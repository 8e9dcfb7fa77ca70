#!/usr/bin/env python3
"""Writes 600 questions of arithmetic, each a conversation that begins with two that are answered: how the calculator is called is shown, not trained.

    python3 examples/published-model/make_questions.py models/sums.jsonl
"""

import json
import random
import sys

NAMES, THINGS = ("Ann", "Ben", "Cleo", "Dan", "Eve", "Finn"), ("apples", "books", "coins", "stamps")


def answered(question, expression, value):
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": f"<calc>{expression}</calc>\n<out>\n{value}\n</out>\n{value}"},
    ]


SHOWN = [
    {"role": "system", "content": "Calculate."},
    *answered("Kim has 4 jars of 35 beans. How many beans has Kim?", "4*35", 140),
    *answered("Kim has 60 beans, eats 13 and buys 8. How many beans has Kim?", "60-13+8", 55),
]


def question(draw, kind):
    name, thing = draw.choice(NAMES), draw.choice(THINGS)
    a, b, c = draw.randint(51, 98), draw.randint(11, 49), draw.randint(2, 9)
    has, value = {
        "finds": (f"{a} {thing} and finds {b}", a + b),
        "loses": (f"{a} {thing} and loses {b}", a - b),
        "bags": (f"{c} bags of {a} {thing}", a * c),
        "both": (f"{a} {thing}, finds {b} and loses {c}", a + b - c),
    }[kind]
    return f"{name} has {has}. How many {thing} has {name}?", value


def main():
    draw, seen, rows = random.Random(7), set(), []
    while len(rows) < 600:
        kind = ("finds", "loses", "bags", "both")[len(rows) % 4]
        text, value = question(draw, kind)
        if text not in seen:
            seen.add(text)
            split = "train" if len(rows) < 400 else "validation" if len(rows) < 480 else "test"
            rows.append({"prompt": [*SHOWN, {"role": "user", "content": text}], "answer": str(value), "source": kind, "split": split})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
