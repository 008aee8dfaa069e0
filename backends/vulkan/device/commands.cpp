#include "backends/vulkan/device/commands.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "backends/simt/host/aliasing.h"
#include "backends/vulkan/device/status.h"
#include "hal/bounds.h"

namespace meshloom::backends::vulkan {
namespace {

constexpr VkPipelineStageFlags kWork = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr std::uint32_t kSetsPerPool = 256, kTimesPerPool = 1024;
constexpr VkAccessFlags kWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kReads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

void memory_barrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkAccessFlags writes,
                    VkPipelineStageFlags to, VkAccessFlags accesses) {
  const VkMemoryBarrier barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, writes, accesses};
  vkCmdPipelineBarrier(commands, from, to, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

}  // namespace

VkCommandList::VkCommandList(std::shared_ptr<Context> context, std::shared_ptr<Stamps> stamps,
                             std::string name, const hal::Limits& limits)
    : context_(std::move(context)), stamps_(std::move(stamps)), name_(std::move(name)), limits_(limits) {}

VkCommandList::~VkCommandList() {
  if (!context_->drain(last_)) return;
  free_segments();
  for (VkBufferView view : views_) vkDestroyBufferView(context_->device(), view, nullptr);
  for (VkDescriptorPool pool : pools_) vkDestroyDescriptorPool(context_->device(), pool, nullptr);
  for (VkQueryPool pool : time_pools_) vkDestroyQueryPool(context_->device(), pool, nullptr);
}

VkDescriptorSet VkCommandList::new_set(VkDescriptorSetLayout layout, const std::string& label) {
  if (sets_left_ == 0) {
    const VkDescriptorPoolSize sizes[] = {{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, kSetsPerPool * 8},
                                          {VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER, kSetsPerPool * 8}};
    VkDescriptorPoolCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO};
    info.maxSets = kSetsPerPool;
    info.poolSizeCount = context_->uses_texel_buffers() ? 2 : 1;
    info.pPoolSizes = sizes;
    VkDescriptorPool pool = VK_NULL_HANDLE;
    check(vkCreateDescriptorPool(context_->device(), &info, nullptr, &pool), place(label),
          "vkCreateDescriptorPool");
    pools_.push_back(pool);
    sets_left_ = kSetsPerPool;
  }
  VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO};
  info.descriptorPool = pools_.back();
  info.descriptorSetCount = 1;
  info.pSetLayouts = &layout;
  VkDescriptorSet set = VK_NULL_HANDLE;
  check(vkAllocateDescriptorSets(context_->device(), &info, &set), place(label), "vkAllocateDescriptorSets");
  --sets_left_;
  return set;
}

VkBufferView VkCommandList::new_view(const VkDescriptorBufferInfo& range, const std::string& label) {
  VkBufferViewCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO};
  info.buffer = range.buffer;
  info.format = VK_FORMAT_R32_UINT;
  info.offset = range.offset;
  info.range = range.range / 4 * 4;
  VkBufferView view = VK_NULL_HANDLE;
  check(vkCreateBufferView(context_->device(), &info, nullptr, &view), place(label), "vkCreateBufferView");
  views_.push_back(view);
  return view;
}

std::string VkCommandList::place(const std::string& label) const {
  return context_->where() + ", list '" + name_ + "', " + label;
}

void VkCommandList::check_open(const std::string& label) const {
  if (finished_) throw hal::Error(place(label), "nothing can be recorded after finish()");
}

void VkCommandList::add(std::string label, double weight, std::uint32_t parts, decltype(Command::what) what) {
  commands_.push_back({std::move(label), std::move(what)});
  if (std::holds_alternative<HostCall>(commands_.back().what) ||
      std::holds_alternative<Mark>(commands_.back().what))
    costs_.add_alone();
  else
    costs_.add(weight, parts);
}

