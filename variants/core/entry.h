// The entry that a variant's own file defines. The one table in variants/list.h lists them all.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "variants/core/codec.h"
#include "variants/core/placement.h"
#include "variants/core/retention.h"
#include "variants/core/selection.h"

namespace kv {

// One stage with every parameter filled in, as checked text (`"16"`, `"0.25"`, `"copy"`, `"q8_0"`).
struct Stage {
  std::string name;
  std::map<std::string, std::string> values;

  int64_t integer(const std::string& key) const;
  // A decimal number with up to two places, times 100.
  int64_t hundredths(const std::string& key) const;
  // A number of rows that may be given as a share of `whole`: then rounded to the nearest, at least 1.
  int64_t rows(const std::string& key, int64_t whole) const;
  // Whether KV head `head` of `heads` is one of those that are named: by number, as in "0+3", or as a share of them,
  // as in "0.5", which is the first so many, rounded to the nearest. Throws std::invalid_argument where a number is
  // no head of them.
  bool names_head(const std::string& key, int head, int heads) const;
  const std::string& text(const std::string& key) const;
  friend bool operator==(const Stage&, const Stage&) = default;
};

struct Parameter {
  // kRows: a number of rows, or a share of max_tokens as in "0.25". kDecimal: a number with up to two places.
  // kHeads: KV heads of a layer, by number or as a share of them.
  enum class Kind { kInteger, kRows, kDecimal, kChoice, kText, kHeads };
  std::string_view name;
  Kind kind;
  std::string_view fallback;              // the default, as text
  int64_t min = 0, max = 0;               // numbers, both included; kDecimal: hundredths
  std::vector<std::string_view> choices;  // kChoice
  std::string_view help;
  // Numbers, besides the default, that the contract tests try; kDecimal: hundredths.
  std::vector<int64_t> trials = {};
  // A word that stands for a number which the model's layer gives; empty: there is none.
  std::string_view word = {};
  // Says how much room a cache has, and nothing of the sequences in it.
  bool is_capacity = false;

