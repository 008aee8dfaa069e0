#include "trainer/execute/session.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "hal/binding.h"
#include "hal/error.h"
#include "hal/low_precision.h"
#include "hal/math.h"
#include "hal/suggest.h"
#include "trainer/execute/commands_of.h"
#include "trainer/execute/initial_values.h"
#include "trainer/execute/lower.h"
#include "trainer/mesh/tags.h"

namespace meshloom::trainer {
namespace {

// Floats of f32 as a value of `dtype` is stored, with zeros to the end of the last word: kernels read whole words, of which
// placements have room.
std::vector<std::byte> narrowed(hal::DType dtype, std::span<const std::byte> data) {
  std::vector<std::byte> stored(data.size() / 2);
  hal::narrow(dtype, data, stored);
  stored.resize(static_cast<std::size_t>(hal::round_up(static_cast<std::int64_t>(stored.size()), 4)));
  return stored;
}

// Whether the host's data is the persistent value `name` in f32, and not as it is stored. Checks that it has the size of either.
bool is_wide(const Plan& plan, const std::string& name, std::size_t bytes) {
  const auto found = plan.persistent_types.find(name);
  if (found == plan.persistent_types.end()) {
    std::vector<std::string> names;
    for (const auto& [known, type] : plan.persistent_types) names.push_back(known);
    throw hal::Error("session, value '" + name + "'",
                     "must be one of the plan's" + hal::suggestion(name, names));
  }
  const bool wide = hal::is_low_precision(found->second.dtype) &&
                    static_cast<std::size_t>(found->second.elements()) * sizeof(float) == bytes;
  if (!wide && static_cast<std::size_t>(found->second.bytes()) != bytes)
    throw hal::Error("session, value '" + name + "'",
                     "must be given the " + std::to_string(found->second.bytes()) + " bytes of " +
                         to_string(found->second),
                     std::to_string(bytes));
  return wide;
}

}  // namespace

Session::Session(hal::Device& device, const kernels::Catalog& catalog, Plan plan,
                 const hal::LoadProgress& compiled, const Ranks& ranks)
    : device_(device), catalog_(catalog), plan_(std::move(plan)), ranks_(ranks) {
  if (plan_.device != device.info().id || plan_.profile != device.profile().name)
    throw hal::Error("session",
                     "a plan must run on the device and profile that it was composed for (" + plan_.device +
                         " as " + plan_.profile + ")",
                     device.info().id + " as " + device.profile().name);
  if (!plan_.host.empty() && !device.host())
    throw hal::Error("session", "a plan with programs of the host needs the host's device", "none");
  check_ranks();
  buffers_ = allocate(device, plan_.blocks);
  if (!plan_.host.empty()) host_buffers_ = allocate(*device.host(), plan_.host.blocks);
  load_kernels(compiled);
  staging_.resize(static_cast<std::size_t>(plan_.staging_bytes));
  for (const auto& [step, planned] : plan_.steps.programs)
    if (planned.on_host)
      record_parts(planned);
    else if (!planned.exchanges.empty())
      staged_.emplace(step, staged(step));
    else
      lists_.emplace(step, recorded(step, false));
}

Session::Buffers Session::allocate(hal::Device& device, const std::vector<Block>& blocks) {
  Buffers buffers;
  for (const Block& block : blocks)
    buffers.push_back(block.shared < 0 ? device.allocate(block.bytes, block.label, block.memory)
                                       : device.share(*buffers_.at(static_cast<std::size_t>(block.shared))));
  return buffers;
}

void Session::load_kernels(const hal::LoadProgress& compiled) {
  if (!has_submissions(device_.info())) return;
  std::vector<hal::ExecutableSpec> kernels;
  std::set<std::string> known;
  for (const auto& [step, planned] : plan_.steps.programs) {
    if (planned.on_host) continue;
    for (hal::ExecutableSpec& kernel : commands_of(planned, catalog_, plan_.blocks, device_.info()).kernels)
      if (known.insert(kernel.key()).second) kernels.push_back(std::move(kernel));
  }
  device_.load_all(kernels, compiled);
}

void Session::check_ranks() const {
  for (const auto& [step, planned] : plan_.steps.programs) {
    if (planned.exchanges.empty()) continue;
    const std::string where = "session, program '" + planned.program.name + "'";
    if (!plan_.host.empty())
      throw hal::Error(where, "a plan with collectives must have no programs of the host", "some");
    const auto rank_of = [](int rank, int ranks) {
      return "rank " + std::to_string(rank) + " of " + std::to_string(ranks);
    };
    const std::string wanted = rank_of(plan_.mesh.rank(), plan_.mesh.ranks());
    if (!ranks_.transport)
      throw hal::Error(
          where, "a program with collectives needs a transport to the other ranks (it is for " + wanted + ")",
          "none");
    const std::string found = rank_of(ranks_.transport->rank(), ranks_.transport->size());
    if (found != wanted)
      throw hal::Error(
          where, "the transport must be that of the plan's mesh " + plan_.mesh.text() + ", of " + wanted,
          found);
  }
}

void Session::check_places(const PlannedProgram& planned) const {
  for (const kernels::Call& call : planned.program.calls) {
    if (!catalog_.contract(call.op).moves) continue;
    const int place = plan_.mesh.place(axes_from_string(call.attrs.text("axes")));
    if (call.attrs.integer("place") != place)
      throw hal::Error("session, " + call.op + (call.path.empty() ? "" : " in " + call.path),
                       "the place must be that of rank " + std::to_string(plan_.mesh.rank()) +
                           " in the mesh " + plan_.mesh.text() + ", " + std::to_string(place),
                       std::to_string(call.attrs.integer("place")));
  }
}

// Tags count the exchanges, so that ranks agree on them even where the calls between differ; those over a pipeline for
// themselves, because its stages have other exchanges of their own.
Session::Staged Session::staged(const ProgramKey& step) {
  const PlannedProgram& planned = plan_.steps.at(step);
  check_places(planned);
  exchange_thread();
  Staged staged;
  staged.planned = &planned;
  std::map<int, std::vector<int>> starts, ends;  // by call; what ends first starts first
  std::array<std::int32_t, 2> tags{0, hal::kMaxTag / 2};
  for (const Exchange& exchange : planned.exchanges) {
    const auto index = static_cast<int>(staged.groups.size());
    starts[exchange.starts].push_back(index);
    ends[exchange.call].push_back(index);
    staged.groups.push_back(plan_.mesh.group(exchange.axes));
    staged.lists.push_back(lists_of(exchange, planned.program, catalog_, plan_.mesh));
    staged.envelopes.push_back(
        {tags.at(exchange.axes.has(AxisName::pipeline) ? 1 : 0)++, exchange.op, exchange.path});
    const std::span<std::byte> all = std::span(staging_).subspan(static_cast<std::size_t>(exchange.staged));
    const auto sent = static_cast<std::size_t>(exchange.sent_bytes);
    staged.tensors.push_back(
        {all.first(sent), all.subspan(sent, static_cast<std::size_t>(exchange.received_bytes))});
    staged.numbers.push_back(0);
  }
  const std::vector<kernels::Call>& calls = planned.program.calls;
  int first = 0;
  for (int i = 0; i <= static_cast<int>(calls.size()); ++i) {
    const bool cut = starts.count(i) != 0 || ends.count(i) != 0 || i == static_cast<int>(calls.size());
    if (!cut) continue;
    if (std::any_of(calls.begin() + first, calls.begin() + i, [&](const kernels::Call& call) {
          const kernels::Contract& contract = catalog_.contract(call.op);
          return !contract.view && !contract.moves;
        }))
      staged.actions.push_back({recorded(step, false, {first, i})});
    for (const int exchange : starts[i]) staged.actions.push_back({nullptr, exchange});
    for (const int exchange : ends[i]) staged.actions.push_back({nullptr, -1, exchange});
    first = i;
  }
  return staged;
}

std::unique_ptr<hal::CommandList> Session::recorded(const ProgramKey& step, bool timed, CallRange range) {
  const PlannedProgram& planned = plan_.steps.at(step);
  std::unique_ptr<hal::CommandList> list = device_.record(planned.program.name + (timed ? ", timed" : ""));
  lower(planned, catalog_, buffers_, device_, *list, timed, range);
  list->finish();
  return list;
}

std::unique_ptr<hal::CommandList> Session::recorded_copies(const std::vector<std::string>& names,
                                                           bool to_host) {
  if (names.empty()) return nullptr;
  std::unique_ptr<hal::CommandList> list = device_.record(to_host ? "to the host" : "to the device");
  for (const std::string& name : names) {
    const Placement &here = plan_.host.copies.at(name), &there = *on_device(name);
    const std::int64_t bytes = hal::round_up(here.bytes, std::int64_t{4});  // places are aligned to more
    const hal::Binding host{&buffer(here), here.offset, bytes}, device{&buffer(there), there.offset, bytes};
    list->copy(hal::reads(to_host ? device : host), hal::writes(to_host ? host : device), "copy of " + name);
  }
  list->finish();
  return list;
}

void Session::record_parts(const PlannedProgram& planned) {
  hal::Device& host = *device_.host();
  to_host_ = recorded_copies(plan_.host.to_host, true);
  for (const HostPart& part : plan_.host.parts) {
    std::unique_ptr<hal::CommandList> run = host.record(planned.program.name);
    lower(planned, catalog_, host_buffers_, host, *run, false, {part.first, part.last});
    run->finish();
    parts_.push_back({part.mark, std::move(run), recorded_copies(part.to_device, false)});
  }
}

const Placement* Session::on_device(const std::string& name) const {
  const auto found = plan_.persistent.find(name);
  return found == plan_.persistent.end() ? nullptr : &found->second;
}

const Placement* Session::on_host(const std::string& name) const {
  const auto found = plan_.host.persistent.find(name);
  return found == plan_.host.persistent.end() ? nullptr : &found->second;
}

namespace {

// The bytes of a part of a value, whose elements have `size` bytes.
std::vector<std::byte> cut(const Layout& layout, std::size_t size, std::span<const std::byte> whole) {
  std::vector<std::byte> part(static_cast<std::size_t>(layout.range.count) * size);
  for_runs(layout, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    std::memcpy(part.data() + static_cast<std::size_t>(to) * size,
                whole.data() + static_cast<std::size_t>(from) * size, static_cast<std::size_t>(count) * size);
  });
  return part;
}

void paste(const Layout& layout, std::span<const std::byte> part, std::span<std::byte> whole) {
  const auto size = static_cast<std::size_t>(hal::size_of(layout.whole.dtype));
  for_runs(layout, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
    std::memcpy(whole.data() + static_cast<std::size_t>(to) * size,
                part.data() + static_cast<std::size_t>(from) * size, static_cast<std::size_t>(count) * size);
  });
}

