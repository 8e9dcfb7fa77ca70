"""Decoders of families that Weir's own model is not: Transformers builds the module from config.json, and it is trained as Weir's own is."""

import bisect
import os
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from weir_weights import Pick

# The major version of Transformers that Weir is tested with.
TRIED = 5

INSTALL = f"pip install 'transformers>={TRIED},<{TRIED + 1}'"


def library(options, kind):
    """Transformers, which fetches nothing and runs no code of a folder's."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers
        from transformers import AutoModelForCausalLM  # noqa: F401
        from transformers.core_model_loading import revert_weight_conversion  # noqa: F401
    except Exception as e:  # an import may fail in any way
        version = f" of PyTorch {torch.__version__}" if torch.__version__.startswith("1.") else ""
        raise ValueError(
            f"model.folder: a {kind} model is built by Transformers, which {sys.executable}{version} lacks ({type(e).__name__}: {e}): "
            f"{INSTALL} there, beside PyTorch 2, or name another Python with torch.python"
        ) from None
    if transformers.__version__.split(".")[0] != str(TRIED) and not options.get("any_version"):
        raise ValueError(
            f"torch.python: {sys.executable} has Transformers {transformers.__version__}: Weir is tested with {TRIED}.x: {INSTALL}, or set torch.any_version to try"
        )
    return transformers


def implementation(options, config):
    """What torch.attention is in Transformers' words; nothing leaves the choice to it."""
    name = options["attention"]
    if name == "varlen":
        raise ValueError("torch.attention: varlen: a model of Transformers has sdpa and plain alone: set it to auto")
    if name == "sdpa" and config.get("attn_logit_softcapping") is not None:
        raise ValueError("torch.attention: sdpa: it leaves out the model's attn_logit_softcapping: set it to auto")
    if name == "plain" or options["deterministic"]:
        return {"attn_implementation": "eager"}
    return {"attn_implementation": "sdpa"} if name == "sdpa" else {}


def build(shape, options, compute, device):
    """The module of a folder's config.json, with weights of zero in the type compute."""
    # How attention and experts are computed is torch.attention's to say, and not the folder's: a name there may ask for code from elsewhere.
    chosen = {prefix + key for prefix in ("", "_") for key in ("attn_implementation", "experts_implementation")}
    config = {k: v for k, v in shape["transformers"]["config"].items() if k not in chosen}
    kind = config["model_type"]
    transformers = library(options, kind)
    from transformers.initialization import no_init_weights

    try:
        made = transformers.CONFIG_MAPPING[kind].from_dict(dict(config))
    except KeyError:
        raise ValueError(
            f"model.folder: model_type is {kind!r}, which Transformers {transformers.__version__} does not have: install a newer one"
        ) from None
    try:
        with torch.device(device), no_init_weights():
            net = transformers.AutoModelForCausalLM.from_config(made, dtype=compute, trust_remote_code=False, **implementation(options, config))
    except (ValueError, ImportError) as e:
        raise ValueError(f"model.folder: Transformers {transformers.__version__} builds no {kind} decoder of its config.json: {first_line(e)}") from None
    if not isinstance(net._modules.get(net.base_model_prefix), nn.Module):
        raise ValueError(f"model.folder: {type(net).__name__} has no {net.base_model_prefix!r} below its head: Weir does not know where its hidden states are")
    net.tie_weights()
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    if options["deterministic"] and hasattr(net, "set_experts_implementation"):
        net.set_experts_implementation("eager")
    return net.eval()


def first_line(e):
    return (str(e).strip().splitlines() or ["no reason"])[0][:300]


def places(net, tensors):
    """Where the tensors of a folder's files lie in a module's parameters: of each parameter's name, the files' names and numbers of rows, from
    its first row on. Rows are those of all leading dimensions. Transformers itself says how it names and cuts its parameters in files: it is
    given parameters that hold the numbers of their rows."""
    leaves = dict(net.named_parameters())
    begins, order, numbers, at = [], [], {}, 0
    for leaf, p in leaves.items():
        shape = [*p.shape[:-1], 1] if p.dim() > 1 else list(p.shape)
        count = torch.Size(shape).numel()
        begins.append(at)
        order.append(leaf)
        numbers[leaf] = torch.arange(at, at + count).view(shape)
        at += count
    if set(numbers) != set(tensors):
        from transformers.core_model_loading import revert_weight_conversion

        numbers = revert_weight_conversion(net, numbers)
    faults, out = [f"tensor {name} is missing" for name in numbers if name not in tensors], {}
    faults += [f"tensor {name} is no parameter of the module" for name in tensors if name not in numbers]
    for name, rows in numbers.items():
        if name not in tensors:
            continue
        flat = rows.reshape(-1)
        k = bisect.bisect_right(begins, int(flat[0])) - 1
        p = leaves[order[k]]
        stored = [*rows.shape[:-1], p.shape[-1]] if p.dim() > 1 else list(rows.shape)
        if stored != list(tensors[name]):
            faults.append(f"tensor {name} has shape {list(tensors[name])}, the module's has {stored}")
        elif not torch.equal(flat, torch.arange(int(flat[0]), int(flat[0]) + flat.numel())):
            faults.append(f"tensor {name} lies in the module's {order[k]} in another order than in the file")
        else:
            out.setdefault(order[k], []).append((int(flat[0]) - begins[k], name, flat.numel()))
    if faults:
        raise ValueError(f"model.folder: {type(net).__name__} is not the model of its files: {'; '.join(faults[:8])}" + more(len(faults) - 8))
    return {leaf: [(name, count) for _, name, count in sorted(found)] for leaf, found in out.items()}


def more(n):
    return f"; and {n} more" if n > 0 else ""


