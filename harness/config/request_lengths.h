// The lengths of a ragged batch: what a config's axis `lengths` can say.
//
//   16,32,500         these sequences
//   uniform(16,512)   every length from 16 to 512 alike
//   zipf(16,4096)     short ones more often: length l with a share that falls as 1 / l
//   trace(FILE)       prompt and answer of requests that follow one another in a trace, from a drawn place
//                     on: a file of io/request_trace.h
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kv::config {

// True for lists, whose number of sequences is their own.
bool is_length_list(const std::string& text);
// Throws std::invalid_argument, one line, where the text is none of the above; opens no file.
void check_lengths(const std::string& text);
// `sequences` lengths (as many as a list has); the same for the same seed. Throws as check_lengths does, and
// for a trace that cannot be read.
std::vector<int64_t> draw_lengths(const std::string& text, int sequences, uint64_t seed);

}  // namespace kv::config