// The bytes of an element in data of the whole of a divided value: f32 for one that is stored in 16-bit floats. As it is stored, the
// whole would have the size of a half in f32.
std::size_t size_in_whole(const kernels::TensorType& whole) {
  return hal::is_low_precision(whole.dtype) ? sizeof(float)
                                            : static_cast<std::size_t>(hal::size_of(whole.dtype));
}

// Whether data has the size of the whole of a value of which this rank holds less.
bool is_whole(const Plan& plan, const std::string& name, std::size_t bytes) {
  const auto found = plan.divided.find(name);
  if (found == plan.divided.end()) return false;
  const kernels::TensorType& whole = found->second.whole;
  return static_cast<std::size_t>(whole.elements()) * size_in_whole(whole) == bytes &&
         !plan.layout(name, plan.mesh.rank()).is_whole();
}

// Whether another stage of the pipeline has the value, and this one has not.
bool is_elsewhere(const Plan& plan, const std::string& name) {
  const auto found = plan.divided.find(name);
  return found != plan.divided.end() && !found->second.stages.empty() &&
         plan.persistent_types.count(name) == 0;
}

const hal::Envelope kParts{kValuePartsTag, "send", "parts of values"};

}  // namespace

void Session::gather(const std::string& name, std::span<std::byte> whole) {
  if (!ranks_.transport || !ranks_.announce || plan_.mesh.rank() != 0)
    throw hal::Error("session, value '" + name + "'",
                     "the whole of a divided value is read by rank 0, with a transport to the others",
                     plan_.mesh.text());
  ranks_.announce(name);
  const std::int64_t size = static_cast<std::int64_t>(hal::size_of(plan_.whole_type(name).dtype));
  std::vector<Layout> layouts;
  std::vector<kernels::collective::Move> moves;
  std::int64_t end = 0;
  for (int rank = 0; rank < plan_.mesh.ranks(); ++rank) {
    layouts.push_back(plan_.layout(name, rank));
    const std::int64_t bytes = layouts.back().first ? layouts.back().range.count * size : 0;
    if (rank > 0 && bytes > 0) moves.push_back({rank, false, kernels::collective::kOutput, end, bytes});
    end += rank > 0 ? bytes : 0;
  }
  std::vector<std::byte> own(static_cast<std::size_t>(layouts[0].range.count * size)),
      parts(static_cast<std::size_t>(end));
  if (!own.empty()) read(name, own);
  const std::array<std::span<std::byte>, 2> tensors{std::span<std::byte>(), parts};
  exchange(*ranks_.transport, all_ranks(*ranks_.transport), moves, tensors, kParts, ranks_.patience);
  const kernels::TensorType& type = plan_.whole_type(name);
  std::vector<std::byte> stored;
  const bool wide = hal::is_low_precision(type.dtype);
  if (wide) stored.resize(whole.size() / 2);
  const std::span<std::byte> into = wide ? std::span(stored) : whole;
  paste(layouts[0], own, into);
  for (const kernels::collective::Move& move : moves)
    paste(
        layouts[static_cast<std::size_t>(move.peer)],
        std::span(parts).subspan(static_cast<std::size_t>(move.offset), static_cast<std::size_t>(move.bytes)),
        into);
  if (wide) hal::widen(type.dtype, stored, whole);
}

