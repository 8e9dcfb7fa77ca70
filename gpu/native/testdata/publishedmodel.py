"""Log-probabilities of sequences by Transformers, before and after a step of AdamW on the mean of those of the first sequence. Argument: a JSON file with folder, sequences, rate and epsilon."""

import json
import sys

import torch
from transformers import AutoModelForCausalLM

question = json.load(open(sys.argv[1]))
model = AutoModelForCausalLM.from_pretrained(question["folder"], dtype=torch.float32, attn_implementation="eager").eval()


def logprobs(tokens):
    rows = torch.log_softmax(model(torch.tensor([tokens])).logits[0].double(), -1)
    return rows[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]


def all_of_them():
    with torch.no_grad():
        return [logprobs(tokens).tolist() for tokens in question["sequences"]]


out = {"before": all_of_them()}
optimizer = torch.optim.AdamW(model.parameters(), lr=question["rate"], betas=(0.9, 0.95), eps=question["epsilon"], weight_decay=0)
(-logprobs(question["sequences"][0]).mean()).backward()
out["norm"] = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
optimizer.step()
out["after"] = all_of_them()
json.dump(out, sys.stdout)
