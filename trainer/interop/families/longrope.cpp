#include "trainer/interop/families/longrope.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "layers/position/long_rope.h"
#include "trainer/interop/families/json_fields.h"
#include "trainer/interop/families/rotary.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

std::string factors_text(const Json& scaling, const char* name, const std::string& here) {
  const Json* list = json_field(scaling, name);
  const std::string rule = "must be a list of numbers above 0";
  if (!list || !list->is_array() || list->empty())
    throw Error(here + "." + name, rule, list ? shown_json(*list) : "none");
  std::vector<double> factors;
  for (const Json& factor : *list) {
    if (!factor.is_number() || !std::isfinite(factor.get<double>()) || factor.get<double>() <= 0)
      throw Error(here + "." + name, rule, shown_json(factor));
    factors.push_back(factor.get<double>());
  }
  return kernels::to_text(factors);
}

}  // namespace

bool is_longrope(const std::string& type) { return type == "longrope" || type == "yarn"; }

double longrope_attention_factor(double factor, std::int64_t original) {
  return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
}

std::string longrope_text(const Json& scaling, const std::string& here, std::int64_t original,
                          std::int64_t limit, const Note& note) {
  const double factor =
      json_number(scaling, "factor", here, static_cast<double>(limit) / static_cast<double>(original));
  const double attention =
      json_number(scaling, "attention_factor", here, longrope_attention_factor(factor, original));
  if (!std::isfinite(attention))
    throw Error(here, std::string(kOriginal) + " must be above 1", std::to_string(original));
  const std::string in_short = factors_text(scaling, "short_factor", here),
                    in_long = factors_text(scaling, "long_factor", here);
  if (limit > original && in_short != in_long)
    note(fmt::format(
        "{}: texts of up to {} tokens are computed, with short_factor; --modify "
        "'SetWhere{{class=LongRotaryPosition field=long_texts value=true}}' takes long_factor, as "
        "transformers does for longer texts",
        here, original));
  return fmt::format(" short_factors=\"{}\" long_factors=\"{}\" original_length={} attention_factor={}",
                     in_short, in_long, original, attention);
}

void write_longrope(const layers::Config& model, nlohmann::ordered_json& json) {
  const auto text = [&](const char* name) {
    return layers::get(model, kLayer + "attention.positions." + name);
  };
  const auto factors = [&](const char* name) {
    return kernels::parse_rope_factors(Json::parse(text(name)).get<std::string>());
  };
  const std::int64_t original = std::stoll(text("original_length"));
  json[kOriginal] = original;
  // transformers 4 takes these three fields under these names only.
  json["rope_scaling"] = {{"type", "longrope"},
                          {"short_factor", factors("short_factors")},
                          {"long_factor", factors("long_factors")}};
  const double attention = std::stod(text("attention_factor")),
               usual = longrope_attention_factor(
                   json["max_position_embeddings"].get<double>() / static_cast<double>(original), original);
  if (attention != usual) json["rope_scaling"]["attention_factor"] = attention;
}

}  // namespace meshloom::trainer
