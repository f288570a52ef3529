#include "harness/cli/eval.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <utility>

#include "harness/cli/eval_columns.h"
#include "harness/cli/typos.h"
#include "harness/cli/variants_option.h"
#include "harness/io/json.h"
#include "harness/io/safetensors.h"
#include "harness/io/text.h"
#include "harness/measure/cell.h"
#include "harness/measure/environment.h"
#include "harness/measure/exposure.h"
#include "harness/measure/stage_columns.h"
#include "harness/results/results_folder.h"
#include "harness/results/table.h"
#include "harness/verify/metrics/metrics.h"
#include "harness/verify/reference/attention.h"
#include "harness/workload/sources.h"
#include "harness/workload/workload.h"

namespace kv::cli {
namespace {

// One layer of the dump.
struct Layer {
  std::vector<float> q, k, v;
  std::vector<double> reference;  // FP64 over all tokens, [q_heads, n, head_dim]
};

std::vector<Layer> read_layers(const workload::Workload& dump) {
  const workload::WorkloadShape& s = dump.shape();
  const int64_t n = dump.max_tokens();
  std::vector<Layer> layers(static_cast<size_t>(s.layers));
  for (int i = 0; i < s.layers; ++i) {
    Layer& layer = layers[static_cast<size_t>(i)];
    layer.q.resize(static_cast<size_t>(s.q_heads * n * s.head_dim));
    layer.k.resize(static_cast<size_t>(s.kv_heads * n * s.head_dim));
    layer.v.resize(layer.k.size());
    dump.read(0, i, 0, n, layer.q.data(), layer.k.data(), layer.v.data());
    layer.reference =
        reference::attend_causal(layer.q, layer.k, layer.v, s.q_heads, s.kv_heads, n, s.head_dim);
  }
  return layers;
}

// Runs tokens [first, first + n) of a layer as one step and stores the outputs at their positions.
void step_layer(Cache& cache, SequenceId id, int index, const Layer& layer, int64_t total, int64_t first,
                int64_t n, float* outputs) {
  const CacheShape& s = cache.shape();
  const int64_t d = s.head_dim;
  const auto cut = [&](const std::vector<float>& from, int heads) {
    std::vector<float> part(static_cast<size_t>(heads * n * d));
    for (int h = 0; h < heads; ++h) {
      std::copy_n(from.begin() + (h * total + first) * d, n * d, part.begin() + h * n * d);
    }
    return part;
  };
  const std::vector<float> q = cut(layer.q, s.q_heads), k = cut(layer.k, s.kv_heads),
                           v = cut(layer.v, s.kv_heads);
  std::vector<float> out(q.size());
  const StepInput in{.sequence = id, .n = n, .q = q.data(), .k = k.data(), .v = v.data(), .out = out.data()};
  cache.step(index, {&in, 1});
  for (int h = 0; h < s.q_heads; ++h) {
    std::copy_n(out.begin() + h * n * d, n * d, outputs + (h * total + first) * d);
  }
}

void set_output_errors(results::Row& row, std::span<const double> got, std::span<const double> want) {
  for (const verify::Metric* m : verify::metrics()) {
    if (m->of == verify::Metric::Of::kOutputs) row[m->column] = m->compute(got, want);
  }
}

constexpr int64_t kCheckedTokens = 16;

// The tokens whose errors are counted: spread evenly over those that end a step, the last one included. Rows that a prompt's
// other queries saw may be gone after it, and a cause's share of their error with them.
std::vector<int64_t> checked_tokens(int64_t prompt, int64_t n) {
  const int64_t first = std::max<int64_t>(prompt, 1) - 1, count = std::min(kCheckedTokens, n - first);
  std::vector<int64_t> tokens;
  for (int64_t i = 1; i <= count; ++i) tokens.push_back(first + i * (n - first) / count - 1);
  return tokens;
}

// The rows of one token, [layers, q_heads, head_dim], of each layer's [q_heads, n, head_dim].
template <class T, class LayerRows>
std::vector<T> rows_at(int64_t token, const CacheShape& s, int64_t n, const LayerRows& rows_of) {
  std::vector<T> at;
  for (int i = 0; i < s.layers; ++i) {
    for (int h = 0; h < s.q_heads; ++h) {
      const T* row = rows_of(i) + (h * n + token) * s.head_dim;
      at.insert(at.end(), row, row + s.head_dim);
    }
  }
  return at;
}

// The errors of a token, whose step is the cache's newest.
verify::Errors errors_at(measure::Cell& cell, const std::vector<float>& q, const std::vector<float>& out,
                         int64_t token) {
  const int64_t layer_size = cell.cache->shape().q_heads * cell.cache->shape().head_dim;
  std::vector<verify::Output> outputs;
  for (int i = 0; i < cell.cache->shape().layers; ++i)
    outputs.push_back({.sequence = cell.ids[0],
                       .workload_sequence = 0,
                       .layer = i,
                       .q = q.data() + i * layer_size,
                       .out = out.data() + i * layer_size});
  return verify::verify(*cell.cache, *cell.workload, token + 1, outputs, cell.prompt);
}

// Results of all variants together.
struct Evaluation {
  std::vector<results::Row> rows;
  std::vector<results::Row> heads;
  std::vector<io::NamedTensor> tensors;
  std::vector<std::vector<float>> outputs;  // the tensors' values
};

// A row a query head, over all layers.
std::vector<results::Row> heads_of(const results::Row& row) {
  std::vector<results::Row> heads;
  for (int64_t layer = 0; layer < *row[results::kLayers]; ++layer) {
    for (int64_t q_head = 0; q_head < *row[results::kQHeads]; ++q_head) {
      results::Row& head = heads.emplace_back(results::row_of(row));
      head[kLayer] = layer;
      head[kQHead] = q_head;
    }
  }
  return heads;
}

// The cache's shape for one sequence of the whole dump.
ModelShape cache_shape_of(const workload::Workload& dump) {
  const workload::WorkloadShape& s = dump.shape();
  return {{.layers = s.layers,
           .q_heads = s.q_heads,
           .kv_heads = s.kv_heads,
           .head_dim = s.head_dim,
           .max_tokens = dump.max_tokens(),
           .max_sequences = 1},
          s.kinds};
}

void run_variant(measure::Cell& cell, const std::vector<Layer>& layers, int64_t prompt, int64_t context,
                 cuda::Gpu* gpu, Evaluation& evaluation) {
  const workload::WorkloadShape& s = cell.workload->shape();
  const int64_t n = cell.workload->max_tokens();
  cell.ledger = std::make_unique<memory::Ledger>(INT64_MAX, gpu);
  cell.cache = build_cache(cell.spec, cache_shape_of(*cell.workload), *cell.ledger);
  cell.ids = {cell.cache->add_sequence()};
  cell.prompt = prompt;
  const CacheShape& shape = cell.cache->shape();
  const int64_t layer_size = s.q_heads * n * s.head_dim;
  std::vector<float> outputs(static_cast<size_t>(s.layers * layer_size));
  std::vector<verify::Errors> errors;
  // [layers, q_heads] of [checked tokens, head_dim]
  std::vector<std::vector<double>> got(static_cast<size_t>(s.layers * s.q_heads)), want(got.size());
  const std::vector<int64_t> checked = checked_tokens(prompt, n);
  for (int64_t first = 0, tokens = 0; first < n; first += tokens) {
    tokens = first == 0 && prompt > 0 ? prompt : 1;
    for (int i = 0; i < s.layers; ++i)
      step_layer(*cell.cache, cell.ids[0], i, layers[static_cast<size_t>(i)], n, first, tokens,
                 outputs.data() + i * layer_size);
    const int64_t token = first + tokens - 1;
    if (!std::ranges::binary_search(checked, token)) continue;
    const auto q = rows_at<float>(token, shape, n, [&](size_t i) { return layers[i].q.data(); });
    const auto out = rows_at<float>(
        token, shape, n, [&](size_t i) { return outputs.data() + static_cast<int64_t>(i) * layer_size; });
    const auto right = rows_at<double>(token, shape, n, [&](size_t i) { return layers[i].reference.data(); });
    errors.push_back(errors_at(cell, q, out, token));
    for (size_t i = 0; i < right.size(); ++i) {
      got[i / static_cast<size_t>(s.head_dim)].push_back(static_cast<double>(out[i]));
      want[i / static_cast<size_t>(s.head_dim)].push_back(right[i]);
    }
  }
  cell.result[results::kKernel] = cell.cache->kernel();
  cell.account({&n, 1});
  std::vector<results::Row> heads = heads_of(cell.result);
  for (size_t head = 0; head < heads.size(); ++head) set_output_errors(heads[head], got[head], want[head]);
  const verify::Errors mean = mean_of(errors);
  measure::set_errors(cell.result, mean);
  cell.result[verify::kErrPositions] = std::ssize(errors);
  cell.record_kept();
  measure::record_exposure(cell.result, cell.spec, cache_shape_of(*cell.workload),
                           {.length = n, .first = std::max<int64_t>(prompt, 1) - 1, .prompt = prompt},
                           context);
  if (measure::is_untested(cell.result)) cell.result[results::kVerdict] = results::kUntestedVerdict;
  cell.result[results::kStatus] = mean.failure().empty() ? results::Status::kOk : results::Status::kFailed;
  cell.result[results::kReason] = mean.failure();
  evaluation.heads.insert(evaluation.heads.end(), heads.begin(), heads.end());
  evaluation.tensors.push_back({cell.spec.print(), {s.layers, s.q_heads, n, s.head_dim}, {}});
  evaluation.outputs.push_back(std::move(outputs));
}

void name_cell(measure::Cell& cell, const memory::RunContext& context, bool supported) {
  const workload::WorkloadShape& s = cell.workload->shape();
  const std::string variant = io::as_utf8(cell.spec.print());  // a spec may hold a path
  const ModelShape shape = cache_shape_of(*cell.workload);
  cell.key = "eval dump " + variant;
  results::Row& row = cell.result;
  row[results::kCell] = cell.key;
  row[results::kVariant] = variant;
  measure::set_stages(row, cell.spec, supported ? &shape : nullptr);
  row[results::kDevice] = context.device();
  row[results::kThreads] = context.threads();
  row[results::kExperiment] = "eval";
  row[results::kPhase] = "decode";
  row[results::kWorkload] = "dump";
  row[results::kLayers] = s.layers;
  row[results::kQHeads] = s.q_heads;
  row[results::kKvHeads] = s.kv_heads;
  row[results::kHeadDim] = s.head_dim;
  row[results::kBatch] = 1;
  row[results::kSeqLen] = cell.workload->max_tokens();
}

// Writes every file or none.
void write_results(const EvalOptions& options, const memory::RunContext& context,
                   const Evaluation& evaluation) {
  nlohmann::json environment = measure::describe_environment();
  environment["threads"] = context.threads();
  environment["config"] = {{"name", "eval"}, {"title", "eval of " + options.dump}, {"path", options.dump}};
  const auto quoted = [](const std::string& text) { return io::json_text(text); };
  results::Layout layout = experiments::layout_of("eval", kEvalGroups);
  layout.sides = {&kHeads};
  const std::string config = "# what `kvlab eval` was asked for\ndump = " + quoted(options.dump) +
                             "\nvariants = " + quoted(options.variants) +
                             "\nprompt = " + std::to_string(options.prompt) +
                             "\ncontext = " + std::to_string(options.context) + "\n";
  results::write_folder(options.out, config, layout, [&](results::ResultsFolder& folder) {
    folder.write_environment(environment);
    io::write_safetensors((folder.path() / "outputs.safetensors").string(), evaluation.tensors);
    folder.add(kHeads, evaluation.heads);
    folder.add_cells(evaluation.rows);
  });
}

}  // namespace

void add_options(CLI::App& app, EvalOptions& options) {
  app.add_option("dump", options.dump,
                 "safetensors with three tensors in F32, F16 or BF16, after RoPE: \"q\" [layers, q_heads, "
                 "tokens, head_dim], \"k\" and \"v\" [layers, kv_heads, tokens, head_dim]");
  app.add_option("--variants", options.variants,
                 "specs, separated by ';'; {a,b} in a spec makes one of each");
  app.add_option("--example", options.example, "only write an example dump (1 MB)");
  app.add_option("--prompt", options.prompt, "first tokens to read as one causal prefill, e.g. 192 or 4K")
      ->transform(token_count())
      ->check(CLI::NonNegativeNumber);
  app.add_option("--context", options.context,
                 "context that the errors should hold for, e.g. 32K: caches of which the dump exercises less "
                 "are untested (default: 8K)")
      ->transform(token_count())
      ->check(CLI::PositiveNumber);
  app.add_option("--out", options.out, "results folder");
  app.add_option("--threads", options.threads, "threads (default: one per core)")->check(CLI::Range(1, 4096));
  app.add_option("--isa", options.isa, "instruction set of the kernels");
  app.add_option("--arithmetic", options.arithmetic,
                 "exact, or int8: multiply queries and weights with the codes of q8_0 and q4_0 in 8 bits")
      ->check(one_of({"exact", "int8"}));
  app.add_option("--device", options.device, "device that holds the caches: cpu or cuda")
      ->check(one_of({"cpu", "cuda"}));
  app.add_flag("--no-plots", options.no_plots, "leave the charts out");
}

std::vector<results::Row> run_eval(const EvalOptions& options) {
  if (options.dump.empty() || options.variants.empty() || options.out.empty())
    throw std::invalid_argument(
        "eval needs a dump, --variants and --out; --example dump.safetensors writes an example dump");
  std::vector<LayerSpecs> specs = parse_variants(options.variants);
  if (options.arithmetic == "int8")
    for (LayerSpecs& spec : specs) spec = with_int8_arithmetic(spec);
  const memory::RunContext context(options.device, options.isa, options.threads);
  const memory::ThreadCount threads(context.threads());
  const std::shared_ptr<const workload::Workload> dump = workload::open_dump(options.dump);
  const int64_t n = dump->max_tokens();
  if (options.prompt > n) {
    throw std::invalid_argument("--prompt " + std::to_string(options.prompt) + " is more than the dump's " +
                                std::to_string(n) + " tokens");
  }
  results::require_new_folder(options.out);
  const std::vector<Layer> layers = read_layers(*dump);
  Evaluation evaluation;
  for (const LayerSpecs& spec : specs) {
    measure::Cell cell;
    cell.spec = spec;
    cell.workload = dump;
    const std::string reason =
        workload::unsupported_reason(spec, "dump", cache_shape_of(*dump), context.gpu());
    name_cell(cell, context, reason.empty());
    if (!reason.empty()) {
      cell.result[results::kStatus] = results::Status::kUnsupported;
      cell.result[results::kReason] = reason;
    } else {
      measure::attempt(cell, [&] {
        run_variant(cell, layers, options.prompt, options.context, context.gpu(), evaluation);
      });
    }
    evaluation.rows.push_back(cell.result);
  }
  for (size_t i = 0; i < evaluation.tensors.size(); ++i) evaluation.tensors[i].values = evaluation.outputs[i];
  write_results(options, context, evaluation);
  return evaluation.rows;
}

void write_example_dump(const std::string& path) {
  if (std::filesystem::exists(path))
    throw std::invalid_argument("--example " + path + " already exists; give another name");
  constexpr int64_t kTokens = 256;
  const workload::WorkloadShape shape{.layers = 2, .q_heads = 4, .kv_heads = 2, .head_dim = 64};
  const auto rows = workload::make_synthetic("outliers", shape, /*seed=*/1);
  const auto of_layer = [&](int heads) { return static_cast<size_t>(heads * kTokens * shape.head_dim); };
  const size_t q_size = of_layer(shape.q_heads), kv_size = of_layer(shape.kv_heads);
  std::vector<float> q(2 * q_size), k(2 * kv_size), v(2 * kv_size);
  for (size_t layer = 0; layer < 2; ++layer)
    rows->read(0, static_cast<int>(layer), 0, kTokens, &q[layer * q_size], &k[layer * kv_size],
               &v[layer * kv_size]);
  const std::vector<int64_t> q_shape{2, shape.q_heads, kTokens, shape.head_dim};
  const std::vector<int64_t> kv_shape{2, shape.kv_heads, kTokens, shape.head_dim};
  io::write_safetensors(path, std::array{io::NamedTensor{"q", q_shape, q}, io::NamedTensor{"k", kv_shape, k},
                                         io::NamedTensor{"v", kv_shape, v}});
}

}  // namespace kv::cli
