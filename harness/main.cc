#include "harness/cli/command_line.h"

int main(int argc, char** argv) { return kv::cli::command_line(argc, argv); }
