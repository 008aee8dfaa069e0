// Models with an encoder: gradients in every form on every device, and changes that must have no effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "tests/trainer/compose/gradient_check.h"
#include "tests/trainer/compose/support.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kVocabulary = 19;

layers::ClassTable classes() {
  layers::ClassTable table;
  layers::add_layer_classes(table);
  return table;
}

layers::EncoderDecoder::Config tiny(bool tied = true) {
  return layers::encoder_decoder_config(
      {.vocab = 19, .dim = 16, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 24, .tied = tied});
}

layers::EncoderDecoder::Config with(const std::string& from, const std::string& to) {
  layers::EncoderDecoder::Config model = tiny();
  layers::replace(model, from, to, classes());
  return model;
}

layers::EncoderDecoder::Config wrapped(const std::string& where, const std::string& by,
                                       const std::string& slot) {
  layers::EncoderDecoder::Config model = tiny();
  layers::wrap(model, {.where = where}, *layers::parse(by, classes(), "with"), slot, classes());
  return model;
}

layers::EncoderDecoder::Config set(const std::vector<std::pair<std::string, std::string>>& fields) {
  layers::EncoderDecoder::Config model = tiny();
  for (const auto& [path, value] : fields) layers::set(model, path, value, classes());
  return model;
}

const std::string kCross = "decoder.stack.layer.cross_attention.";

const std::vector<std::pair<std::string, layers::EncoderDecoder::Config>>& forms() {
  static const std::vector<std::pair<std::string, layers::EncoderDecoder::Config>> all{
      {"pre_norm", tiny()},
      {"untied", tiny(false)},
      {"post_norm", with("TransformerLayer", "PostNormLayer{}")},
      {"hybrid_norm", with("TransformerLayer", "HybridNormLayer{}")},
      {"parallel", with("TransformerLayer", "ParallelLayer{}")},
      {"parallel_one_norm", with("TransformerLayer", "ParallelLayer{feed_forward_norm=none}")},
      {"layer_norm", with("RMSNorm", "LayerNorm{}")},
      {"experts", with("FeedForward", "MoE{num_experts=3 hidden_dim=16}")},
      {"normed_projections", wrapped("**.{q,k}_proj", "QKNormProjection{}", "projection")},
      {"scores",
       set({{kCross + "scale", "0.4"}, {kCross + "soft_cap", "0.8"}, {kCross + "sink", "Constant{}"}})},
      {"other_heads",
       set({{kCross + "num_heads", "2"}, {kCross + "num_kv_heads", "none"}, {kCross + "head_dim", "4"}})},
      {"dropout", set({{kCross + "dropout", "0.2"}})},
      {"other_dim", set({{"encoder.dim", "12"},
                         {"encoder.stack.layer.attention.head_dim", "4"},
                         {"decoder.embedding", "Embedding{}"}})},
      {"chunked_loss", set({{"loss", "ChunkedLoss{chunk_size=4}"}})}};
  return all;
}

class EncoderDecoder : public testing::TestWithParam<std::size_t> {};

TEST_P(EncoderDecoder, GradientsAgainstDifferences) { check_against_differences(forms()[GetParam()].second); }

TEST_P(EncoderDecoder, DevicesAgree) {
  for (const std::string& device : computing_devices())
    check_device_agrees(forms()[GetParam()].second, device);
}

INSTANTIATE_TEST_SUITE_P(All, EncoderDecoder, testing::Range<std::size_t>(0, 14),
                         [](const auto& info) { return forms()[info.param].first; });

// Rows of pairs: what documents they hold, where, and how long they are.
struct Pairs {
  std::int64_t sequence, source_length;
  std::vector<std::int32_t> tokens = {}, targets = {}, segments = {}, positions = {}, source = {},
                            source_segments = {}, source_positions = {};
};

struct Pair {
  std::vector<std::int32_t> source, tokens, targets;
};

Pair random_pair(std::int64_t source, std::int64_t length, std::uint64_t seed) {
  const Batch target = random_batch(1, length, kVocabulary, seed);
  return {random_batch(1, source, kVocabulary, seed + 100).tokens, target.tokens, target.targets};
}

