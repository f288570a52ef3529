// The selectors' parser; each spec between them is read by spec.cc.
#include "variants/model_cache/layer_specs.h"

#include <algorithm>
#include <charconv>

namespace kv {
namespace {

constexpr std::string_view kSeparator = " + ";

std::string text_of(const LayerRange& range) {
  const std::string first = std::to_string(range.first);
  return range.first == range.last ? first : first + "-" + std::to_string(range.last);
}

// Sorted, with neighbours joined. The ranges do not overlap.
std::vector<LayerRange> joined(std::vector<LayerRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const LayerRange& a, const LayerRange& b) { return a.first < b.first; });
  std::vector<LayerRange> all;
  for (const LayerRange& range : ranges) {
    if (!all.empty() && all.back().last + 1 == range.first) {
      all.back().last = range.last;
    } else {
      all.push_back(range);
    }
  }
  return all;
}

// An exception, and where it stands in the text.
struct Written {
  LayerException exception;
  size_t at;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  LayerSpecs parse() {
    LayerSpecs specs(parse_spec_at(text_, at_));
    std::vector<Written> written;
    while (next()) {
      written.push_back(exception());
      for (size_t i = 0; i + 1 < written.size(); ++i) refuse_same(written[i], written.back());
    }
    for (Written& w : written) add(std::move(w.exception), specs.exceptions);
    std::sort(specs.exceptions.begin(), specs.exceptions.end(), before);
    return specs;
  }

 private:
  [[noreturn]] void fail(size_t at, const std::string& what) const { fail_in_spec(text_, at, what); }

  static bool before(const LayerException& a, const LayerException& b) {
    if (a.kind.empty() != b.kind.empty()) return a.kind.empty();
    return a.kind.empty() ? a.layers.front().first < b.layers.front().first : a.kind < b.kind;
  }

  static void add(LayerException added, std::vector<LayerException>& to) {
    for (LayerException& e : to) {
      if (!e.kind.empty() || !added.kind.empty() || e.spec != added.spec) continue;
      e.layers.insert(e.layers.end(), added.layers.begin(), added.layers.end());
      e.layers = joined(std::move(e.layers));
      return;
    }
    added.layers = joined(std::move(added.layers));
    to.push_back(std::move(added));
  }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  // True if another exception follows; the position is then its first character.
  bool next() {
    const size_t end = at_;
    skip_spaces();
    if (at_ == text_.size() && at_ == end) return false;
    if (at_ == text_.size() || text_[at_] != '+')
      fail(std::min(at_, text_.size()), "expected '+' and the next layers, or the end");
    ++at_;
    skip_spaces();
    return true;
  }

  Written exception() {
    Written w{{}, at_};
    const bool number = at_ < text_.size() && is_digit(text_[at_]);
    number ? read_layers(w.exception.layers) : read_kind(w.exception.kind);
    if (at_ == text_.size() || text_[at_] != ':')
      fail(at_, "expected ':' and the spec of '" + std::string(text_.substr(w.at, at_ - w.at)) + "'");
    ++at_;
    w.exception.spec = parse_spec_at(text_, at_);
    return w;
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  void read_kind(std::string& kind) {
    const size_t first = at_;
    while (at_ < text_.size() && ((text_[at_] >= 'a' && text_[at_] <= 'z') || text_[at_] == '_' ||
                                  (at_ > first && is_digit(text_[at_]))))
      ++at_;
    if (at_ == first)
      fail(at_, "expected layers: numbers, as 3 or 0-1,7, or a kind of layer, as sliding; then ':'");
    kind = text_.substr(first, at_ - first);
  }

  void read_layers(std::vector<LayerRange>& layers) {
    do {
      if (!layers.empty()) ++at_;
      const size_t at = at_;
      LayerRange range;
      range.first = range.last = read_layer();
      if (at_ < text_.size() && text_[at_] == '-') {
        ++at_;
        range.last = read_layer();
      }
      if (range.last < range.first) fail(at, "these layers end before they begin");
      for (const LayerRange& other : layers) {
        if (range.first <= other.last && other.first <= range.last)
          fail(at, "layer " + std::to_string(std::max(range.first, other.first)) + " is named twice");
      }
      layers.push_back(range);
    } while (at_ < text_.size() && text_[at_] == ',');
  }

  int read_layer() {
    int layer = 0;
    const char* begin = text_.data() + at_;
    const auto [stop, error] = std::from_chars(begin, text_.data() + text_.size(), layer);
    if (stop == begin || layer < 0 || layer >= kMostLayers || error != std::errc())
      fail(at_, "expected the number of a layer, from 0 to " + std::to_string(kMostLayers - 1));
    at_ += static_cast<size_t>(stop - begin);
    return layer;
  }

  void refuse_same(const Written& a, const Written& b) const {
    if (!a.exception.kind.empty()) {
      if (a.exception.kind == b.exception.kind)
        fail(b.at, "layers of kind '" + a.exception.kind + "' are given two specs");
      return;
    }
    for (const LayerRange& x : a.exception.layers) {
      for (const LayerRange& y : b.exception.layers) {
        if (x.first <= y.last && y.first <= x.last)
          fail(b.at, "layer " + std::to_string(std::max(x.first, y.first)) + " is given two specs");
      }
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool LayerException::names(int layer) const {
  return std::any_of(layers.begin(), layers.end(),
                     [&](const LayerRange& r) { return r.first <= layer && layer <= r.last; });
}

std::string LayerException::selector() const {
  std::string text = kind;
  for (const LayerRange& range : layers) text += (text.empty() ? "" : ",") + text_of(range);
  return text;
}

std::string LayerSpecs::print_exceptions() const {
  std::string text;
  for (const LayerException& e : exceptions)
    text += (text.empty() ? "" : std::string(kSeparator)) + e.selector() + ":" + e.spec.print();
  return text;
}

std::string LayerSpecs::print() const {
  return fallback.print() + (is_one() ? "" : std::string(kSeparator) + print_exceptions());
}

size_t LayerSpecs::position(size_t index) const {
  LayerSpecs before(fallback);
  before.exceptions.assign(exceptions.begin(), exceptions.begin() + static_cast<int64_t>(index));
  return before.print().size() + kSeparator.size();
}

std::string_view oracle_of(const LayerSpecs& specs) {
  std::string_view why;
  specs.any([&](const Spec& spec) {
    for (const Entry* entry : std::initializer_list<const Entry*>{&placement_of(spec), &codec_of(spec),
                                                                  &retention_of(spec), &selection_of(spec)}) {
      if (!entry->oracle.empty()) why = entry->oracle;
    }
    return !why.empty();
  });
  return why;
}

LayerSpecs with_int8_arithmetic(LayerSpecs specs) {
  const auto set = [](Spec& spec) {
    if (const auto use_int8 = codec_of(spec).use_int8) use_int8(spec.codec);
  };
  set(specs.fallback);
  for (LayerException& e : specs.exceptions) set(e.spec);
  return parse_layer_specs(specs.print());  // some may be alike now
}

LayerSpecs parse_layer_specs(std::string_view text) { return Parser(text).parse(); }

}  // namespace kv
