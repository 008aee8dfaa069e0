// A base class for devices that wrap another one: it forwards every call, and wraps the inner buffers in its
// own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hal/device.h"

namespace meshloom::hal {

class ForwardingBuffer : public Buffer {
 public:
  ForwardingBuffer(std::unique_ptr<Buffer> inner, std::uint64_t id)
      : Buffer(inner->bytes(), inner->label(), inner->host_address()), inner_(std::move(inner)), id_(id) {}
  Buffer& inner() const { return *inner_; }
  std::uint64_t id() const { return id_; }  // never used twice

 private:
  std::unique_ptr<Buffer> inner_;
  std::uint64_t id_;
};

// The buffer of a binding as a ForwardingBuffer. Throws Error when it is null or of another device.
ForwardingBuffer& forwarded(const Buffer* buffer, const std::string& where);

class ForwardingCommandList : public CommandList {
 public:
  explicit ForwardingCommandList(std::unique_ptr<CommandList> inner) : inner_(std::move(inner)) {}
  CommandList& inner() { return *inner_; }

  void dispatch(const std::shared_ptr<Executable>& executable, std::array<std::uint32_t, 3> groups,
                std::span<const Binding> bindings, std::span<const Word> constants,
                const std::string& label) override;
  void copy(const Binding& from, const Binding& to, const std::string& label) override;
  void fill(const Binding& to, Word value, const std::string& label) override;
  void host_call(HostFunction function, std::span<const Binding> bindings, const std::string& label) override;
  void barrier() override { inner_->barrier(); }
  int mark() override { return inner_->mark(); }
  void predict(double seconds) override { inner_->predict(seconds); }
  void timestamp() override { inner_->timestamp(); }
  std::vector<double> intervals() override { return inner_->intervals(); }
  void finish() override { inner_->finish(); }

 private:
  std::unique_ptr<CommandList> inner_;
};

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> inner);
  Device& inner() { return *inner_; }

  std::shared_ptr<Executable> load(const ExecutableSpec& spec) override { return inner_->load(spec); }
  void load_all(std::span<const ExecutableSpec> specs, const LoadProgress& progress) override {
    inner_->load_all(specs, progress);
  }
  std::unique_ptr<CommandList> record(std::string name) override;
  void submit(CommandList& list) override;
  void wait() override { inner_->wait(); }
  void wait_for(CommandList& list, int mark) override;
  std::unique_ptr<Buffer> share(const Buffer& of_other) override;
  void write(Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) override;
  void read(const Buffer& buffer, std::int64_t offset, std::span<std::byte> data) override;

 protected:
  std::unique_ptr<Buffer> do_allocate(std::int64_t bytes, const std::string& label) override;
  std::unique_ptr<Buffer> do_allocate_host(std::int64_t bytes, const std::string& label) override;
  std::uint64_t next_id() { return next_id_++; }  // for the next ForwardingBuffer

 private:
  std::unique_ptr<Device> inner_;
  std::uint64_t next_id_ = 1;
};

}  // namespace meshloom::hal
