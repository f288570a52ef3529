// The lengths of a ragged batch, forms of a config's axis `lengths`:
//
//   16,32,500         these sequences
//   uniform(16,512)   every length from 16 to 512 with equal probability
//   zipf(16,4096)     mostly short: length l with a probability that falls as 1 / l
//   trace(FILE)       prompt and answer of consecutive requests of a trace (io/request_trace.h), from a drawn start
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kv::config {

// True for lists, which fix the number of sequences.
bool is_length_list(const std::string& text);
// Throws std::invalid_argument, one line, if the text has none of these forms; opens no file.
void check_lengths(const std::string& text);
// `sequences` lengths (for a list, its own); equal for equal seeds. Throws as check_lengths does, and for an
// unreadable trace.
std::vector<int64_t> draw_lengths(const std::string& text, int sequences, uint64_t seed);

}  // namespace kv::config
