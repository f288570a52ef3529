#include "harness/generate.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>

#include "harness/paths.h"
#include "harness/quality.h"
#include "harness/sampling.h"
#include "harness/stats.h"

namespace kv {
namespace {

int64_t prompt_tokens(const BlockPlan& plan) { return std::max<int64_t>(1, plan.experiment->measure.prompt); }

std::string suffix(double temperature) {
  std::string text = std::to_string(temperature);  // six decimals
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return "temperature " + text;
}

// What one variant wrote at one temperature.
struct Writing {
  std::unique_ptr<LiveCell> cell;
  Sampling sampling;
  std::vector<int> ids = {};  // [batch, seq_len]
};

class GenerateRun {
 public:
  GenerateRun(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results)
      : plan_(plan), limits_(limits), results_(results), progress_(limits, steps_of(plan)) {
    const Passages windows = text_windows(plan, plan.seq_len);
    for (int s = 0; s < plan.batch; ++s) {
      for (int64_t i = 0; i < prompt_tokens(plan); ++i) prompts_.push_back(windows.id(s, i));
    }
  }

  // Empty if it was stopped. The full f32 cache writes first; then all variants side by side, each on one
  // thread.
  std::vector<Row> run() {
    std::vector<Row> rows;
    for (const double temperature : plan_.experiment->measure.temperature) {
      const Sampling sampling{.temperature = temperature, .seed = plan_.config->seed};
      const std::vector<int> full = full_text(sampling);
      std::vector<Writing> writings;
      for (const Spec& spec : plan_.experiment->axes.variants)
        writings.push_back({make_cell(plan_, spec, suffix(temperature)), sampling});
      write_all(writings);
      if (limits_.stop()) return {};
      for (Writing& w : writings) {
        if (runs(*w.cell)) compare(w, full);
        rows.push_back(w.cell->row);
      }
    }
    return rows;
  }

 private:
  static double steps_of(const BlockPlan& plan) {
    const size_t texts =
        plan.experiment->measure.temperature.size() * (plan.experiment->axes.variants.size() + 1);
    return static_cast<double>(texts) * static_cast<double>(plan.seq_len - prompt_tokens(plan));
  }

  // Every sequence's next tokens, with the cache behind `model`, until the block is stopped.
  std::vector<int> continue_with(CachedModel& model, const Sampling& sampling) {
    const auto stop = [&] {
      progress_.add(1);
      return limits_.stop();
    };
    return continue_prompts(model, prompts_, plan_.seq_len, sampling, stop);
  }

  std::vector<int> full_text(const Sampling& sampling) {
    Ledger ledger(limits_.memory_bytes);
    const auto cache = build_cache(parse_spec("contiguous"), cache_shape(plan_, plan_.batch), ledger);
    CachedModel model(*plan_.source->model(), *cache, plan_.batch);
    return continue_with(model, sampling);
  }

  void write_all(std::vector<Writing>& writings) {
    std::vector<std::exception_ptr> thrown(writings.size());
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t i = 0; i < writings.size(); ++i) {
      try {
        if (runs(*writings[i].cell)) write(writings[i]);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    }
    for (const std::exception_ptr& e : thrown) {
      if (e) std::rethrow_exception(e);
    }
  }

  void write(Writing& w) {
    LiveCell& cell = *w.cell;
    // As many caches are alive as there are threads.
    if (!fits(cell, 2 * omp_get_num_threads() * held_bytes(plan_, cell.spec), limits_)) return;
    try {
      cell.ledger = std::make_unique<Ledger>(limits_.memory_bytes);
      cell.cache = build_cache(cell.spec, cache_shape(plan_, plan_.batch), *cell.ledger);
      cell.row.set("kernel", cell.cache->kernel());
      CachedModel model(*plan_.source->model(), *cell.cache, plan_.batch);
      Stopwatch watch;
      w.ids = continue_with(model, w.sampling);
      const double seconds = watch.lap();
      if (limits_.stop()) return;
      account(cell, model);
      cell.row.set("tokens_per_s", static_cast<double>(w.ids.size()) / seconds);
      cell.row.set("status", "ok");
      cell.cache.reset();
    } catch (const std::invalid_argument& e) {
      give_up(cell, "unsupported", e.what());  // not at this geometry
    } catch (const std::bad_alloc&) {
      give_up(cell, "out_of_memory", "ran out of memory");
    }
  }

