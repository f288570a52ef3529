"""What a tokenizer.json, and the tokenizer_config.json beside it, state beyond what the package `tokenizers` does."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from refusal import Refusal
from unread_keys import refuse_unread

_PARTS = "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model".split()


def check_tokenizer(path: Path, tokenizer: Any) -> None:
    """Refuses keys that may change a text's ids and that are not used; the others' reasons are in configs/unread_keys.json."""
    refuse_unread("tokenizer.json", path, _object(path), _PARTS)
    config = path.with_name("tokenizer_config.json")
    if path.name != "tokenizer.json" or not config.exists():
        return
    stated, ids = _object(config), tokenizer.encode("").ids
    refuse_unread("tokenizer_config.json", config, stated, ("add_bos_token", "add_eos_token"))
    for token, found in (("bos_token", ids[:1]), ("eos_token", ids[-1:])):
        name = stated.get(token)
        number = tokenizer.token_to_id(str(name.get("content")) if isinstance(name, dict) else str(name))
        adds = stated.get(f"add_{token}")
        if number is not None and adds in (True, False) and adds != (found == [number]):
            raise Refusal(f"{config}: 'add_{token}' is {json.dumps(adds)}, and {path.name} does the opposite; expected the same in both")


def _object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Refusal(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise Refusal(f"{path} is not a JSON object")
    return content