VkCommandList::Range VkCommandList::range_of(const hal::Binding& binding, const std::string& label) const {
  if (!binding.buffer) throw hal::Error(place(label), "a binding must name a buffer");
  const VkHalBuffer& buffer = vk_buffer(*binding.buffer, place(label));
  hal::check_bounds(buffer, binding, place(label));
  return {&buffer.allocation(), binding.offset, binding.bytes, binding.access};
}

VkCommandList::Range VkCommandList::device_range(const hal::Binding& binding,
                                                 const std::string& label) const {
  if (binding.buffer && binding.buffer->memory() == hal::MemoryKind::host)
    throw hal::Error(place(label), "only copies take memory of the host",
                     "'" + binding.buffer->label() + "'");
  return range_of(binding, label);
}

void VkCommandList::dispatch(const std::shared_ptr<hal::Executable>& executable,
                             std::array<std::uint32_t, 3> groups, std::span<const hal::Binding> bindings,
                             std::span<const hal::Word> constants, const std::string& label) {
  check_open(label);
  const auto own = std::dynamic_pointer_cast<VkExecutable>(executable);
  if (!own) throw hal::Error(place(label), "an executable must be of the device that runs it");
  const hal::ExecutableSpec& spec = own->spec();
  if (bindings.size() != spec.bindings.size() || constants.size() != spec.constant_words)
    throw hal::Error(place(label),
                     "kernel '" + spec.kernel + "' takes " + std::to_string(spec.bindings.size()) +
                         " bindings and " + std::to_string(spec.constant_words) + " constants",
                     std::to_string(bindings.size()) + " and " + std::to_string(constants.size()));
  for (std::size_t d = 0; d < 3; ++d)
    if (groups[d] == 0 || groups[d] > limits_.max_groups[d])
      throw hal::Error(place(label),
                       "groups in dimension " + std::to_string(d) + " must be 1 to " +
                           std::to_string(limits_.max_groups[d]),
                       std::to_string(groups[d]));
  if (const std::uint32_t undeclared = simt::aliased_bindings(bindings) & ~simt::declared_aliased(spec))
    throw hal::Error(place(label),
                     "the spec of kernel '" + spec.kernel +
                         "' must say which bindings are memory that another one writes or reads too",
                     "binding " + std::to_string(std::countr_zero(undeclared)) + " without ALIASED_" +
                         std::to_string(std::countr_zero(undeclared)));
  Dispatch made{own, false, VK_NULL_HANDLE, {}, groups, 0};
  PushConstants& push = made.push;
  const bool by_address = made.by_address = own->needs_addresses(bindings);
  std::vector<VkDescriptorBufferInfo> ranges;
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    const Range range = device_range(bindings[i], label);
    if (range.offset % limits_.offset_alignment != 0)
      throw hal::Error(place(label),
                       "offsets must be multiples of " + std::to_string(limits_.offset_alignment),
                       std::to_string(range.offset));
    push.address[i] = range.allocation->address() + static_cast<VkDeviceAddress>(range.offset);
    ranges.push_back({range.allocation->buffer(), static_cast<VkDeviceSize>(range.offset),
                      static_cast<VkDeviceSize>(range.bytes)});
  }
  for (std::size_t i = 0; i < constants.size(); ++i) push.words[i] = constants[i].u;
  if (!by_address) {
    made.set = new_set(own->layout(false).set, label);
    std::vector<VkWriteDescriptorSet> writes;
    std::vector<VkBufferView> views(ranges.size());
    for (std::uint32_t i = 0; i < ranges.size(); ++i) {
      VkWriteDescriptorSet write{VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET};
      write.dstSet = made.set;
      write.dstBinding = i;
      write.descriptorCount = 1;
      write.descriptorType = own->slots().type(i);
      if (write.descriptorType == VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER) {
        views[i] = new_view(ranges[i], label);
        write.pTexelBufferView = &views[i];
      } else {
        write.pBufferInfo = &ranges[i];
      }
      writes.push_back(write);
    }
    vkUpdateDescriptorSets(context_->device(), static_cast<std::uint32_t>(writes.size()), writes.data(), 0,
                           nullptr);
  }
  (void)own->pipeline(by_address);  // compiles it
  made.axis = static_cast<std::size_t>(std::max_element(groups.begin(), groups.end()) - groups.begin());
  const double invocations = double{1} * groups[0] * groups[1] * groups[2] * spec.workgroup[0] *
                             spec.workgroup[1] * spec.workgroup[2];
  const bool cuttable = push.grid(by_address, spec.constant_words) != nullptr;
  add(label, invocations, cuttable ? groups[made.axis] : 1, std::move(made));
}

