// A sequence's state to bytes and back: its identity, then layer by layer its tokens, the policies' states,
// the residual rows and the stored ones. snapshot.h carries the bytes.
#pragma once

#include <string>

#include "variants/cache/sequence.h"
#include "variants/core/snapshot.h"

namespace kv {

void write_sequence(Writer& to, const Stages& stages, const Sequences& sequences, SequenceId id);

// A new sequence with what was written. `what`: where the bytes are from, as messages name it. Throws
// std::invalid_argument if another spec or shape wrote them, or if they contradict each other; where it throws,
// nothing has changed.
SequenceId read_sequence(Reader& from, Stages& stages, Sequences& sequences, const std::string& what);

}  // namespace kv
