// The task experiment: questions that need a certain part of the text, which a mean loss over all tokens hides. The answer is read
// as it ought to be, token by token: greedy decoding gives it if and only if each of its tokens is the likeliest after those before it,
// so that all caches of a sweep point read the same tokens side by side.
#include <algorithm>
#include <stdexcept>

#include "harness/config/key.h"
#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/reading_keys.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/task/columns.h"
#include "harness/experiments/task/questions.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/mapped_file.h"
#include "harness/io/paths.h"
#include "harness/math/proportions.h"

namespace kv::experiments {
namespace {

// Throws std::invalid_argument for another word than the column's two.
template <const results::TextColumn& column>
void check_word(const std::string& text) {
  const std::vector<std::string> words = results::words_of(column.values);
  if (text != words[0] && text != words[1])
    throw std::invalid_argument("'" + text + "' is neither \"" + words[0] + "\" nor \"" + words[1] + "\"");
}

const config::Axis<std::string> kTaskAxis{
    kTaskName,
    "task",
    config::SharedTable::kOwn,
    {"single"},
    config::text_list(check_task_name),
    "what the text asks for: single, keys, two, queries, values, lookup, variables, words, copy; by RULER's "
    "names: niah_single_2, niah_multikey_1, niah_multivalue, niah_multiquery, vt, cwe, fwe"};
const config::Axis<int64_t> kDepthAxis{kDepth,
                                       "depth",
                                       config::SharedTable::kOwn,
                                       {10, 50, 90},
                                       config::token_list(),
                                       "percent of the text before what is asked for"};
const config::Axis<std::string> kQueryAxis{kQuery,
                                           "query",
                                           config::SharedTable::kOwn,
                                           {"after"},
                                           config::text_list(check_word<kQuery>),
                                           "before: the question, of two the first, is part of the prompt "
                                           "that a policy compresses; after: it follows"};
const config::Axis<std::string> kTemplateAxis{
    kTemplate,
    "template",
    config::SharedTable::kOwn,
    {"plain"},
    config::text_list(check_word<kTemplate>),
    "chatml: text and question are a user's turn, the answer begins the assistant's; for models whose "
    "tokenizer has <|im_start|>"};
const config::Key<double> kFloorKey{"floor", config::SharedTable::kOwn, 0.5, config::number(0.0, 1.0),
                                    "share of answers below which the full cache cannot do a task"};

// The questions of a sweep point, a sequence each.
struct Asked {
  measure::Passages passages;
  std::vector<int64_t> answers;  // [sequences]: first tokens
  measure::StepSchedule schedule;
};

Asked asked(const measure::SweepPoint& point) {
  constexpr uint64_t kStream = 0x7461'736b;  // "task"
  const std::filesystem::path file = io::find_input("configs/tasks.txt", "pieces of tasks");
  const measure::Passages windows = text_windows(point, point.seq_len);
  const Lexicon lexicon(io::read_text(file), point.source->ids_of(file.string()));
  Asked all{
      .passages = {.sequences = point.batch, .length = point.seq_len, .ids = {}, .first = point.seq_len},
      .answers = {},
      .schedule = {.prompt = point.seq_len, .full_prompt = settings_of(point)[kPrefillKey] == "full"}};
  for (int s = 0; s < point.batch; ++s) {
    const auto window = std::span(windows.ids).subspan(static_cast<size_t>(s * (point.seq_len + 1)));
    const uint64_t key = math::random::key({point.config->seed, kStream, static_cast<uint64_t>(s)});
    Question q;
    try {
      q = ask(point.axes[kTaskName], lexicon, window, point.seq_len + 1, *point.axes[kDepth],
              point.axes[kTemplate] == "chatml", key);
    } catch (const std::invalid_argument& e) {
      throw std::invalid_argument(config_prefix(point) + e.what());
    }
    all.passages.ids.insert(all.passages.ids.end(), q.ids.begin(), q.ids.end());
    all.answers.push_back(q.answer);
    all.passages.first = std::min(all.passages.first, q.answer - 1);
    all.schedule.prompt =
        std::min(all.schedule.prompt, point.axes[kQuery] == "before" ? q.asked : q.question);
  }
  // The token before the answer is each cache's own to read, or the full cache would give the answer's first token for all.
  if (all.schedule.full_prompt) all.schedule.prompt = std::min(all.schedule.prompt, all.passages.first);
  return all;
}

void check_task(const measure::SweepPoint& point) {
  check_length(point, point.seq_len, "task.seq_len");
  if (*point.axes[kDepth] > 100)
    throw std::invalid_argument(config_prefix(point) + "depth " + std::to_string(*point.axes[kDepth]) +
                                " is beyond the text's end: give percent, at most 100");
  asked(point);
}

int64_t first_task_step(const measure::SweepPoint& point) { return asked(point).schedule.prompt; }

void plan_task(measure::SweepPoint& point) {
  add_variants(point, "task " + point.axes[kTaskName] + " depth " + std::to_string(*point.axes[kDepth]) +
                          " query " + point.axes[kQuery] +
                          (point.axes[kTemplate] == "plain" ? "" : " " + point.axes[kTemplate]) +
                          (settings_of(point)[kPrefillKey] == "full" ? "" : " prefill stored"));
  const Asked all = asked(point);
  fit_readings(point, all.passages.first, all.schedule);
}

void score(results::Row& cell, const Asked& all, std::span<const measure::Prediction> predictions,
           double floor) {
  std::string& outcomes = cell[kOutcomes];
  double credit = 0;
  const int64_t length = all.passages.length;
  for (int s = 0; s < all.passages.sequences; ++s) {
    const int64_t first = all.answers[static_cast<size_t>(s)] - 1;
    const auto answer =
        predictions.subspan(static_cast<size_t>(s * length + first), static_cast<size_t>(length - first));
    const auto right = std::count_if(answer.begin(), answer.end(), [](const auto& p) { return p.right; });
    const auto full = std::count_if(answer.begin(), answer.end(), [](const auto& p) { return p.full_right; });
    const bool all_right = right == std::ssize(answer), full_all = full == std::ssize(answer);
    outcomes += all_right ? (full_all ? 'b' : 'c') : full_all ? 'f' : 'n';
    credit += static_cast<double>(right) / static_cast<double>(answer.size());
  }
  const int64_t asked = all.passages.sequences;
  const auto count = [&](char outcome) { return std::ranges::count(outcomes, outcome); };
  cell[kRight] = count('b') + count('c');
  cell[kFullRight] = count('b') + count('f');
  cell[kUsable] = static_cast<double>(*cell[kFullRight]) >= floor * static_cast<double>(asked) ? "yes" : "no";
  const math::ConfidenceInterval interval = math::wilson_interval(*cell[kRight], asked);
  cell.set(kAccuracy, static_cast<double>(*cell[kRight]) / static_cast<double>(asked), interval);
  cell[kCredit] = credit / static_cast<double>(asked);
  cell[kDifferenceP] = math::mcnemar_p(count('c'), count('f'));
  // All answers of the run decide (judge_tasks), not losses.
  if (cell[results::kVerdict] != "baseline") cell[results::kVerdict].clear();
}

std::vector<results::Row> run_task(const measure::SweepPoint& point, const measure::RunControl& control,
                                   results::ResultsFolder& results) {
  const Asked all = asked(point);
  const auto score_cell = [&](results::Row& cell, std::span<const measure::Prediction> predictions) {
    score(cell, all, predictions, settings_of(point)[kFloorKey]);
  };
  return run_reading(point, control, results,
                     {.passages = all.passages, .schedule = all.schedule, .score = score_cell});
}

std::string accuracy_text(const results::Row& row) { return with_interval(row, kAccuracy, "%.2f"); }

std::string answers_verdict(const results::Row& row) {
  if (row[kUsable] == "no") return "the model cannot do it";
  std::string verdict = row[results::kVerdict];
  std::ranges::replace(verdict, '_', ' ');
  return verdict;
}

constexpr const config::AnyAxis* kTaskAxes[] = {&config::kBatch, &config::kSeqLen, &kTaskAxis,
                                                &kDepthAxis,     &kQueryAxis,      &kTemplateAxis};
constexpr const config::AnyKey* kTaskKeys[] = {&kPrefillKey, &kFloorKey, &kStatedContextKey};

}  // namespace

constexpr auto kTaskGroups =
    joined(kOfCells, kTaskColumns, measure::kDivergenceColumns, measure::kSideBySideColumns, kOfModelRuns,
           kOfReadings, measure::kPrefillColumns);

// The largest loss of answers that is not excluded: a weak test makes no cache exact.
const ErrorMeasure kTaskError{
    [](const results::Row& row) {
      if (!row[kPooledChange] || row[kUsable] == "no") return Measured{};
      return exactly(row[results::kVerdict] == "identical" ? 0.0 : -*row[kPooledChange.low]);
    },
    [](const results::Row& row) { return "right " + number(row[kPooledRight], "%g"); },
    [](const results::Row& row) {
      return "right " + number(row[kPooledRight], "%g") + " of " + number(row[kPooledQuestions], "%g") +
             ", full cache " + number(row[kPooledFullRight], "%g");
    },
    0.1,
    "≤ 10 points lost",
    "at most 10 points lost"};
const TableColumn kTaskTable[] = {
    kTokenBytesText,
    {"right", shown<kRight, "%g">},
    {"of", shown<results::kBatch, "%g">},
    {"share (95 %)", accuracy_text},
    {"right tokens",
     [](const results::Row& row) { return row[kCredit] ? format("%.0f %%", 100 * *row[kCredit]) : "-"; }},
    {"full cache", shown<kFullRight, "%g">},
    {"verdict, over all depths and lengths", answers_verdict}};

constinit const Experiment kTask{.info = {.name = "task",
                                          .help = "questions about a text: answers that a cache still gives",
                                          .axes = kTaskAxes,
                                          .keys = kTaskKeys,
                                          .needs_model = true},
                                 .first_step = first_task_step,
                                 .check = check_task,
                                 .columns = kTaskGroups,
                                 .table = kTaskTable,
                                 .error = &kTaskError,
                                 .names_prefill = true,
                                 .calls_functions = true,
                                 .plan = plan_task,
                                 .run = run_task,
                                 .judge = judge_tasks};

}  // namespace kv::experiments
