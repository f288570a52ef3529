// A process may use what its control group and those around it leave, whatever the machine has.
#include "harness/memory/machine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temp.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

class ControlGroups : public testing::Test {
 protected:
  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  int64_t available(const std::string& membership) const {
    write("membership", membership);
    return memory::cgroup_available_bytes(root_ / "membership", root_.path());
  }

  const test::TempFolder root_;
};

TEST_F(ControlGroups, NoLimit) {
  EXPECT_EQ(available(""), INT64_MAX);
  EXPECT_EQ(available("0::/a/b"), INT64_MAX);
  write("a/memory.max", "max");
  write("a/memory.current", "100");
  EXPECT_EQ(available("0::/a"), INT64_MAX);
}

TEST_F(ControlGroups, VersionTwoCountsTheTightestAround) {
  write("a/memory.max", "1000");
  write("a/memory.current", "300");
  write("a/b/memory.max", "900");
  write("a/b/memory.current", "100");
  EXPECT_EQ(available("0::/a/b/c"), 700);
  EXPECT_EQ(available("0::/a/b"), 700);
  write("a/b/memory.current", "880");
  EXPECT_EQ(available("0::/a/b"), 20);
  EXPECT_EQ(available("0::/other"), INT64_MAX);
  write("memory.max", "50");  // a container's own root
  write("memory.current", "40");
  EXPECT_EQ(available("0::/"), 10);
}

TEST_F(ControlGroups, PagesOfFilesAreNoLack) {
  write("a/memory.max", "1000");
  write("a/memory.current", "990");
  write("a/memory.stat", "anon 90\ninactive_file 900\nactive_file 0");
  EXPECT_EQ(available("0::/a"), 910);
  write("a/memory.current", "2000");  // beyond its limit: nothing is left
  EXPECT_EQ(available("0::/a"), 0);
}

TEST_F(ControlGroups, VersionOne) {
  write("memory/a/memory.limit_in_bytes", "1000");
  write("memory/a/memory.usage_in_bytes", "400");
  EXPECT_EQ(available("9:pids:/a\n4:memory:/a\n0::/"), 600);
  EXPECT_EQ(available("4:cpu,memory:/a/b"), 600);
  EXPECT_EQ(available("4:memoryless:/a"), INT64_MAX);
}

TEST(Machine, AvailableMemoryIsSomeAndNoMoreThanThereIs) {
  EXPECT_GT(memory::available_memory_bytes(), 0);
  EXPECT_LE(memory::available_memory_bytes(), memory::total_memory_bytes());
}

}  // namespace
}  // namespace kv
