#include "trainer/cli/model_to_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "hal/environment.h"
#include "trainer/data/text/hub_name.h"
#include "trainer/interop/import.h"

namespace meshloom::trainer {

namespace fs = std::filesystem;

bool is_model_to_import(const std::string& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return true;
  return fs::is_regular_file(path + "/config.json", ignored) && !is_checkpoint(path) &&
         checkpoint_steps(path).empty();
}

ModelToRun::ModelToRun(const std::string& path, const std::string& option, const Registries& registries)
    : shown_(path) {
  if (!is_model_to_import(path)) {
    refuse_hub_checkpoint(path, option);
    checkpoint_ = open_newest(path, say_note);
    shown_ = checkpoint_->path;
    return;
  }
  static std::atomic<int> count = 0;
  scratch_ = std::make_unique<ScratchDirectory>(
      (hal::temporary_directory() / fmt::format("meshloom-import-{}-{}", ::getpid(), ++count)).string());
  std::error_code ignored;
  const Imported imported =
      import_model(path, scratch_->path() + "/run", {.keep_quantized = fs::is_regular_file(path, ignored)},
                   registries.catalog, registries.classes, say_note);
  checkpoint_ = open_checkpoint(imported.checkpoint);
}

}  // namespace meshloom::trainer
