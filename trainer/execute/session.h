// A plan on a device: its memory is allocated, and every program is recorded once and can be submitted any
// number of times. Programs of the host run on Device::host(). Programs with collectives are cut into command lists where moves
// start and where they end; a thread of the session carries the moves out, over memory of the host, while the lists run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hal/device.h"
#include "hal/transport/transport.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/plan.h"
#include "trainer/execute/exchange.h"
#include "trainer/execute/lower.h"

namespace meshloom::trainer {

// How a session reaches the other ranks of its job.
struct Ranks {
  hal::Transport* transport = nullptr;  // must outlive the session
  double patience = 600;                // seconds, as exchange() takes them
  bool overlap = true;                  // false: nothing runs while something moves
  // Called by read() of a whole divided value, which is on rank 0 alone: the other ranks must call send() with the name.
  std::function<void(const std::string& name)> announce = {};
};

class Session {
 public:
  // Allocates exactly plan.peak_bytes, plan.host.peak_bytes and plan.staging_bytes on the host, and records every program. `compiled` is called as
  // kernels are compiled. A plan with collectives needs the transport of its mesh, of which this must be the same rank.
  // Throws OutOfMemory, Error.
  Session(hal::Device& device, const kernels::Catalog& catalog, Plan plan,
          const hal::LoadProgress& compiled = {}, const Ranks& ranks = {});

  const Plan& plan() const { return plan_; }
  hal::Device& device() { return device_; }
  // Copy a persistent value, by its name; a parameter is written with its copy (Plan::copied_parameters). `data` and `into` must have its size, or for one that is stored in 16-bit floats that of
  // f32, from or to which it is converted. A value that is on both sides is written to both and read from the device. Throw Error.
  void write(const std::string& name, std::span<const std::byte> data);
  // Copies elements of a value that is whole on the device, from `first` on; `data` is f32 for one that is stored in 16-bit floats.
  void write_elements(const std::string& name, std::int64_t first, std::span<const float> data);
  // Of a value that is divided among ranks, data of the size of the whole, in f32 where it is stored in 16-bit floats, is cut to this
  // rank's part by write(), and receives the parts of all ranks by read(): rank 0 calls it, and the others send().
  void read(const std::string& name, std::span<std::byte> data);
  // The first bytes of a value on the device, as it is stored; not of one that is divided.
  void read_first(const std::string& name, std::span<std::byte> data);
  // Copy bytes of a value on the device, as it is stored, from byte `first` on; not of one that is divided or on the host as well.
  void read_bytes(const std::string& name, std::int64_t first, std::span<std::byte> data);
  void write_bytes(const std::string& name, std::int64_t first, std::span<const std::byte> data);
  // Sends this rank's part of a divided value to rank 0, where it is read.
  void send(const std::string& name);
  // Submits a program of the plan; returns at once, or when it has finished where it is one of the host. What is copied
  // to the device then may still be on its way. A program with collectives returns when its last one is done, and every
  // rank must run it. Throws Error, and what exchange() throws.
  void run(const ProgramKey& step);
  void wait() { device_.wait(); }
  // Sends values to another rank, or receives them, which the other rank must do as well. Sending returns at once, with the
  // values as they are now; receiving waits for them. Throws Error, and what exchange() throws.
  void transfer(const Transfer& transfer);
  // Waits until all that was sent was taken.
  void finish_transfers();
  // What Ranks::overlap says, for the programs that run from now on.
  void set_overlap(bool overlap) { ranks_.overlap = overlap; }
  // Submits a program, waits for it, and returns the seconds of each of its calls by the device's clock, in
  // order, without views. Throws Error when the device has no timestamps, and for a program of the host
  // or with collectives.
  std::vector<double> run_timed(const ProgramKey& step);

 private:
  using Buffers = std::vector<std::unique_ptr<hal::Buffer>>;
  // A HostPart with its commands: of the host, and those of the device that copy its results there.
  struct Part {
    int mark;
    std::unique_ptr<hal::CommandList> run, to_device;  // to_device may be nullptr
  };
  // What a program with collectives does next: at most one of the two.
  struct Action {
    std::unique_ptr<hal::CommandList> calls;
    int starts = -1, ends = -1;  // of the program's exchanges
  };
  // A message that is on its way.
  struct Outgoing {
    Group group;
    std::vector<kernels::collective::Move> moves;
    std::vector<std::byte> data;
    std::array<std::span<std::byte>, 2> tensors;
    hal::Envelope envelope;
    std::uint64_t number = 0;
  };
  // A program with collectives.
  struct Staged {
    const PlannedProgram* planned = nullptr;
    std::vector<Group> groups;  // by exchange, as all but the last
    std::vector<ExchangeLists> lists;
    std::vector<hal::Envelope> envelopes;                      // their tags count the exchanges
    std::vector<std::array<std::span<std::byte>, 2>> tensors;  // kInput, kOutput
    std::vector<std::uint64_t> numbers;                        // on their way
    std::vector<Action> actions;
  };
  Buffers allocate(hal::Device& device, const std::vector<Block>& blocks);
  std::unique_ptr<hal::CommandList> recorded(const ProgramKey& step, bool timed, CallRange range = {});
  void check_ranks() const;
  void check_places(const PlannedProgram& planned) const;
  Staged staged(const ProgramKey& step);
  ExchangeThread& exchange_thread();
  void run_staged(Staged& staged);
  void start(Staged& staged, std::size_t exchange);
  void finish(Staged& staged, std::size_t exchange);
  std::span<std::byte> staged_bytes(const Exchange& exchange, const StagedRange& range);
  void gather(const std::string& name, std::span<std::byte> whole);
  void load_kernels(const hal::LoadProgress& compiled);
  std::unique_ptr<hal::CommandList> recorded_copies(const std::vector<std::string>& names, bool to_host);
  void record_parts(const PlannedProgram& planned);
  void run_parts();
  const Placement& place_of_bytes(const std::string& name, std::int64_t first, std::size_t size) const;
  const Placement* on_device(const std::string& name) const;
  const Placement* on_host(const std::string& name) const;
  hal::Buffer& buffer(const Placement& place) { return *buffers_.at(static_cast<std::size_t>(place.block)); }
  hal::Buffer& host_buffer(const Placement& place) {
    return *host_buffers_.at(static_cast<std::size_t>(place.block));
  }

  hal::Device& device_;
  const kernels::Catalog& catalog_;
  Plan plan_;
  Ranks ranks_;
  Buffers buffers_, host_buffers_;
  std::deque<Outgoing> outgoing_;
  std::map<ProgramKey, std::unique_ptr<hal::CommandList>> lists_,
      timed_lists_;                      // of programs without collectives
  std::map<ProgramKey, Staged> staged_;  // those with them
  std::vector<std::byte> staging_;
  std::vector<Part> parts_;                    // of the program of the host
  std::unique_ptr<hal::CommandList> to_host_;  // copies that its last parts need; may be nullptr
  std::unique_ptr<ExchangeThread> exchange_;   // ends before what it works on
};

// Writes the initial values of every parameter for `seed`, and zeros to every other persistent value.
void initialize(Session& session, std::uint64_t seed);
// Writes every parameter to its island's copy, where there are islands; initialize() does so.
void start_islands(Session& session);

}  // namespace meshloom::trainer
