// python: a user's function in Python scores tokens, and those of the smallest scores go (configs/policies.md). It gets all
// heads of a layer at once, with their rows as they came, before any codec.
//
// when=prompt cuts a prompt down once, as snapkv does. Else `budget` rows are held from the first token on, as by h2o: once
// they are full the function is called, and its `when` smallest scores name the rows that the next so many tokens
// overwrite; of equal ones the lowest slot. when=step calls it at every token. The first `sinks` tokens and the newest
// `recent` are not for it to drop.
//
// The function reads copies of the rows. They are this lab's and not the policy's, so nothing counts them: the ledger has an id
// a row and, outside prompts, a score, as for h2o.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "kernels/span.h"
#include "variants/core/user_function.h"
#include "variants/list.h"
#include "variants/retention/evicting.h"
#include "variants/retention/prompt_cut.h"

namespace kv::retention {
namespace {

constexpr int64_t kMostWeighed = 64;  // tokens of a slice whose queries leave a row of weights each

// The numbers of a stage. `every`: tokens between calls; 0: one call, after the prompt.
struct PythonSettings {
  int64_t budget, sinks, recent, window, every;
  bool weighs, weighs_newest, before_rope;
  PythonSettings(const Stage& stage, int64_t max_tokens)
      : budget(stage.rows("budget", max_tokens)),
        sinks(stage.integer("sinks")),
        recent(stage.integer("recent")),
        window(stage.integer("window")),
        every(stage.text("when") == "prompt" ? 0
              : stage.text("when") == "step" ? 1
                                             : stage.integer("when")),
        weighs(stage.text("attention") != "none"),
        weighs_newest(stage.text("attention") == "newest"),
        before_rope(stage.text("keys") == "before") {
    if (const int64_t least = sinks + recent + std::max<int64_t>(every, 1); budget < least)
      throw std::invalid_argument(
          "python: budget (" + std::to_string(budget) +
          " rows) must have room for sinks, recent and what a call drops: " + std::to_string(least));
  }
  int64_t most_weighed(int64_t tokens) const { return weighs ? std::min(tokens, kMostWeighed) : tokens; }
};

// A head's rows for the function, by slot.
struct ShownRows {
  int32_t key_dim = 0, value_dim = 0;
  std::vector<float> k, v;  // [slots, key_dim or value_dim]

