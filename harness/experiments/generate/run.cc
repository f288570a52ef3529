// The generate experiment: a model goes on from prompts with each variant, and the first token at which its text leaves the
// full f32 cache's is found. The prompts are the beginnings of `batch` disjoint windows of the text; both texts draw the same
// random numbers, so they part only where the cache has changed a choice.
#include <algorithm>
#include <exception>
#include <map>
#include <stdexcept>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/generate/axes.h"
#include "harness/experiments/generate/columns.h"
#include "harness/experiments/list.h"
#include "harness/experiments/quality.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/model_files.h"
#include "harness/math/stats.h"
#include "harness/measure/prediction_columns.h"
#include "harness/measure/sample_columns.h"
#include "harness/model/sampling.h"
#include "harness/results/cell_columns.h"
#include "kernels/format/encoding.h"

namespace kv::experiments {
namespace {

int64_t prompt_tokens(const measure::SweepPoint& point) {
  return std::max<int64_t>(1, point.experiment->settings[kPromptKey]);
}

std::string suffix(double temperature) {
  std::string text = std::to_string(temperature);  // six decimals
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return "temperature " + text;
}

// Plans a cell a temperature and variant.
void plan_generate(measure::SweepPoint& point) {
  const std::vector<double>& temperatures = point.experiment->settings[kTemperatureKey];
  for (size_t arm = 0; arm < temperatures.size(); ++arm) {
    for (const LayerSpecs& spec : point.experiment->axes.variants)
      add_cell(point, spec, suffix(temperatures[arm])).arm = arm;
  }
  // One cache a thread is alive; growing holds the old and the new buffer.
  fit_alone(point, [&](const measure::PlannedCell& cell) {
    return 2 * point.threads * point.experiment->settings[kSamplesKey] *
           measure::held_bytes(point, cell.spec);
  });
}

// Payload of the sequences' rows stored where an earlier sequence also has rows.
int64_t shared_row_bytes(Cache& cache, std::span<const SequenceId> ids) {
  const CacheShape& s = cache.shape();
  std::map<const std::byte*, int64_t> stored;  // beginnings of rows, and the most bytes read from there
  int64_t read = 0;
  const auto add = [&](const Side& side, int64_t rows) {
    const int64_t bytes = measure::units(side, rows) * unit_data_bytes(side.encoding, s.head_dim);
    read += bytes;
    int64_t& most = stored[side.data];
    most = std::max(most, bytes);
  };
  for (const SequenceId id : ids) {
    for (int head = 0; head < s.layers * s.kv_heads; ++head) {
      for (const Span& span : cache.spans(id, head / s.kv_heads, head % s.kv_heads)) {
        add(span.k, span.rows);
        add(span.v, span.rows);
      }
    }
  }
  for (const auto& [rows, bytes] : stored) read -= bytes;
  return read;
}

// A variant's text at one temperature.
struct Writing {
  std::unique_ptr<measure::Cell> cell;
  model::Sampling sampling;
  std::vector<int> ids = {};  // [batch, samples, seq_len]
};

class GenerateRun {
 public:
  GenerateRun(const measure::SweepPoint& point, const measure::RunControl& control,
              results::ResultsFolder& results)
      : point_(point), control_(control), results_(results), progress_(control, steps_of(point)) {
    const measure::Passages windows = text_windows(point, point.seq_len);
    for (int s = 0; s < point.batch; ++s) {
      for (int64_t i = 0; i < prompt_tokens(point); ++i) prompts_.push_back(windows.id(s, i));
    }
  }

  // Empty if stopped. The full f32 cache writes first, then all variants side by side, each on one thread.
  std::vector<results::Row> run() {
    std::vector<results::Row> rows;
    const std::vector<double>& temperatures = point_.experiment->settings[kTemperatureKey];
    for (size_t arm = 0; arm < temperatures.size(); ++arm) {
      const model::Sampling sampling{.temperature = temperatures[arm],
                                     .seed = point_.config->seed,
                                     .samples = static_cast<int>(point_.experiment->settings[kSamplesKey])};
      const std::vector<int> full = full_ids(sampling);
      std::vector<Writing> writings;
      for (const measure::PlannedCell& planned : point_.cells) {
        if (planned.arm == arm) writings.push_back({measure::make_cell(point_, planned), sampling});
      }
      write_all(writings);
      if (control_.stop()) return {};
      const std::vector<io::TextOfTokens> read = texts_of(writings, full);
      const std::span full_texts = std::span(read).last(static_cast<size_t>(texts()));
      auto own = read.begin();
      for (Writing& w : writings) {
        if (measure::runs(*w.cell)) {
          compare(w, full, {own, own + texts()}, full_texts);
          own += texts();
        }
        rows.push_back(w.cell->result);
      }
    }
    return rows;
  }

