#include "trainer/compose/schedule.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "hal/error.h"
#include "hal/suggest.h"

namespace meshloom::trainer {
namespace {

constexpr std::array<std::string_view, 4> kScheduleNames{"gpipe", "1f1b", "interleaved", "zero_bubble"};

// A program that a stage runs, without its messages.
struct StageRun {
  Step step;
  int chunk, micro_batch;
};

std::vector<StageRun> gpipe_runs(int micro_batches) {
  std::vector<StageRun> runs;
  for (const Step step : {Step::forward, Step::backward})
    for (int i = 0; i < micro_batches; ++i) runs.push_back({step, 0, i});
  return runs;
}

// `ahead` forward runs come before the first backward one; then they take turns.
std::vector<StageRun> alternating(const std::vector<StageRun>& forward, const std::vector<StageRun>& backward,
                                  int ahead) {
  std::vector<StageRun> runs;
  const auto all = static_cast<int>(forward.size());
  ahead = std::min(ahead, all);
  for (int i = 0; i < ahead; ++i) runs.push_back(forward[static_cast<std::size_t>(i)]);
  for (int i = 0; i < all; ++i) {
    if (i + ahead < all) runs.push_back(forward[static_cast<std::size_t>(i + ahead)]);
    runs.push_back(backward[static_cast<std::size_t>(i)]);
  }
  return runs;
}

std::vector<StageRun> one_f_one_b_runs(int stage, int stages, int micro_batches) {
  std::vector<StageRun> forward, backward;
  for (int i = 0; i < micro_batches; ++i) {
    forward.push_back({Step::forward, 0, i});
    backward.push_back({Step::backward, 0, i});
  }
  return alternating(forward, backward, stages - stage - 1);
}

// Micro-batches go through a chunk in groups of as many as there are stages.
std::vector<StageRun> interleaved_runs(int stage, int stages, int chunks, int micro_batches) {
  std::vector<StageRun> forward, backward;
  for (int i = 0; i < micro_batches * chunks; ++i) {
    const int group = i / (stages * chunks), chunk = i % (stages * chunks) / stages;
    const int micro_batch = group * stages + i % stages;
    forward.push_back({Step::forward, chunk, micro_batch});
    backward.push_back({Step::backward, chunks - 1 - chunk, micro_batch});
  }
  return alternating(forward, backward, 2 * (stages - stage - 1) + (chunks - 1) * stages);
}

// All stages step by step, each run taking one step: a stage prefers forward while no more micro-batches are in flight than
// with 1f1b on the first stage, and wait for backward than with 1f1b on this one; then backward, then weights. So weights
// fill what 1f1b would wait.
std::vector<StageRun> zero_bubble_runs(int stage, int stages, int micro_batches) {
  struct Progress {
    int forward = 0, backward = 0, weights = 0;  // done before this step
    std::vector<StageRun> runs;
  };
  std::vector<Progress> all(static_cast<std::size_t>(stages));
  while (static_cast<int>(all[static_cast<std::size_t>(stage)].runs.size()) < 3 * micro_batches) {
    const std::vector<Progress> before = all;
    for (int s = 0; s < stages; ++s) {
      Progress& own = all[static_cast<std::size_t>(s)];
      const int fed = s == 0 ? micro_batches : before[static_cast<std::size_t>(s - 1)].forward;
      const int answered = s == stages - 1 ? own.forward : before[static_cast<std::size_t>(s + 1)].backward;
      if (own.forward < fed && own.forward - own.backward < stages - s && own.forward - own.weights < stages)
        own.runs.push_back({Step::forward, 0, own.forward++});
      else if (own.backward < std::min(answered, own.forward))
        own.runs.push_back({Step::backward, 0, own.backward++});
      else if (own.weights < own.backward)
        own.runs.push_back({Step::weights, 0, own.weights++});
    }
  }
  return all[static_cast<std::size_t>(stage)].runs;
}

std::vector<StageRun> runs_of(ScheduleKind kind, int stage, int stages, int chunks, int micro_batches) {
  switch (kind) {
    case ScheduleKind::gpipe:
      return gpipe_runs(micro_batches);
    case ScheduleKind::interleaved:
      return interleaved_runs(stage, stages, chunks, micro_batches);
    case ScheduleKind::zero_bubble:
      return zero_bubble_runs(stage, stages, micro_batches);
    case ScheduleKind::one_f_one_b:
      break;
  }
  return one_f_one_b_runs(stage, stages, micro_batches);
}

void check_shape(ScheduleKind kind, int stage, int stages, int chunks, int micro_batches) {
  const std::string where = "pipeline schedule " + std::string(to_string(kind));
  const auto require = [&](bool good, const std::string& rule, const std::string& found) {
    if (!good) throw hal::Error(where, rule, found);
  };
  require(stages >= 2, "must have at least 2 stages", std::to_string(stages));
  require(stage >= 0 && stage < stages, "the stage must be one of " + std::to_string(stages),
          std::to_string(stage));
  const std::string needed = std::to_string(stages);
  require(micro_batches >= stages,
          "a pipeline of " + needed + " stages needs at least " + needed +
              " micro-batches (accumulation), which the batch must be a multiple of",
          "accumulation=" + std::to_string(micro_batches));
  if (kind != ScheduleKind::interleaved)
    return require(chunks == 1, "has one chunk of layers a stage", std::to_string(chunks));
  require(chunks >= 2, "needs at least 2 chunks of layers a stage (mesh.chunks)", std::to_string(chunks));
  require(micro_batches % stages == 0,
          "the micro-batches (accumulation) must be a multiple of the " + needed + " stages",
          "accumulation=" + std::to_string(micro_batches));
}

// Walks the actions of all stages in an order that messages allow. `visit` is called for each when it is done.
class ActionWalk {
 public:
  using Message = std::tuple<Step, int, int>;  // of the part that reads it: step, part, micro-batch

