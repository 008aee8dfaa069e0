// config.json files with a field left out, set to null or to another value, against what transformers makes
// of them (make_fields.py): the same logits, or refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "layers/models/trace.h"
#include "tests/kernels/interpret.h"
#include "tests/trainer/interop/support.h"
#include "tests/trainer/run/binary.h"
#include "trainer/interop/config_json.h"
#include "trainer/interop/families/ignored_fields.h"
#include "trainer/interop/families/layout.h"

namespace meshloom::tests {
namespace {

using Json = nlohmann::json;
using Logits = std::vector<double>;
// Names and shapes of a model's tensors in the files.
using Tensors = std::map<std::string, std::vector<std::int64_t>>;

// The files of tests/trainer/interop/fields as one: a file for each family.
const Json& golden() {
  static const Json json = [] {
    std::set<std::filesystem::path> files;
    for (const auto& entry :
         std::filesystem::directory_iterator(MESHLOOM_SOURCE_DIR "/tests/trainer/interop/fields"))
      files.insert(entry.path());
    Json all;
    for (const auto& file : files) {
      const Json one = Json::parse(read_text(file));
      if (all.is_null()) all = {{"tokens", one["tokens"]}, {"shown", one["shown"]}, {"bases", Json::array()}};
      EXPECT_EQ(all["tokens"], one["tokens"]) << file;
      EXPECT_EQ(all["shown"], one["shown"]) << file;
      all["bases"].insert(all["bases"].end(), one["bases"].begin(), one["bases"].end());
    }
    return all;
  }();
  return json;
}

// As field_cases.py makes them.
std::vector<float> numbers(const std::string& name, std::int64_t count) {
  std::uint32_t state = 2166136261u;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 16777619u;
  const bool norm =
      name.ends_with("norm.weight") || (name.find(".ln_") != std::string::npos && name.ends_with(".weight"));
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    auto x = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) * 2654435761u + state);
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    values.push_back(static_cast<float>((x >> 8) / 16777216.0 - 0.5 + (norm ? 1 : 0)));
  }
  return values;
}

struct Read {
  Tensors tensors;
  Logits logits;
};

Logits logits_of(const layers::Traced& traced, const std::vector<trainer::TensorMapping>& places) {
  std::map<std::string, std::vector<float>> parameters;
  for (const layers::ParameterInfo& info : traced.parameters)
    parameters[info.path].resize(static_cast<std::size_t>(info.type.elements()));
  for (const trainer::TensorMapping& place : places) {
    const std::vector<float> tensor = numbers(place.hf_name, kernels::elements(place.shape));
    for (std::size_t part = 0; part < place.parameters.size(); ++part)
      trainer::extract_part(place, part, tensor, parameters.at(place.parameters[part].name));
  }
  Values values;
  for (const kernels::ValueId id : traced.program.inputs) {
    const kernels::Value& value = traced.program.value(id);
    kernels::HostTensor tensor(value.type);
    if (id == traced.tokens) {
      for (std::size_t i = 0; i < golden()["tokens"].size(); ++i)
        tensor.as<std::int32_t>()[i] = golden()["tokens"][i].get<std::int32_t>();
    } else {
      const std::vector<float>& numbers = parameters.at(value.name);
      std::copy(numbers.begin(), numbers.end(), tensor.as<float>());
    }
    values.emplace(id, std::move(tensor));
  }
  values = interpret(traced.program, catalog(), std::move(values));
  const kernels::HostTensor& all = values.at(traced.logits);
  const std::int64_t vocabulary = all.type.shape.back();
  Logits shown;
  for (const Json& place : golden()["shown"])
    shown.push_back(
        all.as<float>()[place[0].get<std::int64_t>() * vocabulary + place[1].get<std::int64_t>()]);
  return shown;
}

