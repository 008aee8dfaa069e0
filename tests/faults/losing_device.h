// A device that is lost at one of its calls, and a run of a few steps on it.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "hal/wrappers/forwarding_device.h"

namespace meshloom::trainer {

// Which calls lose their device, shared by all devices that a run opens.
struct Losses {
  std::set<int> at, at_submit;  // the numbers of calls, and of submits, counted from 1 over all devices
  int from_submit = 0;          // every submit from this one on; 0 = none
  int calls = 0, submits = 0, opened = 0;  // so far
  bool corrupts_losses = false;            // devices after the first change the lowest bit of every loss
  std::function<void()> before;            // called before every call that reaches the device
};

// Lost for good: every later call throws as well.
class LosingDevice : public hal::ForwardingDevice {
 public:
  LosingDevice(std::unique_ptr<hal::Device> inner, Losses& losses)
      : ForwardingDevice(std::move(inner)), losses_(losses) {
    ++losses_.opened;
  }
  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& spec) override {
    count("load");
    return ForwardingDevice::load(spec);
  }
  std::unique_ptr<hal::CommandList> record(std::string name) override {
    count("record");
    return ForwardingDevice::record(std::move(name));
  }
  void submit(hal::CommandList& list) override {
    const int number = ++losses_.submits;
    count("submit",
          losses_.at_submit.count(number) > 0 || (losses_.from_submit > 0 && number >= losses_.from_submit));
    ForwardingDevice::submit(list);
  }
  void wait() override {
    count("wait");
    ForwardingDevice::wait();
  }
  void write(hal::Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) override {
    count("write");
    ForwardingDevice::write(buffer, offset, data);
  }
  void read(const hal::Buffer& buffer, std::int64_t offset, std::span<std::byte> data) override {
    count("read");
    ForwardingDevice::read(buffer, offset, data);
    constexpr std::size_t kMinBytes = 20, kMaxBytes = 64;  // of the values that a step reports
    if (losses_.corrupts_losses && losses_.opened > 1 && data.size() >= kMinBytes && data.size() < kMaxBytes)
      data[0] ^= std::byte{1};
  }
  void rename(std::string name) { info_.name = std::move(name); }

 private:
  void count(const char* call, bool lose = false) {
    if (!lost_ && losses_.before) losses_.before();
    ++losses_.calls;
    lost_ = lost_ || lose || losses_.at.count(losses_.calls) > 0;
    if (lost_)
      throw hal::DeviceLost("losing:0", "the device must answer",
                            std::string("none at ") + call + ", call " + std::to_string(losses_.calls));
  }

  Losses& losses_;
  bool lost_ = false;
};

}  // namespace meshloom::trainer