  explicit ActionWalk(const std::vector<std::vector<StepAction>>& of_all)
      : of_all_(of_all), next_(of_all.size(), 0), stages_(static_cast<int>(of_all.size())) {}

  template <typename Visit>
  void run(const Visit& visit) {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages_; ++stage)
        for (; ready(stage); ++next_[index(stage)]) {
          step(stage, action(stage), visit);
          moved = true;
        }
    }
    for (int stage = 0; stage < stages_; ++stage)
      if (!done(stage)) fail(stage, action(stage), "waits for ever");
    for (const auto& [pair, queue] : sent_)
      if (!queue.empty())
        throw hal::Error("pipeline schedule", "every message must be received",
                         "one from stage " + std::to_string(std::get<0>(pair)) + " to stage " +
                             std::to_string(std::get<1>(pair)) + ", of micro-batch " +
                             std::to_string(std::get<2>(queue.front())));
  }

  [[noreturn]] static void fail(int stage, const StepAction& action, const std::string& found) {
    throw hal::Error("pipeline schedule, stage " + std::to_string(stage) + ", " + to_string(action),
                     "the actions of all stages must fit together", found);
  }

  // The part whose program the action feeds: the next one forward, the one before backward.
  int reader(int stage, const StepAction& action) const {
    const int part = action.chunk * stages_ + stage;
    if (action.kind == StepAction::Kind::receive) return part;
    return action.step == Step::forward ? part + 1 : part - 1;
  }

 private:
  static std::size_t index(int stage) { return static_cast<std::size_t>(stage); }
  bool done(int stage) const { return next_[index(stage)] == of_all_[index(stage)].size(); }
  const StepAction& action(int stage) const { return of_all_[index(stage)][next_[index(stage)]]; }
  std::deque<Message>& queue(int from, int to, Step step) { return sent_[{from, to, step}]; }

  bool ready(int stage) {
    if (done(stage)) return false;
    const StepAction& next = action(stage);
    return next.kind != StepAction::Kind::receive || !queue(next.peer, stage, next.step).empty();
  }

  template <typename Visit>
  void step(int stage, const StepAction& action, const Visit& visit) {
    if (action.kind != StepAction::Kind::run && (action.peer < 0 || action.peer >= stages_))
      fail(stage, action, "no such stage");
    if (action.kind == StepAction::Kind::send)
      queue(stage, action.peer, action.step)
          .emplace_back(action.step, reader(stage, action), action.micro_batch);
    if (action.kind == StepAction::Kind::receive) {
      std::deque<Message>& arrived = queue(action.peer, stage, action.step);
      if (arrived.front() != Message{action.step, reader(stage, action), action.micro_batch})
        fail(stage, action,
             "the next message is of micro-batch " + std::to_string(std::get<2>(arrived.front())));
      arrived.pop_front();
    }
    visit(stage, action);
  }

