# The judge of a program: it runs in a sandbox of its own, starts the program once for each test, and tells on standard output, a JSON line a test, what
# came of it. What programs print and return is compared outside; only statements are run here, for which the program is another process that is asked by
# name. Nothing of the program runs in this process, and nothing of this process can be read by it.
import ast
import builtins
import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

PR_SET_DUMPABLE = 4
MOST = 4 << 20  # bytes of a message

if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
    sys.exit("the judge cannot hide its memory")
job = json.load(sys.stdin)
out = os.dup(1)
os.set_inheritable(out, False)
null = os.open("/dev/null", os.O_RDWR)
for fd in (0, 1):
    os.dup2(null, fd)
python = [sys.executable, "-I"] + ([] if job["site"] else ["-S"])


def tell(**what):
    data = json.dumps(what, allow_nan=False).encode() + b"\n"
    while data:
        data = data[os.write(out, data) :]


# What is left of earlier tests is ended. Only in a process namespace of its own may a signal go to all.
def sweep():
    if job["alone"]:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass


def end(p):
    try:
        os.killpg(p.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    p.wait()
    sweep()


class Machine(BaseException):
    "no process can be had"


ran = False  # whether a process of the program's was started


def start(argv, **how):
    global ran
    try:
        p = subprocess.Popen(python + argv, stderr=null, start_new_session=True, **how)
    except OSError as e:
        raise Machine(f"{type(e).__name__}: {e}") from None
    ran = True
    return p


# A whole program: given its input, it is its output that counts.
def program(test):
    p = start(["solution.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        return converse(p, test["input"].encode(), test["most"], time.monotonic() + job["timeout"])
    finally:
        end(p)
        p.stdin.close()
        p.stdout.close()


def converse(p, given, most, deadline):
    said = b""
    with selectors.DefaultSelector() as ready:
        for f, what in ((p.stdin, selectors.EVENT_WRITE), (p.stdout, selectors.EVENT_READ)):
            os.set_blocking(f.fileno(), False)
            ready.register(f, what)
        while ready.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return {"fault": "timeout"}
            for key, _ in ready.select(left):
                if key.fileobj is p.stdin:
                    try:
                        given = given[os.write(p.stdin.fileno(), given[: 1 << 16]) :] if given else given
                    except BlockingIOError:
                        continue
                    except OSError:  # it reads no more
                        given = b""
                    if not given:
                        ready.unregister(p.stdin)
                        p.stdin.close()
                    continue
                data = os.read(p.stdout.fileno(), 1 << 16)
                said += data
                if len(said) > most:
                    return {"fault": "too much output"}
                if not data:
                    ready.unregister(p.stdout)
                    if not p.stdin.closed:
                        ready.unregister(p.stdin)
                        p.stdin.close()
                    break
        try:
            code = p.wait(max(0.001, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return {"fault": "timeout"}
    if code != 0:
        return {"fault": f"exit status {code}"}
    return {"out": said.decode(errors="replace")}


class Over(BaseException):
    "the program cannot be asked any more"


class ProgramError(Exception):
    "an exception of a kind that the program made"


class Refused(Exception):
    pass


ENDS_LOOPS = (StopIteration, StopAsyncIteration)


PLAIN = (type(None), bool, int, float, str)


# A thing of the program's that is no plain value: it can be asked, and is equal to nothing but itself.
class Thing:
    def __init__(self, program, number, kind):
        self.__dict__.update(_program=program, _number=number, _kind=kind)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self._program.ask(op="attr", of=self._number, name=name)

    def __call__(self, *args, **kwargs):
        wire = [to_wire(a) for a in args], {k: to_wire(v) for k, v in kwargs.items()}
        return self._program.ask(op="call", of=self._number, args=wire[0], kwargs=wire[1])

    def __iter__(self):
        return iter(self._program.ask(op="list", of=self._number))

    def __len__(self):
        return len(self._program.ask(op="list", of=self._number))

    def __getitem__(self, key):
        return self._program.ask(op="item", of=self._number, key=to_wire(key))

    def __repr__(self):
        return f"<{self._kind}>"


def to_wire(v):
    if type(v) in PLAIN:
        return v
    if isinstance(v, Thing):
        return {"t": "thing", "v": v._number}
    if type(v) in (list, tuple, set, frozenset):
        return {"t": type(v).__name__, "v": [to_wire(e) for e in v]}
    if type(v) is dict:
        return {"t": "dict", "v": [[to_wire(k), to_wire(e)] for k, e in v.items()]}
    if type(v) in (bytes, complex):
        return {"t": type(v).__name__, "v": repr(v)}
    raise Refused(f"a {type(v).__name__} cannot be handed to the program")


KINDS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def from_wire(w, program):
    if type(w) in PLAIN:
        return w
    t, v = w["t"], w["v"]
    if t in KINDS:
        return KINDS[t]([from_wire(e, program) for e in v])
    if t == "dict":
        return {from_wire(k, program): from_wire(e, program) for k, e in v}
    if t in ("bytes", "complex"):
        return ast.literal_eval(v)
    return Thing(program, int(v), str(w.get("n", "")))


# The program as a process that is asked.
class Program:
    def __init__(self):
        self.sock, theirs = socket.socketpair()
        with theirs:
            self.p = start(["-c", job["child"], str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=null, stdout=null)
        self.left = b""
        self.deadline = 0.0

    def ask(self, **question):
        try:
            self.send(json.dumps(question).encode() + b"\n")
            answer = json.loads(self.line())
            if "error" in answer:
                kind = getattr(builtins, str(answer["error"]), None)
                if not (isinstance(kind, type) and issubclass(kind, Exception)):
                    kind = ProgramError
                if issubclass(kind, ENDS_LOOPS):
                    kind = RuntimeError  # as in a generator: a test's own loop would end without a word
                raise_in_test = kind(str(answer.get("text", "")))
            else:
                return from_wire(answer["value"], self)
        except Refused:
            raise
        except Exception as e:  # whatever the program did to the talk
            raise Over(f"{type(e).__name__}: {e}") from None
        raise raise_in_test

    def left_over(self):
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Over("timeout")
        return left

    def send(self, data):
        self.sock.settimeout(self.left_over())
        self.sock.sendall(data)

    def line(self):
        while b"\n" not in self.left:
            self.sock.settimeout(self.left_over())
            data = self.sock.recv(1 << 16)
            self.left += data
            if not data or len(self.left) > MOST:
                raise Over("the program ended" if not data else "too long an answer")
        line, self.left = self.left.split(b"\n", 1)
        return line

    def close(self):
        self.sock.close()
        end(self.p)


def started(deadline):
    p = Program()
    p.deadline = deadline
    try:
        p.ask(op="load")
    except BaseException:
        p.close()
        raise
    return p


def function(test):
    p = None
    try:
        p = started(time.monotonic() + job["timeout"])
        value = p.ask(op="entry", name=job["entry"])(*test["args"])
        text = json.dumps(value, allow_nan=False, default=values)
        return {"value": json.loads(text)} if len(text) <= test["most"] else {"fault": "too long a value"}
    except (Over, Exception) as e:
        return {"fault": f"{type(e).__name__}: {e}"[:200]}
    finally:
        if p is not None:
            p.close()


def values(v):
    if isinstance(v, (set, frozenset)):
        return sorted(v)
    if isinstance(v, Thing) and v._kind in ("generator", "range", "map", "filter", "zip", "dict_keys", "dict_values", "deque"):
        return list(v)
    raise TypeError(f"a {type(v).__name__} is no JSON")


# The names that a test uses: its own, Python's, modules of the standard library, and then the program's, never in another's place. A name that tests use
# otherwise than for what is in it, as where they call it, is no module's.
class Names(dict):
    def __init__(self, judge):
        super().__init__(__name__="test", __builtins__=builtins)
        self.judge = judge
        self.values = {name for source in job["code"] for name in valued(ast.parse(source))}

    def __missing__(self, name):
        entry = job["entry"]
        if entry and name in (entry, "candidate"):
            return self.judge.child().ask(op="entry", name=entry)
        if hasattr(builtins, name):
            raise KeyError(name)
        if name in sys.stdlib_module_names and name not in self.values:
            return __import__(name)
        return self.judge.child().ask(op="name", name=name)


# The names that stand for a value in a test: those that are not followed by a dot.
def valued(tree):
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in inner}


class Statements:
    def __init__(self):
        self.program, self.deadline = None, 0.0
        self.names = Names(self)

    def child(self):
        if self.program is None:
            self.program = started(self.deadline)
        return self.program

    def run(self, code):
        self.deadline = time.monotonic() + job["timeout"]
        if self.program is not None:
            self.program.deadline = self.deadline
        try:
            exec(code, self.names)
            return {"passed": True}
        except (Over, SystemExit, KeyboardInterrupt, GeneratorExit) as e:
            if self.program is not None:
                self.program.close()
                self.program = None
            return {"fault": f"{type(e).__name__}: {e}"[:200]}
        except Exception as e:
            return {"fault": f"{type(e).__name__}: {e}"[:200]}

    def judge(self, first):
        at = first
        for source in job["code"]:
            tree = ast.parse(source)
            result = self.run(compile(tree, "<test>", "exec"))
            if asserts(tree) or "fault" in result:
                tell(test=at, **result)
                at += 1
        if job["entry"] and callable(self.names.get("check")):
            tell(test=at, **self.run(compile(f"check({job['entry']})", "<test>", "exec")))
            at += 1
        if self.program is not None:
            self.program.close()
        return at


# Whether a statement tests anything by itself: an assertion or a call that is not inside a function's definition.
def asserts(tree):
    todo = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Assert) or isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            todo += ast.iter_child_nodes(node)
    return False


def main():
    for source in job["code"]:
        try:
            ast.parse(source)
        except (SyntaxError, ValueError) as e:
            tell(broken=f"a test is no Python: {e}")
            return
    tell(begun=True)
    n = 0
    try:
        for test in job["tests"]:
            tell(test=n, **(function if job["entry"] else program)(test))
            n += 1
        tell(tests=Statements().judge(n) if job["code"] else n)
    except Machine as e:
        # Once a process of the program's has run, it may be that which took the room, or the right to it.
        tell(**{"lost" if ran else "machine": str(e)[:200]})


main()