  static Parameter integer(std::string_view name, std::string_view fallback, int64_t min, int64_t max,
                           std::vector<int64_t> trials, std::string_view help) {
    return {name, Kind::kInteger, fallback, min, max, {}, help, std::move(trials)};
  }
  static Parameter rows(std::string_view name, std::string_view fallback, std::vector<int64_t> trials,
                        std::string_view help) {
    return {name, Kind::kRows, fallback, 1, kMostRows, {}, help, std::move(trials)};
  }
  static Parameter decimal(std::string_view name, std::string_view fallback, int64_t min_hundredths,
                           int64_t max_hundredths, std::vector<int64_t> trials, std::string_view help) {
    return {name, Kind::kDecimal, fallback, min_hundredths, max_hundredths, {}, help, std::move(trials)};
  }
  static Parameter choice(std::string_view name, std::vector<std::string_view> choices,
                          std::string_view help) {
    return {name, Kind::kChoice, choices.front(), 0, 0, choices, help};
  }
  static Parameter heads(std::string_view name, std::string_view fallback, std::string_view help) {
    return {name, Kind::kHeads, fallback, 0, kMostHeads, {}, help};
  }
  // With a word of its own: rows that a model's layer knows.
  Parameter or_word(std::string_view own) const {
    Parameter copy = *this;
    copy.word = own;
    return copy;
  }
  Parameter of_capacity() const {
    Parameter copy = *this;
    copy.is_capacity = true;
    return copy;
  }
  // Any text without ',' and ')', such as a path.
  static Parameter text(std::string_view name, std::string_view fallback, std::string_view help) {
    return {name, Kind::kText, fallback, 0, 0, {}, help};
  }
  static constexpr int64_t kMostRows = int64_t{1} << 30;
  static constexpr int64_t kMostHeads = 1023;  // the largest number of one
  // "1…1024", "rows or 0.x", or "view|copy".
  std::string range() const;
  // Values other than the default that a test of every variant should try: each choice, or `trials`.
  std::vector<std::string> trial_values() const;
};

// 150 to "1.5", the only way in which such a number is printed; and from any way of writing it, or -1.
std::string print_hundredths(int64_t hundredths);
int64_t read_hundredths(std::string_view text);

// What every kind of variant declares.
struct Entry {
  std::string_view name;
  std::string_view help;    // one line
  std::string_view source;  // the paper or system it is known from; may be empty
  std::vector<Parameter> parameters;
};

struct RetentionEntry;

// What of a layer's units lies outside the memory that rows are stored in first, all heads together.
struct OuterTiers {
  int64_t warm_units = 0, disk_units = 0;  // of one head
  int64_t warm_bytes = 0, disk_bytes = 0;
};

struct PlacementEntry : Entry {
  std::unique_ptr<Placement> (*make)(const Stage& stage, const PlacementContext& context);
  // The closed form that the ledger is compared with, payload and metadata together: what one layer of one
  // sequence holds when `used` of its units hold data, and what is held whatever the sequences do.
  int64_t (*layer_bytes)(const Stage& stage, const PlacementContext& context, int64_t used);
  // The latter of sequences with so many units used in every layer, of which none has gone or gone back; of layers
  // whose heads are placed one by one, those of each head of each sequence.
  int64_t (*shared_bytes)(const Stage& stage, const PlacementContext& context,
                          std::span<const int64_t> used) = nullptr;
  // The capability column: empty if such rows can be placed, else the reason. Null: all can.
  std::string (*refuses)(const Stage& stage, const Codec& codec, const RetentionEntry& retention) = nullptr;
  // As layer_bytes, of which it counts the warm part again, by tier. Null: there is one tier.
  OuterTiers (*layer_tiers)(const Stage& stage, const PlacementContext& context, int64_t used) = nullptr;
  // The codecs of the warm tier and of the disk. Null: all rows stay as the cache's codec stores them.
  std::array<Codec, 2> (*tier_codecs)(const Stage& stage, const Codec& of_cache) = nullptr;
  // Capability: rows lie in blocks that sequences may share by what is in them.
  bool shares_blocks = false;
  // Rows that memory is taken by at a time; 1 where how much there is does not depend on them. Null: by no fixed number.
  int64_t (*grain_rows)(const Stage& stage) = nullptr;
};

struct CodecEntry : Entry {
  Codec (*make)(const Stage& stage);
};

// What decides how many slots a KV head of a sequence has in use. `prompt`: the tokens of its first step. `heads`: of
// a layer; 0: `head` is the one with the most.
struct SequenceLengths {
  int64_t max_tokens, tokens, prompt = 0;
  int head = 0, heads = 0;
};

struct RetentionEntry : Entry {
  // State of one (sequence, layer, kv head).
  std::unique_ptr<Retention> (*make)(const Stage& stage, const RetentionContext& context);
  // The closed forms that the ledger is compared with: slots in use, and bytes of metadata of one state.
  int64_t (*slots)(const Stage& stage, const SequenceLengths& lengths);
  int64_t (*metadata_bytes)(const Stage& stage, int64_t max_tokens);
  // Capabilities.
  // No token is ever lost and slot i holds token i, so that codecs may encode neighbouring rows together.
  bool keeps_all;
  // What is kept depends on attention or its queries: every token must attend, whether its answer is wanted or not.
  bool scores = false;
  // A sequence's first step is its prompt and must hold all of it.
  bool cuts_prompt = false;
  // Why a sequence cannot be truncated to fewer tokens than Retention::earliest(), as a clause. Not looked at
  // where every token is kept.
  std::string_view irreversible = "a full cache overwrites rows";
  // The heads of a layer keep different numbers of rows: a placement then keeps the rows of each head apart.
  bool ragged = false;
  // Where what they keep decides how many: rows that they trade at a time, all heads together always keeping the same
  // number. `slots` is then the mean.
  int64_t (*traded_rows)(const Stage& stage) = nullptr;
  // Where layers differ: the retention of layer `layer` of the `layers` that keep rows. Null: all have this one.
  Stage (*of_layer)(const Stage& stage, int layer, int layers, int64_t max_tokens) = nullptr;
};

struct SelectionEntry : Entry {
  // State of one (sequence, layer, kv head). Null: every row is read, and nothing below is looked at.
  std::unique_ptr<Selection> (*make)(const Stage& stage, const SelectionContext& context) = nullptr;
  // The closed form that the ledger is compared with: bytes of metadata of one state.
  int64_t (*metadata_bytes)(const Stage& stage, const SelectionContext& context) = nullptr;
  // Of so many kept rows: how many things a choice compares, rows or pages, and bytes of metadata that it reads.
  int64_t (*candidates)(const Stage& stage, int64_t rows) = nullptr;
  int64_t (*choice_bytes)(const Stage& stage, int64_t rows, int head_dim) = nullptr;
  // The capability column: empty if it can choose among rows that are kept and stored so, else the reason.
  std::string (*refuses)(const Codec& codec, const RetentionEntry& retention) = nullptr;
  // It chooses by attention weights, so attention reads every row before.
  bool weighs = false;

  bool reads_all() const { return !make; }
};

}  // namespace kv
