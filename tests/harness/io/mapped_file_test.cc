// Files are read whole or refused, and one that loses its end while it is mapped ends the program with its name.
#include "harness/io/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/message_of.h"
#include "tests/temp.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

class Mapped : public testing::Test {
 protected:
  const test::TempFolder folder_;
  const fs::path file_ = folder_ / "file";
};

TEST_F(Mapped, AFileIsReadWhole) {
  const std::string text("first\nsecond\0third", 18);
  std::ofstream(file_, std::ios::binary) << text;
  EXPECT_EQ(io::read_text(file_), text);
  std::ofstream(file_, std::ios::binary | std::ios::trunc).close();
  EXPECT_EQ(io::read_text(file_), "");
}

TEST_F(Mapped, WhatIsNoFileIsRefusedAtOnce) {
  const auto refusal = [&] { return message_of([&] { io::read_text(file_); }); };
  EXPECT_EQ(refusal(), "cannot read " + file_.string() + ": No such file or directory");
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  EXPECT_EQ(refusal(), "cannot read " + file_.string() + ": it is not a regular file");
  fs::remove(file_);
  fs::create_directory(file_);
  EXPECT_EQ(refusal(), "cannot read " + file_.string() + ": it is not a regular file");
}

TEST_F(Mapped, AFileThatIsCutOffIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::ofstream(file_) << std::string(100'000, 'x');
  const auto read_on = [&] {
    const io::MappedFile gone(file_), mapped(file_);
    fs::resize_file(file_, 0);
    fs::remove_all(folder_.path());  // this process ends before TearDown
    volatile std::byte last = mapped.bytes().back();
    (void)last;
  };
  EXPECT_EXIT(read_on(), testing::ExitedWithCode(2), "kvlab: .*/file was cut off");
}

}  // namespace
}  // namespace kv