 private:
  static double steps_of(const measure::SweepPoint& point) {
    const size_t texts =
        point.experiment->settings[kTemperatureKey].size() * (point.experiment->axes.variants.size() + 1);
    return static_cast<double>(texts) * static_cast<double>(point.seq_len - prompt_tokens(point));
  }

  int texts() const { return point_.batch * point_.experiment->settings[kSamplesKey]; }

  // Generates every sequence's next tokens with the cache behind `model` until the run is stopped.
  std::vector<int> continue_with(model::CachedModel& model, const model::Sampling& sampling) {
    const auto stop = [&] {
      progress_.add(1);
      return control_.stop();
    };
    return model::continue_prompts(model, prompts_, point_.seq_len, sampling, stop);
  }

  std::vector<int> full_ids(const model::Sampling& sampling) {
    memory::Ledger ledger(point_.cache_bytes, point_.context->gpu());
    const auto cache = build_cache(parse_spec("contiguous"), cache_shape(point_, texts()), ledger);
    model::CachedModel model(*point_.source->model(), *cache, point_.batch);
    return continue_with(model, sampling);
  }

  void write_all(std::vector<Writing>& writings) {
    std::vector<std::exception_ptr> thrown(writings.size());
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t i = 0; i < writings.size(); ++i) {
      try {
        if (measure::runs(*writings[i].cell)) write(writings[i]);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    }
    for (const std::exception_ptr& e : thrown) {
      if (e) std::rethrow_exception(e);
    }
  }

  void write(Writing& w) {
    measure::Cell& cell = *w.cell;
    measure::attempt(cell, [&] {
      measure::open_cache(cell, point_, texts());
      model::CachedModel model(*point_.source->model(), *cell.cache, point_.batch);
      measure::Stopwatch watch;
      w.ids = continue_with(model, w.sampling);
      const double seconds = watch.lap();
      if (control_.stop()) return;
      account(cell, model);
      cell.result[measure::kTokensPerS] = static_cast<double>(w.ids.size()) / seconds;
      cell.result[results::kStatus] = results::Status::kOk;
      cell.cache.reset();
    });
  }

  // The last chosen token has not been read.
  void account(measure::Cell& cell, const model::CachedModel& model) const {
    const std::span<const SequenceId> ids = model.sequences();
    const int samples = point_.experiment->settings[kSamplesKey];
    if (samples > 1) account_samples(cell, ids);
    // The first sample of each prompt is counted as if it had been alone.
    cell.ids.clear();
    for (size_t t = 0; t < ids.size(); ++t) {
      if (t % static_cast<size_t>(samples) == 0) {
        cell.ids.push_back(ids[t]);
      } else {
        cell.cache->release(ids[t]);
      }
    }
    cell.prompt = prompt_tokens(point_) > 1 ? prompt_tokens(point_) : 0;
    cell.account(std::vector<int64_t>(cell.ids.size(), model.tokens()));
  }

  // Bytes of all samples, and the part of their rows that they share with earlier samples.
  void account_samples(measure::Cell& cell, std::span<const SequenceId> ids) const {
    cell.result[kSamplesPerPrompt] = point_.experiment->settings[kSamplesKey];
    cell.result[kSamplesHeldBytes] =
        cell.ledger->payload().current_bytes + cell.ledger->metadata().current_bytes;
    const int64_t copied = cell.ledger->copied_bytes(), shared = shared_row_bytes(*cell.cache, ids);
    // Copies made for reading say nothing about stored rows.
    const bool in_place = cell.ledger->copied_bytes() == copied && cell.ledger->disk().current_bytes == 0;
    if (in_place && !point_.context->gpu()) cell.result[kSamplesSharedBytes] = shared;
  }

  // Returns the texts of all that ran, [texts()] each, and the full cache at the end. Ids where no tokenizer or no Python reads them.
  std::vector<io::TextOfTokens> texts_of(const std::vector<Writing>& writings,
                                         const std::vector<int>& full) const {
    std::vector<int> ids;
    for (const Writing& w : writings) {
      if (measure::runs(*w.cell)) ids.insert(ids.end(), w.ids.begin(), w.ids.end());
    }
    ids.insert(ids.end(), full.begin(), full.end());
    const int64_t length = point_.seq_len, prompt = prompt_tokens(point_);
    try {
      if (const std::string tokenizer = point_.source->tokenizer(); !tokenizer.empty())
        return io::texts_of_tokens(tokenizer, ids, length, prompt);
    } catch (const std::invalid_argument&) {
    }
    std::vector<io::TextOfTokens> texts;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto at = static_cast<int64_t>(i) % length;
      if (at == 0) texts.emplace_back();
      std::string& text = at < prompt ? texts.back().prompt : texts.back().rest;
      text.append(text.empty() ? "" : " ").append(std::to_string(ids[i]));
    }
    return texts;
  }

