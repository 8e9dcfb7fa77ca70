"""Log-probabilities of one sequence by Transformers and PEFT: of a plain folder, of it with an adapter, of a merged folder. PEFT's own merge is saved by
Transformers. Argument: a JSON file with base, adapter, merged, saved and tokens."""

import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

question = json.load(open(sys.argv[1]))
tokens = torch.tensor([question["tokens"]])


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@torch.no_grad()
def logprobs(model):
    rows = torch.log_softmax(model(tokens).logits[0].double(), -1)
    return [rows[i, t].item() for i, t in enumerate(question["tokens"][1:])]


out = {"base": logprobs(load(question["base"])), "merged": logprobs(load(question["merged"]))}
adapted = PeftModel.from_pretrained(load(question["base"]), question["adapter"]).eval()
out["adapter"] = logprobs(adapted)
adapted.merge_and_unload().save_pretrained(question["saved"])
out["saved"] = question["saved"]
json.dump(out, sys.stdout)
