#include "harness/experiments/decode/peer_cells.h"

#include <algorithm>

#include "harness/config/axes.h"
#include "harness/experiments/cell_plan.h"
#include "harness/experiments/trial.h"
#include "harness/io/suggestion.h"
#include "harness/math/medians.h"
#include "harness/measure/gpu_ceiling.h"
#include "harness/measure/time_columns.h"
#include "harness/peers/peers.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/verify.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

std::vector<std::string> read_peers(config::Section& section, const std::string& key,
                                    const std::vector<std::string>& fallback) {
  if (!section.has(key)) return fallback;
  std::vector<std::string> known, peers;
  for (const peers::Format& format : peers::formats()) known.push_back(format.text());
  for (const std::string& written : section.texts(key, {})) {
    const auto before = peers.size();
    for (const std::string& format : known) {
      if (format == written || format.starts_with(written + "/")) peers.push_back(format);
    }
    if (peers.size() > before) continue;
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    section.fail(key, "must be among " + list + ", or a name before the slash, not '" + written + "'" +
                          io::did_you_mean(written, known));
  }
  config::refuse_repeats(section, key, peers);
  return peers;
}

constexpr int64_t kEngineBytes = int64_t{400} << 20;  // a process with PyTorch loaded

// Positions of the tensors in the shared floats: K and V [batch, kv_heads, tokens, head_dim], the steps' Q [batch,
// q_heads, steps, head_dim], outputs [batch, q_heads, head_dim].
struct Places {
  Places(const measure::SweepPoint& point, int64_t steps)
      : rows(point.seq_len * point.source->shape().head_dim),
        k(0),
        v(point.batch * point.source->shape().kv_heads * rows),
        q(2 * v),
        out(q + steps * outputs(point)),
        end(out + outputs(point)) {}
  static int64_t outputs(const measure::SweepPoint& point) {
    const workload::WorkloadShape& w = point.source->shape();
    return int64_t{1} * point.batch * w.q_heads * w.head_dim;
  }
  int64_t rows;  // a head's
  int64_t k, v, q, out, end;
};

// Repetitions that a peer runs by itself on request; it reports each step's time.
std::unique_ptr<measure::TimedTask> peer_task(measure::Cell& cell, peers::Process& process, bool cold,
                                              int64_t steps, results::ResultsFolder& results) {
  struct Reported {
    std::vector<double> us;
    size_t next = 0;
  };
  const auto now = std::make_shared<Reported>();
  const auto begin = [=, &process] {
    *now = {
        process.ask({{"do", cold ? "cold" : "steps"}, {"count", steps}}).at("us").get<std::vector<double>>()};
    if (std::ssize(now->us) != steps || std::ranges::any_of(now->us, [](double t) { return !(t > 0); }))
      throw std::runtime_error("the peer reported the times of " + std::to_string(now->us.size()) +
                               " steps, not of " + std::to_string(steps));
  };
  return measure::sampled(cell, cold ? cell.cold : cell.steps,
                          {.kind = cold ? "cold" : "step",
                           .steps = steps,
                           .step = [now] { return measure::StepTimes{.attend_us = now->us[now->next++]}; },
                           .begin = begin,
                           .is_elsewhere = true,
                           .write = cold ? measure::write_attention : measure::write_whole},
                          results);
}

// Compares with the group's first variant of the codec that the peer's file names.
void compare(measure::Cell& cell, const std::vector<measure::Cell*>& group) {
  const Spec wanted = parse_spec("contiguous/" + peers::format_named(cell.peer).versus);
  const auto own = std::ranges::find_if(group, [&](const measure::Cell* other) {
    return other->peer.empty() && !other->steps.empty() && other->spec == LayerSpecs(wanted);
  });
  if (own == group.end() || cell.steps.empty()) return;
  results::Row& row = cell.result;
  row[measure::kPeerVersus] = (*own)->spec.print();
  const math::Ratio hot = math::ratio_of_medians(measure::repetition_medians(cell.steps),
                                                 measure::repetition_medians((*own)->steps));
  row.set(measure::kPeerRatioP50, hot.value, hot.interval(math::kConfidence));
  if (cell.cold.empty() || (*own)->cold.empty()) return;
  const math::Ratio cold = math::ratio_of_medians(measure::repetition_medians(cell.cold),
                                                  measure::repetition_medians((*own)->cold));
  row.set(measure::kPeerColdRatioP50, cold.value, cold.interval(math::kConfidence));
}

// The reason that the peer cannot run at this point, or empty.
std::string why_not(const measure::SweepPoint& point, const std::string& peer) {
  const workload::WorkloadShape& w = point.source->shape();
  if (w.layers != 1 || w.value_dim != 0 || w.row_layers() != 1)
    return "peers are measured on one layer with K and V rows";
  return peers::why_absent(peer);
}

}  // namespace

const config::Key<std::vector<std::string>> kPeersKey{"peers",
                                                      config::SharedTable::kSweep,
                                                      {},
                                                      read_peers,
                                                      "other engines and their formats, as \"ggml/q8_0\""};

void add_peers(measure::SweepPoint& point) {
  for (const std::string& name : point.experiment->settings[kPeersKey]) {
    const peers::Format format = peers::format_named(name);
    measure::PlannedCell& cell = add_cell(point, LayerSpecs(parse_spec("contiguous/" + format.stored)));
    cell.key = point.key_of(name);
    cell.variant = cell.series = cell.peer = name;
    if (cell.is_measured()) refuse(cell, why_not(point, format.peer));
  }
}

