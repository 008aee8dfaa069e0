#include "trainer/serve/adapter_loader.h"

#include <utility>

namespace meshloom::trainer {
namespace {

constexpr std::size_t kMaxJobs = 64;  // that wait

}  // namespace

AdapterLoader::AdapterLoader(Engine& engine, Read read)
    : engine_(engine), read_(std::move(read)), thread_([this] { run(); }) {}

AdapterLoader::~AdapterLoader() {
  std::deque<Job> left;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    left.swap(jobs_);
    wake_.notify_all();
  }
  thread_.join();
  for (const Job& job : left) job.done("the server ends");
}

void AdapterLoader::load(const std::string& name, const std::string& directory, bool replace, Done done) {
  const std::lock_guard lock(mutex_);
  if (jobs_.size() >= kMaxJobs)
    throw EngineBusy("adapters", "at most " + std::to_string(kMaxJobs) + " wait to be loaded",
                     std::to_string(jobs_.size()));
  jobs_.push_back({name, directory, replace, std::move(done)});
  wake_.notify_all();
}

void AdapterLoader::run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    load(std::move(job));
  }
}

void AdapterLoader::load(Job job) {
  try {
    engine_.load_adapter(job.name, std::make_shared<const LoraAdapter>(read_(job.directory)), job.replace,
                         job.done);
  } catch (const std::exception& error) {
    job.done(error.what());
  }
}

}  // namespace meshloom::trainer