  const std::vector<std::vector<StepAction>>& of_all_;
  std::vector<std::size_t> next_;
  int stages_;
  std::map<std::tuple<int, int, Step>, std::deque<Message>> sent_;  // from, to, and what
};

// What one stage has done, as check_actions sees it.
class StageState {
 public:
  StageState(int stage, int stages, int chunks, int micro_batches, bool weights)
      : stage_(stage),
        last_(stages * chunks - 1),
        stages_(stages),
        micro_batches_(micro_batches),
        weights_(weights),
        most_(static_cast<std::size_t>(chunks), 0) {}

  void visit(const StepAction& action) {
    if (action.chunk < 0 || action.chunk >= static_cast<int>(most_.size()))
      ActionWalk::fail(stage_, action, "no such chunk");
    if (action.micro_batch < 0 || action.micro_batch >= micro_batches_)
      ActionWalk::fail(stage_, action, "no such micro-batch");
    const int part = action.chunk * stages_ + stage_;
    const bool forward = action.step == Step::forward;
    switch (action.kind) {
      case StepAction::Kind::receive:
        if (forward) take(action);
        require_slot(action);
        if (!arrived_.insert(key(action)).second) ActionWalk::fail(stage_, action, "it was received before");
        break;
      case StepAction::Kind::send:
        if (!ran_.count(key(action))) ActionWalk::fail(stage_, action, "its program has not run yet");
        break;
      case StepAction::Kind::run:
        if (forward && part == 0) take(action);
        require_slot(action);
        if (part != (forward ? 0 : last_) && action.step != Step::weights && !arrived_.count(key(action)))
          ActionWalk::fail(stage_, action, "what it reads was not received");
        if (!forward && !ran_.count({before(action.step), action.chunk, action.micro_batch}))
          ActionWalk::fail(stage_, action,
                           "its " + std::string(to_string(before(action.step))) + " has not run yet");
        if (!ran_.insert(key(action)).second) ActionWalk::fail(stage_, action, "it ran before");
        if (action.step == (weights_ ? Step::weights : Step::backward))
          held_.erase({action.chunk, action.slot});
        break;
    }
  }

  void finish() const {
    const std::size_t all = most_.size() * static_cast<std::size_t>(micro_batches_ * (weights_ ? 3 : 2));
    if (ran_.size() != all)
      throw hal::Error("pipeline schedule, stage " + std::to_string(stage_),
                       "must run every micro-batch forward and backward",
                       std::to_string(ran_.size()) + " of " + std::to_string(all) + " runs");
  }

  const std::vector<int>& most() const { return most_; }

 private:
  using Key = std::tuple<Step, int, int>;  // step, chunk, micro-batch
  static Key key(const StepAction& action) { return {action.step, action.chunk, action.micro_batch}; }
  static Step before(Step step) { return step == Step::weights ? Step::backward : Step::forward; }

  void take(const StepAction& action) {
    const auto [held, fresh] = held_.emplace(std::pair{action.chunk, action.slot}, action.micro_batch);
    if (!fresh)
      ActionWalk::fail(stage_, action, "the slot still holds micro-batch " + std::to_string(held->second));
    int& most = most_[static_cast<std::size_t>(action.chunk)];
    most = std::max(most, action.slot + 1);
  }

  void require_slot(const StepAction& action) const {
    const auto held = held_.find({action.chunk, action.slot});
    if (held == held_.end() || held->second != action.micro_batch)
      ActionWalk::fail(stage_, action, "the slot does not hold this micro-batch");
  }

  int stage_, last_, stages_, micro_batches_;
  bool weights_;
  std::map<std::pair<int, int>, int> held_;  // by chunk and slot: the micro-batch
  std::set<Key> arrived_, ran_;
  std::vector<int> most_;  // by chunk
};

}  // namespace

std::string_view to_string(ScheduleKind kind) { return kScheduleNames.at(static_cast<std::size_t>(kind)); }

ScheduleKind schedule_kind_from_string(std::string_view name) {
  for (std::size_t i = 0; i < kScheduleNames.size(); ++i)
    if (kScheduleNames[i] == name) return static_cast<ScheduleKind>(i);
  const std::vector<std::string> known(kScheduleNames.begin(), kScheduleNames.end());
  throw hal::Error("pipeline schedule '" + std::string(name) + "'",
                   "must be one of " + hal::join(known) + hal::suggestion(name, known));
}

