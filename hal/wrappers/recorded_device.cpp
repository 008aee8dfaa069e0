#include "hal/wrappers/recorded_device.h"

#include <utility>

#include "hal/wrappers/forwarding_device.h"

namespace meshloom::hal {
namespace {

std::string describe(const Binding& binding) {
  const char* access = binding.access == Access::read ? "r" : binding.access == Access::write ? "w" : "rw";
  return std::string(access) + " '" + (binding.buffer ? binding.buffer->label() : "none") + "'+" +
         std::to_string(binding.offset) + ":" + std::to_string(binding.bytes);
}

std::string describe(std::span<const Binding> bindings) {
  std::string text;
  for (const Binding& binding : bindings) text += (text.empty() ? "" : ", ") + describe(binding);
  return "[" + text + "]";
}

class RecordedList : public ForwardingCommandList {
 public:
  RecordedList(std::unique_ptr<CommandList> inner, std::string name, std::ostream& log)
      : ForwardingCommandList(std::move(inner)), name_(std::move(name)), log_(log) {}

  const std::string& name() const { return name_; }

  void dispatch(const std::shared_ptr<Executable>& executable, std::array<std::uint32_t, 3> groups,
                std::span<const Binding> bindings, std::span<const Word> constants,
                const std::string& label) override {
    log_ << "  dispatch " << (executable ? executable->spec().key() : "none") << " groups=" << groups[0]
         << ',' << groups[1] << ',' << groups[2] << ' ' << describe(bindings) << " (";
    for (std::size_t i = 0; i < constants.size(); ++i) log_ << (i ? " " : "") << constants[i].u;
    log_ << ") # " << label << '\n';
    ForwardingCommandList::dispatch(executable, groups, bindings, constants, label);
  }
  void copy(const Binding& from, const Binding& to, const std::string& label) override {
    log_ << "  copy " << describe(from) << " -> " << describe(to) << " # " << label << '\n';
    ForwardingCommandList::copy(from, to, label);
  }
  void fill(const Binding& to, Word value, const std::string& label) override {
    log_ << "  fill " << describe(to) << " with " << value.u << " # " << label << '\n';
    ForwardingCommandList::fill(to, value, label);
  }
  void host_call(HostFunction function, std::span<const Binding> bindings,
                 const std::string& label) override {
    log_ << "  host_call " << describe(bindings) << " # " << label << '\n';
    ForwardingCommandList::host_call(std::move(function), bindings, label);
  }
  void barrier() override {
    log_ << "  barrier\n";
    ForwardingCommandList::barrier();
  }
  int mark() override {
    log_ << "  mark\n";
    return ForwardingCommandList::mark();
  }
  void timestamp() override {
    log_ << "  timestamp\n";
    ForwardingCommandList::timestamp();
  }
  void finish() override {
    log_ << "end " << name_ << '\n';
    ForwardingCommandList::finish();
  }

 private:
  std::string name_;
  std::ostream& log_;
};

class RecordedDevice : public ForwardingDevice {
 public:
  RecordedDevice(std::unique_ptr<Device> inner, std::ostream& log)
      : ForwardingDevice(std::move(inner)), log_(log) {}

  std::unique_ptr<CommandList> record(std::string name) override {
    log_ << "record " << name << '\n';
    auto list = inner().record(name);
    return std::make_unique<RecordedList>(std::move(list), std::move(name), log_);
  }
  void submit(CommandList& list) override {
    const auto* recorded = dynamic_cast<RecordedList*>(&list);
    log_ << "submit " << (recorded ? recorded->name() : "?") << '\n';
    ForwardingDevice::submit(list);
  }
  void wait() override {
    log_ << "wait\n";
    ForwardingDevice::wait();
  }
  void write(Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) override {
    log_ << "write '" << buffer.label() << "'+" << offset << ':' << data.size() << '\n';
    ForwardingDevice::write(buffer, offset, data);
  }
  void read(const Buffer& buffer, std::int64_t offset, std::span<std::byte> data) override {
    log_ << "read '" << buffer.label() << "'+" << offset << ':' << data.size() << '\n';
    ForwardingDevice::read(buffer, offset, data);
  }

 protected:
  std::unique_ptr<Buffer> do_allocate(std::int64_t bytes, const std::string& label) override {
    log_ << "allocate '" << label << "' " << bytes << '\n';
    return ForwardingDevice::do_allocate(bytes, label);
  }
  std::unique_ptr<Buffer> do_allocate_host(std::int64_t bytes, const std::string& label) override {
    log_ << "allocate '" << label << "' " << bytes << " of the host\n";
    return ForwardingDevice::do_allocate_host(bytes, label);
  }

 private:
  std::ostream& log_;
};

}  // namespace

std::unique_ptr<Device> recorded(std::unique_ptr<Device> inner, std::ostream& log) {
  return std::make_unique<RecordedDevice>(std::move(inner), log);
}

}  // namespace meshloom::hal
