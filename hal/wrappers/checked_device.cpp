#include "hal/wrappers/checked_device.h"

#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "hal/wrappers/forwarding_device.h"

namespace meshloom::hal {
namespace {

// A set of disjoint byte ranges.
class Ranges {
 public:
  void add(std::int64_t begin, std::int64_t end) {
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin() && std::prev(it)->second >= begin) --it;
    while (it != ranges_.end() && it->first <= end) {
      begin = std::min(begin, it->first);
      end = std::max(end, it->second);
      it = ranges_.erase(it);
    }
    ranges_[begin] = end;
  }
  bool covers(std::int64_t begin, std::int64_t end) const {
    const auto it = ranges_.upper_bound(begin);
    return it != ranges_.begin() && std::prev(it)->second >= end;
  }

 private:
  std::map<std::int64_t, std::int64_t> ranges_;  // begin -> end
};

struct Use {
  std::uint64_t buffer;
  std::int64_t begin, end;
  Access access;
  std::string label;
};

bool reads(Access access) { return access != Access::write; }
bool writes(Access access) { return access != Access::read; }
bool overlap(const Use& a, const Use& b) {
  return a.buffer == b.buffer && a.begin < b.end && b.begin < a.end;
}

std::string range(const Use& use) {
  return "bytes [" + std::to_string(use.begin) + ", " + std::to_string(use.end) + ")";
}

class CheckedList : public ForwardingCommandList {
 public:
  CheckedList(std::unique_ptr<CommandList> inner, const Limits& limits, std::string name)
      : ForwardingCommandList(std::move(inner)), limits_(limits), name_(std::move(name)) {}

  void dispatch(const std::shared_ptr<Executable>& executable, std::array<std::uint32_t, 3> groups,
                std::span<const Binding> bindings, std::span<const Word> constants,
                const std::string& label) override {
    open(label);
    if (!executable) throw Error(where(label), "a dispatch must have an executable");
    const ExecutableSpec& spec = executable->spec();
    const std::string at = where(label) + ", kernel " + spec.kernel;
    if (bindings.size() != spec.bindings.size())
      throw Error(at, "must have " + std::to_string(spec.bindings.size()) + " bindings",
                  std::to_string(bindings.size()));
    if (constants.size() != spec.constant_words)
      throw Error(at, "must have " + std::to_string(spec.constant_words) + " constants",
                  std::to_string(constants.size()));
    for (std::size_t d = 0; d < 3; ++d)
      if (groups[d] == 0 || groups[d] > limits_.max_groups[d])
        throw Error(at,
                    "workgroups per dimension must be between 1 and " + std::to_string(limits_.max_groups[d]),
                    std::to_string(groups[d]));
    std::vector<Use> uses;
    const std::size_t each = bindings.size() / spec.fused, words = constants.size() / spec.fused;
    for (std::size_t i = 0; i < bindings.size(); ++i) {
      if (spec.fused > 1 && constants[(i / each + 1) * words - kFusedWords].i == kNoWorkgroup) break;
      if (bindings[i].access != spec.bindings[i])
        throw Error(at, "binding " + std::to_string(i) + " must have the access that the kernel declares");
      if (bindings[i].buffer && bindings[i].buffer->memory() == MemoryKind::host)
        throw Error(at, "kernels read and write memory of the device",
                    "'" + bindings[i].buffer->label() + "' of the host");
      uses.push_back(use(bindings[i], limits_.offset_alignment, label));
    }
    command(uses, true, label);
    ForwardingCommandList::dispatch(executable, groups, bindings, constants, label);
  }

  void copy(const Binding& from, const Binding& to, const std::string& label) override {
    open(label);
    if (from.bytes != to.bytes)
      throw Error(where(label), "source and target of a copy must have the same size",
                  std::to_string(from.bytes) + " and " + std::to_string(to.bytes));
    Binding source = from, target = to;
    source.access = Access::read;
    target.access = Access::write;
    command({use(source, 4, label), use(target, 4, label)}, false, label);
    ForwardingCommandList::copy(from, to, label);
  }