std::string to_string(const StepAction& action) {
  const char* kind = action.kind == StepAction::Kind::run    ? "run "
                     : action.kind == StepAction::Kind::send ? "send "
                                                             : "receive ";
  std::string text = kind + std::string(to_string(action.step));
  if (action.micro_batch >= 0)
    text += " of micro-batch " + std::to_string(action.micro_batch) + ", chunk " +
            std::to_string(action.chunk) + ", slot " + std::to_string(action.slot);
  return text;
}

std::vector<StepAction> pipeline_actions(ScheduleKind kind, int stage, int stages, int chunks,
                                         int micro_batches) {
  check_shape(kind, stage, stages, chunks, micro_batches);
  const int last = stages * chunks - 1;
  const Step ending = kind == ScheduleKind::zero_bubble ? Step::weights : Step::backward;
  std::map<std::pair<int, int>, int> slots;  // by chunk and micro-batch
  std::set<std::pair<int, int>> taken;       // chunk and slot
  std::vector<StepAction> actions;
  for (const StageRun& run : runs_of(kind, stage, stages, chunks, micro_batches)) {
    const int part = run.chunk * stages + stage;
    const bool forward = run.step == Step::forward;
    int slot = 0;
    if (forward) {
      while (taken.count({run.chunk, slot})) ++slot;
      taken.emplace(run.chunk, slot);
      slots[{run.chunk, run.micro_batch}] = slot;
    } else {
      slot = slots.at({run.chunk, run.micro_batch});
    }
    const auto add = [&](StepAction::Kind what, int peer) {
      actions.push_back({what, run.step, run.chunk, slot, run.micro_batch, peer});
    };
    const int before = (stage + stages - 1) % stages, behind = (stage + 1) % stages;
    if (forward && part > 0) add(StepAction::Kind::receive, before);
    if (run.step == Step::backward && part < last) add(StepAction::Kind::receive, behind);
    add(StepAction::Kind::run, -1);
    if (forward && part < last) add(StepAction::Kind::send, behind);
    if (run.step == Step::backward && part > 0) add(StepAction::Kind::send, before);
    if (run.step == ending) taken.erase({run.chunk, slot});
  }
  return actions;
}

std::vector<std::vector<int>> check_actions(const std::vector<std::vector<StepAction>>& of_all, int chunks,
                                            int micro_batches) {
  bool weights = false;
  for (const std::vector<StepAction>& actions : of_all)
    for (const StepAction& action : actions) weights = weights || action.step == Step::weights;
  std::vector<StageState> states;
  const int stages = static_cast<int>(of_all.size());
  for (int stage = 0; stage < stages; ++stage)
    states.emplace_back(stage, stages, chunks, micro_batches, weights);
  ActionWalk(of_all).run(
      [&](int stage, const StepAction& action) { states[static_cast<std::size_t>(stage)].visit(action); });
  std::vector<std::vector<int>> most;
  for (const StageState& state : states) {
    state.finish();
    most.push_back(state.most());
  }
  return most;
}

double PipelineTime::bubble() const {
  const double all = seconds * static_cast<double>(busy.size());
  return all > 0 ? 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / all : 0;
}

PipelineTime pipeline_time(const std::vector<std::vector<StepAction>>& of_all,
                           const std::function<double(int, const StepAction&)>& seconds) {
  std::vector<double> now(of_all.size(), 0);
  std::map<ActionWalk::Message, double> sent;
  PipelineTime time;
  time.busy.assign(of_all.size(), 0);
  ActionWalk walk(of_all);
  walk.run([&](int stage, const StepAction& action) {
    double& at = now[static_cast<std::size_t>(stage)];
    const ActionWalk::Message message{action.step, walk.reader(stage, action), action.micro_batch};
    if (action.kind == StepAction::Kind::send) sent[message] = at;
    if (action.kind == StepAction::Kind::receive) at = std::max(at, sent.at(message));
    if (action.kind != StepAction::Kind::run) return;
    const double taken = seconds(stage, action);
    at += taken;
    time.busy[static_cast<std::size_t>(stage)] += taken;
  });
  time.seconds = now.empty() ? 0 : *std::max_element(now.begin(), now.end());
  return time;
}

}  // namespace meshloom::trainer
