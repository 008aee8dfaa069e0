// The checked device reports every broken rule; the recorded device writes the commands that it gets.
#include "hal/wrappers/checked_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "hal/registry.h"
#include "hal/wrappers/recorded_device.h"
#include "kernels/core/catalog.h"

namespace meshloom::hal {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Device> open(const std::string& id) {
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  Registry registry;
  register_backends(registry, catalog);
  return registry.open(id);
}

template <typename Function>
std::string message(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

class Checked : public testing::Test {
 protected:
  Checked()
      : device_(checked(open("cpu"))), a_(device_->allocate(4096, "a")), b_(device_->allocate(4096, "b")) {
    const std::vector<std::byte> zeros(4096);
    device_->write(*a_, 0, zeros);
    list_ = device_->record("list");
  }
  Binding range(Buffer& buffer, std::int64_t offset, std::int64_t bytes) { return {&buffer, offset, bytes}; }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Buffer> a_, b_;
  std::unique_ptr<CommandList> list_;
};

TEST_F(Checked, PassesWhatKeepsTheRules) {
  list_->copy(range(*a_, 0, 256), range(*b_, 0, 256), "copy");
  list_->barrier();
  list_->copy(range(*b_, 0, 256), range(*a_, 512, 256), "back");
  list_->finish();
  device_->submit(*list_);
  device_->submit(*list_);
  std::vector<std::byte> out(256);
  device_->read(*b_, 0, out);
}

TEST_F(Checked, Bounds) {
  EXPECT_THAT(message([&] { list_->fill(range(*a_, 4000, 200), word(0.0f), "fill"); }),
              HasSubstr("a binding must lie within the buffer's 4096 bytes"));
  EXPECT_THAT(message([&] { list_->fill(range(*a_, 2, 4), word(0.0f), "fill"); }),
              HasSubstr("offsets must be multiples of 4"));
  EXPECT_THAT(message([&] { list_->copy(range(*a_, 0, 8), range(*b_, 0, 4), "copy"); }),
              HasSubstr("one size"));
  const std::vector<std::byte> data(8);
  EXPECT_THAT(message([&] { device_->write(*a_, 4092, data); }), HasSubstr("must lie within its 4096 bytes"));
}

TEST_F(Checked, Order) {
  list_->fill(range(*a_, 0, 256), word(1.0f), "first");
  EXPECT_THAT(message([&] { list_->copy(range(*a_, 128, 64), range(*b_, 0, 64), "second"); }),
              HasSubstr("needs a barrier after 'first'; found read after write"));
  EXPECT_THAT(message([&] { list_->fill(range(*a_, 0, 4), word(1.0f), "third"); }),
              HasSubstr("write after write"));
  list_->copy(range(*a_, 1024, 64), range(*b_, 0, 64), "reader");
  EXPECT_THAT(message([&] { list_->fill(range(*a_, 1024, 4), word(1.0f), "writer"); }),
              HasSubstr("needs a barrier after 'reader'; found write after read"));
}

TEST_F(Checked, Lifetime) {
  list_->fill(range(*b_, 0, 256), word(1.0f), "fill");
  EXPECT_THAT(message([&] { device_->submit(*list_); }), HasSubstr("must be finished"));
  list_->finish();
  EXPECT_THAT(message([&] { list_->barrier(); }), HasSubstr("nothing can be recorded after finish()"));
  b_.reset();
  EXPECT_THAT(message([&] { device_->submit(*list_); }), HasSubstr("must exist when"));
}

TEST_F(Checked, Contents) {
  list_->copy(range(*b_, 0, 256), range(*a_, 0, 256), "reads nothing");
  list_->finish();
  EXPECT_THAT(message([&] { device_->submit(*list_); }),
              HasSubstr("must read only bytes that were written before"));
  std::vector<std::byte> out(4);
  EXPECT_THAT(message([&] { device_->read(*b_, 0, out); }),
              HasSubstr("must read only bytes that were written before"));
}

TEST_F(Checked, ForeignBuffers) {
  auto other = open("cpu");
  auto foreign = other->allocate(16, "foreign");
  EXPECT_THAT(message([&] { list_->fill(range(*foreign, 0, 16), word(0.0f), "fill"); }),
              HasSubstr("every buffer must come from this device"));
}

TEST(Recorded, WritesCommandsAsText) {
  std::ostringstream log;
  auto device = recorded(open("null"), log);
  auto buffer = device->allocate(1024, "weights");
  auto list = device->record("step");
  list->fill({buffer.get(), 256, 64, Access::write}, word(std::int64_t{7}), "clear");
  list->barrier();
  list->finish();
  device->submit(*list);
  EXPECT_EQ(
      log.str(),
      "allocate 'weights' 1024\nrecord step\n  fill w 'weights'+256:64 with 7 # clear\n  barrier\nend step\n"
      "submit step\n");
}

TEST(RunAs, TheProfilesMemoryIsTheLimit) {
  auto device = open("null");
  Profile small = find_profile("h100");
  small.memory_bytes = 1000;
  device->run_as(small);
  auto half = device->allocate(600, "half");
  EXPECT_THAT(
      message([&] { device->allocate(600, "more"); }),
      HasSubstr(
          "null as h100, allocating 'more': the device memory is 1000 bytes; found 600 bytes requested with "
          "600 in use"));
  half.reset();
  EXPECT_EQ(device->allocated_bytes(), 0);
  EXPECT_NO_THROW(device->allocate(1000, "all"));
}

}  // namespace
}  // namespace meshloom::hal