// Adds a row of documents, and padding of any tokens behind them.
void add_row(Pairs& rows, const std::vector<Pair>& pairs) {
  const auto add = [](std::vector<std::int32_t>& ids, std::vector<std::int32_t>& segments,
                      std::vector<std::int32_t>& positions, const std::vector<std::int32_t>& from,
                      std::int32_t segment) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      ids.push_back(from[i]);
      segments.push_back(segment);
      positions.push_back(segment ? static_cast<std::int32_t>(i) : 0);
    }
  };
  std::int64_t tokens = rows.sequence, source = rows.source_length;
  std::int32_t segment = 0;
  for (const Pair& pair : pairs) {
    ++segment;
    add(rows.tokens, rows.segments, rows.positions, pair.tokens, segment);
    add(rows.source, rows.source_segments, rows.source_positions, pair.source, segment);
    rows.targets.insert(rows.targets.end(), pair.targets.begin(), pair.targets.end());
    tokens -= static_cast<std::int64_t>(pair.tokens.size());
    source -= static_cast<std::int64_t>(pair.source.size());
  }
  add(rows.tokens, rows.segments, rows.positions,
      std::vector<std::int32_t>(static_cast<std::size_t>(tokens), 3), 0);
  add(rows.source, rows.source_segments, rows.source_positions,
      std::vector<std::int32_t>(static_cast<std::size_t>(source), 5), 0);
  rows.targets.insert(rows.targets.end(), static_cast<std::size_t>(tokens), -1);
}

struct Sums {
  double loss = 0, count = 0;
  std::map<std::string, std::vector<double>> gradients;
};

void feed(Bench& bench, const Pairs& rows) {
  bench.feed({rows.tokens, rows.targets});
  for (const auto& [name, values] : {std::pair{"segments", &rows.segments},
                                     {"positions", &rows.positions},
                                     {"source", &rows.source},
                                     {"source_segments", &rows.source_segments},
                                     {"source_positions", &rows.source_positions}})
    bench.session->write(name, std::as_bytes(std::span(*values)));
}

Sums sums_of(const layers::Config& model, const std::string& device, const Pairs& rows) {
  Bench bench(device);
  trainer::ComposeOptions options;
  options.sequence = rows.sequence;
  options.source = rows.source_length;
  options.batch = 2 * static_cast<std::int64_t>(rows.tokens.size()) / rows.sequence;
  options.accumulation = 2;  // leaves sums of gradients
  options.evaluation = false;
  options.documents = true;
  bench.start(trainer::compose_training(model, adamw(), options, catalog(), bench.device->info()));
  feed(bench, rows);
  bench.session->run(trainer::Step::accumulate);
  Sums sums{bench.read("accumulate/loss_sum")[0], bench.read("accumulate/token_count")[0], {}};
  for (const layers::ParameterInfo& info : bench.session->plan().parameters) {
    const std::vector<float> values = bench.read("grad/" + info.path);
    sums.gradients[info.path].assign(values.begin(), values.end());
  }
  return sums;
}

double distance(const Sums& a, const Sums& b) {
  double highest = std::abs(a.loss - b.loss) / a.loss;
  for (const auto& [name, values] : a.gradients)
    for (std::size_t i = 0; i < values.size(); ++i)
      highest = std::max(highest, std::abs(values[i] - b.gradients.at(name)[i]));
  return highest;
}

const double kTolerance = 64 * hal::epsilon(kernels::DType::f32);

class Pairing : public testing::TestWithParam<std::string> {};

TEST_P(Pairing, PaddingChangesNothing) {
  layers::EncoderDecoder::Config learned = tiny();
  layers::set(learned, "encoder.positions", "LearnedPosition{max_length=16}", classes());
  for (const layers::EncoderDecoder::Config& model : {tiny(), learned}) {
    const Pair one = random_pair(4, 5, 1), other = random_pair(7, 3, 2);
    Pairs tight{5, 7}, roomy{9, 12}, short_source{5, 7};
    for (Pairs* rows : {&tight, &roomy}) {
      add_row(*rows, {one});
      add_row(*rows, {other});
    }
    Pair less = one;
    less.source.pop_back();
    add_row(short_source, {less});
    add_row(short_source, {other});
    const Sums want = sums_of(model, GetParam(), tight), got = sums_of(model, GetParam(), roomy);
    EXPECT_EQ(got.count, want.count);
    EXPECT_LT(distance(want, got), kTolerance * want.loss);
    // The checker sees a difference: a source without its last token.
    EXPECT_GT(distance(want, sums_of(model, GetParam(), short_source)), 1e-3);
  }
}

TEST_P(Pairing, PairsOfARowKnowNothingOfEachOther) {
  const layers::EncoderDecoder::Config model = tiny();
  const Pair one = random_pair(4, 5, 3), other = random_pair(7, 3, 4);
  Pairs apart{8, 11}, together{8, 11};
  add_row(apart, {one});
  add_row(apart, {other});
  add_row(together, {one, other});
  const Sums want = sums_of(model, GetParam(), apart), got = sums_of(model, GetParam(), together);
  EXPECT_EQ(got.count, want.count);
  EXPECT_LT(distance(want, got), kTolerance * want.loss);
  Pairs mixed = together;
  std::fill(mixed.source_segments.begin(), mixed.source_segments.end(), 1);
  EXPECT_GT(distance(want, sums_of(model, GetParam(), mixed)), 1e-3);
}

