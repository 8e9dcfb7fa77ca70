# The first program of a workspace: it starts sessions and commands, and tells how they end. It runs inside the sandbox, as pid 1 of
# its process namespace, and obeys JSON lines on descriptor 3, with descriptors beside them. Everything ends with it, and it ends
# when the other end of descriptor 3 does.
import ast
import json
import linecache
import os
import resource
import select
import signal
import socket
import stat
import sys
import threading
import time
import traceback
import types

loads, dumps = json.loads, json.dumps


class Runner:
    def __init__(self):
        self.sock = socket.socket(fileno=3)
        self.sock.set_inheritable(False)
        self.pids = {}  # by key
        self.fds = []
        self.left = b""

    def main(self):
        for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(s, signal.SIG_IGN)
        wake, wake_in = os.pipe()
        os.set_blocking(wake_in, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self.sock, wake], [], [])
            if wake in ready:
                os.read(wake, 4096)
            self.reap()
            if self.sock in ready and not self.take():
                os._exit(0)

    def tell(self, **event):
        self.sock.sendall(dumps(event).encode() + b"\n")

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for key, known in list(self.pids.items()):
                if known == pid:
                    del self.pids[key]
                    self.tell(key=key, event="exit", code=os.waitstatus_to_exitcode(status))

    def take(self):
        data, fds, _, _ = socket.recv_fds(self.sock, 1 << 16, 16)
        self.fds += fds
        if not data:
            return False
        lines = (self.left + data).split(b"\n")
        self.left = lines.pop()
        for line in lines:
            self.obey(loads(line))
        return True

    def obey(self, r):
        fds, self.fds = self.fds[: r["fds"]], self.fds[r["fds"] :]
        try:
            answer = getattr(self, "op_" + r["op"])(r, fds)
            if answer is not None:
                self.tell(key=r["key"], event="done", **answer)
        except Exception as e:  # the asker is told, whatever it is
            self.tell(key=r["key"], event="done", error=f"{type(e).__name__}: {e}"[:1000])
        finally:
            for fd in fds:
                os.close(fd)

    def fork(self, key):
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for s in range(1, signal.NSIG):
                if s not in (signal.SIGKILL, signal.SIGSTOP):
                    try:
                        signal.signal(s, signal.SIG_DFL)
                    except (OSError, ValueError):
                        pass
            os.setsid()
            return True
        self.pids[key] = pid
        return False

    def op_session(self, r, fds):
        if self.fork(r["key"]):
            try:
                control, out = fds
                null = os.open("/dev/null", os.O_RDONLY)
                self.sock.close()
                hold(null, out, out, control)
                Session(r).main()
            finally:
                os._exit(70)
        return {}

    def op_exec(self, r, fds):
        if self.fork(r["key"]):
            try:
                self.sock.close()
                if r.get("cpu"):
                    resource.setrlimit(resource.RLIMIT_CPU, (r["cpu"], r["cpu"]))
                hold(*fds)
                env = dict(os.environ, **dict(pair.split("=", 1) for pair in r["env"] or ()))
                os.execvpe(r["argv"][0], r["argv"], env)
            except Exception as e:
                os.write(2, f"{r['argv'][0]}: {e}\n".encode())
            finally:
                os._exit(127)
        return {}

    def op_signal(self, r, fds):
        pid = self.pids.get(r["of"])
        if pid:
            if r["group"]:
                for p in self.group(pid):
                    os.kill(p, r["signal"])
            else:
                os.kill(pid, r["signal"])
        return {}

    # The process and all that it started, whatever sessions they made for themselves: by their parents, as long as those live.
    def group(self, pid):
        children = {}
        for name in os.listdir("/proc") if os.path.isdir("/proc/1") else ():
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/stat") as f:
                        children.setdefault(int(f.read().rsplit(")", 1)[1].split()[1]), []).append(int(name))
                except (OSError, ValueError, IndexError):
                    pass
        out, todo = [], [pid]
        while todo:
            out.append(todo[0])
            todo += children.get(todo.pop(0), [])
        return out

    def op_write(self, r, fds):
        name = r["name"]
        if os.path.dirname(name):
            os.makedirs(os.path.dirname(name), exist_ok=True)
        # The policy may have put a link or a pipe there, and the runner waits for nobody.
        with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_NOFOLLOW, 0o644), "wb") as to:
            if not stat.S_ISREG(os.fstat(to.fileno()).st_mode):
                raise OSError("not a plain file")
            while data := os.read(fds[0], 1 << 20):
                to.write(data)
        return {}

    def op_list(self, r, fds):
        entries, todo, room = [], [r["name"]], 1 << 18
        while todo:
            for e in sorted(os.scandir(todo.pop(0)), key=lambda e: e.name):
                info, name = e.stat(follow_symlinks=False), os.path.relpath(e.path, r["name"])
                room -= len(name)
                if len(entries) == r["most"] or room < 0:
                    return {"entries": entries, "more": True}
                entries.append([name, info.st_size, "/" if stat.S_ISDIR(info.st_mode) else ""])
                if stat.S_ISDIR(info.st_mode):
                    todo.append(e.path)
        return {"entries": entries, "more": False}


