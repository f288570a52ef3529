// A hash of texts and files that is the same on every machine, to find out if two are equal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace kv::io {

// FNV-1a, 64 bits. Not against forgery.
uint64_t hash(std::string_view text);
// Hashes a file's bytes. Throws std::runtime_error where it cannot be read.
uint64_t hash_of_file(const std::filesystem::path& path);
// 16 hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace kv::io