void Session::send(const std::string& name) {
  const Layout layout = plan_.layout(name, plan_.mesh.rank());
  if (!layout.first) return;
  std::vector<std::byte> own(static_cast<std::size_t>(plan_.persistent_types.at(name).bytes()));
  read(name, own);
  const std::array<std::span<std::byte>, 2> tensors{own, std::span<std::byte>()};
  const std::vector<kernels::collective::Move> moves{
      {0, true, kernels::collective::kInput, 0, static_cast<std::int64_t>(own.size())}};
  exchange(*ranks_.transport, all_ranks(*ranks_.transport), moves, tensors, kParts, ranks_.patience);
}

ExchangeThread& Session::exchange_thread() {
  if (!exchange_) exchange_ = std::make_unique<ExchangeThread>(*ranks_.transport, ranks_.patience);
  return *exchange_;
}

void Session::transfer(const Transfer& transfer) {
  std::vector<const Placement*> places;
  std::size_t bytes = 0;
  for (const std::string& name : transfer.values) {
    const auto place = plan_.persistent.find(name);
    if (place == plan_.persistent.end())
      throw hal::Error("session, " + std::string(transfer.out ? "sending" : "receiving"),
                       "what stages exchange must be persistent values of the plan", "'" + name + "'");
    places.push_back(&place->second);
    bytes += static_cast<std::size_t>(places.back()->bytes);
  }
  outgoing_.emplace_back();
  Outgoing& message = outgoing_.back();
  message.data.resize(bytes);
  const auto each = [&](const auto& visit) {
    std::size_t at = 0;
    for (const Placement* place : places) {
      visit(*place, std::span(message.data).subspan(at, static_cast<std::size_t>(place->bytes)));
      at += static_cast<std::size_t>(place->bytes);
    }
  };
  if (transfer.out) {
    device_.wait();
    each([&](const Placement& place, std::span<std::byte> data) {
      device_.read(buffer(place), place.offset, data);
    });
  }
  message.group = all_ranks(*ranks_.transport);
  message.moves = {{transfer.rank, transfer.out,
                    transfer.out ? kernels::collective::kInput : kernels::collective::kOutput, 0,
                    static_cast<std::int64_t>(bytes)}};
  message.tensors.fill(message.data);
  const std::string& first = transfer.values.front();
  message.envelope = {transfer.tag, "pipeline",
                      first.substr(0, first.find('@'))};  // slots differ on both sides
  message.number = exchange_thread().begin(message.group, message.moves, message.tensors, message.envelope);
  if (transfer.out) return;
  exchange_->end(message.number);
  each([&](const Placement& place, std::span<std::byte> data) {
    device_.write(buffer(place), place.offset, data);
  });
  outgoing_.pop_back();
}

