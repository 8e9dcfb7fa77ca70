"""A decoder: sequences with a cache of keys and values each, which are extended together and sampled from."""

import math
import threading

import torch
import torch.nn.functional as F
import weir_folders
import weir_ranks
from weir_attention import plain
from weir_model import Policy

PAGE = 64


class Cache:
    """Keys and values of every layer in rows of a pool, which are dealt out to sequences in pages. Sequences may have pages in common;
    who writes to a page has it alone."""

    def __init__(self, widths, dtype, device):
        """widths are the shapes of a token's keys and values, of each layer."""
        self.widths, self.dtype, self.device = widths, dtype, device
        self.keys, self.values = [], []
        self.size = 0
        self.free = []
        self.pages, self.rows = {}, {}
        self.users = {}  # of pages that are somebody's

    def grow(self, pages):
        """Adds pages to the pool."""
        more = max(pages + 1, self.size // PAGE, 16)
        for pool, which in ((self.keys, 0), (self.values, 1)):
            for i, width in enumerate(self.widths):
                fresh = torch.zeros(more * PAGE, *width[which], dtype=self.dtype, device=self.device)
                if i < len(pool):
                    pool[i] = torch.cat([pool[i], fresh])
                else:
                    pool.append(fresh)
        # The first page is nobody's: shorter sequences of a batch are filled up with its zeros.
        self.free.extend(range(max(1, self.size // PAGE), self.size // PAGE + more))
        self.size += more * PAGE

    def _take(self):
        if not self.free:
            self.grow(1)
        page = self.free.pop()
        self.users[page] = 1
        return page

    def _release(self, page):
        self.users[page] -= 1
        if not self.users[page]:
            del self.users[page]
            self.free.append(page)

    def _own(self, page):
        """A page of the same numbers that nobody else has."""
        fresh = self._take()
        for pool in (self.keys, self.values):
            for rows in pool:
                rows[fresh * PAGE : (fresh + 1) * PAGE] = rows[page * PAGE : (page + 1) * PAGE]
        self._release(page)
        return fresh

    def fit(self, slot, start, length):
        """Gives a sequence the pages of a length, no more and no less, to be written to from start on, and returns the rows of its
        tokens."""
        held = self.pages.setdefault(slot, [])
        want, changed = -(-length // PAGE), False
        while len(held) > want:
            self._release(held.pop())
            changed = True
        for i in range(start // PAGE, len(held)):
            if self.users[held[i]] > 1:
                held[i] = self._own(held[i])
                changed = True
        if want > len(held):
            if len(self.free) < want - len(held):
                self.grow(want - len(held) - len(self.free))
            while len(held) < want:
                held.append(self._take())
            changed = True
        if changed:
            self.rows.pop(slot, None)
        if slot not in self.rows:
            pages = torch.tensor(held, dtype=torch.int64)[:, None] * PAGE + torch.arange(PAGE)
            self.rows[slot] = pages.reshape(-1).to(self.device)
        return self.rows[slot][:length]

    def drop(self, slot):
        for page in self.pages.pop(slot, ()):
            self._release(page)
        self.rows.pop(slot, None)

    def share(self, to, source, length):
        """Gives a sequence the pages of another's first tokens."""
        pages = self.pages.get(source, [])[: -(-length // PAGE)]
        for page in pages:
            self.users[page] += 1
        self.drop(to)
        self.pages[to] = pages


class Step:
    """The tokens of one batch, and what their attention reads of the cache."""

    def __init__(self, cache, items, device):
        self.cache, self.items = cache, items
        positions, fresh = [], []
        self.rows = []
        for item in items:
            rows = cache.fit(item.slot, item.start, item.start + item.count)
            self.rows.append(rows)
            fresh.append(rows[item.start :])
            positions.append(torch.arange(item.start, item.start + item.count))
        self.positions = torch.cat(positions).to(device)
        self.fresh = torch.cat(fresh)
        self.longest = max(i.start + i.count for i in items)
        at, singles = 0, []
        self.pieces = []  # of sequences with several tokens: where they lie, and their rows
        for item, rows in zip(items, self.rows):
            if item.count == 1:
                singles.append((at, rows))
            else:
                self.pieces.append((at, item, rows))
            at += item.count
        self.singles = None
        if singles:
            self.singles = torch.tensor([s[0] for s in singles], device=device)
            self.index = torch.nn.utils.rnn.pad_sequence([s[1] for s in singles], batch_first=True)
            lengths = torch.tensor([len(s[1]) for s in singles], device=device)
            self.beyond = torch.arange(self.index.shape[1], device=device)[None] >= lengths[:, None]

    def attention(self, layer):
        keys, values = self.cache.keys[layer], self.cache.values[layer]

        def attend(q, k, v):
            keys.index_copy_(0, self.fresh, k)
            values.index_copy_(0, self.fresh, v)
            out = torch.empty_like(q)
            if self.singles is not None:
                out[self.singles] = self._together(q[self.singles], keys[self.index], values[self.index])
            for at, item, rows in self.pieces:
                out[at : at + item.count] = self._piece(q[at : at + item.count], keys[rows], values[rows], item.start)
            return out

        return attend

    def _together(self, q, k, v):
        """One query each of several sequences: q [b, heads, width], k and v [b, longest, kv, width]."""
        b, heads, width = q.shape
        kv = k.shape[2]
        q = q.view(b, kv, heads // kv, width)
        scores = (q @ k.permute(0, 2, 3, 1)).float() / math.sqrt(width)
        weights = scores.masked_fill(self.beyond[:, None, None], float("-inf")).softmax(-1).to(v.dtype)
        return (weights @ v.transpose(1, 2)).reshape(b, heads, width)

    def _piece(self, q, k, v, start):
        """Several queries of one sequence, which follow each other from start on."""
        n, heads, width = q.shape
        kv = k.shape[1]
        q = q.view(n, kv, heads // kv, width).permute(1, 2, 0, 3)
        scores = (q @ k.permute(1, 2, 0).unsqueeze(1)).float() / math.sqrt(width)
        later = torch.arange(k.shape[0], device=q.device)[None] > torch.arange(start, start + n, device=q.device)[:, None]
        weights = scores.masked_fill(later, float("-inf")).softmax(-1).to(v.dtype)
        return (weights @ v.transpose(0, 1).unsqueeze(1)).permute(2, 0, 1, 3).reshape(n, heads, width)


class Item:
    """Tokens to append to one sequence from a place on, and how to sample after them."""

    def __init__(self, slot, start, tokens, sample, temperature, u, top):
        self.slot, self.start, self.tokens, self.count = slot, start, tokens, len(tokens)
        self.sample, self.temperature, self.u, self.top = sample, temperature, u, top


class Sampler:
    def __init__(self, hello, device, channel, progress):
        self.shape, self.options = dict(hello["shape"], value_head=False), hello["options"]
        self.device, self.channel, self.progress = device, channel, progress
        self.dtype = weir_ranks.dtype_of(self.options["dtype"], device)
        with torch.no_grad():
            self.policy = Policy(self.shape, self.dtype, plain, False, progress.tick, device=device, dtype=self.dtype)
        self.policy.requires_grad_(False)
        self.params = dict(self.policy.named_parameters())
        width = (self.shape["kv_heads"], self.shape["head_dim"])
        self.cache = Cache([(width, width)] * self.shape["layers"], self.dtype, device)
        self.prepared = {}

    def describe(self):
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        return {"attention": "cached", "passed_over": [], "optimizer": "none", "sharded": False, "device_name": name}

    # Weights.

    def prepare(self, header, bufs):
        """Reads weights in a thread, which answers again when they are there; batches go on meanwhile."""

        def read():
            answer = {"id": header["id"], "written": True}
            try:
                files = weir_folders.Files(header["dir"], header["files"])
                ready = {}
                for name, p in self.params.items():
                    x = files.read(name)
                    if header["keep"] == "bfloat16" and p.dim() > 1:
                        x = x.to(torch.bfloat16)
                    x = x.to(self.dtype)
                    ready[name] = x.pin_memory() if self.device.type == "cuda" else x
                self.prepared = {header["number"]: ready}
            except OSError as e:
                answer["error"] = {"kind": "io", "message": str(e)}
            except Exception as e:  # the thread has nobody else to tell
                answer["error"] = {"kind": "internal", "message": f"{type(e).__name__}: {e}"}
            self.channel.send(answer)

        return {"after": threading.Thread(target=read, daemon=True).start}

    def commit(self, header, bufs):
        """Puts prepared weights to use."""
        for name, x in self.prepared.pop(header["number"]).items():
            p = self.params[name]
            if self.device.type == "cuda":
                p.data.copy_(x, non_blocking=True)
            else:
                p.data = x.view_as(p)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return {}

    # Sequences.

    @torch.no_grad()
    def extend(self, header, bufs):
        """Appends tokens to sequences and samples where asked."""
        for move in header["moves"]:
            if len(move) == 1:
                self.cache.drop(*move)
            else:
                self.cache.share(*move)
        items, at = [], 0
        columns = [bufs[k].tolist() for k in ("slots", "starts", "counts", "sample", "temperature", "u", "top")]
        for slot, start, count, sample, temperature, u, top in zip(*columns):
            items.append(Item(slot, start, bufs["tokens"][at : at + count], bool(sample), temperature, u, top))
            at += count
        n = len(items)
        drawn = [(-1, 0.0, 1, None)] * n
        if self.options["deterministic"]:
            for i, item in enumerate(items):
                for k in range(item.count):
                    last = k == item.count - 1
                    one = Item(item.slot, item.start + k, item.tokens[k : k + 1], item.sample and last, item.temperature, item.u, item.top)
                    result = self._run([one])[0]
                drawn[i] = result
        else:
            drawn = self._run(items)
        tops = [d[3] for d in drawn if d[3] is not None]
        return [
            ("tokens", torch.tensor([d[0] for d in drawn], dtype=torch.int32)),
            ("logprobs", torch.tensor([d[1] for d in drawn], dtype=torch.float32)),
            ("finite", torch.tensor([d[2] for d in drawn], dtype=torch.uint8)),
            ("top_tokens", torch.cat([t[0] for t in tops]).int() if tops else torch.empty(0, dtype=torch.int32)),
            ("top_logprobs", torch.cat([t[1] for t in tops]) if tops else torch.empty(0)),
        ]

    def _run(self, items):
        """Runs one batch and returns, for each item, a token, its log-probability, whether its logits are finite, and the most
        likely tokens where asked."""
        step = Step(self.cache, items, self.device)
        cos, sin = self.policy.rotary.at(step.positions, step.longest)
        tokens = torch.cat([i.tokens for i in items]).to(self.device).long()
        x = F.embedding(tokens, self.policy.model.embed_tokens.weight).to(self.dtype)
        for layer, block in enumerate(self.policy.model.layers):
            x = block(x, cos, sin, step.attention(layer))
            self.progress.tick()
        out = [(-1, 0.0, 1, None)] * len(items)
        rows, asked, at = [], [], 0
        for i, item in enumerate(items):
            at += item.count
            if item.sample:
                rows.append(at - 1)
                asked.append(i)
        if not rows:
            return out
        hidden = self.policy.model.norm(x[torch.tensor(rows, device=self.device)])
        logits = (hidden @ self.policy.head().t()).float()
        for i, result in zip(asked, draw(logits, [items[i] for i in asked])):
            out[i] = result
        return out


def running_sums(weights):
    """The sums of each row up to each entry. PyTorch has no deterministic ones on a GPU: there they are made on the processor, where
    only those will do."""
    if weights.is_cuda and torch.are_deterministic_algorithms_enabled():
        return weights.cpu().cumsum(1).to(weights.device)
    return weights.cumsum(1)


def draw(logits, items):
    """Draws a token of each row: by inverse cumulative distribution of the full softmax at the temperature, or the most likely
    where that is 0, whose log-probability is then of temperature 1."""
    device = logits.device
    temperature = torch.tensor([i.temperature if i.temperature > 0 else 1.0 for i in items], device=device)
    u = torch.tensor([i.u for i in items], dtype=torch.float64, device=device)
    greedy = torch.tensor([i.temperature == 0 for i in items], device=device)
    finite = torch.isfinite(logits).all(1)
    most, first = logits.max(1)
    x = (logits - most[:, None]) / temperature[:, None]
    logprobs = x - x.logsumexp(1, keepdim=True)
    weights = logprobs.exp()
    sums = running_sums(weights.double())
    token = torch.searchsorted(sums, (u * sums[:, -1])[:, None], right=True)[:, 0].clamp_(max=logits.shape[1] - 1)
    # Rounding may point at a token that cannot be.
    token = torch.where(greedy | (weights.gather(1, token[:, None])[:, 0] == 0), first, token)
    chosen = logprobs.gather(1, token[:, None])[:, 0]
    token, chosen, ok = token.tolist(), chosen.tolist(), finite.tolist()
    out = []
    for r, item in enumerate(items):
        if not ok[r]:
            out.append((-1, 0.0, 0, None))
            continue
        top = None
        if item.top:
            order = torch.sort(logprobs[r], descending=True, stable=True)
            top = order.indices[: item.top].cpu(), order.values[: item.top].cpu()
        out.append((token[r], chosen[r], 1, top))
    return out