class HiddenStates(nn.Module):
    """Hidden states in the place of the layers that compute them."""

    def __init__(self, hidden):
        super().__init__()
        self.hidden = hidden

    def forward(self, *_, **__):
        from transformers.modeling_outputs import MoeModelOutputWithPast

        out = MoeModelOutputWithPast(last_hidden_state=self.hidden)
        out.cross_attentions = out.cache_params = None  # which some heads hand on
        return out


class Measure(torch.autograd.Function):
    """Of rows of logits, divided by temperature: log-probabilities of targets, entropies and sums of squares, as the own model's head has
    them."""

    @staticmethod
    def forward(ctx, logits, targets, temperature, ways):
        logprobs, entropies, squares, logz = ways.measure(logits, temperature, targets)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(squares)
        ctx.save_for_backward(logits, targets, temperature, logz, entropies)
        ctx.ways = ways
        return logprobs, entropies, squares

    @staticmethod
    def backward(ctx, g_logprobs, g_entropies, _):
        logits, targets, temperature, logz, entropies = ctx.saved_tensors
        g_logprobs, g_entropies = (torch.zeros_like(logz) if g is None else g for g in (g_logprobs, g_entropies))
        return ctx.ways.slope(logits.clone(), temperature, targets, logz, entropies, g_logprobs, g_entropies), None, None, None


class Family:
    """A module of Transformers with the calls of the own model. Its parameters are copies of weights that are kept in float32, or these
    themselves where products are in float32."""

    copied = True

    def __init__(self, shape, options, compute, device, ways=None, tick=lambda: None):
        self.net = build(shape, options, compute, device)
        self.at = places(self.net, shape["transformers"]["tensors"])
        self.ways, self.tick = ways, tick
        self.attention = self.net.config._attn_implementation
        self.device = device
        if options["recompute"]:  # which Transformers does for models in training; what it would drop is 0
            self.net.train()
            if hasattr(self.net, "activation_checkpointing_enable"):
                self.net.activation_checkpointing_enable()
            else:
                self.net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            from transformers.modeling_layers import GradientCheckpointingLayer

            for m in self.net.modules():  # nothing else is in training: it would drop numbers or add noise
                m.training = isinstance(m, GradientCheckpointingLayer)
        try:
            with torch.no_grad():
                self.logits(torch.zeros(1, shape["hidden"], dtype=compute, device=device))
        except Exception as e:  # a head may ask for anything
            raise ValueError(
                f"model.folder: {type(self.net).__name__} computes logits from more than hidden states, and is not trained here ({first_line(e)})"
            ) from None

    def named_parameters(self):
        return self.net.named_parameters()

    def weights_of(self, leaf):
        return self.at[leaf]

    def trunk(self):
        return self.net._modules[self.net.base_model_prefix]

    def logits(self, hidden):
        """The logits of rows of hidden states, with whatever the family does to them: its own forward, given the hidden states."""
        name, trunk = self.net.base_model_prefix, self.trunk()
        self.net._modules[name] = HiddenStates(hidden[None])
        try:
            return self.net(use_cache=False).logits[0]
        finally:
            self.net._modules[name] = trunk

    def _hidden(self, tokens, lengths):
        """Normalized hidden states of sequences that are padded to the longest of their batch, and where each packed token's are."""
        starts, at = [], 0
        for n in lengths:
            starts.append(at)
            at += n
        positions, flat, base = torch.empty(at, dtype=torch.int64), [], 0
        for batch in batches(lengths):
            longest = lengths[batch[0]]
            # Later tokens are not attended to: what fills a row up changes nothing before it.
            ids = tokens.new_zeros(len(batch), longest)
            for row, s in enumerate(batch):
                n, lo = lengths[s], starts[s]
                ids[row, :n] = tokens[lo : lo + n]
                positions[lo : lo + n] = torch.arange(n) + base + row * longest
            out = self.trunk()(input_ids=ids, use_cache=False).last_hidden_state
            flat.append(out.reshape(len(batch) * longest, -1))
            base += len(batch) * longest
            self.tick()
        return torch.cat(flat), positions.to(tokens.device)

    def __call__(self, tokens, lengths, rows, targets, temperature, logits):
        """As the own model: log-probabilities, entropies and sums of squares of targets after rows, or nothing without logits, and the
        normalized hidden states at rows."""
        flat, positions = self._hidden(tokens, lengths)
        hidden = Pick.apply(flat, positions[rows]) if rows.numel() else flat[:0]
        if not logits:
            return (), hidden
        return self._measure(hidden, targets, temperature), hidden

    def _measure(self, hidden, targets, temperature):
        def chunk(h, y, t):
            return Measure.apply(self.logits(h), y, t, self.ways)

        from weir_head import chunks

        out = []
        for lo, hi in chunks(hidden.shape[0], self.net.config.vocab_size, self.ways):
            parts = hidden[lo:hi], targets[lo:hi], temperature[lo:hi]
            if torch.is_grad_enabled():  # logits are the largest numbers of all, and are computed again
                out.append(checkpoint(chunk, *parts, use_reentrant=False, preserve_rng_state=False))
            else:
                out.append(chunk(*parts))
            self.tick()
        if not out:  # the graph stays whole
            nothing = hidden.float().sum(1)
            return nothing, nothing.clone(), nothing.detach()
        return tuple(torch.cat(x) for x in zip(*out))


def batches(lengths):
    """Lists of sequences of similar length, each beginning with its longest: at most a quarter of a row is filled up."""
    out = []
    for s in sorted(range(len(lengths)), key=lambda s: -lengths[s]):
        if out and 4 * lengths[s] >= 3 * lengths[out[-1][0]]:
            out[-1].append(s)
        else:
            out.append([s])
    return out
