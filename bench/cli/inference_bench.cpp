#include "bench/cli/inference_bench.h"

#include <utility>

#include "hal/error.h"
#include "layers/models/trace.h"
#include "trainer/rules/resolve.h"

namespace meshloom::bench {

InferenceBench open_inference_bench(const trainer::Registries& registries, trainer::RecipeOptions recipe,
                                    const std::string& json) {
  OutputOptions files;
  files.json = json;
  files.check();
  recipe.inference = true;
  InferenceBench bench{recipe.resolved(registries), nullptr,
                       recipe.recipe.empty() ? recipe.config : recipe.recipe};
  if (layers::reads_source(*bench.config.model))
    throw Error("recipe", "needs a model without an encoder", bench.recipe + " with one");
  bench.device = trainer::open_device(bench.config, registries.devices, trainer::say_note);
  if (!bench.device->info().computes)
    throw Error("--device", "must be one that computes",
                bench.device->info().id + ", " + bench.device->info().name);
  if (const std::string note = load_note(); !note.empty()) trainer::say_note(note);
  return bench;
}

Header header_of(const InferenceBench& bench) {
  Header header = describe(*bench.device);
  header.set("recipe", fmt::format("{}, dtype {}", bench.recipe, bench.config.dtype));
  return header;
}

}  // namespace meshloom::bench