  void compare(Writing& w, const std::vector<int>& full, std::span<const io::TextOfTokens> own,
               std::span<const io::TextOfTokens> full_texts) {
    const int64_t length = point_.seq_len, prompt = prompt_tokens(point_), written = length - prompt;
    std::vector<double> common;
    std::vector<results::Row> rows;
    for (int s = 0; s < texts(); ++s) {
      const std::span got =
          std::span(w.ids).subspan(static_cast<size_t>(s * length), static_cast<size_t>(length));
      const std::span want =
          std::span(full).subspan(static_cast<size_t>(s * length), static_cast<size_t>(length));
      const auto leaves = std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin() - prompt;
      common.push_back(static_cast<double>(leaves));
      results::Row row = results::row_of(w.cell->result);
      row[kTemperature] = w.sampling.temperature;
      row[kSequence] = s / w.sampling.samples;
      row[kTextSample] = s % w.sampling.samples;
      if (leaves < written) row[kCommonTokens] = static_cast<int64_t>(leaves);
      row[kPrompt] = own[static_cast<size_t>(s)].prompt;
      row[kText] = own[static_cast<size_t>(s)].rest;
      row[kFullText] = full_texts[static_cast<size_t>(s)].rest;
      rows.push_back(std::move(row));
    }
    results_.add(kTexts, rows);
    results::Row& cell = w.cell->result;
    cell[kTemperature] = w.sampling.temperature;
    cell[kGeneratedTokens] = written;
    cell[kCommonTokensP50] = math::median(common);
    cell[kCommonTokensMin] = static_cast<int64_t>(*std::min_element(common.begin(), common.end()));
    const auto same = std::count(common.begin(), common.end(), static_cast<double>(written));
    cell[kSameTexts] = static_cast<int64_t>(same);
    cell[results::kVersus] = parse_spec("contiguous").print();
  }

  const measure::SweepPoint& point_;
  const measure::RunControl& control_;
  results::ResultsFolder& results_;
  measure::PointProgress progress_;
  std::vector<int> prompts_;  // [batch, prompt]
};

std::vector<results::Row> run_generate(const measure::SweepPoint& point, const measure::RunControl& control,
                                       results::ResultsFolder& results) {
  return GenerateRun(point, control, results).run();
}

}  // namespace

constexpr const config::AnyKey* kGenerateKeys[] = {&kPromptKey, &kTemperatureKey, &kSamplesKey};
constexpr std::array kOwnOfGenerate{ColumnGroup{kGenerateColumns}, ColumnGroup{results::kVersusColumns}};
constexpr auto kGenerateGroups = joined(kOfCells, kOfModelRuns, kOwnOfGenerate);
constexpr const results::Table* kGenerateTables[] = {&kTexts};

// Generated tokens beyond those in common with the full cache's text.
const ErrorMeasure kTextError{
    [](const results::Row& row) {
      return row[kCommonTokensP50]
                 ? exactly(static_cast<double>(*row[kGeneratedTokens]) - *row[kCommonTokensP50])
                 : Measured{};
    },
    [](const results::Row& row) {
      return number(row[kCommonTokensP50], "%g") + "/" + number(row[kGeneratedTokens], "%g");
    },
    [](const results::Row& row) { return "same tokens " + kTextError.in_short(row); }, 0.0, "the same text"};
const TableColumn kGenerateTable[] = {kTokenBytesText,
                                      {"temperature", shown<kTemperature, "%g">},
                                      {"same tokens p50", shown<kCommonTokensP50, "%g">},
                                      {"min", shown<kCommonTokensMin, "%g">},
                                      {"same texts", shown<kSameTexts, "%g">},
                                      {"of", shown<results::kBatch, "%g">},
                                      kRateText};

constinit const Experiment kGenerate{
    .info = {.name = "generate",
             .help = "generated text: first difference from the full f32 cache's",
             .keys = kGenerateKeys,
             .needs_model = true},
    .check = check_windows,
    .columns = kGenerateGroups,
    .tables = kGenerateTables,
    .table = kGenerateTable,
    .error = &kTextError,
    .plan = plan_generate,
    .run = run_generate};

}  // namespace kv::experiments
