"""service.py with the package weir-rl: python3 short.py 8900"""

import math
import sys

import weir


@weir.tool(free_text=True)
def calculator(expression: str) -> str:
    """Adds and multiplies, such as 2 + 3 * 4."""
    try:
        return str(sum(math.prod(int(factor) for factor in term.split("*")) for term in expression.split("+")))
    except ValueError:
        raise weir.Refused("want numbers with + and *") from None


@weir.reward
def score(rollout: weir.Rollout) -> weir.Score:
    exact = float(rollout.answer in rollout.prompt.answers)
    return weir.Score(exact - 0.02 * rollout.calls, {"exact_match": exact, "calls": rollout.calls})


weir.serve(calculator, score, port=int(sys.argv[1]))
