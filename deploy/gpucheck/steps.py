"""One step: steps.py NAME SETTINGS. Its verdict goes into the file that the settings name. A step's function returns what it did, its
numbers, and, where there are any, the parts of it that could not run."""

import json
import pathlib
import sys
import traceback
import types

import agree
import speed
import text
import whole
from common import Failed, NotRun


def main():
    name, s = sys.argv[1], types.SimpleNamespace(**json.loads(sys.argv[2]))
    found = [getattr(m, name) for m in (agree, speed, text, whole) if hasattr(m, name)]
    out = {"verdict": "passed", "why": "", "numbers": {}}
    try:
        out["why"], out["numbers"], *missing = found[0](s)
        missing = [m for m in sum(missing, []) if m]
        if missing:
            out.update(verdict="partly", why=f"{out['why']}; not run: {'; '.join(missing)}"[:600])
    except NotRun as e:
        out.update(verdict="not run", why=str(e))
    except Failed as e:
        out.update(verdict="failed", why=str(e), numbers=e.numbers)
    except Exception as e:  # every error is told in the report
        traceback.print_exc()
        out.update(verdict="failed", why=f"{type(e).__name__}: {e}"[:400])
    pathlib.Path(s.answer).write_text(json.dumps(out), encoding="utf-8")
    sys.exit({"passed": 0, "partly": 0, "failed": 1, "not run": 77}[out["verdict"]])


if __name__ == "__main__":  # not in the processes that a step starts
    main()
