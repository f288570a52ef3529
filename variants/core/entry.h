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
#include "variants/core/unit_ring.h"

namespace kv {

// One stage with every parameter filled in, as checked text (`"16"`, `"0.25"`, `"copy"`, `"q8_0"`).
struct Stage {
  std::string name;
  std::map<std::string, std::string> values;

  int64_t integer(const std::string& key) const;
  // A decimal number with up to two places, times 100.
  int64_t hundredths(const std::string& key) const;
  // A number of rows, or a share of `whole` rounded to the nearest, at least 1.
  int64_t rows(const std::string& key, int64_t whole) const;
  // True if the value names KV head `head` of `heads`: by number, as in "0+3", or as a share of the first heads, as in
  // "0.5", rounded to the nearest. Throws std::invalid_argument for a number that is no head.
  bool names_head(const std::string& key, int head, int heads) const;
  const std::string& text(const std::string& key) const;
  friend bool operator==(const Stage&, const Stage&) = default;
};

struct Parameter {
  // kRows: a number of rows, or a share of max_tokens as in "0.25". kDecimal: a number with up to two places.
  // kHeads: KV heads of a layer, by number or as a share of them. kCodec: a codec with its parameters.
  enum class Kind { kInteger, kRows, kDecimal, kChoice, kText, kHeads, kCodec };
  std::string_view name;
  Kind kind;
  std::string_view fallback;              // the default, as text
  int64_t min = 0, max = 0;               // numbers, both included; kDecimal: hundredths
  std::vector<std::string_view> choices;  // kChoice; kCodec: some that the contract tests try
  std::string_view help;
  // Numbers, besides the default, that the contract tests try; kDecimal: hundredths.
  std::vector<int64_t> trials = {};
  // A word for a number that the model's layer gives; empty: there is none.
  std::string_view word = {};
  // The parameter sizes a cache and does not change the sequences in it.
  bool is_capacity = false;
  // K and V have it together: no side of a split has it alone.
  bool is_of_both_sides = false;
  // Its value may stand first, without the name.
  bool is_first = false;

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
  // The parameter with a word for rows that a model's layer knows.
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
  // A choice that may be a number instead.
  Parameter or_number(int64_t least, int64_t most, std::vector<int64_t> some) const {
    Parameter copy = *this;
    copy.min = least;
    copy.max = most;
    copy.trials = std::move(some);
    return copy;
  }
  Parameter as_first() const {
    Parameter copy = *this;
    copy.is_first = true;
    return copy;
  }
  Parameter of_both_sides() const {
    Parameter copy = *this;
    copy.is_of_both_sides = true;
    return copy;
  }
  // The first is the default.
  static Parameter codec(std::string_view name, std::vector<std::string_view> some, std::string_view help) {
    return {name, Kind::kCodec, some.front(), 0, 0, some, help};
  }
  // Any text without ',' and ')', such as a path.
  static Parameter text(std::string_view name, std::string_view fallback, std::string_view help) {
    return {name, Kind::kText, fallback, 0, 0, {}, help};
  }
  static constexpr int64_t kMostRows = int64_t{1} << 30;
  static constexpr int64_t kMostHeads = 1023;  // the largest number of one
  // "1…1024", "rows or 0.x", or "view|copy".
  std::string range() const;
  // Values other than the default that a test of every variant tries: each choice, or `trials`.
  std::vector<std::string> trial_values() const;
};

// 150 to "1.5", the canonical text; and from any way of writing the number, or -1.
std::string print_hundredths(int64_t hundredths);
int64_t read_hundredths(std::string_view text);

// Declared by every kind of variant.
struct Entry {
  std::string_view name;
  std::string_view help;    // one line
  std::string_view source;  // the paper or system it is known from; may be empty
  std::vector<Parameter> parameters;
  // Why no engine can deploy it, as a clause: it is measured, and no answer recommends it. Empty: one can.
  std::string_view oracle = {};
};

// A stage of the entry's defaults.
Stage default_stage(const Entry& entry);

struct RetentionEntry;

// A pool of equal blocks that all sequences of a placement share.
struct PoolSettings {
  int64_t block_rows = 1;
  int64_t blocks = 0;          // 0: enough for every sequence at its longest
  int64_t segment_blocks = 0;  // blocks that come and go together; 0: all are there from the start
  bool shuffled = false;       // free blocks are used in no order
};

// The tiers of a placement: rows move on in pieces, once all rows of a piece are older than the newest `hot_rows` (to the
// warm tier) or than the newest hot_rows + warm_rows (to the file).
struct TierSettings {
  int64_t hot_rows, warm_rows, piece_rows;
  std::string folder;      // the file's
  bool direct_io = false;  // the file's reads and writes pass the page cache by
  double link_gbps = 0.0;  // reads of the file are slowed to this rate; 0: they are not
};

// Units of one layer outside the memory that rows are stored in first, and the bytes of all heads.
struct OuterTiers {
  int64_t warm_units = 0, disk_units = 0;  // one head's
  int64_t warm_bytes = 0, disk_bytes = 0;
};

struct TierTraits {
  TierSettings (*settings)(const Stage& stage);
  // The closed form by tier. PlacementTraits::layer_bytes counts the warm bytes as well.
  OuterTiers (*layer_tiers)(const Stage& stage, const PlacementContext& context, int64_t used);
};

// How attention reads rows: where they are stored, from one copy of all rows, or from a copy for every query head.
enum class ReadMode { kInPlace, kCopy, kRepeat };

class Placement;
struct PlacementTraits;
std::unique_ptr<Placement> make_placement(const PlacementTraits& traits, const Stage& stage,
                                          const PlacementContext& context);

// The default is one segment that has room for all rows from the start.
struct PlacementTraits {
  // Rows of a segment: lists grow by whole segments, which forks and prefixes share. Null: a list is one segment, of which a
  // fork gets a copy.
  int64_t (*segment_rows)(const Stage& stage) = nullptr;
  // Units that one segment has room for while it holds so many. Null: all that there can be.
  int64_t (*capacity)(const Stage& stage, int64_t units) = nullptr;
  // The closed forms that the ledger is compared with, payload and metadata together. layer_bytes: one layer of one
  // sequence with `used` units in use. shared_bytes: all layers and sequences together, besides; used[i] units are in use
  // in every layer of sequence i (or [sequences, heads] where heads are placed one by one), and none has gone.
  int64_t (*layer_bytes)(const Stage& stage, const PlacementContext& context, int64_t used);
  int64_t (*shared_bytes)(const Stage& stage, const PlacementContext& context,
                          std::span<const int64_t> used) = nullptr;
  // Why such rows cannot be placed, or empty if they can. Null: all can.
  std::string (*refuses)(const Stage& stage, const Codec& codec, const RetentionEntry& retention) = nullptr;
  // Capabilities. Null or false: the placement has none of the kind.
  PoolSettings (*pool)(const Stage& stage) = nullptr;
  void (*set_pool_blocks)(Stage& stage, int64_t blocks) = nullptr;  // with `pool`
  const TierTraits* tiers = nullptr;
  ReadMode (*read)(const Stage& stage) = nullptr;  // null: in place
  // Rows that one segment grows by; 1 where it does not depend on them. Null: no fixed number.
  int64_t (*grain_rows)(const Stage& stage) = nullptr;
  // Another only in tests.
  decltype(&make_placement) make = make_placement;
};

struct PlacementEntry : Entry, PlacementTraits {
  ReadMode read_mode(const Stage& stage) const { return read ? read(stage) : ReadMode::kInPlace; }
  bool shares_blocks() const { return segment_rows != nullptr; }
};

struct CodecTraits {
  Codec (*make)(const Stage& stage);
  // Makes attention multiply in 8 bits. Null: it cannot.
  void (*use_int8)(Stage& stage) = nullptr;
};

struct CodecEntry : Entry, CodecTraits {};

// Lengths that decide how many slots a KV head of a sequence has in use. `prompt`: tokens of its first step. `heads`: of
// a layer; 0: `head` is the one with the most slots.
struct SequenceLengths {
  int64_t max_tokens, tokens, prompt = 0;
  int head = 0, heads = 0;
  RowUnits units = {};  // of the codec
};

struct RetentionTraits {
  // State of one (sequence, layer, kv head).
  std::unique_ptr<Retention> (*make)(const Stage& stage, const RetentionContext& context) = nullptr;
  // The closed forms that the ledger is compared with: slots in use, and bytes of metadata of one state.
  int64_t (*slots)(const Stage& stage, const SequenceLengths& lengths) = nullptr;
  int64_t (*metadata_bytes)(const Stage& stage, int64_t max_tokens) = [](const Stage&, int64_t) {
    return int64_t{0};
  };
  // Capabilities.
  // No token is ever lost and slot i holds token i, so that codecs may encode neighbouring rows together.
  bool keeps_all = false;
  // The kept tokens depend on attention or its queries: every token must attend, whether its answer is wanted or not.
  bool scores = false;
  // A sequence's first step is its prompt and must hold all of it.
  bool cuts_prompt = false;
  // Why a sequence cannot be truncated to fewer tokens than Retention::earliest(), as a clause. Not read where every
  // token is kept.
  std::string_view irreversible = "a full cache overwrites rows";
  // The heads of a layer keep different numbers of rows: a placement then keeps the rows of each head apart.
  bool ragged = false;
  // Not null where heads trade rows: rows that they trade at a time. All heads together keep the same number, and `slots`
  // is the mean.
  int64_t (*traded_rows)(const Stage& stage) = nullptr;
  // Not null where heads [kv_heads] share one budget: settles how many rows each keeps, once all have observed or been
  // shown a slice.
  void (*settle)(std::span<const std::unique_ptr<Retention>> heads) = nullptr;
  // Not null where layers differ: the retention of layer `layer` of the `layers` that keep rows.
  Stage (*of_layer)(const Stage& stage, int layer, int layers, int64_t max_tokens) = nullptr;
  // Not null where the oldest tokens go, so that a codec's units can go whole.
  UnitRing (*ring)(const Stage& stage, int64_t max_tokens, const RowUnits& units) = nullptr;
  // The first tokens whose slots stay theirs for good. Null: none where tokens are dropped.
  int64_t (*sinks)(const Stage& stage) = nullptr;
  // True where keys are stored before RoPE and rotated by their cache positions when they are read. Null: never.
  bool (*rotates_at_read)(const Stage& stage) = nullptr;
  // The user's function that it calls, "FILE:FUNCTION": nothing of it is timed. Null: none.
  std::string (*function)(const Stage& stage) = nullptr;
  // An entry of other traits for such a stage, or null. Null: the traits are every stage's.
  const RetentionEntry* (*with_other_traits)(const Stage& stage) = nullptr;
};

struct RetentionEntry : Entry, RetentionTraits {};

struct SelectionTraits {
  // State of one (sequence, layer, kv head). Null: every row is read, and nothing below is used.
  std::unique_ptr<Selection> (*make)(const Stage& stage, const SelectionContext& context) = nullptr;
  // The closed form that the ledger is compared with: bytes of metadata of one state.
  int64_t (*metadata_bytes)(const Stage& stage, const SelectionContext& context) =
      [](const Stage&, const SelectionContext&) { return int64_t{0}; };
  // Rows or pages that a choice among `rows` kept rows compares, and bytes of metadata that it reads.
  int64_t (*candidates)(const Stage& stage, int64_t rows) = [](const Stage&, int64_t rows) { return rows; };
  int64_t (*choice_bytes)(const Stage& stage, int64_t rows, int head_dim) = [](const Stage&, int64_t, int) {
    return int64_t{0};
  };
  // The closed form of the rows that it reads of `rows` kept ones.
  int64_t (*rows_read)(const Stage& stage, int64_t rows, int64_t max_tokens) = [](const Stage&, int64_t rows,
                                                                                  int64_t) { return rows; };
  // Why it cannot choose among rows that are kept and stored so, or empty if it can. Null: it can.
  std::string (*refuses)(const Codec& codec, const RetentionEntry& retention) = nullptr;
  // It chooses by attention weights, so attention reads every row before.
  bool weighs = false;
};

struct SelectionEntry : Entry, SelectionTraits {
  bool reads_all() const { return !make; }
};

// The `make` of an entry whose state is a T, made of stage and context.
template <class T>
std::unique_ptr<Retention> make_retention(const Stage& stage, const RetentionContext& context) {
  return std::make_unique<T>(stage, context);
}
template <class T>
std::unique_ptr<Selection> make_selection(const Stage& stage, const SelectionContext& context) {
  return std::make_unique<T>(stage, context);
}

}  // namespace kv