  // Copies row i, which is that of `token`, to `slot`. `rope`: takes the token's rotation back; null: keeps it.
  void put(const SliceRows& rows, int64_t i, int64_t token, int64_t slot, const Rope* rope) {
    const auto slots = static_cast<size_t>(slot + 1);
    key_dim = rows.head_dim;
    value_dim = rows.value_dim;
    k.resize(std::max(k.size(), slots * static_cast<size_t>(key_dim)));
    v.resize(std::max(v.size(), slots * static_cast<size_t>(value_dim)));
    float* const key = k.data() + slot * key_dim;
    std::copy_n(rows.k + i * key_dim, key_dim, key);
    std::copy_n(rows.v + i * key_dim, value_dim, v.data() + slot * value_dim);
    if (!rope) return;
    Rope back = *rope;
    back.backwards = !back.backwards;
    back.amplitude = 1.0 / back.amplitude;
    std::vector<float> angles(static_cast<size_t>(key_dim));
    rope_angles(back, key_dim, token, angles.data());
    rotate(back.pairs, key_dim, angles.data(), key, key);
  }
  void save(Writer& to, int64_t slots) const {
    for (const int32_t number : {key_dim, value_dim}) to.put(slots > 0 ? number : 0);  // as of a new sequence
    to.put(std::span<const float>(k).first(static_cast<size_t>(slots * key_dim)));
    to.put(std::span<const float>(v).first(static_cast<size_t>(slots * value_dim)));
  }
  bool load(Reader& from, int64_t slots) {
    for (int32_t* number : {&key_dim, &value_dim}) {
      *number = from.get<int32_t>();
      if (*number < 0 || *number > kMaxHeadDim) return false;
    }
    k.resize(static_cast<size_t>(slots * key_dim));
    v.resize(static_cast<size_t>(slots * value_dim));
    for (auto* rows : {&k, &v}) from.get(std::span<float>(*rows));
    return true;
  }
};

// The part that both kinds of cut share: the function, and the rows it is shown.
struct Scripted {
  Scripted(const Stage& stage, const RetentionContext& context)
      : settings(stage, context.max_tokens),
        rope(settings.before_rope ? context.rope : nullptr),
        memory(context.memory) {
    if (!open_function) throw std::invalid_argument("python: no function in Python can be called here");
    scorer = open_function(stage.text("file"));
  }
  PythonSettings settings;
  const Rope* rope;
  Memory* memory;
  std::shared_ptr<UserFunction> scorer;
  ShownRows rows;
};

// A head whose kept tokens are to be scored.
struct ToScore {
  const Scripted* of;
  std::vector<int64_t> tokens;          // by slot
  std::span<const float> weights = {};  // by slot, if the function asks for attention
};

// The scores of a layer's heads, by slot.
std::vector<std::vector<float>> scores_of(const std::vector<ToScore>& heads) {
  const Scripted& of = *heads.front().of;
  TokensToScore all{.kv_heads = static_cast<int>(heads.size()),
                    .key_dim = of.rows.key_dim,
                    .value_dim = of.rows.value_dim,
                    .tokens = std::ssize(heads.front().tokens)};
  std::vector<int64_t> slots;
  for (const ToScore& head : heads) {
    const auto begin = std::ssize(slots);
    for (int64_t slot = 0; slot < all.tokens; ++slot) slots.push_back(slot);
    std::ranges::sort(slots.begin() + begin, slots.end(), {},
                      [&](int64_t slot) { return head.tokens[static_cast<size_t>(slot)]; });
    for (const int64_t slot : std::span(slots).subspan(static_cast<size_t>(begin))) {
      const float *const k = head.of->rows.k.data() + slot * all.key_dim, *const v = head.of->rows.v.data() +
                                                                                     slot * all.value_dim;
      all.k.insert(all.k.end(), k, k + all.key_dim);
      all.v.insert(all.v.end(), v, v + all.value_dim);
      all.position.push_back(static_cast<int32_t>(head.tokens[static_cast<size_t>(slot)]));
      if (of.settings.weighs) all.attention.push_back(head.weights[static_cast<size_t>(slot)]);
    }
  }
  const auto began = std::chrono::steady_clock::now();
  const std::vector<float> scores = of.scorer->score(all);
  of.memory->count_call(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  std::vector<std::vector<float>> by_slot(heads.size(), std::vector<float>(static_cast<size_t>(all.tokens)));
  for (size_t i = 0; i < slots.size(); ++i)
    by_slot[i / static_cast<size_t>(all.tokens)][static_cast<size_t>(slots[i])] = scores[i];
  return by_slot;
}

class PythonCut : public PromptCut {
 public:
  PythonCut(const Stage& stage, const RetentionContext& context)
      : PromptCut(PythonSettings(stage, context.max_tokens).budget, context), own_(stage, context) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<PythonCut>(*this); }

  Slice next(int64_t remaining) override {
    const int64_t tokens = find_prompt(remaining);
    if (count() >= tokens) return {.tokens = remaining};
    const int64_t unseen =
        own_.settings.weighs_newest ? std::max<int64_t>(0, tokens - own_.settings.window - count()) : 0;
    if (unseen > 0) return {.tokens = unseen, .shown = true};
    return {.tokens = own_.settings.most_weighed(remaining), .scored = own_.settings.weighs, .shown = true};
  }
  void observe(std::span<const float> weights) override {
    weights_.resize(static_cast<size_t>(prompt()));
    for (size_t slot = 0; slot < weights.size(); ++slot) weights_[slot] += weights[slot];
  }
  void show(const SliceRows& slice) override {
    for (int64_t i = 0; i < slice.n; ++i) {
      const int64_t token = count() - slice.n + i;
      own_.rows.put(slice, i, token, token, own_.rope);
    }
  }
  static void settle(std::span<const std::unique_ptr<Retention>> heads) {
    const auto& first = static_cast<const PythonCut&>(*heads.front());
    if (first.count() < first.prompt() || first.own_.rows.k.empty()) return;
    std::vector<ToScore> all;
    for (const auto& head : heads) {
      auto& own = static_cast<PythonCut&>(*head);
      all.push_back({&own.own_, std::vector<int64_t>(static_cast<size_t>(own.prompt())), own.weights_});
      std::iota(all.back().tokens.begin(), all.back().tokens.end(), int64_t{0});
    }
    const std::vector<std::vector<float>> scores = scores_of(all);
    for (size_t h = 0; h < heads.size(); ++h) static_cast<PythonCut&>(*heads[h]).keep_best(scores[h]);
  }

 private:
  void keep_best(std::span<const float> scores) {
    const auto [budget, sinks, recent] =
        std::tuple(this->budget(), own_.settings.sinks, own_.settings.recent);
    const std::span<const float> voted =
        scores.subspan(static_cast<size_t>(sinks), static_cast<size_t>(prompt() - sinks - recent));
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < sinks; ++i) tokens.push_back(i);
    for (const int64_t at : largest(voted, budget - sinks - recent)) tokens.push_back(at + sinks);
    for (int64_t i = prompt() - recent; i < prompt(); ++i) tokens.push_back(i);
    keep(std::move(tokens));
    own_.rows = {};
    weights_ = {};
  }

  Scripted own_;
  std::vector<float> weights_;  // [prompt]
};

class PythonSteps : public EvictingPolicy<PythonSteps, SlotScores::kOfKeys> {
 public:
  PythonSteps(const Stage& stage, const RetentionContext& context)
      : EvictingPolicy(stage, context), own_(stage, context) {}