// Losses of a few updates.
std::vector<double> losses(const std::string& device, const Pairs& rows, bool recompute = false) {
  Bench bench(device);
  trainer::ComposeOptions options;
  options.sequence = rows.sequence;
  options.source = rows.source_length;
  options.batch = 2;
  options.documents = true;
  if (recompute) options.remat = {{".*", trainer::RematPolicy::recompute}};
  bench.start(trainer::compose_training(tiny(), adamw(), options, catalog(), bench.device->info()));
  feed(bench, rows);
  bench.set_rate(1e-2f);
  std::vector<double> all;
  for (int step = 0; step < 4; ++step) {
    bench.session->run(trainer::Step::train);
    all.push_back(bench.read("metrics")[0]);
  }
  return all;
}

TEST_P(Pairing, AFewStepsAgreeWithTheProcessorsAndWithThoseThatRecompute) {
  Pairs rows{8, 11};
  add_row(rows, {random_pair(4, 5, 5), random_pair(7, 3, 6)});
  add_row(rows, {random_pair(9, 6, 7)});
  const std::vector<double> want = losses("cpu", rows), got = losses(GetParam(), rows);
  EXPECT_LT(got.back(), 0.9 * got.front());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4 * want[i]) << "step " << i;
  EXPECT_EQ(losses(GetParam(), rows, true), got);
}

INSTANTIATE_TEST_SUITE_P(Devices, Pairing, testing::ValuesIn(computing_devices()),
                         [](const auto& info) { return plain_name(info.param); });

TEST(EncoderDecoderModel, RefusesWhatCannotBe) {
  const auto error = [](const layers::Config& model, std::int64_t source = 0) {
    return message_of([&] { layers::trace_loss(model, catalog(), 1, 4, true, false, source); });
  };
  EXPECT_EQ(error(tiny()), "no error");
  EXPECT_EQ(error(tiny_llama(), 4),
            "model: only a model with an encoder may have a source; found 'CausalLM'");
  layers::CausalLM::Config alone = tiny_llama();
  layers::set(alone, "decoder.stack.layer.cross_attention", "CrossAttention{num_heads=2}", classes());
  EXPECT_EQ(error(alone),
            "decoder/stack/layer0/cross_attention: a CrossAttention must be in the decoder of a model with "
            "an encoder; found no encoder");
  EXPECT_EQ(error(set({{"encoder.dim", "8"}})),
            "decoder: dim must be that of the shared embedding, 8; found 16");
  EXPECT_EQ(error(set({{"encoder", "none"}})), "model: child 'encoder' must not be none; found none");
  alone = tiny_llama();
  layers::set(alone, "decoder.embedding", "none", classes());
  EXPECT_EQ(error(alone), "decoder: child 'embedding' must not be none; found none");
  // Each side has a longest sequence of its own.
  const auto limited = [](const char* part) {
    return set({{std::string(part) + ".positions", "LearnedPosition{max_length=5}"}});
  };
  EXPECT_EQ(error(limited("encoder"), 5), "no error");
  EXPECT_EQ(error(limited("encoder"), 6), "model: must get sources of at most 5 tokens; found 6");
  EXPECT_EQ(error(limited("decoder"), 6), "no error");
  EXPECT_EQ(layers::max_sequence(limited("encoder")), 0);
  EXPECT_EQ(layers::max_source(limited("encoder")), 5);
  EXPECT_EQ(layers::max_sequence(limited("decoder")), 5);
  EXPECT_THAT(error(set({{kCross + "num_kv_heads", "3"}})),
              HasSubstr("layer0/cross_attention: num_heads must be a multiple"));
  EXPECT_THAT(error(set({{kCross + "report_entropy", "true"}, {kCross + "soft_cap", "1"}})),
              HasSubstr("report_entropy must be used without"));
}

TEST(EncoderDecoderModel, ReportsTheEntropyOfItsCrossAttention) {
  const layers::Traced t = layers::trace_loss(set({{kCross + "report_entropy", "true"}}), catalog(), 1, 4);
  EXPECT_EQ(t.summaries.size(), 2u);
  EXPECT_EQ(t.summaries.begin()->first, "decoder/stack/layer0/cross_attention/entropy");
}

}  // namespace
}  // namespace meshloom::tests
