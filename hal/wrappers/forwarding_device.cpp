#include "hal/wrappers/forwarding_device.h"

#include <utility>

namespace meshloom::hal {
namespace {

Binding unwrap(const Binding& binding, const std::string& where) {
  Binding inner = binding;
  inner.buffer = &forwarded(binding.buffer, where).inner();
  return inner;
}

std::vector<Binding> unwrap(std::span<const Binding> bindings, const std::string& where) {
  std::vector<Binding> inner;
  for (const Binding& binding : bindings) inner.push_back(unwrap(binding, where));
  return inner;
}

}  // namespace

ForwardingBuffer& forwarded(const Buffer* buffer, const std::string& where) {
  const auto* outer = dynamic_cast<const ForwardingBuffer*>(buffer);
  if (!outer)
    throw Error(where, "every buffer must come from this device",
                buffer ? "'" + buffer->label() + "'" : "none");
  return const_cast<ForwardingBuffer&>(*outer);
}

void ForwardingCommandList::dispatch(const std::shared_ptr<Executable>& executable,
                                     std::array<std::uint32_t, 3> groups, std::span<const Binding> bindings,
                                     std::span<const Word> constants, const std::string& label) {
  inner_->dispatch(executable, groups, unwrap(bindings, label), constants, label);
}

void ForwardingCommandList::copy(const Binding& from, const Binding& to, const std::string& label) {
  inner_->copy(unwrap(from, label), unwrap(to, label), label);
}

void ForwardingCommandList::fill(const Binding& to, Word value, const std::string& label) {
  inner_->fill(unwrap(to, label), value, label);
}

void ForwardingCommandList::host_call(HostFunction function, std::span<const Binding> bindings,
                                      const std::string& label) {
  inner_->host_call(std::move(function), unwrap(bindings, label), label);
}

ForwardingDevice::ForwardingDevice(std::unique_ptr<Device> inner)
    : Device(inner->info()), inner_(std::move(inner)) {
  if (inner_->runs_as_another()) run_as(inner_->profile());
}

std::unique_ptr<CommandList> ForwardingDevice::record(std::string name) {
  return std::make_unique<ForwardingCommandList>(inner_->record(std::move(name)));
}

void ForwardingDevice::submit(CommandList& list) {
  auto* outer = dynamic_cast<ForwardingCommandList*>(&list);
  if (!outer) throw Error(info().id, "a command list must come from this device");
  inner_->submit(outer->inner());
}

void ForwardingDevice::wait_for(CommandList& list, int mark) {
  auto* outer = dynamic_cast<ForwardingCommandList*>(&list);
  if (!outer) throw Error(info().id, "a command list must come from this device");
  inner_->wait_for(outer->inner(), mark);
}

std::unique_ptr<Buffer> ForwardingDevice::share(const Buffer& of_other) {
  return std::make_unique<ForwardingBuffer>(inner_->share(of_other), next_id());
}

void ForwardingDevice::write(Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) {
  inner_->write(forwarded(&buffer, "write").inner(), offset, data);
}

void ForwardingDevice::read(const Buffer& buffer, std::int64_t offset, std::span<std::byte> data) {
  inner_->read(forwarded(&buffer, "read").inner(), offset, data);
}

std::unique_ptr<Buffer> ForwardingDevice::do_allocate(std::int64_t bytes, const std::string& label) {
  return std::make_unique<ForwardingBuffer>(inner_->allocate(bytes, label), next_id());
}

std::unique_ptr<Buffer> ForwardingDevice::do_allocate_host(std::int64_t bytes, const std::string& label) {
  return std::make_unique<ForwardingBuffer>(inner_->allocate(bytes, label, MemoryKind::host), next_id());
}

}  // namespace meshloom::hal
