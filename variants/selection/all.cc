// all: every kept row is read.
#include "variants/list.h"

namespace kv::selection {

const SelectionEntry all{{.name = "all", .help = "reads every kept row", .source = "", .parameters = {}}, {}};

}  // namespace kv::selection
