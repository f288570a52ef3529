#include "harness/cli/eval.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/cli/eval_columns.h"
#include "harness/cli/variants_option.h"
#include "harness/io/json.h"
#include "harness/io/safetensors.h"
#include "harness/io/text.h"
#include "harness/measure/cell.h"
#include "harness/measure/environment.h"
#include "harness/measure/stage_columns.h"
#include "harness/results/append_file.h"
#include "harness/results/cell_columns.h"
#include "harness/results/results_folder.h"
#include "harness/results/table.h"
#include "harness/verify/metrics/metrics.h"
#include "harness/verify/reference/attention.h"
#include "harness/workload/sources.h"

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

// Writes the last token's errors by cause and all tokens' errors against FP64, the latter also by head.
void write_errors(measure::Cell& cell, const std::vector<Layer>& layers, const std::vector<float>& outputs,
                  int64_t n, std::span<results::Row> heads) {
  const CacheShape& s = cell.cache->shape();
  const int64_t d = s.head_dim;
  std::vector<float> q, out;
  const auto last_rows = [&](const float* from, std::vector<float>& to) {
    for (int h = 0; h < s.q_heads; ++h)
      to.insert(to.end(), from + (h * n + n - 1) * d, from + (h * n + n) * d);
  };
  const int64_t layer_size = s.q_heads * n * d;
  for (int i = 0; i < s.layers; ++i) {
    last_rows(layers[static_cast<size_t>(i)].q.data(), q);
    last_rows(outputs.data() + i * layer_size, out);
  }
  std::vector<verify::Output> last;
  for (int i = 0; i < s.layers; ++i) {
    last.push_back({.sequence = cell.ids[0],
                    .workload_sequence = 0,
                    .layer = i,
                    .q = q.data() + i * s.q_heads * d,
                    .out = out.data() + i * s.q_heads * d});
  }
  const verify::Errors errors = verify::verify(*cell.cache, *cell.workload, n, last, cell.prompt);
  measure::set_errors(cell.result, errors);
  // Causes are known for the last token only; totals cover every token.
  std::vector<double> want;
  for (const Layer& layer : layers) want.insert(want.end(), layer.reference.begin(), layer.reference.end());
  const std::vector<double> got(outputs.begin(), outputs.end());
  set_output_errors(cell.result, got, want);
  const auto head_size = static_cast<size_t>(n * d);
  for (size_t head = 0; head < heads.size(); ++head) {
    const auto of_head = [&](const std::vector<double>& all) {
      return std::span(all).subspan(head * head_size, head_size);
    };
    set_output_errors(heads[head], of_head(got), of_head(want));
  }
  cell.result[results::kStatus] = errors.failure().empty() ? results::Status::kOk : results::Status::kFailed;
  cell.result[results::kReason] = errors.failure();
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

void run_variant(measure::Cell& cell, const std::vector<Layer>& layers, int64_t prompt, cuda::Gpu* gpu,
                 Evaluation& evaluation) {
  const workload::WorkloadShape& s = cell.workload->shape();
  const int64_t n = cell.workload->max_tokens();
  cell.ledger = std::make_unique<memory::Ledger>(INT64_MAX, gpu);
  cell.cache = build_cache(cell.spec, cache_shape_of(*cell.workload), *cell.ledger);
  cell.ids = {cell.cache->add_sequence()};
  const int64_t layer_size = s.q_heads * n * s.head_dim;
  std::vector<float> outputs(static_cast<size_t>(s.layers * layer_size));
  for (int i = 0; i < s.layers; ++i) {
    const Layer& layer = layers[static_cast<size_t>(i)];
    float* to = outputs.data() + i * layer_size;
    if (prompt > 0) step_layer(*cell.cache, cell.ids[0], i, layer, n, 0, prompt, to);
    for (int64_t t = prompt; t < n; ++t) step_layer(*cell.cache, cell.ids[0], i, layer, n, t, 1, to);
  }
  cell.result[results::kKernel] = cell.cache->kernel();
  cell.prompt = prompt;
  cell.account({&n, 1});
  std::vector<results::Row> heads = heads_of(cell.result);
  write_errors(cell, layers, outputs, n, heads);
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
  const std::filesystem::path out(options.out), tensor_file = out / "outputs.safetensors";
  nlohmann::json environment = measure::describe_environment();
  environment["threads"] = context.threads();
  environment["config"] = {{"name", "eval"}, {"title", "eval of " + options.dump}, {"path", options.dump}};
  const auto quoted = [](const std::string& text) { return io::json_text(text); };
  results::Layout layout = experiments::layout_of("eval", kEvalGroups);
  layout.sides = {&kHeads};
  results::ResultsFolder results(out,
                                 "# what `kvlab eval` was asked for\ndump = " + quoted(options.dump) +
                                     "\nvariants = " + quoted(options.variants) +
                                     "\nprompt = " + std::to_string(options.prompt) + "\n",
                                 layout, false);
  try {
    results.write_environment(environment);
    io::write_safetensors(tensor_file.string(), evaluation.tensors);
    results.add(kHeads, evaluation.heads);
    results.add_cells(evaluation.rows);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(tensor_file, ignored);
    results.discard_if_empty();
    throw;
  }
}

}  // namespace

std::vector<results::Row> run_eval(const EvalOptions& options) {
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
  const std::filesystem::path out(options.out);
  results::require_new_folder(out);
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
      measure::attempt(cell, [&] { run_variant(cell, layers, options.prompt, context.gpu(), evaluation); });
    }
    evaluation.rows.push_back(cell.result);
  }
  for (size_t i = 0; i < evaluation.tensors.size(); ++i) evaluation.tensors[i].values = evaluation.outputs[i];
  write_results(options, context, evaluation);
  return evaluation.rows;
}

}  // namespace kv::cli