void VkCommandList::copy(const hal::Binding& from, const hal::Binding& to, const std::string& label) {
  check_open(label);
  if (from.bytes != to.bytes)
    throw hal::Error(place(label), "both ranges of a copy have the same size",
                     std::to_string(from.bytes) + " and " + std::to_string(to.bytes) + " bytes");
  const Range source = range_of(from, label), target = range_of(to, label);
  if (source.allocation == target.allocation && from.offset < to.offset + to.bytes &&
      to.offset < from.offset + from.bytes)
    throw hal::Error(place(label), "the ranges of a copy must not overlap",
                     std::to_string(from.bytes) + " bytes at " + std::to_string(from.offset) + " and " +
                         std::to_string(to.offset) + " of '" + from.buffer->label() + "'");
  if (source.bytes == 0) return;
  const VkBufferCopy region{static_cast<VkDeviceSize>(source.offset),
                            static_cast<VkDeviceSize>(target.offset),
                            static_cast<VkDeviceSize>(source.bytes)};
  add(label, static_cast<double>(source.bytes) / hal::kBytesPerInvocation, 1,
      Copy{source.allocation->buffer(), target.allocation->buffer(), region});
}

void VkCommandList::fill(const hal::Binding& to, hal::Word value, const std::string& label) {
  check_open(label);
  if (to.bytes % 4 != 0 || to.offset % 4 != 0)
    throw hal::Error(place(label), "a fill covers whole 32-bit words",
                     std::to_string(to.bytes) + " bytes at " + std::to_string(to.offset));
  const Range range = device_range(to, label);
  if (range.bytes == 0) return;
  add(label, static_cast<double>(range.bytes) / hal::kBytesPerInvocation, 1,
      Fill{range.allocation->buffer(), static_cast<VkDeviceSize>(range.offset),
           static_cast<VkDeviceSize>(range.bytes), value.u});
}

void VkCommandList::host_call(hal::HostFunction function, std::span<const hal::Binding> bindings,
                              const std::string& label) {
  check_open(label);
  if (!function) throw hal::Error(place(label), "a host call needs a function");
  HostCall call{std::move(function), {}};
  for (const hal::Binding& binding : bindings) call.ranges.push_back(range_of(binding, label));
  add(label, 0, 1, std::move(call));
}

void VkCommandList::barrier() {
  check_open("barrier");
  add("", 0, 1, Barrier{});
}

void VkCommandList::timestamp() {
  check_open("timestamp");
  if (context_->timestamp_seconds() <= 0) return CommandList::timestamp();
  const std::uint32_t index = times_++;
  if (index % kTimesPerPool == 0) {
    VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = kTimesPerPool;
    VkQueryPool pool = VK_NULL_HANDLE;
    check(vkCreateQueryPool(context_->device(), &info, nullptr, &pool), place("timestamp"),
          "vkCreateQueryPool");
    time_pools_.push_back(pool);
  }
  add("", 0, 1, Timestamp{index});
}

