"""Weights in float32, and the copies of them, in the products' type, that the model runs on."""

import torch


class Store:
    """The float32 weights of a model whose own parameters are copies. A model's parameter may be several weights that lie one below the
    other, so that a product reads them all; its gradient, its float32 weights and its moments lie in the same way."""

    def __init__(self, policy):
        self.leaves = dict(policy.named_parameters())
        # What the model keeps in float32 is its own copy.
        self.masters = {
            leaf: p.data if p.dtype == torch.float32 else torch.zeros(p.shape, dtype=torch.float32, device=p.device)
            for leaf, p in self.leaves.items()
        }
        self.at = {}  # of a weight's name: its leaf and its rows there
        for leaf in self.leaves:
            lo = 0
            for name, rows in policy.weights_of(leaf):
                self.at[name] = (leaf, lo, lo + rows)
                lo += rows
        self.params = {name: self.rows(self.masters[leaf], name) for name, (leaf, _, _) in self.at.items()}
        self.first, self.total, self.stale = {}, {}, False
        policy.sums = self.sums

    def rows(self, x, name):
        """A weight's rows of a tensor that lies as its leaf does; rows of all leading dimensions."""
        _, lo, hi = self.at[name]
        return (x.view(-1, x.shape[-1]) if x.dim() > 2 else x)[lo:hi]

    def copies(self):
        """The leaves that are copies, by name."""
        return {leaf: p for leaf, p in self.leaves.items() if p.dtype != torch.float32}

    @torch.no_grad()
    def refresh(self):
        """Makes the copies again, where weights were written since."""
        if self.stale:
            for leaf, p in self.copies().items():
                p.copy_(self.masters[leaf])
            self.stale = False

    # Gradients. A pass leaves those of the copies in the products' type. The first pass's stay so; with a second they become float32 sums.

    def sums(self, leaf):
        """The float32 sum of a leaf's gradients, to which whoever asks adds."""
        if leaf not in self.total:
            held = self.first.pop(leaf, None)
            self.total[leaf] = torch.zeros_like(self.masters[leaf]) if held is None else held.float()
        return self.total[leaf]

    def collect(self):
        """Adds the gradients that a pass has left."""
        for leaf, p in self.leaves.items():
            g, p.grad = p.grad, None
            if g is None:
                continue
            if leaf in self.total or leaf in self.first:
                self.sums(leaf).add_(g)
            else:
                (self.total if g.dtype == torch.float32 else self.first)[leaf] = g

    def gradients(self, wide):
        """The gradient of every leaf: float32 where wide says so, or else of either type."""
        if wide:
            return {leaf: self.sums(leaf) for leaf in self.leaves}
        return {leaf: self.first[leaf] if leaf in self.first else self.sums(leaf) for leaf in self.leaves}

    def clear(self):
        self.first, self.total = {}, {}
        for p in self.leaves.values():
            p.grad = None


class Embed(torch.autograd.Function):
    """Rows of a matrix, whose gradient is added to a float32 sum beside the graph."""

    @staticmethod
    def forward(ctx, weight, tokens, total):
        ctx.total = total
        ctx.save_for_backward(tokens)
        return torch.nn.functional.embedding(tokens, weight)

    @staticmethod
    def backward(ctx, g):
        (tokens,) = ctx.saved_tensors
        ctx.total().index_add_(0, tokens, g.float())
        return None, None, None


class Pick(torch.autograd.Function):
    """Some rows, none of them twice."""

    @staticmethod
    def forward(ctx, x, rows):
        ctx.save_for_backward(rows)
        ctx.shape = x.shape
        return x[rows]

    @staticmethod
    def backward(ctx, g):
        (rows,) = ctx.saved_tensors
        return g.new_zeros(ctx.shape).index_copy_(0, rows, g), None
