"""agent.py with the package weir-rl: python3 short.py 8650 serves it as an agent of type http."""

import sys
import zlib

import weir


def inside(box: str) -> str:
    """The digit in a box: "box 1 2 3 ?" names it."""
    return str(zlib.crc32(box.encode()) // 7 % 10)


@weir.agent
def boxes(e: weir.Episode) -> str:
    """Asks the model about a box, and opens the box if the model says "look"."""
    said = e.ask(e.prompt, max_tokens=1)
    looked = said == "look"
    if looked:
        talk = [("user", e.prompt), ("assistant", said), ("user", inside(e.prompt))]
        said = e.ask([{"role": role, "content": text} for role, text in talk], max_tokens=1)
    right = float(said == inside(e.prompt))
    e.reward(right + 0.2 * looked, exact_match=right, looked=looked)
    return said


if __name__ == "__main__":
    weir.serve(boxes, port=int(sys.argv[1]))
