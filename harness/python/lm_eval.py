"""lm-evaluation-harness over kvlab's caches: a task's score with what a spec evicts gone and what it quantises quantised.

    from lm_eval import simple_evaluate
    from kvlab.lm_eval import KvlabLM

    for spec in ["contiguous", "contiguous/q4_0", "contiguous/f32/h2o(heavy=128,recent=128)"]:
        scores = simple_evaluate(KvlabLM(model, tokenizer, spec), tasks=["lambada_openai"], limit=100)["results"]
        print(spec, scores)

The model has the attention "kvlab" (kvlab.transformers). A request is one sequence with a cache of its own. The same as a command:

    python -m kvlab.lm_eval FOLDER contiguous contiguous/q4_0 --tasks ruler,longbench,gsm8k --limit 100
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from lm_eval.utils import make_table
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from kvlab.transformers import NAME, REFERENCE, KvlabCache


class KvlabLM(HFLM):
    """A language model of lm-evaluation-harness, for its simple_evaluate() and evaluate().

    model       with attn_implementation="kvlab"; ValueError for another
    spec        as kvlab.Cache takes it
    max_tokens  the most of a request, prompt and answer together; longer prompts lose their beginning. None: what the model's config says
    how         further arguments of HFLM, but for batch_size: a KvlabCache has no padding

    Answers that are given are scored in one step with their prompt, which retentions take slice by slice; those that are written come
    token by token.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, spec: str = REFERENCE, *, max_tokens: int | None = None, **how: Any
    ) -> None:
        used = model.config._attn_implementation
        if used != NAME:
            raise ValueError(f'the model has the attention "{used}": model.set_attn_implementation("{NAME}")')
        super().__init__(pretrained=model, tokenizer=tokenizer, batch_size=1, max_length=max_tokens, **how)
        self.spec = spec

    def cache(self, tokens: int) -> KvlabCache:
        return KvlabCache(self.spec, max_tokens=tokens)

    def _model_call(self, inps: torch.Tensor, attn_mask: Any = None, labels: Any = None) -> torch.Tensor:
        with torch.no_grad():
            return self.model(inps, past_key_values=self.cache(inps.shape[1]), use_cache=True).logits

    def _model_generate(self, context: torch.Tensor, max_length: int, stop: list[str], **how: Any) -> torch.Tensor:
        return super()._model_generate(context, max_length, stop, past_key_values=self.cache(max_length), **how)


def main(words: list[str] | None = None) -> None:
    """Prints a table of a task's scores for each spec."""
    parser = argparse.ArgumentParser(prog="python -m kvlab.lm_eval", description=main.__doc__)
    parser.add_argument("model", help="a folder that transformers reads")
    parser.add_argument("specs", nargs="+", help="specs of caches")
    parser.add_argument("--tasks", required=True, help="tasks of lm-evaluation-harness, as ruler,longbench,gsm8k")
    parser.add_argument("--limit", type=int, help="questions of a task")
    parser.add_argument("--length", type=int, default=4096, help="tokens of ruler's prompts")
    parser.add_argument("--include", help="a folder of tasks of your own")
    given = parser.parse_args(words)
    model = AutoModelForCausalLM.from_pretrained(given.model, attn_implementation=NAME)
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    tasks = TaskManager(include_path=given.include, metadata={"pretrained": given.model, "max_seq_lengths": [given.length]})
    for spec in given.specs:
        found = simple_evaluate(KvlabLM(model, tokenizer, spec), tasks=given.tasks.split(","), task_manager=tasks, limit=given.limit)
        print(spec, make_table(found), sep="\n")


if __name__ == "__main__":
    main()
