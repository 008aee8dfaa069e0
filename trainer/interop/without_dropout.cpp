#include "trainer/interop/without_dropout.h"

#include "layers/attention.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "layers/dropout.h"

namespace meshloom::trainer {

std::unique_ptr<layers::Config> without_dropout(const layers::Config& model) {
  std::unique_ptr<layers::Config> plain = model.clone();
  std::vector<std::string> paths;
  layers::visit(*plain, [&](const std::string& path, layers::Config& node) {
    if (auto* attention = dynamic_cast<layers::Attention::Config*>(&node)) attention->dropout = 0;
    if (dynamic_cast<layers::Dropout::Config*>(&node) ||
        dynamic_cast<layers::DropoutEmbedding::Config*>(&node) ||
        dynamic_cast<layers::StochasticDepth::Config*>(&node))
      paths.push_back(path);
  });
  layers::put_at(*plain, paths,
                 [](const layers::Config& old, const std::string&) -> std::unique_ptr<layers::Config> {
                   if (const auto* dropout = dynamic_cast<const layers::Dropout::Config*>(&old))
                     return dropout->base->clone();
                   if (const auto* embedding = dynamic_cast<const layers::DropoutEmbedding::Config*>(&old))
                     return embedding->base->clone();
                   return dynamic_cast<const layers::StochasticDepth::Config&>(old).base->clone();
                 });
  return plain;
}

}  // namespace meshloom::trainer