std::vector<double> VkCommandList::intervals() {
  std::vector<std::uint64_t> ticks(times_);
  for (std::uint32_t first = 0; first < times_; first += kTimesPerPool) {
    const std::uint32_t count = std::min(kTimesPerPool, times_ - first);
    check(vkGetQueryPoolResults(context_->device(), time_pools_[first / kTimesPerPool], 0, count,
                                count * sizeof(std::uint64_t), &ticks[first], sizeof(std::uint64_t),
                                VK_QUERY_RESULT_64_BIT),
          place("timestamp"), "vkGetQueryPoolResults");
  }
  std::vector<double> seconds;
  for (std::size_t i = 1; i < ticks.size(); ++i)
    seconds.push_back(static_cast<double>((ticks[i] - ticks[i - 1]) & context_->timestamp_mask()) *
                      context_->timestamp_seconds());
  return seconds;
}

void VkCommandList::finish() {
  check_open("finish");
  costs_.close();
  record_segments();
  finished_ = true;
}

const VkCommandList::HostCall* VkCommandList::host_call_of(const hal::Submission& submission) const {
  return std::get_if<HostCall>(&commands_[submission.pieces.front().command].what);
}

bool VkCommandList::is_mark(const hal::Submission& submission) const {
  return std::holds_alternative<Mark>(commands_[submission.pieces.front().command].what);
}

int VkCommandList::mark() {
  check_open("mark");
  add("", 0, 1, Mark{});
  return marked_++;
}

void VkCommandList::wait_for(int mark) { context_->wait(marks_.at(static_cast<std::size_t>(mark))); }

void VkCommandList::free_segments() {
  for (const Segment& segment : segments_) {
    if (!segment.commands) continue;
    context_->free_command_buffer(segment.commands);
    stamps_->give_back(segment.slot);
  }
  segments_.clear();
  vkDestroyQueryPool(context_->device(), counts_, nullptr);
  counts_ = VK_NULL_HANDLE;
}

void VkCommandList::record_segments() {
  free_segments();
  submissions_ = hal::cut_into_submissions(costs_.commands(), context_->settings().budget);
  log_ = hal::log_of(name_, submissions_, [&](std::size_t i) { return commands_[i].label; });
  ran_ = false;
  if (context_->counts_invocations() && !submissions_.empty()) {
    VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
    info.queryType = VK_QUERY_TYPE_PIPELINE_STATISTICS;
    info.queryCount = static_cast<std::uint32_t>(submissions_.size());
    info.pipelineStatistics = VK_QUERY_PIPELINE_STATISTIC_COMPUTE_SHADER_INVOCATIONS_BIT;
    check(vkCreateQueryPool(context_->device(), &info, nullptr, &counts_), place("finish"),
          "vkCreateQueryPool");
  }
  for (std::uint32_t i = 0; i < submissions_.size(); ++i) {
    segments_.emplace_back();
    if (!host_call_of(submissions_[i]) && !is_mark(submissions_[i]))
      record(segments_.back(), submissions_[i], i);
  }
}

void VkCommandList::record(Segment& segment, const hal::Submission& submission, std::uint32_t index) {
  segment.commands = context_->new_command_buffer();
  segment.slot = stamps_->take();
  const VkCommandBuffer commands = segment.commands;
  VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  // The list may be submitted again while it is still running.
  begin.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
  check(vkBeginCommandBuffer(commands, &begin), place("begin"), "vkBeginCommandBuffer");
  // Waits for everything submitted before, which a queue alone does not ensure.
  memory_barrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_WRITE_BIT, kWork,
                 kReads | kWrites);
  if (counts_) {
    vkCmdResetQueryPool(commands, counts_, index, 1);
    vkCmdBeginQuery(commands, counts_, index, 0);
  }
  for (const hal::Piece& piece : submission.pieces) {
    const auto& what = commands_[piece.command].what;
    if (const auto* dispatch = std::get_if<Dispatch>(&what)) {
      record(commands, *dispatch, piece);
      const auto& size = dispatch->executable->spec().workgroup;
      std::uint64_t groups = piece.count;
      if (costs_.commands()[piece.command].parts != dispatch->groups[dispatch->axis])
        groups = dispatch->groups[dispatch->axis];
      for (std::size_t d = 0; d < 3; ++d) groups *= (d == dispatch->axis ? 1 : dispatch->groups[d]) * size[d];
      segment.invocations += groups;
    } else if (const auto* copy = std::get_if<Copy>(&what)) {
      vkCmdCopyBuffer(commands, copy->from, copy->to, 1, &copy->region);
    } else if (const auto* fill = std::get_if<Fill>(&what)) {
      vkCmdFillBuffer(commands, fill->buffer, fill->offset, fill->bytes, fill->value);
    } else {
      memory_barrier(commands, kWork, kWrites, kWork, kReads | kWrites);
      if (const auto* time = std::get_if<Timestamp>(&what)) {
        const VkQueryPool pool = time_pools_[time->index / kTimesPerPool];
        if (time->index % kTimesPerPool == 0) vkCmdResetQueryPool(commands, pool, 0, kTimesPerPool);
        vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool,
                            time->index % kTimesPerPool);
      }
    }
  }
  if (counts_) vkCmdEndQuery(commands, counts_, index);
  stamps_->record(commands, segment.slot);
  check(vkEndCommandBuffer(commands), place("end"), "vkEndCommandBuffer");
}