void Session::finish_transfers() {
  for (; !outgoing_.empty(); outgoing_.pop_front()) exchange_->end(outgoing_.front().number);
}

void Session::write(const std::string& name, std::span<const std::byte> data) {
  if (is_elsewhere(plan_, name)) return;
  if (is_parameter_copy(name))
    throw hal::Error("session, value '" + name + "'", "is a copy, which is written with its parameter");
  if (is_whole(plan_, name, data.size()))
    return write(name,
                 cut(plan_.layout(name, plan_.mesh.rank()), size_in_whole(plan_.whole_type(name)), data));
  std::vector<std::byte> stored;
  if (is_wide(plan_, name, data.size())) {
    stored = narrowed(plan_.persistent_types.at(name).dtype, data);
    data = stored;
  }
  if (const Placement* place = on_device(name)) device_.write(buffer(*place), place->offset, data);
  if (const Placement* place = on_host(name)) device_.host()->write(host_buffer(*place), place->offset, data);
  if (plan_.copied_parameters.count(name)) {
    const std::string copy = parameter_copy_name(name);
    const Placement& place = plan_.persistent.at(copy);
    device_.write(buffer(place), place.offset, narrowed(plan_.persistent_types.at(copy).dtype, data));
  }
}

void Session::write_elements(const std::string& name, std::int64_t first, std::span<const float> data) {
  const std::string where = "session, value '" + name + "'";
  const Placement* place = on_device(name);
  if (!place || on_host(name) || plan_.mesh.ranks() > 1)
    throw hal::Error(where, "must be whole on the device for some of its elements to be written");
  if (plan_.copied_parameters.count(name))
    throw hal::Error(where, "must have no copy for some of its elements to be written");
  const kernels::TensorType& type = plan_.persistent_types.at(name);
  const auto size = static_cast<std::int64_t>(hal::size_of(type.dtype)),
             count = static_cast<std::int64_t>(data.size());
  if (!hal::is_float(type.dtype) || first < 0 || count > type.elements() - first)
    throw hal::Error(where, "is " + kernels::to_string(type),
                     std::to_string(count) + " floats from element " + std::to_string(first) + " on");
  std::span<const std::byte> bytes = std::as_bytes(data);
  std::vector<std::byte> stored;
  if (type.dtype != kernels::DType::f32) {
    stored.resize(bytes.size() / 2);
    hal::narrow(type.dtype, bytes, stored);
    bytes = stored;
  }
  device_.write(buffer(*place), place->offset + first * size, bytes);
}

