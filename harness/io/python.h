// Programs of the project's own Python environment, which the launcher makes.
#pragma once

#include <string>
#include <vector>

namespace kv::io {

// $KVLAB_PYTHON, else that of .venv; empty if there is none.
std::string project_python();

// Runs a script, named below the project folder, and waits for it. Its standard error passes through; its standard output goes
// to `output`, or passes through where that is null. Returns its exit code, -1 if it could not be started or was killed.
int run_python(const std::string& script, const std::vector<std::string>& arguments, std::string* output);

}  // namespace kv::io