// Throws Error where the config is refused.
Read read(const Json& config) {
  static std::map<std::string, Read> known;  // by the text of the model
  const trainer::ReadConfig read =
      trainer::read_config_json(config, "config.json", classes(), [](const std::string&) {});
  const std::string text = read.family->name + " " + layers::print(read.model);
  if (const auto it = known.find(text); it != known.end()) return it->second;
  const layers::Traced traced =
      layers::trace_logits(read.model, catalog(), 1, static_cast<std::int64_t>(golden()["tokens"].size()));
  std::vector<trainer::NamedTensor> parameters;
  for (const layers::ParameterInfo& info : traced.parameters) parameters.push_back({info.path, info.type});
  const std::vector<trainer::TensorMapping> places = trainer::tensor_mappings(*read.family, parameters);
  Read made;
  for (const trainer::TensorMapping& place : places) made.tensors[place.hf_name] = place.shape;
  made.logits = logits_of(traced, places);
  return known[text] = made;
}

bool near(const Logits& a, const Logits& b) {
  if (a.size() != b.size()) return false;
  double largest = 1e-3;
  for (const double x : b) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < b.size(); ++i)
    if (!(std::abs(a[i] - b[i]) < 2e-5 * largest)) return false;
  return true;
}

class Fields : public testing::Test {
 protected:
  // `said` is "=", "refused" or logits. What transformers refuses must be refused, apart from ignored fields.
  void check(const Json& base, const Json& config, const Json& said, const std::string& what,
             const std::string& field = {}) {
    std::string error;
    std::optional<Logits> got;
    try {
      const Read made = read(config);
      if (made.tensors != tensors_)
        error = "another model's tensors";
      else
        got = made.logits;
    } catch (const Error& refused) {
      error = refused.what();
    }
    const std::string where =
        base["transformers"].get<std::string>() + " " + base["name"].get<std::string>() + ", " + what;
    const trainer::Family& family = trainer::find_family(config["model_type"].get<std::string>(), "");
    const bool harmless = trainer::is_ignored_field(family, field) || trainer::is_dropout_field(field);
    ++cases_;
    if (said == "refused") {
      ++refused_;
      EXPECT_TRUE(!got || harmless) << where << ": transformers refuses it";
      return;
    }
    const Logits want = (said == "=" ? base["logits"] : said).get<Logits>();
    if (!got) {
      // A factor beside no rope_type, which transformers passes over with a warning, and a head that is
      // stored beside the embedding to which config.json ties it, which it leaves untied.
      ++refused_here_;
      EXPECT_TRUE(what.ends_with("type absent") || what == "tie_word_embeddings absent")
          << where << ": " << error;
    } else {
      EXPECT_TRUE(near(*got, want)) << where << ": " << Json(*got) << " instead of " << Json(want);
    }
  }

  Tensors tensors_;
  int cases_ = 0, refused_ = 0, refused_here_ = 0;
};

// A field by its path, "rope_scaling.factor".
Json::json_pointer pointer(std::string path) {
  std::replace(path.begin(), path.end(), '.', '/');
  return Json::json_pointer("/" + path);
}

TEST_F(Fields, AbsentNullAndOtherValuesAreReadAsByTransformers) {
  std::set<std::string> families;
  for (const Json& base : golden()["bases"]) {
    const Json& config = base["config"];
    families.insert(config["model_type"].get<std::string>());
    tensors_ = read(config).tensors;
    check(base, config, "=", "as it is");
    for (const auto& [path, said] : base["absent"].items()) {
      Json without = config;
      const auto at = pointer(path);
      without[at.parent_pointer()].erase(at.back());
      check(base, without, said, path + " absent", path);
    }
    for (const auto& [path, said] : base["null"].items()) {
      Json null = config;
      null[pointer(path)] = nullptr;
      check(base, null, said, path + " null", path);
    }
    for (const Json& edit : base["edits"]) {
      Json other = config;
      for (const Json& name : edit["absent"]) other.erase(name.get<std::string>());
      other.update(edit["set"]);
      check(base, other, edit["logits"], edit.dump());
    }
  }
  EXPECT_EQ(families.size(), trainer::families().size());
  EXPECT_GT(cases_ - refused_, 600);
  EXPECT_EQ(refused_here_, 15);
}

}  // namespace
}  // namespace meshloom::tests