void Session::read(const std::string& name, std::span<std::byte> data) {
  if (is_whole(plan_, name, data.size())) return gather(name, data);
  std::vector<std::byte> stored;
  const bool wide = is_wide(plan_, name, data.size());
  if (wide) stored.resize(data.size() / 2);
  const std::span<std::byte> into = wide ? std::span(stored) : data;
  if (const Placement* place = on_device(name))
    device_.read(buffer(*place), place->offset, into);
  else
    device_.host()->read(host_buffer(*on_host(name)), on_host(name)->offset, into);
  if (wide) hal::widen(plan_.persistent_types.at(name).dtype, stored, data);
}

void Session::read_first(const std::string& name, std::span<std::byte> data) {
  const Placement* place = on_device(name);
  if (!place)
    throw hal::Error("session, value '" + name + "'", "must be on the device for its first bytes to be read");
  if (const std::int64_t bytes = plan_.persistent_types.at(name).bytes();
      data.size() > static_cast<std::size_t>(bytes))
    throw hal::Error("session, value '" + name + "'", "has " + std::to_string(bytes) + " bytes",
                     "a read of " + std::to_string(data.size()));
  device_.read(buffer(*place), place->offset, data);
}

const Placement& Session::place_of_bytes(const std::string& name, std::int64_t first,
                                         std::size_t size) const {
  const std::string where = "session, value '" + name + "'";
  const Placement* place = on_device(name);
  if (!place || on_host(name) || plan_.mesh.ranks() > 1)
    throw hal::Error(where, "must be whole on the device for some of its bytes to be copied");
  const std::int64_t bytes = plan_.persistent_types.at(name).bytes();
  if (first < 0 || first > bytes || size > static_cast<std::size_t>(bytes - first))
    throw hal::Error(where, "has " + std::to_string(bytes) + " bytes",
                     std::to_string(size) + " from byte " + std::to_string(first) + " on");
  return *place;
}

