# A program that is asked by name: its functions are called and its values given, by JSON lines on a socket. It is the program's own process, so that nothing
# that it says is more than an answer.
import json
import sys


def serve(fd):
    import builtins
    import socket

    conn = socket.socket(fileno=fd)
    lines = conn.makefile("rb")
    dumps, loads = json.dumps, json.loads
    names = {"__name__": "solution", "__builtins__": builtins}
    things = []

    def pack(v, depth=0):
        if v is None or type(v) in (bool, int, float, str):
            return v
        if depth > 200:
            raise RecursionError("too deep a value")
        if type(v).__module__ == "numpy":
            return pack(v.tolist(), depth + 1)
        for kind in (tuple, list, set, frozenset):
            if isinstance(v, kind):
                return {"t": kind.__name__, "v": [pack(e, depth + 1) for e in v]}
        if isinstance(v, dict):
            return {"t": "dict", "v": [[pack(k, depth + 1), pack(e, depth + 1)] for k, e in v.items()]}
        if isinstance(v, (bytes, complex)):
            return {"t": "bytes" if isinstance(v, bytes) else "complex", "v": repr(v)}
        for kind in (bool, int, float, str):
            if isinstance(v, kind):
                return kind(v)
        things.append(v)
        return {"t": "thing", "v": len(things) - 1, "n": type(v).__name__}

    def unpack(w):
        if not isinstance(w, dict):
            return w
        t, v = w["t"], w["v"]
        if t in ("list", "tuple", "set", "frozenset"):
            return getattr(builtins, t)([unpack(e) for e in v])
        if t == "dict":
            return {unpack(k): unpack(e) for k, e in v}
        if t in ("bytes", "complex"):
            return eval(v, {"__builtins__": {}}, {"nan": float("nan"), "inf": float("inf")})
        return things[v]

    def obey(q):
        op = q["op"]
        if op == "load":
            with open("solution.py") as f:
                exec(compile(f.read(), "solution.py", "exec"), names)
            return None
        if op == "name":
            if q["name"] not in names:
                raise NameError(f"name {q['name']!r} is not defined")
            return names[q["name"]]
        if op == "entry":
            if q["name"] in names:
                return names[q["name"]]
            if "Solution" in names:
                return getattr(names["Solution"](), q["name"])
            raise NameError(f"name {q['name']!r} is not defined")
        thing = things[q["of"]]
        if op == "attr":
            return getattr(thing, q["name"])
        if op == "list":
            return list(thing)
        if op == "item":
            return thing[unpack(q["key"])]
        return thing(*[unpack(a) for a in q["args"]], **{k: unpack(v) for k, v in q["kwargs"].items()})

    for line in lines:
        try:
            answer = {"value": pack(obey(loads(line)))}
        except BaseException as e:  # of the program's own, SystemExit among them
            answer = {"error": type(e).__name__, "text": str(e)[:200]}
        conn.sendall(dumps(answer).encode() + b"\n")


serve(int(sys.argv[1]))
