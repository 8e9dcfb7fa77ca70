"""Ids of the texts of a folder's texts.json by the library tokenizers and the folder's tokenizer.json, and the texts that it makes of these ids, as JSON."""

import json
import sys

from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in json.load(open(sys.argv[1] + "/texts.json"))]
json.dump({"ids": ids, "texts": [tokenizer.decode(row, skip_special_tokens=False) for row in ids]}, sys.stdout)
