// full: every token is kept, token i in slot i.
#include "variants/list.h"

namespace kv::retention {
namespace {

class Full : public Retention {
 public:
  std::unique_ptr<Retention> clone() const override { return std::make_unique<Full>(*this); }
  int64_t admit(std::span<const float>) override { return count_++; }
  int64_t slots() const override { return count_; }
  int64_t token_at(int64_t slot) const override { return slot; }
  int64_t slots_after(int64_t tokens) const override { return tokens; }
  void truncate(int64_t tokens) override { count_ = tokens; }
  void adopt(int64_t tokens) override { count_ = tokens; }
  void save(Writer& to) const override { to.put(count_); }
  bool load(Reader& from, int64_t tokens) override {
    count_ = from.get<int64_t>();
    return count_ == tokens;
  }

 private:
  int64_t count_ = 0;
};

std::unique_ptr<Retention> make_full(const Stage&, const RetentionContext&) {
  return std::make_unique<Full>();
}
int64_t full_slots(const Stage&, const SequenceLengths& lengths) { return lengths.tokens; }
int64_t full_metadata_bytes(const Stage&, int64_t) { return 0; }

}  // namespace

const RetentionEntry full{{.name = "full", .help = "keeps every token", .source = "", .parameters = {}},
                          make_full,
                          full_slots,
                          full_metadata_bytes,
                          /*keeps_all=*/true};

}  // namespace kv::retention
