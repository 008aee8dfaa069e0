#include "trainer/planner/timeline.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <optional>

#include "hal/error.h"
#include "kernels/core/contract.h"
#include "kernels/core/variant.h"
#include "trainer/compose/passes/memory/remat.h"
#include "trainer/compose/passes/roofline.h"
#include "trainer/planner/move_times.h"

namespace meshloom::trainer {
namespace {

constexpr const char *kCompute = "compute", *kMemory = "memory", *kBubble = "bubble", *kDevice = "device";

// What a program does, in order.
struct Event {
  enum class Kind : std::uint8_t {
    run,     // calls of one layer that have one bound
    begin,   // moves start
    end,     // and must be there
    barrier  // moves between the stages, which all must reach
  } kind = Kind::run;
  double seconds = 0;
  bool memory = false;  // bound by the memory's bandwidth
  std::string name;
  int exchange = -1;
};

bool bound_by_memory(const kernels::Program& program, const kernels::Call& call,
                     const hal::DeviceInfo& device) {
  const kernels::CallTypes types(program, call);
  const kernels::CallView view = types.view(call);
  const double rate = unit_rate(*call.choice, view, device),
               bandwidth = device.profile.memory_bytes_per_second;
  if (rate <= 0 || bandwidth <= 0) return false;
  const kernels::Contract& contract = *call.choice->variant->contract;
  return contract.bytes(view) / bandwidth >= contract.flops(view) / rate;
}

std::vector<Event> events_of(const PlannedProgram& planned, const hal::DeviceInfo& device) {
  const kernels::Program& program = planned.program;
  std::map<int, std::vector<int>> starts, ends;  // exchanges by call
  for (std::size_t i = 0; i < planned.exchanges.size(); ++i) {
    const Exchange& exchange = planned.exchanges[i];
    const auto index = static_cast<int>(i);
    if (!exchange.axes.has(AxisName::pipeline)) starts[exchange.starts].push_back(index);
    ends[exchange.call].push_back(index);
  }
  std::vector<Event> events;
  const auto add_moves = [&](const std::map<int, std::vector<int>>& at, int call, Event::Kind kind) {
    const auto found = at.find(call);
    if (found == at.end()) return;
    for (const int exchange : found->second) {
      const Exchange& of = planned.exchanges[static_cast<std::size_t>(exchange)];
      Event event;
      event.kind = of.axes.has(AxisName::pipeline) ? Event::Kind::barrier : kind;
      event.name = of.op + " over " + to_string(of.axes) + (of.path.empty() ? "" : ", " + of.path);
      event.exchange = exchange;
      events.push_back(std::move(event));
    }
  };
  for (std::size_t i = 0; i <= program.calls.size(); ++i) {
    add_moves(starts, static_cast<int>(i), Event::Kind::begin);
    add_moves(ends, static_cast<int>(i), Event::Kind::end);
    if (i == program.calls.size()) break;
    const kernels::Call& call = program.calls[i];
    if (!call.choice || !call.choice->variant || call.choice->predicted_seconds <= 0) continue;
    const bool memory = bound_by_memory(program, call, device);
    const std::string region = region_of(call.path);
    std::string name = program.name + (region.empty() ? "" : " " + region);
    if (events.empty() || events.back().kind != Event::Kind::run || events.back().memory != memory ||
        events.back().name != name) {
      Event event;
      event.memory = memory;
      event.name = std::move(name);
      events.push_back(std::move(event));
    }
    events.back().seconds += call.choice->predicted_seconds;
  }
  return events;
}

// Between two stages.
struct Message {
  double sent = 0, arrives = 0;
  std::size_t level = 0;
};

// An exchange that all stages take part in, and wait for.
struct Barrier {
  int arrived = 0;
  double latest = 0, seconds = 0;
  std::size_t level = 0;
};

class Simulation;

class Stage {
 public:
  Stage(Simulation& all, const Plan& plan, int stage, const hal::Network& network,
        const hal::DeviceInfo& device)
      : all_(all), plan_(plan), stage_(stage), times_(network, plan.mesh), free_(network.levels.size(), 0) {
    for (const StepAction& action : plan.steps.schedule)
      if (action.kind == StepAction::Kind::run) {
        const ProgramKey key(action.step, action.chunk);
        if (!events_.count(key)) events_[key] = events_of(plan.steps.at(key), device);
      }
  }