  void fill(const Binding& to, Word value, const std::string& label) override {
    open(label);
    Binding target = to;
    target.access = Access::write;
    if (to.buffer && to.buffer->memory() == MemoryKind::host)
      throw Error(where(label), "a fill writes memory of the device",
                  "'" + to.buffer->label() + "' of the host");
    if (to.bytes % 4)
      throw Error(where(label), "a fill must cover whole 32-bit words", std::to_string(to.bytes) + " bytes");
    command({use(target, 4, label)}, false, label);
    ForwardingCommandList::fill(to, value, label);
  }

  void host_call(HostFunction function, std::span<const Binding> bindings,
                 const std::string& label) override {
    open(label);
    std::vector<Use> uses;
    for (const Binding& binding : bindings) uses.push_back(use(binding, 1, label));
    command(uses, true, label);
    ForwardingCommandList::host_call(std::move(function), bindings, label);
  }

  void barrier() override {
    open("barrier");
    since_barrier_.clear();
    ForwardingCommandList::barrier();
  }

  void timestamp() override {
    open("timestamp");
    since_barrier_.clear();
    ForwardingCommandList::timestamp();
  }

  void finish() override {
    open("finish");
    finished_ = true;
    ForwardingCommandList::finish();
  }

  bool finished() const { return finished_; }
  const std::string& name() const { return name_; }
  const std::vector<Use>& history() const { return history_; }

 private:
  std::string where(const std::string& label) const { return "command list '" + name_ + "', " + label; }

  void open(const std::string& label) const {
    if (finished_) throw Error(where(label), "nothing can be recorded after finish()");
  }

  Use use(const Binding& binding, std::int64_t alignment, const std::string& label) const {
    const ForwardingBuffer& buffer = forwarded(binding.buffer, where(label));
    const std::string at = where(label) + ", buffer '" + buffer.label() + "'";
    if (binding.offset < 0 || binding.bytes <= 0 || binding.bytes > buffer.bytes() - binding.offset)
      throw Error(at, "a binding must lie within the buffer's " + std::to_string(buffer.bytes()) + " bytes",
                  "offset " + std::to_string(binding.offset) + ", size " + std::to_string(binding.bytes));
    if (binding.offset % alignment)
      throw Error(at, "offsets must be multiples of " + std::to_string(alignment),
                  std::to_string(binding.offset));
    return {buffer.id(), binding.offset, binding.offset + binding.bytes, binding.access, label};
  }

  // With `in_place` one command may read and write exactly the same range.
  void command(const std::vector<Use>& uses, bool in_place, const std::string& label) {
    for (const Use& a : uses)
      for (const Use& b : since_barrier_)
        if (overlap(a, b) && (writes(a.access) || writes(b.access)))
          throw Error(
              where(label), "needs a barrier after '" + b.label + "'",
              std::string(writes(b.access) ? (writes(a.access) ? "write after write" : "read after write")
                                           : "write after read") +
                  " of " + range(a));
    for (std::size_t i = 0; i < uses.size(); ++i)
      for (std::size_t j = i + 1; j < uses.size(); ++j) {
        const Use &a = uses[i], &b = uses[j];
        if (!overlap(a, b) || (!writes(a.access) && !writes(b.access))) continue;
        const bool same = a.begin == b.begin && a.end == b.end;
        if (!in_place || !same || (writes(a.access) && writes(b.access)))
          throw Error(
              where(label),
              "bindings that are written must not overlap others, unless they are the same range in place",
              range(a) + " and " + range(b));
      }
    since_barrier_.insert(since_barrier_.end(), uses.begin(), uses.end());
    // Reads come first: a command that works in place reads the old contents.
    for (const Use& u : uses)
      if (reads(u.access)) history_.push_back({u.buffer, u.begin, u.end, Access::read, label});
    for (const Use& u : uses)
      if (writes(u.access)) history_.push_back({u.buffer, u.begin, u.end, Access::write, label});
  }