void Session::read_bytes(const std::string& name, std::int64_t first, std::span<std::byte> data) {
  const Placement& place = place_of_bytes(name, first, data.size());
  device_.read(buffer(place), place.offset + first, data);
}

void Session::write_bytes(const std::string& name, std::int64_t first, std::span<const std::byte> data) {
  const Placement& place = place_of_bytes(name, first, data.size());
  if (plan_.copied_parameters.count(name))
    throw hal::Error("session, value '" + name + "'",
                     "must have no copy for some of its bytes to be written");
  device_.write(buffer(place), place.offset + first, data);
}

void Session::run(const ProgramKey& step) {
  if (plan_.steps.at(step).on_host)  // throws where the plan has no such program
    run_parts();
  else if (const auto staged = staged_.find(step); staged != staged_.end())
    run_staged(staged->second);
  else
    device_.submit(*lists_.at(step));
}

void Session::run_staged(Staged& staged) {
  for (Action& action : staged.actions) {
    if (action.calls) device_.submit(*action.calls);
    if (action.starts >= 0) start(staged, static_cast<std::size_t>(action.starts));
    if (action.ends >= 0) finish(staged, static_cast<std::size_t>(action.ends));
  }
}

// Reading waits for what the device has to do before.
void Session::start(Staged& staged, std::size_t index) {
  const Exchange& exchange = staged.planned->exchanges[index];
  for (const StagedRange& range : staged.lists[index].reads) {
    const Placement& place = staged.planned->placements[static_cast<std::size_t>(range.value)];
    device_.read(buffer(place), place.offset + range.offset, staged_bytes(exchange, range));
  }
  staged.numbers[index] = exchange_->begin(staged.groups[index], staged.lists[index].moves,
                                           staged.tensors[index], staged.envelopes[index]);
  if (!ranks_.overlap) exchange_->end(staged.numbers[index]);
}

void Session::finish(Staged& staged, std::size_t index) {
  const Exchange& exchange = staged.planned->exchanges[index];
  exchange_->end(staged.numbers[index]);
  for (const StagedRange& range : staged.lists[index].writes) {
    const Placement& place = staged.planned->placements[static_cast<std::size_t>(range.value)];
    device_.write(buffer(place), place.offset + range.offset, staged_bytes(exchange, range));
  }
}

