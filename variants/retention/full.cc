// full: every token is kept, token i in slot i.
#include "variants/list.h"

namespace kv::retention {
namespace {

class Full : public Retention {
 public:
  std::unique_ptr<Retention> clone() const override { return std::make_unique<Full>(*this); }
  int64_t admit() override { return count_++; }
  int64_t slots() const override { return count_; }
  int64_t token_at(int64_t slot) const override { return slot; }
  int64_t slots_after(int64_t tokens) const override { return tokens; }
  bool keeps_all() const override { return true; }

 private:
  int64_t count_ = 0;
};

std::unique_ptr<Retention> make(const Stage&, int64_t, Memory&) { return std::make_unique<Full>(); }

}  // namespace

const RetentionEntry full{{.name = "full", .help = "keeps every token", .source = "", .parameters = {}},
                          make};

}  // namespace kv::retention
