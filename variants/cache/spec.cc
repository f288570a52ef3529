// A recursive-descent parser of one page; every mistake is shown under the character where it was seen.
#include "variants/cache/spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>

#include "variants/cache/near_names.h"
#include "variants/list.h"

namespace kv {
namespace {

std::string print_stage(const Stage& stage, const Entry& entry);

template <class Table>
std::vector<std::string_view> names_of(const Table& table) {
  std::vector<std::string_view> names;
  for (const auto* entry : table) names.push_back(entry->name);
  return names;
}

template <class Table>
const Entry* find(const Table& table, std::string_view name) {
  for (const auto* entry : table) {
    if (entry->name == name) return entry;
  }
  return nullptr;
}

// The stages behind the placement, in their order.
struct LaterStage {
  const char* kind;
  Stage Spec::*stage;
  const Entry* (*find)(std::string_view name);
  std::vector<std::string_view> (*names)();
};
constexpr std::array kLater{
    LaterStage{"codec", &Spec::codec, [](std::string_view name) { return find(kCodecs, name); },
               [] { return names_of(kCodecs); }},
    LaterStage{"retention", &Spec::retention, [](std::string_view name) { return find(kRetentions, name); },
               [] { return names_of(kRetentions); }},
    LaterStage{"selection", &Spec::selection, [](std::string_view name) { return find(kSelections, name); },
               [] { return names_of(kSelections); }},
};

// Reads a whole text as one number; false if it is none.
template <class T>
bool read_number(std::string_view text, T& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size();
}

// "0.250" -> "0.25"; empty if the text is not a decimal fraction between 0 and 1, both left out.
std::string canonical_share(std::string_view text) {
  if (text.find_first_not_of("0123456789.") != std::string_view::npos) return "";
  double share = 0.0;
  if (!read_number(text, share) || !(share > 0.0 && share < 1.0)) return "";
  std::array<char, 400> printed;  // 2^-1074 has 327 digits
  const auto [end, error] =
      std::to_chars(printed.data(), printed.data() + printed.size(), share, std::chars_format::fixed);
  return error == std::errc() ? std::string(printed.data(), end) : "";
}

class Parser {
 public:
  // `listed`: after the spec a space may follow, and more of the text.
  explicit Parser(std::string_view text, size_t at = 0, bool listed = false)
      : text_(text), at_(at), listed_(listed) {}

  size_t at() const { return at_; }

