"""A decoder over a module of Transformers: its own attention, over keys and values in Weir's pages."""

import torch
import weir_ranks
from weir_family import Family, first_line
from weir_sampler import Cache, Sampler, draw


class FamilySampler(Sampler):
    def __init__(self, hello, device, channel, progress):
        self.shape, self.options = dict(hello["shape"], value_head=False), dict(hello["options"], recompute=False)
        self.device, self.channel, self.progress = device, channel, progress
        self.dtype = weir_ranks.dtype_of(self.options["dtype"], device)
        self.family = Family(self.shape, self.options, self.dtype, device, tick=progress.tick)
        self.net = self.family.net.requires_grad_(False)
        self.params = {}
        for leaf, p in self.net.named_parameters():
            rows, lo = p.data.view(-1, p.shape[-1]) if p.dim() > 2 else p.data, 0
            for name, count in self.family.weights_of(leaf):
                self.params[name] = rows[lo : lo + count]
                lo += count
        self.cache = Cache(self._widths(), self.dtype, device)
        self.prepared = {}

    @torch.no_grad()
    def _widths(self):
        """The shapes of a token's keys and values in each layer, as the module keeps them."""
        kind = self.shape["transformers"]["config"]["model_type"]
        try:
            held, _ = self._step([[0]], [0], None, [])
            return [(x.keys[0, :, 0].shape, x.values[0, :, 0].shape) for x in held]
        except Exception as e:  # a module may keep anything
            raise ValueError(
                f"model.folder: a {kind} model does not keep the keys and values of each layer alone, and is not sampled here ({first_line(e)}): "
                "name a server with inference.engine"
            ) from None

    def commit(self, header, bufs):
        """Puts prepared weights to use."""
        for name, x in self.prepared.pop(header["number"]).items():
            self.params[name].copy_(x.view_as(self.params[name]), non_blocking=True)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return {}

    def _step(self, tokens, starts, mask, held):
        """Runs tokens [b, n] from their places on after keys and values that are held, of each layer. Returns the layers of the cache, the new
        ones included, and the logits after the last tokens."""
        from transformers import DynamicCache

        ids = torch.tensor(tokens, device=self.device)
        places = torch.tensor(starts, device=self.device)[:, None] + torch.arange(ids.shape[1], device=self.device)[None]
        cache = DynamicCache()
        for layer, (k, v) in enumerate(held):
            cache.update(k, v, layer)
        out = self.net(input_ids=ids, attention_mask=mask, position_ids=places, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return out.past_key_values.layers, out.logits[:, -1].float()

    def _held(self, index):
        """Keys and values of every layer in rows [b, n] of the pool, as a module reads them: [b, heads, n, width]."""
        if not index.shape[1]:
            return []
        return [(k[index].transpose(1, 2), v[index].transpose(1, 2)) for k, v in zip(self.cache.keys, self.cache.values)]

    def _keep(self, layers, fresh, count):
        """Writes the last keys and values of every sequence to their rows of the pool."""
        for i, x in enumerate(layers):
            for pool, new in ((self.cache.keys[i], x.keys), (self.cache.values[i], x.values)):
                new = new[:, :, new.shape[2] - count :].transpose(1, 2)
                pool.index_copy_(0, fresh, new.reshape(-1, *new.shape[2:]))

    def _run(self, items):
        """Runs one batch and returns, for each item, a token, its log-probability, whether its logits are finite, and the most likely tokens
        where asked. Sequences that grow by one token run together, filled up on the left; others each by itself."""
        rows = [self.cache.fit(x.slot, x.start, x.start + x.count) for x in items]
        together = [i for i, x in enumerate(items) if x.count == 1 and x.start]
        logits = {}
        if together:
            longest = max(items[i].start for i in together)
            index = torch.zeros(len(together), longest, dtype=torch.int64, device=self.device)
            mask = torch.zeros(len(together), longest + 1, dtype=torch.int64, device=self.device)
            for row, i in enumerate(together):
                start = items[i].start
                index[row, longest - start :] = rows[i][:start]
                mask[row, longest - start :] = 1
            tokens, starts = [items[i].tokens.tolist() for i in together], [items[i].start for i in together]
            layers, found = self._step(tokens, starts, mask, self._held(index))
            self._keep(layers, torch.stack([rows[i][-1] for i in together]), 1)
            logits.update(zip(together, found))
            self.progress.tick()
        for i, x in enumerate(items):
            if i in logits:
                continue
            layers, found = self._step([x.tokens.tolist()], [x.start], None, self._held(rows[i][None, : x.start]))
            self._keep(layers, rows[i][x.start :], x.count)
            logits[i] = found[0]
            self.progress.tick()
        out = [(-1, 0.0, 1, None)] * len(items)
        asked = [i for i, x in enumerate(items) if x.sample]
        if asked:
            for i, result in zip(asked, draw(torch.stack([logits[i] for i in asked]), [items[i] for i in asked])):
                out[i] = result
        return out