  bool done() const { return action_ == plan_.steps.schedule.size(); }
  // Goes on as far as it can; whether it did anything.
  bool advance();
  double now() const { return now_; }
  const std::map<std::string, double>& path() const { return path_; }
  const std::map<std::pair<std::string, std::string>, double>& moves() const { return moves_; }
  std::string waits_for() const { return to_string(plan_.steps.schedule.at(action_)); }

 private:
  struct Arrival {
    double time = 0;
    std::size_t level = 0;
  };

  bool event(const PlannedProgram& planned, const Event& event);
  bool transfer(const StepAction& action);
  // Moves that start at a time; when all are there, and over which level the last ones come.
  Arrival start(const std::vector<LevelMoves>& parts, double at, const std::string& axes,
                const std::string& name);
  void run(double seconds, const char* kind, const std::string& name);
  void wait(double until, const std::string& what);
  const std::string& level_name(std::size_t level) const { return times_.network().levels[level].name; }

  Simulation& all_;
  const Plan& plan_;
  int stage_;
  MoveTimes times_;
  std::map<ProgramKey, std::vector<Event>> events_;
  std::size_t action_ = 0, event_ = 0;
  double now_ = 0;
  std::vector<double> free_;     // by level, when the port has sent what it has
  std::map<int, Arrival> open_;  // by exchange of the program that runs
  std::size_t barriers_ = 0;     // that it reached
  bool waiting_ = false;         // at the last of them
  std::map<std::string, double> path_;
  std::map<std::pair<std::string, std::string>, double> moves_;
};

class Simulation {
 public:
  Simulation(const std::vector<const Plan*>& plans, const hal::Network& network,
             const hal::DeviceInfo& device, bool spans)
      : keeps_spans_(spans) {
    for (std::size_t i = 0; i < plans.size(); ++i)
      stages_.push_back(std::make_unique<Stage>(*this, *plans[i], static_cast<int>(i), network, device));
  }

  StepTime run() {
    for (bool going = true; going;) {
      going = false;
      for (const auto& stage : stages_) going = stage->advance() || going;
    }
    StepTime time;
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      if (!stages_[i]->done())
        throw hal::Error("timeline of stage " + std::to_string(i),
                         "every stage must come to the end of its actions", stages_[i]->waits_for());
      if (i > 0 && stages_[i]->now() <= time.seconds) continue;
      time.seconds = stages_[i]->now();
      time.stage = static_cast<int>(i);
      time.path = stages_[i]->path();
      time.moves = stages_[i]->moves();
    }
    time.spans = std::move(spans_);
    return time;
  }

  void add(Span span) {
    if (!keeps_spans_ || span.seconds <= 0) return;
    spans_.push_back(std::move(span));
  }
  std::deque<Message>& queue(int from, int to, Step step) { return sent_[{from, to, step}]; }
  Barrier& barrier(std::size_t number) {
    if (barriers_.size() <= number) barriers_.resize(number + 1);
    return barriers_[number];
  }
  int stages() const { return static_cast<int>(stages_.size()); }