# hold gives this process its descriptors 0, 1, 2 and so on, and closes all others.
def hold(*fds):
    high = [os.dup(fd) for fd in fds]  # above those that are about to be written over
    while min(high) < len(high):
        high = [os.dup(fd) for fd in high]
    for i, fd in enumerate(high):
        os.dup2(fd, i, inheritable=True)
    os.closerange(len(high), 1 << 12)


class Submitted(BaseException):
    pass


class Session:
    def __init__(self, r):
        self.conn = socket.socket(fileno=3)
        self.conn.set_inheritable(False)
        self.lines = self.conn.makefile("rb")
        self.running = False
        self.cells = 0
        self.answer = None
        self.notepad = None
        self.id = ""
        self.most = 0  # bytes of an answer
        self.lock = threading.Lock()

    def main(self):
        def interrupt(*_):
            if self.running:
                raise KeyboardInterrupt

        signal.signal(signal.SIGINT, interrupt)
        for s in (signal.SIGPIPE, signal.SIGXFSZ):  # as Python has them: an OSError, in place of an end without a word
            signal.signal(s, signal.SIG_IGN)
        main = types.ModuleType("__main__")
        main.__builtins__ = __builtins__
        sys.modules["__main__"] = main
        sys.argv = [""]
        self.globals = main.__dict__
        for line in self.lines:
            r = loads(line)
            if r["op"] == "open":
                self.open(r)
            elif r["op"] == "run":
                self.run(r)
            # An answer that comes after its cell was interrupted is nobody's.
        os._exit(0)

    def open(self, r):
        if r["site"]:
            import site

            site.main()
        for name, value in r["values"].items():
            self.globals[name] = value
        for name in r["functions"]:
            owner, _, method = name.rpartition(".")
            if owner:
                self.globals.setdefault(owner, types.SimpleNamespace()).__dict__[method] = self.function(name)
            else:
                self.globals[name] = self.function(name)
        if r["notepad"]:
            self.globals["notepad"] = self.notepad = Notepad(r["notepad"])
        if r["submit"]:
            self.globals["submit"] = self.submit
        if r["prelude"]:
            exec(compile(r["prelude"], "<prelude>", "exec"), self.globals)

    def say(self, message):
        self.conn.sendall(dumps(message).encode() + b"\n")

    def function(self, name):
        def call(*args):
            with self.lock:
                self.say({"id": self.id, "call": {"name": name, "args": args}})
                while True:
                    line = self.lines.readline()
                    if not line:
                        os._exit(0)
                    r = loads(line)
                    if r["op"] == "answer" and r["id"] == self.id:
                        break
            if r.get("error"):
                raise RuntimeError(r["error"])
            if "printed" in r:
                print(r["printed"])
            return r.get("result")

        call.__name__ = call.__qualname__ = name
        return call

    def submit(self, answer=""):
        "ends the episode with this answer"
        text = str(answer)
        if len(text.encode(errors="surrogatepass")) > self.most:
            raise ValueError(f"submit: the answer is longer than {self.most} bytes")
        self.answer = text
        raise Submitted

    def run(self, r):
        self.id, self.answer, self.cells, self.most = r["id"], None, self.cells + 1, r["output"]
        name = f"<cell {self.cells}>"
        began = time.monotonic()
        value = error = None
        try:
            try:
                self.running = True
                value = self.cell(r["code"], name, r["output"])
            finally:
                self.running = False
        except Submitted:
            pass
        except BaseException as e:  # of the cell's own, SystemExit and KeyboardInterrupt among them
            error = describe(e, r["output"])
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        try:
            notes = str(self.notepad) if self.notepad else ""
        except Exception:
            notes = ""
        self.say({"id": r["id"], "done": {"value": value, "error": error, "answer": self.answer, "notes": notes,
                                          "took_ms": int(1000 * (time.monotonic() - began))}})

    def cell(self, code, name, most):
        linecache.cache[name] = (len(code), None, [line + "\n" for line in code.splitlines()], name)
        tree = ast.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, name, "exec"), self.globals)
        if last is None:
            return None
        value = eval(compile(last, name, "eval"), self.globals)
        if value is None:
            return None
        self.globals["_"] = value
        return repr(value)[: most + 1]