  // The last token that was chosen has not been read.
  void account(LiveCell& cell, const CachedModel& model) const {
    const std::span<const SequenceId> ids = model.sequences();
    cell.ids.assign(ids.begin(), ids.end());
    cell.prompt = prompt_tokens(plan_) > 1 ? prompt_tokens(plan_) : 0;
    cell.row.set("peak_bytes", cell.ledger->peak_total_bytes());
    cell.account(std::vector<int64_t>(ids.size(), model.tokens()));
  }

  void compare(Writing& w, const std::vector<int>& full) {
    const int64_t length = plan_.seq_len, prompt = prompt_tokens(plan_), written = length - prompt;
    std::vector<double> common;
    std::vector<Row> rows;
    for (int s = 0; s < plan_.batch; ++s) {
      const std::span got =
          std::span(w.ids).subspan(static_cast<size_t>(s * length), static_cast<size_t>(length));
      const std::span want =
          std::span(full).subspan(static_cast<size_t>(s * length), static_cast<size_t>(length));
      const auto leaves = std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin() - prompt;
      common.push_back(static_cast<double>(leaves));
      Row row(text_columns());
      row.set("cell", w.cell->key);
      row.set("variant", w.cell->row.text("variant"));
      row.set("temperature", w.sampling.temperature);
      row.set("sequence", s);
      if (leaves < written) row.set("common_tokens", static_cast<int64_t>(leaves));
      row.set("prompt", text_of(got.first(static_cast<size_t>(prompt))));
      row.set("text", text_of(got.subspan(static_cast<size_t>(prompt))));
      row.set("full_text", text_of(want.subspan(static_cast<size_t>(prompt))));
      rows.push_back(std::move(row));
    }
    results_.add_texts(rows);
    Row& cell = w.cell->row;
    cell.set("temperature", w.sampling.temperature);
    cell.set("generated_tokens", written);
    cell.set("common_tokens_p50", median(common));
    cell.set("common_tokens_min", *std::min_element(common.begin(), common.end()));
    const auto same = std::count(common.begin(), common.end(), static_cast<double>(written));
    cell.set("same_texts", static_cast<int64_t>(same));
    cell.set("versus", parse_spec("contiguous").print());
  }

  // Ids, where the text came without a tokenizer.
  std::string text_of(std::span<const int> ids) const {
    if (const Tokenizer* tokenizer = plan_.source->tokenizer()) return printable(tokenizer->decode(ids));
    std::string text;
    for (const int id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
    return text;
  }

  const BlockPlan& plan_;
  const BlockLimits& limits_;
  ResultsFolder& results_;
  BlockProgress progress_;
  std::vector<int> prompts_;  // [batch, prompt]
};

}  // namespace

void check_generate(const BlockPlan& plan) { check_quality(plan); }

std::vector<std::string> generate_keys(const BlockPlan& plan) {
  std::vector<std::string> keys;
  for (const double temperature : plan.experiment->measure.temperature) {
    for (const Spec& spec : plan.experiment->axes.variants)
      keys.push_back(plan.key(spec, suffix(temperature)));
  }
  return keys;
}

std::vector<Row> run_generate_block(const BlockPlan& plan, const BlockLimits& limits,
                                    ResultsFolder& results) {
  return GenerateRun(plan, limits, results).run();
}

std::string sample_documents(const SampleOptions& options) {
  const Model model(find_model(options.model).string());
  const Tokenizer tokenizer(find_input(options.tokenizer, "tokenizer").string(), model.config().vocab_size);
  if (options.tokens >= model.config().max_tokens) {
    throw std::invalid_argument("--tokens " + std::to_string(options.tokens) +
                                " and the mark before them are past the model's " +
                                std::to_string(model.config().max_tokens) + " positions");
  }
  Ledger ledger;
  const auto cache = build_cache(parse_spec("contiguous"),
                                 cache_shape(model.config(), options.documents, options.tokens + 1), ledger);
  CachedModel writer(model, *cache, options.documents);
  const std::vector<int> prompt = tokenizer.encode(options.prompt);
  std::vector<int> prompts;
  for (int d = 0; d < options.documents; ++d) prompts.insert(prompts.end(), prompt.begin(), prompt.end());
  const std::vector<int> ids = continue_prompts(writer, prompts, options.tokens + 1,
                                                {options.temperature, options.seed}, [] { return false; });
  std::string text;
  for (int d = 0; d < options.documents; ++d) {
    const auto document =
        std::span(ids).subspan(static_cast<size_t>(d) * static_cast<size_t>(options.tokens + 1),
                               static_cast<size_t>(options.tokens + 1));
    text += printable(tokenizer.decode(document)) + "\n<|endoftext|>\n";
  }
  return text;
}

}  // namespace kv
