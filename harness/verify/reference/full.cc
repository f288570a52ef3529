// full: every token stays.
#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

std::unique_ptr<Rule> make_full(const Parameters&) { return std::make_unique<Rule>(); }

}  // namespace

const Oracle full{"full", make_full};

}  // namespace kv::reference::policy
