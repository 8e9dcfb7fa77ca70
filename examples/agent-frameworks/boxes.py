"""The task of the agents in this folder: each box holds a digit that no rule leads to, and the tool look opens a box.

python3 boxes.py FOLDER writes questions.jsonl, demonstrations.jsonl and calls.jsonl."""

import json
import pathlib
import random
import sys
import zlib
from typing import Any

import weir

SPLITS = ["train", "train", "validation", "test"]
PARAMETERS = {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]}


def look(box: str) -> str:
    """Opens a box and says which digit is in it.

    Args:
        box: The box, such as box 1 2 3.
    """
    return str(zlib.crc32(box.encode()) // 7 % 10)


def score(e: weir.Episode, said: str | None) -> str:
    """Rewards an answer: 1 for the digit, and a tenth for a text that has one."""
    said = (said or "").strip()
    right = float(said == look(e.prompt))
    e.reward(right + 0.1 * any(c.isdigit() for c in said), exact_match=right)
    return said


def single_calls(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A demonstration as smolagents asks: each turn is a call in a conversation of its own, which has the calls before as text."""
    task, step = f"New task:\n{row['question']}", row["steps"][0]
    made = {"id": f"call_{zlib.crc32(task.encode()):024x}_0", "type": "function", "function": {"name": step["tool"], "arguments": step["arguments"]}}
    messages = [("user", task), ("assistant", f"Calling tools:\n{[made]}"), ("user", f"Observation:\n{step['info']}")]
    conversation = [{"role": role, "content": text} for role, text in messages]
    final = {"tool": "final_answer", "arguments": {"answer": row["answer"]}}
    return [{"question": task, "steps": [{"tool": step["tool"], "arguments": step["arguments"]}]}, {"messages": conversation, "steps": [final]}]


def write_files(folder: pathlib.Path) -> None:
    """Writes questions about sixty boxes, and demonstrations with others."""
    questions = [{"question": f"box {i} 2 3", "answers": [look(f"box {i} 2 3")], "split": SPLITS[i % 4]} for i in range(60)]
    others = [f"box {i} {j} {k}" for i in range(60) for j in range(10) for k in range(10) if (j, k) != (2, 3)]
    demonstrations = [
        {"question": box, "steps": [{"tool": "look", "arguments": {"box": box}, "info": look(box)}], "answer": look(box)}
        for box in random.Random(1).sample(others, 600)
    ]
    calls = [row for demonstration in demonstrations[:300] for row in single_calls(demonstration)]
    for name, rows in (("questions", questions), ("demonstrations", demonstrations), ("calls", calls)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    write_files(pathlib.Path(sys.argv[1]))
