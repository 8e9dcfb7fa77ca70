"""Which characters StripAccents takes away and Punctuation splits at, in the library tokenizers: a line of code points for each."""

from tokenizers.normalizers import StripAccents
from tokenizers.pre_tokenizers import Punctuation

strip, punctuation = StripAccents(), Punctuation()
characters = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
print(*(c for c in characters if strip.normalize_str(chr(c)) == ""))
print(*(c for c in characters if len(punctuation.pre_tokenize_str("a" + chr(c) + "a")) > 1))
