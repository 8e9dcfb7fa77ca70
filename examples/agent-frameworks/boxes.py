"""The task of the agents in this folder: each box holds a digit that no rule leads to, and the tool look opens a box."""

import zlib

import weir

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


@weir.questions
def questions() -> list[dict[str, object]]:
    """Sixty boxes."""
    return [{"question": f"box {i} 2 3", "answers": [look(f"box {i} 2 3")], "split": ["train", "train", "validation", "test"][i % 4]} for i in range(60)]
