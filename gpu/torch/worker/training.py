"""A rank's part of the engine: the model, its gradient and its optimizer."""

import math
import os
import threading

import torch
import torch.distributed as dist
import weir_attention
import weir_folders
import weir_head
import weir_ranks
from weir_family import Family
from weir_model import Policy
from weir_optimizer import Optimizer
from weir_weights import Store

VALUE_HEAD = "value_head.weight"


def wire(name):
    """A parameter's name as files have it: adapters' are PEFT's."""
    return f"base_model.model.{name}.weight" if name.endswith((".lora_A", ".lora_B")) else name


class Trainer:
    def __init__(self, hello, device, channel, progress):
        self.shape, self.options = hello["shape"], hello["options"]
        self.device, self.channel, self.progress = device, channel, progress
        self.rank, self.world = hello["rank"], hello["world"]
        self.compute = weir_ranks.dtype_of(self.options["dtype"], device)
        self.stored = torch.float32 if self.options["masters"] else self.compute
        self.ways, self.ways_passed = weir_head.choose(self.options, self.shape, self.compute, device)
        if self.shape.get("transformers"):
            self._take_family(device)
        else:
            self._take_own(device)
        # The model runs on copies of the weights where these are kept in another type than that of the products.
        self.store = Store(self.policy) if self.policy.copied else None
        if self.store is None:
            self.params = {wire(name): p for name, p in self.policy.named_parameters()}
            self.trained = {name: p for name, p in self.params.items() if p.requires_grad}
        else:
            self.params = self.trained = self.store.params
        self.value = None
        if self.shape["value_head"]:
            self.value = torch.zeros(1, self.shape["hidden"], dtype=torch.float32, device=device)
        self.value_grad = None if self.value is None else torch.zeros_like(self.value)
        self.optimizer = Optimizer(
            device, next(iter(self.trained.values())).dtype, None if self.store is None else self.compute, self.ways.name == "fused"
        )
        self.kept = []

    def _take_own(self, device):
        """Makes Weir's own model."""
        self.name, attention, self.passed = weir_attention.choose(self.options["attention"], self.shape, self.compute, device)
        if self.options["compile"] == "auto":
            self.options = dict(self.options, compile=weir_ranks.compiles(self.options, self.ways.name, self.world))
        self.policy, self.sharded = weir_ranks.build(self._make(attention), self.options, self.world, self.compute, device)

    def _take_family(self, device):
        """Has Transformers make the model, whole on every rank."""
        if self.stored != torch.float32:
            raise ValueError("torch.masters: false: weights of a model of Transformers are kept in float32: set it to true")
        self.options = dict(self.options, compile="never")
        self.policy, self.sharded = Family(self.shape, self.options, self.compute, device, self.ways, self.progress.tick), False
        self.name, self.passed = f"{self.policy.attention} of Transformers", []

    def _make(self, attention):
        def make(where, whole):
            # Adapters lie beside weights of the names that they have in files, and bits that do not depend on a row's company are those of
            # each product by itself.
            copied = whole and self.stored != self.compute and not self.shape.get("lora") and not self.options["deterministic"]
            return Policy(
                dict(self.shape, joined=copied), self.compute, attention, self.options["recompute"], self.progress.tick, self.ways, copied,
                device=where, dtype=self.compute if copied else self.stored,
            )  # fmt: skip

        return make

    def describe(self):
        others = {"the fused optimizer": self.optimizer.passed, "the fused head": self.ways_passed}
        passed = self.passed + [f"{what}: {why}" for what, why in others.items() if why]
        return {
            "attention": self.name, "passed_over": passed, "optimizer": self.optimizer.name, "head": self.ways.name,
            "compile": self.options["compile"], "sharded": self.sharded,
            "device_name": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu",
        }  # fmt: skip

    # Forward and backward.

    def forward(self, header, bufs):
        """Runs a part. With keep its graph is held for backward."""
        self.kept = []
        if self.store is not None:
            self.store.refresh()
        keep, logits = header["keep"], not header["values_only"]
        tokens, mask = bufs["tokens"], bufs["mask"]
        bounds, temps = bufs["offsets"].tolist(), bufs["temperature"]
        n = tokens.numel()
        outputs = {k: torch.zeros(n) for k in (("logprobs", "entropies", "squares") if logits else ())}
        if self.value is not None:
            outputs["values"] = torch.zeros(n)
        spans = [(lo, hi, s) for s, (lo, hi) in enumerate(zip(bounds, bounds[1:])) if hi > lo]
        groups = [[x] for x in spans] if self.options["deterministic"] else [spans]
        if self.sharded:  # each run of the model is a row of gathers, in which every rank has to have its part
            groups += [[]] * (header["groups"] - len(groups))
        for group in groups:
            self._pack(group, tokens, mask, temps, outputs, keep, logits)
        if not keep:
            self._let_go()
        return [(k, v) for k, v in outputs.items()]

    def _pack(self, spans, tokens, mask, temps, outputs, keep, logits):
        chosen, rows, temperature, lengths, at, pieces = [], [], [], [], 0, []
        for lo, hi, s in spans:
            picked = mask[lo + 1 : hi].nonzero()[:, 0]
            rows.append(picked + at)
            chosen.append(picked + lo + 1)
            temperature.append(temps[s].expand(len(picked)))
            lengths.append(hi - lo)
            pieces.append(tokens[lo:hi])
            at += hi - lo
        if not spans:  # a part of no tokens takes its turn like any other
            pieces, lengths = [torch.zeros(1, dtype=torch.int32)], [1]
            chosen = rows = [torch.zeros(0, dtype=torch.int64)]
            temperature = [torch.ones(0)]
        extra = -sum(lengths) % 1024 if self.options["compile"] == "always" else 0
        if extra:  # as few shapes as may be
            pieces.append(torch.zeros(extra, dtype=torch.int32))
            lengths.append(extra)
        chosen, rows = torch.cat(chosen), torch.cat(rows)
        inputs = torch.cat(pieces).to(self.device).long()
        targets = tokens[chosen].to(self.device).long()
        with torch.set_grad_enabled(keep):
            out, hidden = self.policy(
                inputs, lengths, rows.to(self.device), targets, torch.cat(temperature).to(self.device), logits
            )
        if out:  # one wait for all of them
            for name, x in zip(("logprobs", "entropies", "squares"), torch.stack([x.detach().float() for x in out]).cpu()):
                outputs[name][chosen] = x
        if self.value is not None:
            # Row by row, so that a row does not depend on its company.
            outputs["values"][chosen] = (hidden.detach().float() * self.value[0]).sum(1).cpu()
        if keep:
            self.kept.append((chosen, out, hidden))

    def backward(self, header, bufs):
        """Adds the gradient of the loss, given its gradient with respect to the outputs of the part that was kept. Absent
        ones are zeros. A cut model's ranks add up what has a gradient on each: a rank that lacks what another one of the round
        has, of header's names, runs back from it with zeros, so that the same parameters are met on all."""
        kept, self.kept = self.kept, []
        values = bufs.get("values")
        for chosen, out, hidden in kept:
            heads, grads = [], []
            for x, name in zip(out, ("logprobs", "entropies")):
                if name in bufs:
                    heads.append(x)
                    grads.append(bufs[name][chosen].to(self.device))
                elif self.sharded and name in header["names"]:
                    heads.append(x)
                    grads.append(torch.zeros_like(x))
            if values is not None:
                up = values[chosen].to(self.device)
                self.value_grad.add_(up[None] @ hidden.detach().float())
                if not header["detached"]:
                    heads.append(hidden)
                    grads.append((up[:, None] * self.value).to(hidden.dtype))
            if heads:
                torch.autograd.backward(heads, grads)
            elif self.sharded:  # other ranks wait for this one
                torch.autograd.backward([hidden], [torch.zeros_like(hidden)])
            if self.store is not None:
                self.store.collect()
        return {}

    def gradients(self):
        """The gathered gradient of every trained weight, by name: this rank's part of it, zeros where there is none."""
        if self.store is not None:
            leaves = self.store.gradients(True)
            return {name: self.store.rows(leaves[leaf], name) for name, (leaf, _, _) in self.store.at.items()}
        for p in self.trained.values():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        return {name: weir_ranks.local(p.grad) for name, p in self.trained.items()}

    def discard(self, header, bufs):
        self.kept = []
        if self.store is not None:
            self.store.clear()
        else:
            for p in self.trained.values():
                p.grad = None
        if self.value is not None:
            self.value_grad.zero_()
        return {}

    # The optimizer.

    def locals(self, params):
        """This rank's part of each of some parameters, by name, in the model's order, and the value head."""
        out = {name: weir_ranks.local(p.data) for name, p in params.items()}
        if self.value is not None:
            out[VALUE_HEAD] = self.value
        return out

    def _let_go(self):
        """Has a cut model let go of what it has gathered and keeps for a backward pass: the next pass gathers the parts as they are."""
        if self.sharded:
            weir_ranks.cut_again(self.policy)

    def step(self, header, bufs):
        self._let_go()
        shapes, store = header["shapes"], self.store
        matrices = {k: len(v) >= 2 for k, v in shapes.items()}
        if store is None:
            grads, params, copies = self.gradients(), self.locals(self.trained), {}
        else:  # several ranks add up in float32
            grads, params, copies = store.gradients(self.world > 1), dict(store.masters), store.copies()
            matrices.update({leaf: matrices[name] for name, (leaf, _, _) in store.at.items()})
        whole = [self.value_grad] if self.value is not None else []
        weir_ranks.add_up(whole + ([] if self.sharded else list(grads.values())), self.world, self.progress.tick)
        norm = weir_ranks.norm(list(grads.values()), whole, self.sharded, self.device)
        if self.value is not None:
            grads[VALUE_HEAD], params[VALUE_HEAD] = self.value_grad, self.value
        options = dict(header["options"], matrices=matrices)
        taken = self.optimizer.step(params, grads, norm, options, self.progress.tick, copies)
        self.discard({}, {})
        return {"norm": norm if math.isfinite(norm) else None, "skipped": not taken}

    def reset(self, header, bufs):
        self.optimizer.reset()
        return {}

    # Folders.

    def load(self, header, bufs):
        """Replaces the weights that are named, or all moments, by those of files."""
        self._let_go()
        files = weir_folders.Files(header["dir"], header["files"])
        moments = header["moments"]
        if moments:
            self.optimizer.reset()
        for name, p in self.locals(self.trained if moments else self.params).items():
            if name not in header["shapes"]:
                continue
            targets = [(name, p)] if not moments else list(zip((name + ".m", name + ".v"), self._moments(name)))
            for stored, to in targets:
                if stored in header["zeros"]:
                    to.zero_()
                    continue
                share = (self.rank, self.world) if self._cut(name) else (0, 1)
                to.copy_(files.read(stored, share, header["shapes"][name]).view_as(to))
            self.progress.tick()
        if moments:
            self.optimizer.steps = header["steps"]
        else:
            self.rewritten()
            self.discard({}, {})
        return {}

    def rewritten(self):
        """The weights in self.params were written to."""
        if self.store is not None:
            self.store.stale = True

    def _moments(self, name):
        """This rank's part of a weight's two moments."""
        if self.store is None or name == VALUE_HEAD:
            return self.optimizer.of(name, self.locals(self.trained)[name])
        leaf = self.store.at[name][0]
        return [self.store.rows(x, name) for x in self.optimizer.of(leaf, self.store.masters[leaf])]

    def save(self, header, bufs):
        """Copies what is to be written, answers, and writes in a thread, which answers again. File i is written by rank i modulo
        their number."""
        mine, heads, at, ferry = [], bufs["heads"], 0, weir_folders.ferry(self.device)
        for i, file in enumerate(header["files"]):
            head = bytes(heads[at : at + file["head"]].tolist())
            at += file["head"]
            owner, numbers = i % self.world == self.rank, []
            for name in file["tensors"]:
                whole = self._whole(name, file["merged"])
                if owner:
                    numbers.append(ferry.carry(whole.to(weir_folders.TYPES[file["dtype"]])))
                self.progress.tick()
            if owner:
                mine.append(({"name": file["name"], "head": head}, numbers))
        ferry.finish()
        number, folder = header["id"], header["dir"]

        def write():
            answer = {"id": number, "written": True}
            try:
                weir_folders.write(folder, [f for f, _ in mine], [n for _, n in mine])
            except OSError as e:
                answer["error"] = {"kind": "io", "message": str(e)}
            except Exception as e:  # the thread has nobody else to tell
                answer["error"] = {"kind": "internal", "message": f"{type(e).__name__}: {e}"}
            self.channel.send(answer)

        # The answer goes out before the thread's.
        return {"steps": self.optimizer.steps, "after": threading.Thread(target=write, daemon=True).start}

    def _whole(self, name, merged):
        """A tensor of the model or a moment, put together from all ranks; with its adapter added where merged says so."""
        for suffix, i in ((".m", 0), (".v", 1)):
            if name.endswith(suffix):
                base = name[: -len(suffix)]
                x = self._moments(base)[i]
                return weir_ranks.gather(x, self.params[base], self.world) if self._cut(base) else x
        if name == VALUE_HEAD:
            return self.value
        p = self.params[name].data
        whole = p.full_tensor() if self._cut(name) else p
        module = name.removesuffix(".weight")
        if not merged or wire(module + ".lora_A") not in self.params:
            return whole
        a, b = (self._whole(wire(module + x), False) for x in (".lora_A", ".lora_B"))
        return whole.float().addmm(b.float() * self.shape["lora"]["scale"], a.float())

    def _cut(self, name):
        return self.sharded and name != VALUE_HEAD

    def memory(self, header, bufs):
        if self.device.type != "cuda":
            return {"peak": 0, "reserved": 0}
        peak = torch.cuda.max_memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return {"peak": peak, "reserved": torch.cuda.memory_reserved(self.device)}

    def barrier(self, header, bufs):
        if self.world > 1:
            dist.barrier()
        return {"pid": os.getpid()}
