// Round trips, every lie a header can tell, and a few thousand mutated files that must be read or refused,
// never crash.
#include "harness/io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/message_of.h"
#include "tests/temp.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

class Safetensors : public testing::Test {
 protected:
  void write_raw(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  void write_file(const std::string& header, size_t data_bytes, int64_t claimed = -1) {
    const uint64_t length = claimed < 0 ? header.size() : static_cast<uint64_t>(claimed);
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    write_raw(bytes + header + std::string(data_bytes, '\x01'));
  }
  std::string refusal() const {
    return test::refusal([&] { const io::SafetensorsFile file(path_); });
  }
  void expect_refused(const std::string& header, size_t data_bytes, const std::string& reason) {
    SCOPED_TRACE(header);
    write_file(header, data_bytes);
    const std::string text = refusal();
    EXPECT_NE(text.find(reason), std::string::npos) << text;
    EXPECT_NE(text.find(path_.string()), std::string::npos) << text;
  }

  const test::TempFolder folder_;
  fs::path path_ = folder_ / "t.safetensors";
};

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST_F(Safetensors, RoundTripsBits) {
  const std::vector<float> a = {1.5f, -0.0f, std::numeric_limits<float>::denorm_min(), NAN, INFINITY, 3e38f};
  const std::vector<float> b = {42};
  const io::NamedTensor tensors[] = {{"z/\"quoted\"\n", {2, 3}, a}, {"scalar", {}, b}, {"empty", {0, 7}, {}}};
  io::write_safetensors(path_, tensors);
  const io::SafetensorsFile file(path_);
  ASSERT_EQ(file.tensors().size(), 3u);
  const auto& read = file.tensor("z/\"quoted\"\n");
  EXPECT_EQ(read.dtype, "F32");
  EXPECT_EQ(read.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(read.bytes.data(), a.data(), 24), 0);
  float middle[2];
  io::read_f32(read, 1, 2, middle);
  EXPECT_EQ(std::memcmp(middle, &a[1], 8), 0);
  EXPECT_EQ(file.tensor("scalar").elements(), 1);
  EXPECT_EQ(file.tensor("empty").elements(), 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1)
      << "a temporary file was left behind";
}

TEST_F(Safetensors, ReadsHalvesAndBrainFloats) {
  const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x8000};
  const uint16_t brains[] = {0x3f80, 0xc000, 0x0001, 0x7f7f, 0x7f80, 0x8000};
  const std::string header =
      R"({"f":{"dtype":"F16","shape":[6],"data_offsets":[0,12]},)"
      R"("b":{"dtype":"BF16","shape":[6],"data_offsets":[12,24]},"__metadata__":{"by":"x"}})";
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(halves), 12).append(reinterpret_cast<const char*>(brains), 12);
  write_raw(bytes);
  const io::SafetensorsFile file(path_);
  float f[6], b[6];
  io::read_f32(file.tensor("f"), 0, 6, f);
  io::read_f32(file.tensor("b"), 0, 6, b);
  const float want_f[] = {1, -2, 0x1p-24f, 65504, INFINITY, -0.0f};
  const float want_b[] = {1, -2, 0x1p-133f, 0x1.fep127f, INFINITY, -0.0f};
  EXPECT_EQ(std::memcmp(f, want_f, sizeof f), 0);
  EXPECT_EQ(std::memcmp(b, want_b, sizeof b), 0);
}

TEST_F(Safetensors, OtherDtypesAreParsedButNotReadAsFloats) {
  write_file(entry("F64", "[2]", "[0,16]"), 16);
  const io::SafetensorsFile file(path_);
  float out[2];
  EXPECT_THROW(io::read_f32(file.tensor("a"), 0, 2, out), std::invalid_argument);
}

TEST_F(Safetensors, ADtypeMayBeUnknownWhereTheTensorIsNotRead) {
  write_file(entry("F31", "[2]", "[0,8]"), 8);
  const io::SafetensorsFile file(path_);
  EXPECT_TRUE(
      test::contains(test::refusal([&] { file.tensor("a"); }), "unknown dtype \"F31\"; known are BOOL"));
  expect_refused(entry("F31", "[72]", "[0,8]"), 8, "more than 8 values for each byte");
}

TEST_F(Safetensors, RangesOutsideATensorAreBugs) {
  write_file(entry("F32", "[2]", "[0,8]"), 8);
  const io::SafetensorsFile file(path_);
  float out[4];
  EXPECT_THROW(io::read_f32(file.tensor("a"), 1, 2, out), std::logic_error);
  EXPECT_THROW(io::read_f32(file.tensor("a"), -1, 1, out), std::logic_error);
  EXPECT_THROW(io::read_f32(file.tensor("a"), INT64_MAX, 1, out), std::logic_error);
}

TEST_F(Safetensors, AnEmptyHeaderIsAFileWithoutTensors) {
  write_file("{}   ", 0);
  EXPECT_TRUE(io::SafetensorsFile(path_).tensors().empty());
}

TEST_F(Safetensors, RefusesWhatIsNoFile) {
  EXPECT_NE(refusal().find("No such file"), std::string::npos);
  path_ = folder_.path();
  EXPECT_NE(refusal().find("not a regular file"), std::string::npos);
  path_ = folder_ / "pipe";
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(refusal().find("not a regular file"), std::string::npos);
}

TEST_F(Safetensors, AFailedWriteLeavesNothing) {
  const std::vector<float> one = {1};
  const io::NamedTensor tensors[] = {{"a", {1}, one}};
  EXPECT_THROW(io::write_safetensors(folder_ / "missing" / "t", tensors), std::runtime_error);
  fs::create_directory(folder_ / "taken");
  EXPECT_THROW(io::write_safetensors(folder_ / "taken", tensors), std::invalid_argument);
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(io::write_safetensors(folder_ / "pipe", tensors), std::invalid_argument);
  EXPECT_THROW(io::write_safetensors((folder_ / "cut").string() + '\0' + "t", tensors),
               std::invalid_argument);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 2) << "only these two may be there";
  fs::create_symlink("behind", folder_ / "link");
  io::write_safetensors(folder_ / "link", tensors);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder_ / "behind")));
}

TEST_F(Safetensors, WritingNonsenseIsABug) {
  const std::vector<float> one = {1};
  const io::NamedTensor twice[] = {{"a", {1}, one}, {"a", {1}, one}}, unfilled[] = {{"a", {2}, one}};
  EXPECT_THROW(io::write_safetensors(path_, twice), std::logic_error);
  EXPECT_THROW(io::write_safetensors(path_, unfilled), std::logic_error);
  EXPECT_FALSE(fs::exists(path_));
}

}  // namespace
}  // namespace kv