  Slice next(int64_t remaining) override {
    const PythonSettings& by = own_.settings;
    const int64_t room = budget() - count();
    if (by.weighs_newest && room > by.every)
      return {.tokens = std::min(remaining, room - by.every), .shown = true};
    const int64_t tokens = std::clamp<int64_t>(room, 1, remaining);
    return {.tokens = by.most_weighed(tokens), .scored = by.weighs, .shown = true};
  }
  int64_t earliest() const override { return own_.settings.weighs ? count() : Evicting::earliest(); }
  void truncate(int64_t tokens) override {
    if (tokens < count()) victims_.clear();
    Evicting::truncate(tokens);
  }
  void observe(std::span<const float> weights) override {
    for (size_t slot = 0; slot < weights.size(); ++slot) scores()[slot] += weights[slot];
  }
  void show(const SliceRows& slice) override {
    for (int64_t i = 0; i < slice.n; ++i) {
      const int64_t token = count() - slice.n + i;
      own_.rows.put(slice, i, token, token < budget() ? token : victims_.front(), own_.rope);
    }
    if (count() > budget()) victims_.erase(victims_.begin());
  }
  static void settle(std::span<const std::unique_ptr<Retention>> heads) {
    const auto& first = static_cast<const PythonSteps&>(*heads.front());
    if (first.count() < first.budget() || !first.victims_.empty()) return;
    std::vector<ToScore> all;
    for (const auto& head : heads) {
      auto& own = static_cast<PythonSteps&>(*head);
      all.push_back({&own.own_, own.tokens_by_slot(), own.scores()});
    }
    const std::vector<std::vector<float>> scored = scores_of(all);
    for (size_t h = 0; h < heads.size(); ++h) static_cast<PythonSteps&>(*heads[h]).choose(scored[h]);
  }
  void save(Writer& to) const override {
    Evicting::save(to);
    own_.rows.save(to, slots());
    to.put(std::ssize(victims_));
    to.put(std::span<const int64_t>(victims_));
  }
  bool load(Reader& from, int64_t tokens) override {
    if (!Evicting::load(from, tokens) || !own_.rows.load(from, slots())) return false;
    const auto count = from.get<int64_t>();
    if (count < 0 || count > own_.settings.every) return false;
    victims_.resize(static_cast<size_t>(count));
    from.get(std::span<int64_t>(victims_));
    return std::ranges::all_of(victims_, [&](int64_t slot) { return slot >= 0 && slot < slots(); });
  }

 private:
  int64_t victim() const override { return victims_.front(); }

  void choose(std::span<const float> scored) {
    for (int64_t slot = 0; slot < budget(); ++slot) {
      const int64_t token = tokens()[static_cast<size_t>(slot)];
      if (token >= own_.settings.sinks && token <= count() - own_.settings.recent) victims_.push_back(slot);
    }
    std::ranges::stable_sort(victims_, {}, [&](int64_t slot) { return scored[static_cast<size_t>(slot)]; });
    victims_.resize(static_cast<size_t>(own_.settings.every));
    if (own_.settings.weighs_newest) clear_scores();
  }

  Scripted own_;
  std::vector<int64_t> victims_;  // slots in the order in which tokens to come overwrite them
};

const RetentionEntry* find_python_steps(const Stage& stage);

std::vector<Parameter> python_parameters() {
  return {Parameter::text("file", "", "FILE:FUNCTION; its name may be left out").as_first(),
          Parameter::rows("budget", "256", {32}, "rows kept, sinks and recent ones included"),
          Parameter::integer("sinks", "0", 0, 65536, {2}, "first tokens, never dropped"),
          Parameter::integer("recent", "0", 0, 65536, {8}, "newest tokens, never dropped"),
          Parameter::choice("when", {"prompt", "step"},
                            "tokens between two calls; prompt: one call, after the prompt; step: 1")
              .or_number(1, 65536, {4}),
          Parameter::choice("attention", {"none", "newest", "all"},
                            "queries whose weights it is told, summed: since the last call; all so far"),
          Parameter::integer("window", "32", 1, 65536, {16}, "attention=newest: last tokens of a prompt"),
          Parameter::choice("keys", {"after", "before"}, "keys as RoPE has rotated them, or before it")};
}

Entry python_about() {
  return {.name = "python",
          .help = "drops the tokens of the smallest scores of your function in Python",
          .source = "configs/policies.md",
          .parameters = python_parameters()};
}

const RetentionEntry python_steps = [] {
  RetentionTraits traits{.irreversible = "a full cache overwrites rows, and weights cannot be taken apart"};
  RetentionEntry entry = PythonSteps::entry(python_about(), traits);
  entry.parameters.pop_back();  // positions
  entry.rotates_at_read = nullptr;
  entry.scores = true;
  entry.settle = PythonSteps::settle;
  entry.function = [](const Stage& stage) { return stage.text("file"); };
  return entry;
}();

const RetentionEntry* find_python_steps(const Stage& stage) {
  return stage.text("when") == "prompt" ? nullptr : &python_steps;
}

}  // namespace

const RetentionEntry python = prompt_cut_entry<PythonCut, PythonSettings>(
    python_about(), {.settle = PythonCut::settle,
                     .function = [](const Stage& stage) { return stage.text("file"); },
                     .with_other_traits = find_python_steps});

}  // namespace kv::retention
