"""A small task of lm-evaluation-harness over KvlabCaches: with the full f32 cache its scores are those of transformers' own
attention, and a spec that evicts has others.

PyTorch, transformers and lm-eval take gigabytes, so `./kvlab test` does not install them, but `.ci/full` does: harness/python/README.md has the command.
"""

import json
import math
import random

import pytest

for package in ("torch", "transformers", "lm_eval"):
    pytest.importorskip(package, reason=f"no PyTorch and transformers here: No module named {package}")

import torch  # noqa: E402
import transformers  # noqa: E402
from kvlab.lm_eval import KvlabLM, main  # noqa: E402
from lm_eval import simple_evaluate  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

WORDS = ["<end>", *(f"w{i}" for i in range(96))]


@pytest.fixture(scope="module")
def tokenizer():
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<end>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<end>")


def model(attention):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.2, pad_token_id=0, bos_token_id=0, eos_token_id=0)  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Twelve questions of forty words with two answers each, scored; and the same questions to be answered."""
    folder = tmp_path_factory.mktemp("tasks")
    chosen = random.Random(7)
    words = lambda n: " ".join(chosen.choices(WORDS[1:], k=n))  # noqa: E731
    questions = [{"question": words(40), "answers": [words(3), words(2)], "gold": i % 2} for i in range(12)]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(folder / "questions.jsonl")}},
            "test_split": "test", "doc_to_text": "{{question}}"}  # fmt: skip
    scored = {**data, "task": "kvlab_scored", "output_type": "multiple_choice", "doc_to_choice": "{{answers}}", "doc_to_target": "{{gold}}"}
    written = {**data, "task": "kvlab_written", "output_type": "generate_until", "doc_to_target": "{{answers[0]}}",
               "generation_kwargs": {"until": ["<end>"], "max_gen_toks": 8}, "metric_list": [{"metric": "exact_match"}]}  # fmt: skip
    return [scored, written]


def samples(language_model, tasks):
    """What it says of each question: the log-likelihoods of the answers, and the words that it writes."""
    run = simple_evaluate(language_model, tasks=tasks, task_manager=TaskManager(include_defaults=False), bootstrap_iters=0, log_samples=True)
    said = {task: [s["resps"] for s in sorted(rows, key=lambda s: s["doc_id"])] for task, rows in run["samples"].items()}
    scores = [float(answer[0][0]) for answers in said["kvlab_scored"] for answer in answers]
    assert len(scores) == 24 and all(math.isfinite(s) and s < 0 for s in scores)
    return scores, said["kvlab_written"]


def test_a_task_has_the_scores_of_transformers_own_attention(tokenizer, tasks):
    own = samples(HFLM(pretrained=model("eager"), tokenizer=tokenizer, batch_size=1), tasks)
    ours = samples(KvlabLM(model("kvlab"), tokenizer), tasks)
    assert ours[0] == pytest.approx(own[0], rel=1e-4)
    assert ours[1] == own[1]
    evicting = samples(KvlabLM(model("kvlab"), tokenizer, "contiguous/f32/ring(window=8,sinks=2)"), tasks)
    assert max(abs(a - b) for a, b in zip(evicting[0], own[0])) > 0.1


def test_the_command_prints_a_table_for_each_spec(tokenizer, tasks, tmp_path, capsys):
    model("kvlab").save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    for task in tasks:
        (tmp_path / f"{task['task']}.yaml").write_text(json.dumps(task))  # YAML's flow style
    specs = ["contiguous", "contiguous/f16"]
    main([str(tmp_path / "model"), *specs, "--tasks", "kvlab_scored,kvlab_written", "--limit", "4", "--include", str(tmp_path)])
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if line in specs] == specs
    assert said.count("kvlab_scored") == said.count("kvlab_written") == 2 and said.count("exact_match") == 2


def test_another_attention_is_refused(tokenizer):
    with pytest.raises(ValueError, match='the attention "eager": model.set_attn_implementation'):
        KvlabLM(model("eager"), tokenizer)