 private:
  bool keeps_spans_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<Span> spans_;
  std::map<std::tuple<int, int, Step>, std::deque<Message>> sent_;
  std::vector<Barrier> barriers_;
};

void Stage::run(double seconds, const char* kind, const std::string& name) {
  all_.add({stage_, kDevice, name, kind, now_, seconds});
  path_[kind] += seconds;
  now_ += seconds;
}

void Stage::wait(double until, const std::string& what) {
  if (until <= now_) return;
  all_.add({stage_, kDevice, "waits for " + what, "wait", now_, until - now_});
  path_[what] += until - now_;
  now_ = until;
}

Stage::Arrival Stage::start(const std::vector<LevelMoves>& parts, double at, const std::string& axes,
                            const std::string& name) {
  Arrival last{at, parts.empty() ? 0 : parts.front().level};
  for (const LevelMoves& part : parts) {
    const double begin = std::max(at, free_[part.level]), end = begin + part.seconds;
    free_[part.level] = begin + part.port_seconds;
    moves_[{level_name(part.level), axes}] += part.seconds;
    all_.add({stage_, level_name(part.level), name, "moves", begin, part.seconds});
    if (end > last.time) last = {end, part.level};
  }
  return last;
}

bool Stage::event(const PlannedProgram& planned, const Event& event) {
  if (event.kind == Event::Kind::run) {
    run(event.seconds, event.memory ? kMemory : kCompute, event.name);
    return true;
  }
  const Exchange& exchange = planned.exchanges[static_cast<std::size_t>(event.exchange)];
  const std::string axes = to_string(exchange.axes);
  if (event.kind == Event::Kind::begin) {
    open_[event.exchange] = start(times_.exchange(exchange.axes, exchange.moved), now_, axes, event.name);
    return true;
  }
  if (event.kind == Event::Kind::end) {
    const Arrival arrival = open_.at(event.exchange);
    open_.erase(event.exchange);
    wait(arrival.time, level_name(arrival.level));
    return true;
  }
  Barrier& barrier = all_.barrier(barriers_);
  if (!waiting_) {
    const std::vector<LevelMoves> parts = times_.exchange(exchange.axes, exchange.moved);
    for (const LevelMoves& part : parts) {
      moves_[{level_name(part.level), axes}] += part.seconds;
      if (part.seconds > barrier.seconds) {
        barrier.seconds = part.seconds;
        barrier.level = part.level;
      }
    }
    barrier.latest = std::max(barrier.latest, now_);
    ++barrier.arrived;
    waiting_ = true;
  }
  if (barrier.arrived < all_.stages()) return false;
  waiting_ = false;
  ++barriers_;
  wait(barrier.latest, kBubble);
  wait(barrier.latest + barrier.seconds, level_name(barrier.level));
  return true;
}

bool Stage::transfer(const StepAction& action) {
  const Transfer& moved = plan_.steps.transfers.at(static_cast<std::size_t>(action.transfer));
  if (action.kind == StepAction::Kind::send) {
    const LevelMoves part = times_.transfer(plan_.mesh.rank(), moved.rank, plan_.transfer_bytes(moved));
    const Arrival arrival = start({part}, now_, "pipeline", to_string(action));
    all_.queue(stage_, action.peer, action.step).push_back({now_, arrival.time, part.level});
    return true;
  }
  std::deque<Message>& queue = all_.queue(action.peer, stage_, action.step);
  if (queue.empty()) return false;
  const Message message = queue.front();
  queue.pop_front();
  wait(message.sent, kBubble);
  wait(message.arrives, level_name(message.level));
  return true;
}

bool Stage::advance() {
  bool did = false;
  for (; !done(); ++action_) {
    const StepAction& action = plan_.steps.schedule[action_];
    if (action.kind != StepAction::Kind::run) {
      if (!transfer(action)) return did;
      did = true;
      continue;
    }
    const ProgramKey key(action.step, action.chunk);
    const PlannedProgram& planned = plan_.steps.at(key);
    const std::vector<Event>& events = events_.at(key);
    for (; event_ < events.size(); ++event_) {
      const bool waited = waiting_;
      if (!event(planned, events[event_])) return did || !waited;
      did = true;
    }
    event_ = 0;
  }
  return did;
}

}  // namespace

StepTime simulate_step(const std::vector<const Plan*>& stages, const hal::Network& network,
                       const hal::DeviceInfo& device, bool spans) {
  return Simulation(stages, network, device, spans).run();
}

}  // namespace meshloom::trainer
