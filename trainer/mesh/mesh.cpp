#include "trainer/mesh/mesh.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "hal/error.h"
#include "trainer/mesh/shares.h"

namespace meshloom::trainer {

namespace {

// Meshes of so many ranks that differ from `mesh` in one axis: ", such as data=4,fsdp=2".
std::string fitting(const MeshConfig& mesh, std::int64_t ranks) {
  std::string found;
  const std::vector<MeshAxis> axes = mesh.axes();
  for (const MeshAxis& changed : axes) {
    const std::int64_t others = mesh.size() / changed.size;
    if (changed.size < 2 || ranks % others != 0) continue;
    std::string text;
    for (const MeshAxis& axis : axes)
      if (const std::int64_t size = axis.name == changed.name ? ranks / others : axis.size; size > 1)
        text += (text.empty() ? "" : ",") + axis.name + "=" + std::to_string(size);
    if (!text.empty()) found += (found.empty() ? ", such as " : " or ") + text;
  }
  return found.empty() && ranks > 1 ? ", such as data=" + std::to_string(ranks) : found;
}

}  // namespace

kernels::DType moved_dtype(const std::string& field, const std::string& text) {
  if (text == "int8") return kernels::DType::i8;
  if (text != "f32" && text != "bf16") throw Error(field, "must be f32, bf16 or int8", "'" + text + "'");
  return hal::dtype_from_string(text);
}

void OuterConfig::fields(layers::FieldVisitor& v) {
  v("every", every,
    {"Updates from one exchange between islands to the next, of the same part.", layers::at_least(1)});
  v("rate", rate, {"How far the shared parameters follow the mean of the islands.", layers::above(0)});
  v("momentum", momentum, {"The momentum of the shared parameters.", layers::below_one()});
  v("nesterov", nesterov, {"Whether the momentum looks one exchange ahead."});
  v("parts", parts,
    {"Parts of the layers, which are exchanged by turns; at most as many as `every`.", layers::at_least(1)});
  v("dtype", dtype,
    {"The dtype of what islands send; bf16 and int8 carry over what they round, int8 has a scale for every "
     "256 "
     "values.",
     layers::one_of("f32", "bf16", "int8")});
}

OuterOptions OuterConfig::options() const {
  const auto require = [](bool good, const char* field, const char* rule, const std::string& found) {
    if (!good) throw Error(std::string("mesh.outer.") + field, rule, found);
  };
  require(every >= 1, "every", "must be at least 1", std::to_string(every));
  require(rate > 0 && rate < 1e6, "rate", "must be above 0 and below 1e6", std::to_string(rate));
  require(momentum >= 0 && momentum < 1, "momentum", "must be at least 0 and below 1",
          std::to_string(momentum));
  require(parts >= 1 && parts <= every, "parts",
          "must be at least 1 and at most mesh.outer.every, so that one part is exchanged at a time",
          std::to_string(parts));
  return {every, rate, momentum, nesterov, parts, moved_dtype("mesh.outer.dtype", dtype)};
}

void MeshConfig::fields(layers::FieldVisitor& v) {
  v("islands", islands,
    {"Groups of ranks that train by themselves and exchange what they have learnt now and then (outer).",
     layers::at_least(1)});
  v("pipeline", pipeline, {"Ranks among which the layers are divided.", layers::at_least(1)});
  v("data", data, {"Ranks among which the batch is divided, each with all parameters.", layers::at_least(1)});
  v("expert", expert, {"Ranks among which the batch and the experts are divided.", layers::at_least(1)});
  v("fsdp", fsdp, {"Ranks among which the batch and the parameters are divided.", layers::at_least(1)});
  v("seq", seq, {"Ranks among which the sequence is divided.", layers::at_least(1)});
  v("model", model, {"Ranks among which the features of a layer are divided.", layers::at_least(1)});
  v("schedule", schedule,
    {"The order in which the ranks of a pipeline compute.",
     layers::one_of("gpipe", "1f1b", "interleaved", "zero_bubble")});
  v("chunks", chunks,
    {"Chunks of layers of a rank of a pipeline, where it is interleaved.", layers::at_least(2)});
  v("shares", shares,
    {"The rows of a micro-batch that each rank of data and fsdp computes, in the order of ranks; []: equally "
     "many."});
  v("balance", balance,
    {"Whether a run that has no shares measures how long each rank takes for a row before its first step, "
     "and "
     "sets the shares so that all take equally long."});
  v("attention", attention,
    {"How attention is divided over seq: all keys are gathered; or every rank has the whole sequence for "
     "some heads; or keys go "
     "from rank to rank.",
     layers::one_of("gather", "all_to_all", "ring")});
  v("sequence_order", sequence_order,
    {"Which tokens of a row the ranks of seq have: one run after another; or in zigzag each two runs, one "
     "from the front and one from the back, so that with a causal mask all have as much to attend to.",
     layers::one_of("contiguous", "zigzag")});
  v("gradient_dtype", gradient_dtype,
    {"The dtype in which gradients move where they are added up between ranks, in f32; bf16 and int8 add "
     "what rounding loses to the next gradients, int8 has a scale for every 256 values.",
     layers::one_of("f32", "bf16", "int8")});
  v("outer", outer, {"How islands exchange what they have learnt."});
}

std::vector<MeshAxis> MeshConfig::axes() const {
  return {{"islands", islands}, {"pipeline", pipeline}, {"data", data},  {"expert", expert},
          {"fsdp", fsdp},       {"seq", seq},           {"model", model}};
}

void MeshConfig::parse(const std::string& text, std::int64_t ranks) {
  const std::string where = "--mesh '" + text + "'";
  std::int64_t* rest = nullptr;
  AxisSet seen;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = item.find('=');
    std::int64_t size = 0;
    const char* const last = item.data() + item.size();
    if (equals == std::string::npos || equals == 0 ||
        std::from_chars(item.data() + equals + 1, last, size).ptr != last || equals + 1 == item.size())
      throw Error(where, "must read AXIS=RANKS,AXIS=RANKS, such as data=2,fsdp=4", "'" + item + "'");
    const AxisSet axis = axes_from_string(item.substr(0, equals));
    if (!(axis & seen).empty()) throw Error(where, "must name an axis once", "'" + item + "'");
    seen |= axis;
    const std::array<std::int64_t*, kAxes> fields{&islands, &pipeline, &data, &expert, &fsdp, &seq, &model};
    std::int64_t& field = *fields.at(static_cast<std::size_t>(axis.list().at(0)));
    if (size == -1 && rest) throw Error(where, "may have one -1, for the ranks that are left", "two");
    if (size == -1) rest = &field;
    if (size < 1 && size != -1)
      throw Error(where, "an axis must have at least one rank, or -1 for those that are left",
                  "'" + item + "'");
    field = std::max<std::int64_t>(size, 1);
  }
  if (rest) {
    if (ranks < 1) throw Error(where, "-1 needs the number of ranks: --ranks, or a launcher", "neither");
    if (ranks % this->size() != 0)
      throw Error(where, "the other axes must divide the " + std::to_string(ranks) + " ranks",
                  std::to_string(this->size()));
    *rest = ranks / this->size();
  }
  if (ranks > 0 && this->size() != ranks)
    throw Error(where, "must have as many ranks as the job, " + std::to_string(ranks) + fitting(*this, ranks),
                std::to_string(this->size()));
}

void MeshConfig::check_shares_of(std::int64_t rows) const {
  if (shares.empty() && !balance) return;
  if (pipeline > 1)
    throw Error(shares.empty() ? "mesh.balance" : "mesh.shares",
                "a pipeline has equal rows on all ranks: its layers are divided by how long they take",
                "pipeline=" + std::to_string(pipeline));
  if (islands > 1)
    throw Error(shares.empty() ? "mesh.balance" : "mesh.shares", "islands must have equal rows",
                "islands=" + std::to_string(islands));
  if (expert > 1)
    throw Error(shares.empty() ? "mesh.balance" : "mesh.shares",
                "the ranks of the axis expert must have equal rows", "expert=" + std::to_string(expert));
  if (!shares.empty()) check_shares(shares, data * fsdp, rows, "mesh.shares");
}

std::int64_t MeshConfig::size() const {
  std::int64_t size = 1;
  for (const MeshAxis& axis : axes()) {
    if (axis.size < 1)
      throw Error("mesh." + axis.name, "an axis must have at least one rank", std::to_string(axis.size));
    if (__builtin_mul_overflow(size, axis.size, &size))
      throw Error("mesh", "must have fewer than 2^63 ranks");
  }
  return size;
}

}  // namespace meshloom::trainer