# The traceback of what a cell raised: the lines of cells alone.
def describe(e, most):
    try:
        frames = [f for f in traceback.extract_tb(e.__traceback__) if f.filename.startswith("<cell")]
        lines = ["Traceback (most recent call last):\n"] + traceback.format_list(frames) if frames else []
        text = "".join(lines + traceback.format_exception_only(type(e), e)).rstrip("\n")
    except BaseException:
        text = f"{type(e).__name__}: its text could not be had"
    return text if len(text) <= most else text[: most // 2] + "\n...\n" + text[-most // 2 :]


# The notepad, as producers/tools/starlark has it: things to do, facts and a draft.
class Notepad:
    def __init__(self, most):
        self._most, self._todo, self._facts, self._draft = most, [], [], ""

    def _change(self, values, change):
        texts = [str(t) for v in values for t in (v if isinstance(v, (list, tuple, set)) else [v])]
        if not texts:
            raise TypeError("takes a text or a list of texts")
        before = [list(item) for item in self._todo], list(self._facts), self._draft
        change(texts)
        if len(str(self).encode(errors="replace")) > self._most:
            self._todo, self._facts, self._draft = before
            raise ValueError(f"the notepad holds {self._most} bytes at most: clear() empties it")

    def add_todo(self, *values):
        self._change(values, lambda texts: self._todo.extend([t, False] for t in texts))

    def finish_todo(self, *values):
        def finish(texts):
            for text in texts:
                item = next((i for i in self._todo if i[0] == text and not i[1]), None)
                if item is None:
                    raise ValueError(f"nothing to do is {text!r}")
                item[1] = True

        self._change(values, finish)

    def add_facts(self, *values):
        self._change(values, self._facts.extend)

    def write_draft(self, *values):
        def write(texts):
            self._draft = "\n".join(texts)

        self._change(values, write)

    def clear(self):
        self._todo, self._facts, self._draft = [], [], ""

    def __str__(self):
        out = (["todo:"] if self._todo else []) + [("[x] " if done else "[ ] ") + text for text, done in self._todo]
        out += (["facts:"] if self._facts else []) + ["- " + fact for fact in self._facts]
        return "\n".join(out + (["draft:", self._draft] if self._draft else []))

    __repr__ = __str__

    def __bool__(self):
        return bool(self._todo or self._facts or self._draft)


Runner().main()