std::span<std::byte> Session::staged_bytes(const Exchange& exchange, const StagedRange& range) {
  return std::span(staging_).subspan(static_cast<std::size_t>(exchange.staged + range.staged),
                                     static_cast<std::size_t>(range.bytes));
}

// This thread waits for the device and computes in turn, while the device goes on with its lists.
void Session::run_parts() {
  const auto marks = static_cast<int>(plan_.steps.at(Step::accumulate).marks.size());
  if (to_host_) device_.submit(*to_host_);
  int passed = -1;
  for (const Part& part : parts_) {
    if (part.mark > passed) {
      if (part.mark < marks)
        device_.wait_for(*lists_.at(Step::accumulate), part.mark);
      else
        device_.wait();
      passed = part.mark;
    }
    device_.host()->submit(*part.run);
    device_.host()->wait();
    if (part.to_device) device_.submit(*part.to_device);
  }
}

std::vector<double> Session::run_timed(const ProgramKey& step) {
  if (plan_.steps.at(step).on_host)
    throw hal::Error("session, program '" + std::string(to_string(step.step)) + "'",
                     "must be one of the device, to be timed call by call", "one of the host");
  if (staged_.count(step) != 0)
    throw hal::Error("session, program '" + std::string(to_string(step.step)) + "'",
                     "must have no collectives, to be timed call by call", "some");
  std::unique_ptr<hal::CommandList>& list = timed_lists_[step];
  if (!list) list = recorded(step, true);
  device_.submit(*list);
  device_.wait();
  return list->intervals();
}

void initialize(Session& session, std::uint64_t seed) {
  const hal::Device& device = session.device();
  const hal::Profile& profile = device.profile();
  // When the host is the device, its profile says how many threads the run may use.
  const int threads = profile.kind == hal::ProfileKind::host && !device.runs_as_another()
                          ? static_cast<int>(profile.cores)
                          : static_cast<int>(std::thread::hardware_concurrency());
  std::vector<float> values;
  std::vector<std::byte> packed;
  std::vector<std::string> written;
  for (const layers::ParameterInfo& info : session.plan().parameters) {
    if (session.plan().persistent_types.count(info.path) == 0) continue;  // another stage has it
    if (!info.storage && session.plan().divided.count(info.path) > 0) {
      const Layout part = session.plan().layout(info.path, session.plan().mesh.rank());
      values.resize(static_cast<std::size_t>(part.range.count));
      for_runs(part, [&](std::int64_t whole, std::int64_t at, std::int64_t count) {
        info.initialize_range(seed, whole, count, values.data() + at);
      });
      session.write(info.path, std::as_bytes(std::span(values)));
      written.push_back(info.path);
      continue;
    }
    values.resize(static_cast<std::size_t>((info.storage ? info.storage->type : info.type).elements()));
    initial_values(info, seed, threads, values);
    if (info.storage) {
      packed.resize(static_cast<std::size_t>(info.type.bytes()));
      info.storage->quantize(values, packed);
    }
    session.write(info.path,
                  info.storage ? std::span<const std::byte>(packed) : std::as_bytes(std::span(values)));
    written.push_back(info.path);
  }
  std::sort(written.begin(), written.end());
  std::vector<std::byte> zeros;
  for (const auto& [name, type] : session.plan().persistent_types) {
    if (std::binary_search(written.begin(), written.end(), name) || is_parameter_copy(name)) continue;
    zeros.assign(static_cast<std::size_t>(type.bytes()), std::byte{0});
    session.write(name, zeros);
  }
  start_islands(session);
}

void start_islands(Session& session) {
  std::vector<std::byte> part;
  for (const std::string& name : session.plan().shared) {
    part.resize(static_cast<std::size_t>(session.plan().persistent_types.at(name).bytes()));
    session.read(name, part);
    session.write(island_name(name), part);
  }
}

}  // namespace meshloom::trainer
