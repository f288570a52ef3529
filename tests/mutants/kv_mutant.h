// Switches planted bugs by the environment. matrix.py includes it in each file of its copy that has any.
#pragma once

#include <cstdio>
#include <cstdlib>

// 0: the environment has not been asked, 1: bugs that are reached are recorded, 2: none, else the bug.
inline unsigned kv_mutant_now = 0;
inline unsigned kv_mutants_seen[1 << 14];

inline bool kv_mutant_asked(unsigned bug) {
  const char* folder = std::getenv("KVLAB_MUTANTS_REACHED");
  if (kv_mutant_now == 0) {
    const char* name = std::getenv("KVLAB_MUTANT");
    kv_mutant_now = name ? static_cast<unsigned>(std::strtoul(name, nullptr, 16)) : folder ? 1 : 2;
  }
  unsigned& seen = kv_mutants_seen[bug % (1 << 14)];
  if (kv_mutant_now == 1 && folder && seen != bug) {
    char path[4096];
    std::snprintf(path, sizeof(path), "%s/%07x", folder, bug);
    if (std::FILE* file = std::fopen(path, "w")) std::fclose(file);
    seen = bug;
  }
  return kv_mutant_now == bug;
}

constexpr bool kv_mutant(unsigned bug) {
  if (__builtin_is_constant_evaluated()) return false;
  return kv_mutant_now >= 2 ? kv_mutant_now == bug : kv_mutant_asked(bug);
}