  Spec parse() {
    Spec spec = default_spec();
    spec.placement = stage(entry(kPlacements, "placement"));
    for (size_t next = 0; next < kLater.size() && next_stage(); ++next) {
      while (!kLater[next].find(peek_name())) {
        if (next + 1 == kLater.size()) fail_at_unknown(first_left_);
        ++next;
      }
      spec.*kLater[next].stage = stage(take_entry(*kLater[next].find(peek_name())));
      first_left_ = next + 1;
    }
    if (!at_end()) fail("expected the end of the spec");
    return spec;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { fail_in_spec(text_, at_, what); }

  bool at_end() const { return at_ == text_.size() || (listed_ && (text_[at_] == ' ' || text_[at_] == '+')); }

  // A name as messages have it.
  static std::string quoted(std::string_view name) {
    constexpr size_t kShown = 60;
    return "'" + std::string(name.substr(0, kShown)) + (name.size() > kShown ? "…'" : "'");
  }

  static bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

  std::string_view peek_name() const {
    size_t end = at_;
    while (end < text_.size() && is_name(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }

  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool next_stage() {
    if (at_end()) return false;
    if (!take('/')) fail("expected '/', '(' or the end");
    return true;
  }

  // None of the stages from `first` on has such an entry.
  [[noreturn]] void fail_at_unknown(size_t first) const {
    std::string kinds;
    std::vector<std::string_view> names;
    for (size_t i = first; i < kLater.size(); ++i) {
      kinds += (i == first ? "" : i + 1 == kLater.size() ? " or " : ", ") + std::string(kLater[i].kind);
      for (const std::string_view name : kLater[i].names()) names.push_back(name);
    }
    const std::string_view name = peek_name();
    fail((name.empty() ? "expected the name of a " + kinds : "no " + kinds + " is called " + quoted(name)) +
         known_names(name, names));
  }

  const Entry& take_entry(const Entry& entry) {
    at_ += entry.name.size();
    return entry;
  }

  template <class Table>
  const Entry& entry(const Table& table, const std::string& kind) {
    const std::string_view name = peek_name();
    if (name.empty()) fail("expected the name of a " + kind + known_names(name, names_of(table)));
    const Entry* found = find(table, name);
    for (const LaterStage& later : kLater) {
      if (!found && kind == "placement" && later.find(name))
        fail("no " + kind + " is called " + quoted(name) + ", which is a " + later.kind + ": " +
             std::string(table.front()->name) + "/" +
             std::string(text_.substr(at_, text_.find(' ', at_) - at_)));
    }
    if (!found) fail("no " + kind + " is called " + quoted(name) + known_names(name, names_of(table)));
    return take_entry(*found);
  }

  Stage stage(const Entry& entry) {
    Stage result = default_stage(entry);
    if (!take('(')) return result;
    std::vector<std::string_view> given;
    do {
      const Parameter& p = parameter(entry, given);
      result.values[std::string(p.name)] = value(p);
    } while (take(','));
    if (!take(')')) fail("expected ',' or ')'");
    return result;
  }

  const Parameter& parameter(const Entry& entry, std::vector<std::string_view>& given) {
    const std::string_view key = peek_name();
    const bool is_named = text_.substr(at_ + key.size()).starts_with('=');
    if (given.empty() && !is_named && !entry.parameters.empty() && entry.parameters.front().is_first) {
      given.push_back(entry.parameters.front().name);
      return entry.parameters.front();
    }
    std::vector<std::string_view> keys;
    for (const Parameter& p : entry.parameters) keys.push_back(p.name);
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found == keys.end()) {
      fail("'" + std::string(entry.name) + "' has no parameter " + quoted(key) + known_names(key, keys));
    }
    if (std::find(given.begin(), given.end(), key) != given.end())
      fail("'" + std::string(key) + "' is given twice");
    given.push_back(key);
    const Parameter& p = entry.parameters[static_cast<size_t>(found - keys.begin())];
    if (in_side_ && p.is_of_both_sides)
      fail("K and V have '" + std::string(key) + "' together: no side of a split takes it");
    at_ += key.size();
    if (!take('=')) fail("expected '=' after '" + std::string(key) + "'");
    return p;
  }

  // The codec of one side.
  std::string side() {
    const std::string_view name = peek_name();
    const Entry* found = find(kCodecs, name);
    const auto is_side = [](const Parameter& p) { return p.kind == Parameter::Kind::kCodec || p.is_first; };
    if (found && std::ranges::any_of(found->parameters, is_side))
      fail("no side of a split takes " + quoted(name));
    const Entry& codec = entry(kCodecs, "codec");
    in_side_ = true;
    const Stage parsed = stage(codec);
    in_side_ = false;
    return print_stage(parsed, codec);
  }

  std::string value(const Parameter& p) {
    if (p.kind == Parameter::Kind::kCodec) return side();
    size_t end = at_;
    while (end < text_.size() && text_[end] != ',' && text_[end] != ')') ++end;
    const std::string_view text = text_.substr(at_, end - at_);
    std::string wants = "'" + std::string(p.name) + "' takes " + p.range();
    if (p.kind == Parameter::Kind::kRows) wants += ": at least 1, or a share of max_tokens as in 0.25";
    if (p.kind == Parameter::Kind::kHeads)
      wants += ": ascending numbers of a layer's KV heads, as in 0+3, or a share of them as in 0.25";
    std::string checked(text);
    if (!p.word.empty() && text == p.word) {
      at_ = end;
      return checked;
    }
    if (p.kind == Parameter::Kind::kChoice) {
      if (std::find(p.choices.begin(), p.choices.end(), text) == p.choices.end())
        checked = p.max > 0 ? number(p, text) : "";
      if (checked.empty()) fail(wants);
    } else if (p.kind != Parameter::Kind::kText) {
      checked = number(p, text);
      if (checked.empty()) fail(wants);
    }
    at_ = end;
    return checked;
  }

  // The canonical text of a number, since 016 and 16 are one value and must print alike; empty if it is not
  // one that `p` takes.
  static std::string number(const Parameter& p, std::string_view text) {
    if (p.kind == Parameter::Kind::kDecimal) {
      const int64_t hundredths = read_hundredths(text);
      return hundredths < p.min || hundredths > p.max ? "" : print_hundredths(hundredths);
    }
    if (p.kind == Parameter::Kind::kHeads) return heads(p, text);
    int64_t whole = 0;
    if (read_number(text, whole)) return whole < p.min || whole > p.max ? "" : std::to_string(whole);
    return p.kind == Parameter::Kind::kRows ? canonical_share(text) : "";
  }

  // "03+5" -> "3+5": ascending numbers of heads; or a share.
  static std::string heads(const Parameter& p, std::string_view text) {
    if (const std::string share = canonical_share(text); !share.empty()) return share;
    std::string all;
    for (int64_t before = -1, number = 0; !text.empty(); before = number) {
      const size_t end = std::min(text.find('+'), text.size());
      if (!read_number(text.substr(0, end), number) || number <= before || number > p.max) return "";
      all += (all.empty() ? "" : "+") + std::to_string(number);
      if (end + 1 == text.size()) return "";
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return all;
  }

  std::string_view text_;
  size_t at_;
  bool listed_;
  size_t first_left_ = 0;  // the first of kLater that may follow
  bool in_side_ = false;   // between the parentheses of a side's codec
};

std::string print_stage(const Stage& stage, const Entry& entry) {
  std::string arguments;
  for (const Parameter& p : entry.parameters) {
    const std::string& value = stage.values.at(std::string(p.name));
    if (value == p.fallback) continue;
    arguments += arguments.empty() ? "" : ",";
    arguments +=
        p.is_first && value.find('=') == std::string::npos ? value : std::string(p.name) + "=" + value;
  }
  return stage.name + (arguments.empty() ? "" : "(" + arguments + ")");
}

template <class Table>
const auto& checked_find(const Table& table, const Stage& stage) {
  for (const auto* entry : table) {
    if (entry->name == stage.name) return *entry;
  }
  throw std::logic_error("no variant is called '" + stage.name + "'");
}

}  // namespace

StageTexts Spec::stages() const {
  return {print_stage(placement, placement_of(*this)), print_stage(codec, codec_of(*this)),
          print_stage(retention, retention_of(*this)), print_stage(selection, selection_of(*this))};
}

std::string Spec::print() const {
  const StageTexts texts = stages();
  std::string text = texts.placement;
  if (texts.codec != kCodecs.front()->name) text += "/" + texts.codec;
  if (texts.retention != kRetentions.front()->name) text += "/" + texts.retention;
  if (texts.selection != kSelections.front()->name) text += "/" + texts.selection;
  return text;
}

Spec parse_spec(std::string_view text) { return Parser(text).parse(); }

Spec parse_spec_at(std::string_view text, size_t& at) {
  Parser parser(text, at, true);
  const Spec spec = parser.parse();
  at = parser.at();
  return spec;
}

void fail_in_spec(std::string_view text, size_t at, const std::string& what) {
  constexpr size_t kShown = 100;  // on either side of the mistake
  const size_t first = at > kShown ? at - kShown : 0;
  std::string around(text.substr(first, 2 * kShown));
  std::replace_if(
      around.begin(), around.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  throw std::invalid_argument("spec: " + what + "\n  " + around + "\n  " + std::string(at - first, ' ') +
                              "^");
}

const PlacementEntry& placement_of(const Spec& spec) { return checked_find(kPlacements, spec.placement); }
const CodecEntry& codec_of(const Spec& spec) { return checked_find(kCodecs, spec.codec); }
const RetentionEntry& retention_of(const Spec& spec) {
  const RetentionEntry& entry = checked_find(kRetentions, spec.retention);
  const RetentionEntry* other = entry.with_other_traits ? entry.with_other_traits(spec.retention) : nullptr;
  return other ? *other : entry;
}
const SelectionEntry& selection_of(const Spec& spec) { return checked_find(kSelections, spec.selection); }

Spec default_spec() {
  return {default_stage(*kPlacements.front()), default_stage(*kCodecs.front()),
          default_stage(*kRetentions.front()), default_stage(*kSelections.front())};
}

}  // namespace kv
