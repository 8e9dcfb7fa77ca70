"""Frames between Weir and a worker: u32 header length, JSON header, raw little-endian buffers in the header's order."""

import json
import struct
import threading
import time

import torch

TYPES = {"i32": torch.int32, "f32": torch.float32, "f64": torch.float64, "u8": torch.uint8}
NAMES = {v: k for k, v in TYPES.items()}
SIZES = {"i32": 4, "f32": 4, "f64": 8, "u8": 1}

# A header or a buffer beyond these is not one of ours.
MOST_HEADER = 1 << 26
MOST_BUFFER = 1 << 34


class Channel:
    """One end of a connection. Several threads may send; one receives."""

    def __init__(self, sock):
        self.sock = sock
        self.sending = threading.Lock()

    def receive(self):
        """Returns a frame's header and its buffers by name; EOFError when the other end is gone."""
        (size,) = struct.unpack("<I", self._read(4))
        if size > MOST_HEADER:
            raise ValueError(f"a header of {size} bytes: at most {MOST_HEADER}")
        header = json.loads(bytes(self._read(size)))
        buffers = {}
        for name, kind, count in header.get("bufs", ()):
            if count < 0 or count * SIZES[kind] > MOST_BUFFER:
                raise ValueError(f"buffer {name} has {count} entries")
            data = self._read(count * SIZES[kind])
            buffers[name] = torch.frombuffer(data, dtype=TYPES[kind]) if count else torch.empty(0, dtype=TYPES[kind])
        return header, buffers

    def send(self, header, buffers=()):
        """Sends a frame; buffers are (name, tensor) in order."""
        listed, parts = [], []
        for name, tensor in buffers:
            kind = NAMES[tensor.dtype]
            count = tensor.numel()
            listed.append([name, kind, count])
            data = bytearray(count * SIZES[kind])
            if count:
                torch.frombuffer(data, dtype=tensor.dtype).copy_(tensor.detach().reshape(-1))
            parts.append(data)
        if listed:
            header = dict(header, bufs=listed)
        head = json.dumps(header).encode()
        with self.sending:
            self.sock.sendall(struct.pack("<I", len(head)) + head)
            for part in parts:
                self.sock.sendall(part)

    def _read(self, count):
        data = bytearray(count)
        view, at = memoryview(data), 0
        while at < count:
            n = self.sock.recv_into(view[at:])
            if n == 0:
                raise EOFError("the connection is closed")
            at += n
        return data


class Progress:
    """Says from a thread of its own that the process is alive, and how far its operation has come."""

    def __init__(self, channel):
        self.channel = channel
        self.op = ""
        self.done = 0
        self.started = False

    def tick(self):
        """A piece of the operation is done."""
        self.done += 1

    def start(self, every):
        if self.started or every <= 0:
            return
        self.started = True
        threading.Thread(target=self._run, args=(every,), daemon=True).start()

    def _run(self, every):
        while True:
            time.sleep(every)
            try:
                self.channel.send({"id": 0, "op": self.op, "done": self.done})
            except OSError:
                return  # the receiving thread ends the process