  Limits limits_;
  std::string name_;
  bool finished_ = false;
  std::vector<Use> since_barrier_, history_;
};

// The existing buffers, and which of their bytes were written.
struct Contents {
  std::map<std::uint64_t, Ranges> live;
};

class CheckedBuffer : public ForwardingBuffer {
 public:
  CheckedBuffer(std::unique_ptr<Buffer> inner, std::uint64_t id, std::shared_ptr<Contents> contents)
      : ForwardingBuffer(std::move(inner), id), contents_(std::move(contents)) {
    Ranges& written = contents_->live[id];
    if (memory() == MemoryKind::host) written.add(0, bytes());  // the host writes there unseen
  }
  ~CheckedBuffer() override { contents_->live.erase(id()); }

 private:
  std::shared_ptr<Contents> contents_;
};

class CheckedDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  std::unique_ptr<CommandList> record(std::string name) override {
    auto list = std::make_unique<CheckedList>(inner().record(name), info().limits, name);
    lists_.insert(list.get());
    return list;
  }

  void submit(CommandList& list) override {
    auto* checked = dynamic_cast<CheckedList*>(&list);
    if (!checked || !lists_.count(checked))
      throw Error(info().id, "a command list must come from this device");
    const std::string where = "command list '" + checked->name() + "'";
    if (!checked->finished()) throw Error(where, "must be finished before it is submitted");
    for (const Use& use : checked->history()) {
      const auto live = contents_->live.find(use.buffer);
      if (live == contents_->live.end())
        throw Error(where + ", " + use.label, "all its buffers must exist when it is submitted");
      if (use.access == Access::write)
        live->second.add(use.begin, use.end);
      else if (!live->second.covers(use.begin, use.end))
        throw Error(where + ", " + use.label, "must read only bytes that were written before", range(use));
    }
    ForwardingDevice::submit(list);
  }

  void write(Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) override {
    within(buffer, offset, data.size(), "write");
    ForwardingDevice::write(buffer, offset, data);
    contents_->live[forwarded(&buffer, "write").id()].add(offset,
                                                          offset + static_cast<std::int64_t>(data.size()));
  }

  void read(const Buffer& buffer, std::int64_t offset, std::span<std::byte> data) override {
    within(buffer, offset, data.size(), "read");
    const auto size = static_cast<std::int64_t>(data.size());
    if (!contents_->live[forwarded(&buffer, "read").id()].covers(offset, offset + size))
      throw Error("reading buffer '" + buffer.label() + "'", "must read only bytes that were written before",
                  "bytes [" + std::to_string(offset) + ", " + std::to_string(offset + size) + ")");
    ForwardingDevice::read(buffer, offset, data);
  }

 protected:
  std::unique_ptr<Buffer> do_allocate(std::int64_t bytes, const std::string& label) override {
    return std::make_unique<CheckedBuffer>(inner().allocate(bytes, label), next_id(), contents_);
  }
  std::unique_ptr<Buffer> do_allocate_host(std::int64_t bytes, const std::string& label) override {
    return std::make_unique<CheckedBuffer>(inner().allocate(bytes, label, MemoryKind::host), next_id(),
                                           contents_);
  }

 private:
  static void within(const Buffer& buffer, std::int64_t offset, std::size_t size, const char* what) {
    if (offset < 0 || static_cast<std::int64_t>(size) > buffer.bytes() - offset)
      throw Error(std::string(what) + " of buffer '" + buffer.label() + "'",
                  "must lie within its " + std::to_string(buffer.bytes()) + " bytes",
                  "offset " + std::to_string(offset) + ", size " + std::to_string(size));
  }

  std::shared_ptr<Contents> contents_ = std::make_shared<Contents>();
  std::set<CheckedList*> lists_;
};

}  // namespace

std::unique_ptr<Device> checked(std::unique_ptr<Device> inner) {
  return std::make_unique<CheckedDevice>(std::move(inner));
}

}  // namespace meshloom::hal
