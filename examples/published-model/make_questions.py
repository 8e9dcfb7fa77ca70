#!/usr/bin/env python3
"""Writes 600 questions of five kinds, each a conversation that begins with two that are answered: how the calculator is called is shown, not trained.

    python3 examples/published-model/make_questions.py models/sums.jsonl
"""

import json
import random
import sys

KINDS = ("plus", "three", "finds", "loses", "bags")
NAMES, THINGS = ("Ann", "Ben", "Cleo", "Dan", "Eve", "Finn"), ("apples", "books", "coins", "stamps")


def answered(question, expression, value):
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": f"<calc>{expression}</calc>\n<out>\n{value}\n</out>\n{value}"},
    ]


SHOWN = [
    {"role": "system", "content": "Calculate."},
    *answered("Kim has 4 jars of 35 beans. How many beans has Kim?", "4*35", 140),
    *answered("What is 60 minus 13 plus 8?", "60-13+8", 55),
]


def question(draw, kind):
    name, thing = draw.choice(NAMES), draw.choice(THINGS)
    a, b, c = draw.randint(51, 98), draw.randint(11, 49), draw.randint(2, 9)
    return {
        "plus": (f"What is {a} plus {b}?", a + b),
        "three": (f"What is {a} plus {b} minus {c}?", a + b - c),
        "finds": (f"{name} has {a} {thing} and finds {b}. How many {thing} has {name}?", a + b),
        "loses": (f"{name} has {a} {thing} and loses {b}. How many {thing} has {name}?", a - b),
        "bags": (f"{name} has {c} bags of {a} {thing}. How many {thing} has {name}?", a * c),
    }[kind]


def main():
    draw, seen, rows = random.Random(7), set(), []
    while len(rows) < 600:
        kind = KINDS[len(rows) % len(KINDS)]
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
