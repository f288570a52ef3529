// Examples at the end of each command's help. The launcher has those of its own commands.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace kv::cli {

struct Example {
  std::string_view command, line;
};
inline constexpr std::array kExamples{
    Example{"", "./kvlab run configs/quickstart.toml"},
    Example{"", "./kvlab tables --model llama-3.1-8b --budget 16GiB --weights 8.5GB"},
    Example{"", "./kvlab list"},
    Example{"run", "./kvlab run configs/quickstart.toml"},
    Example{"run", "./kvlab run configs/seq_len.toml --dry-run"},
    Example{"run",
            "./kvlab run configs/quickstart.toml --set 'sweep.variants=[\"contiguous/f16\",\"paged/q8_0\"]' "
            "--out my-run"},
    Example{"run", "./kvlab run configs/real.toml --model MODEL.gguf --text TEXT"},
    Example{"eval", "./kvlab eval --example dump.safetensors"},
    Example{"eval", "./kvlab eval dump.safetensors --variants 'contiguous/f16;paged/q8_0' --out my-eval"},
    Example{"merge", "./kvlab merge shards/1 shards/2 --out merged"},
    Example{"sbatch", "./kvlab sbatch configs/quickstart.toml --nodes 4 --out /shared/quickstart"},
    Example{"check-results", "./kvlab check-results results/epyc-2core/quickstart"},
    Example{"summary", "./kvlab summary results/epyc-2core/quickstart --table full"},
    Example{"summary", "./kvlab summary results/epyc-2core/quickstart --json"},
    Example{"compare", "./kvlab compare results/epyc-2core/kernels results/epyc-2core/kernels_again"},
    Example{"compare", "./kvlab compare BEFORE AFTER --fail-if slower:1.05,error:0.01,bytes:0"},
    Example{"list", "./kvlab list"},
    Example{"list", "./kvlab list columns"},
    Example{"list", "./kvlab list --models --json"},
    Example{"reproduce", "./kvlab reproduce --list concat"},
    Example{"reproduce", "./kvlab reproduce 004 --tables --quick"},
    Example{"choose", "./kvlab choose --model smollm2-135m --context 8K --memory 100MiB"},
    Example{
        "choose",
        "./kvlab choose --model MODEL.gguf --text TEXT --context 8K --users 4 --memory 1GiB --max-loss 0.02"},
    Example{"environment", "./kvlab environment"},
    Example{"schema", "./kvlab schema"},
    Example{"sample", "./kvlab sample --model smollm2-135m --prompt 'Once upon a time' --tokens 128"},
    Example{"logits", "./kvlab logits --model smollm2-135m --text TEXT --out logits.safetensors"},
    Example{"calibrate", "./kvlab calibrate smollm2-135m --out smollm2.vq"},
    Example{"tables", "./kvlab tables --model llama-3.1-8b"},
    Example{"tables", "./kvlab tables --model llama-3.1-8b --budget 16GiB --weights 8.5GB --lengths 8K,128K"},
    Example{"plan", "./kvlab plan --model llama-3.1-8b --memory 80GB --context 32K --users 8"},
    Example{"plan", "./kvlab plan --memory 24GB --trace TRACE.csv --device read_gbps=1008,flops=165e12"},
    Example{"completion", "source <(./kvlab completion bash)"},
    Example{"help", "./kvlab help"}};

// "Examples:" and a line each; empty for a command without any. "" is the program.
std::string examples_of(std::string_view command);

}  // namespace kv::cli