void VkCommandList::record(VkCommandBuffer commands, const Dispatch& dispatch,
                           const hal::Piece& piece) const {
  const VkExecutable& executable = *dispatch.executable;
  const VkPipelineLayout layout = executable.layout(dispatch.by_address).pipeline;
  PushConstants push = dispatch.push;
  std::array<std::uint32_t, 3> groups = dispatch.groups;
  if (std::uint32_t* grid = push.grid(dispatch.by_address, executable.spec().constant_words)) {
    std::fill(grid, grid + 3, 0u);
    std::copy(groups.begin(), groups.end(), grid + 3);
    grid[dispatch.axis] = piece.first;
    groups[dispatch.axis] = piece.count;
  }
  if (dispatch.set)
    vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &dispatch.set, 0,
                            nullptr);
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, executable.pipeline(dispatch.by_address));
  vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push, &push);
  vkCmdDispatch(commands, groups[0], groups[1], groups[2]);
}

void VkCommandList::run_host_call(const HostCall& call, Transfer& transfer) const {
  std::vector<std::vector<std::byte>> copies(call.ranges.size());
  std::vector<hal::HostRange> views;
  for (std::size_t i = 0; i < call.ranges.size(); ++i) {
    const Range& range = call.ranges[i];
    if (std::byte* mapped = range.allocation->mapped()) {
      views.push_back({mapped + range.offset, range.bytes});
      continue;
    }
    copies[i].resize(static_cast<std::size_t>(range.bytes));
    // Written ranges are read too, since the function may leave parts of them unchanged.
    transfer.read(*range.allocation, range.offset, copies[i]);
    views.push_back({copies[i].data(), range.bytes});
  }
  call.function(views);
  for (std::size_t i = 0; i < call.ranges.size(); ++i)
    if (!copies[i].empty() && call.ranges[i].access != hal::Access::read)
      transfer.write(*call.ranges[i].allocation, call.ranges[i].offset, copies[i]);
}

void VkCommandList::submit(Transfer& transfer) {
  if (!finished_) throw hal::Error(place("submit"), "finish() must come before the first submit");
  if (ran_ && context_->is_known_complete(last_) && costs_.learn(submissions_, *log_, context_->settings()))
    record_segments();
  ran_ = true;
  marks_.clear();
  for (std::size_t i = 0; i < submissions_.size(); ++i) {
    if (is_mark(submissions_[i])) {
      marks_.push_back(context_->submitted());
      continue;
    }
    if (const HostCall* call = host_call_of(submissions_[i])) {
      context_->wait_all();
      run_host_call(*call, transfer);
      continue;
    }
    const Segment& segment = segments_[i];
    last_ = context_->submit(
        segment.commands, {log_, i},
        {stamps_->next(segment.slot), counts_, static_cast<std::uint32_t>(i), segment.invocations});
  }
}

}  // namespace meshloom::backends::vulkan
