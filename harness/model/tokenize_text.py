#!/usr/bin/env python3
"""Makes the token ids that kvlab reads (.npy) from a text, with a Hugging Face tokenizer.

    python3 -m pip install tokenizers numpy
    python3 harness/model/tokenize_text.py MODEL_FOLDER/tokenizer.json book.txt book.npy
    ./kvlab run configs/quality.toml --model MODEL_FOLDER --text book.npy
"""
from __future__ import annotations

import argparse
from pathlib import Path

import numpy
from tokenizers import Tokenizer


def token_ids(tokenizer: Tokenizer, text: str) -> numpy.ndarray:
    """The ids of the whole text as u32, with the special tokens that the tokenizer puts around it."""
    return numpy.array(tokenizer.encode(text).ids, dtype="<u4")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tokenizer", type=Path, help="the model's tokenizer.json")
    arguments.add_argument("text", type=Path, help="UTF-8 text")
    arguments.add_argument("out", type=Path, help="where the ids go, NAME.npy")
    options = arguments.parse_args()
    if options.out.suffix != ".npy":
        arguments.error(f"{options.out}: expected a name that ends in .npy")
    try:
        tokenizer = Tokenizer.from_file(str(options.tokenizer))
    except Exception as error:  # the library has no type of its own; its message has line and column
        arguments.error(f"{options.tokenizer}: {error}")
    ids = token_ids(tokenizer, options.text.read_text(encoding="utf-8"))
    numpy.save(options.out, ids)
    print(f"{options.out}: {len(ids)} tokens, largest id {ids.max() if len(ids) else 0}")


if __name__ == "__main__":
    main()
