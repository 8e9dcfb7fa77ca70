"""python -m weir is the program weir."""

import os
import sys

from weir.binary import find_binary

if __name__ == "__main__":
    program = find_binary()
    os.execv(program, [program, *sys.argv[1:]])
