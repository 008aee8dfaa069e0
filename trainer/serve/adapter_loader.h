// Loads adapters into an engine while it serves: one thread reads their files, one after another, so that neither the server's
// thread nor the engine's waits for a disk.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "trainer/inference/engine.h"

namespace meshloom::trainer {

class AdapterLoader {
 public:
  using Read = std::function<LoraAdapter(const std::string& directory)>;
  // Hears "" once the adapter is there, or why it is not; on any thread.
  using Done = std::function<void(const std::string& error)>;

  // `engine` must outlive it.
  AdapterLoader(Engine& engine, Read read);
  // Ends after the file at hand; those that wait are told.
  ~AdapterLoader();
  // Throws EngineBusy where too many wait.
  void load(const std::string& name, const std::string& directory, bool replace, Done done);

 private:
  struct Job {
    std::string name, directory;
    bool replace;
    Done done;
  };
  void run();
  void load(Job job);

  Engine& engine_;
  const Read read_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace meshloom::trainer