int64_t PeerCells::bytes(const measure::SweepPoint& point, const LayerSpecs& spec) {
  return 2 * measure::held_bytes(point, spec) + measure::beyond_cache_bytes(point.context->gpu()) +
         kEngineBytes;
}

int64_t PeerCells::tokens_bytes(const measure::SweepPoint& point) {
  if (point.experiment->settings[kPeersKey].empty()) return 0;
  const double kv_heads = 2.0 * point.source->shape().kv_heads;
  return static_cast<int64_t>(std::min(
      sizeof(float) * measure::value_count(point, kv_heads, static_cast<double>(point.seq_len)), 1e18));
}

void PeerCells::verify(measure::Cell& cell) {
  const peers::Format format = peers::format_named(cell.peer);
  if (!tokens_) read_tokens(cell);
  auto process =
      std::make_unique<peers::Process>(peers::serving(format.peer), tokens_->file(), point_.threads,
                                       std::chrono::seconds(point_.experiment->settings[kPeerTimeoutKey]));
  cell.result[measure::kPeerTolerance] = format.tolerance;
  prepare(cell, *process);
  check(cell, format.tolerance);
  if (measure::runs(cell)) processes_[&cell] = std::move(process);
}

void PeerCells::read_tokens(const measure::Cell& cell) {
  const int64_t steps = point_.seq_len - base_;
  const Places at(point_, steps);
  tokens_ = std::make_unique<peers::SharedFloats>(at.end);
  float* const floats = tokens_->data();
  const workload::WorkloadShape& w = cell.workload->shape();
  for (int i = 0; i < point_.batch; ++i) {
    const int64_t before = i * w.kv_heads * at.rows;
    cell.workload->read(i, 0, 0, point_.seq_len, nullptr, floats + at.k + before, floats + at.v + before);
    cell.workload->read(i, 0, base_, steps, floats + at.q + i * w.q_heads * steps * w.head_dim, nullptr,
                        nullptr);
  }
}

void PeerCells::prepare(measure::Cell& cell, peers::Process& process) {
  const workload::WorkloadShape& w = point_.source->shape();
  const int64_t steps = point_.seq_len - base_;
  const Places at(point_, steps);
  const nlohmann::json answer =
      process.ask({{"do", "prepare"},
                   {"format", peers::format_named(cell.peer).name},
                   {"batch", point_.batch},
                   {"q_heads", w.q_heads},
                   {"kv_heads", w.kv_heads},
                   {"head_dim", w.head_dim},
                   {"tokens", point_.seq_len},
                   {"steps", steps},
                   {"threads", point_.threads},
                   {"device", point_.context->device()},
                   {"cold_bytes", point_.experiment->settings[kColdStepsKey] > 0
                                      ? measure::beyond_cache_bytes(point_.context->gpu())
                                      : 0},
                   {"places", {{"k", at.k}, {"v", at.v}, {"q", at.q}, {"out", at.out}, {"end", at.end}}}});
  results::Row& row = cell.result;
  row[measure::kPeerVersion] = answer.at("version");
  row[measure::kPeerSettings] = answer.at("settings");
  row[measure::kPeerBytesReported] = answer.at("bytes").get<int64_t>();
  row[measure::kPeerBytesResident] = answer.at("resident_bytes").get<int64_t>();
  if (answer.at("cold").get<bool>()) cold_.insert(&cell);
}

// Uses the same oracle as kvlab's own caches: FP64 over all tokens, and over the rows as kvlab's codec of the same
// bits stores them.
void PeerCells::check(measure::Cell& cell, double tolerance) const {
  const workload::WorkloadShape& w = point_.source->shape();
  const Places at(point_, point_.seq_len - base_);
  measure::open_cache(cell, point_, point_.batch);
  workload::TokenFeed feed(*cell.workload, point_.batch);
  fill(cell, point_, point_.seq_len);
  feed.load(point_.seq_len - 1, 1);
  std::vector<verify::Output> outputs;
  for (int i = 0; i < point_.batch; ++i) {
    outputs.push_back({.sequence = cell.ids[static_cast<size_t>(i)],
                       .workload_sequence = i,
                       .layer = 0,
                       .q = feed.q(0, i, point_.seq_len - 1),
                       .out = tokens_->data() + at.out + int64_t{1} * i * w.q_heads * w.head_dim});
  }
  verify::Errors errors = verify::verify(*cell.cache, *cell.workload, point_.seq_len, outputs);
  errors.kernel_bound = tolerance;
  cell.cache.reset();
  cell.result[results::kKernel].clear();
  cell.judge(errors, 1);
}

void PeerCells::add_tasks(measure::Cell& cell, measure::TimedTasks& tasks, results::ResultsFolder& results) {
  peers::Process& process = *processes_.at(&cell);
  tasks.push_back(peer_task(cell, process, false, point_.seq_len - base_, results));
  if (cold_.count(&cell) > 0)
    tasks.push_back(peer_task(cell, process, true, point_.experiment->settings[kColdStepsKey], results));
}

void PeerCells::summarise(measure::Cell& cell, const std::vector<measure::Cell*>& group) {
  cell.summarise();
  compare(cell, group);
  results::Row& row = cell.result;
  // A step is timed whole, and its bytes read are unknown.
  for (results::Number* unknown :
       {&row[measure::kAppendP50Us], &row[measure::kViewP50Us], &row[measure::kAttendP50Us],
        &row[measure::kReadGbps], &row[measure::kColdReadGbps]})
    unknown->reset();
}

}  // namespace kv::experiments
