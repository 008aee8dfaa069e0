// Llama and GPT-2 written out in plain double loops, sharing no code with the layers: the other opinion.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace meshloom::tests {

struct Oracle {
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  std::map<std::string, std::vector<float>> parameters;  // by path, row-major
  std::int64_t vocab, dim, layers, heads, kv_heads, ffn;
  double eps = 1e-5, theta = 10000;

  const std::vector<float>& at(const std::string& path) const { return parameters.at(path); }

  Row linear(const Row& x, const std::string& path, bool bias) const {
    const std::vector<float>& w = at(path + "/weight");
    Row y(w.size() / x.size());
    for (std::size_t o = 0; o < y.size(); ++o) {
      y[o] = bias ? at(path + "/bias")[o] : 0.0;
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
    }
    return y;
  }

  Row rms_norm(const Row& x, const std::string& path) const {
    double square = 0;
    for (const double v : x) square += v * v;
    const double r = 1 / std::sqrt(square / static_cast<double>(x.size()) + eps);
    Row y(x);
    for (std::size_t i = 0; i < x.size(); ++i) y[i] *= r * at(path + "/weight")[i];
    return y;
  }

  Row layer_norm(const Row& x, const std::string& path) const {
    double mean = 0, variance = 0;
    for (const double v : x) mean += v / static_cast<double>(x.size());
    for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
    Row y(x);
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = (x[i] - mean) / std::sqrt(variance + eps) * at(path + "/weight")[i] + at(path + "/bias")[i];
    return y;
  }

  // Features p and p + D/2 of each head turn by position * theta^(-2p/D).
  void rotate(Row& x, std::int64_t position, std::int64_t count) const {
    const std::int64_t d = static_cast<std::int64_t>(x.size()) / count;
    for (std::int64_t h = 0; h < count; ++h)
      for (std::int64_t p = 0; p < d / 2; ++p) {
        const double angle = static_cast<double>(position) *
                             std::pow(theta, -2.0 * static_cast<double>(p) / static_cast<double>(d));
        double &a = x[h * d + p], &b = x[h * d + p + d / 2];
        const double rotated = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = rotated;
      }
  }

  // What attention sees of one sequence, and what else is said of its scores.
  std::function<bool(std::size_t i, std::size_t j)> visible = [](std::size_t i, std::size_t j) {
    return j <= i;
  };
  double soft_cap = 0;         // 0 = none
  std::vector<double> slopes;  // per head; empty = none
  // What is added to a score of `layer`; empty = nothing.
  std::function<double(const std::string& layer, std::int64_t head, std::size_t i, std::size_t j)> bias;
  bool sinks = false;

  // Attention of one sequence in layer `layer` ("decoder/stack/layer0/").
  Rows attend(const Rows& q, const Rows& k, const Rows& v, const std::string& layer) const {
    const std::int64_t d = static_cast<std::int64_t>(q[0].size()) / heads;
    Rows out(q.size(), Row(q[0].size(), 0.0));
    for (std::size_t i = 0; i < q.size(); ++i)
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t g = h / (heads / kv_heads);
        Row weights(k.size(), 0.0);
        double total = sinks ? std::exp(at(layer + "attention/sink")[h]) : 0.0;
        for (std::size_t j = 0; j < k.size(); ++j) {
          if (!visible(i, j)) continue;
          double score = 0;
          for (std::int64_t f = 0; f < d; ++f) score += q[i][h * d + f] * k[j][g * d + f];
          score /= std::sqrt(static_cast<double>(d));
          if (soft_cap > 0) score = soft_cap * std::tanh(score / soft_cap);
          if (!slopes.empty()) score -= slopes[h] * std::abs(static_cast<double>(i) - static_cast<double>(j));
          if (bias) score += bias(layer, h, i, j);
          total += weights[j] = std::exp(score);
        }
        for (std::size_t j = 0; j < k.size(); ++j)
          for (std::int64_t f = 0; f < d; ++f) out[i][h * d + f] += weights[j] / total * v[j][g * d + f];
      }
    return out;
  }

  static double silu(double x) { return x / (1 + std::exp(-x)); }
  static double gelu_tanh(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  }

  // Logits of one sequence.
  Rows logits(const std::vector<std::int32_t>& tokens, bool llama, bool tied) const {
    const auto norm = [&](const Row& x, const std::string& path) {
      return llama ? rms_norm(x, path) : layer_norm(x, path);
    };
    const bool bias = !llama;
    Rows x;
    for (std::size_t s = 0; s < tokens.size(); ++s) {
      Row row(dim);
      for (std::int64_t i = 0; i < dim; ++i) {
        row[i] = at("decoder/embedding/weight")[tokens[s] * dim + i];
        if (!llama) row[i] += at("decoder/positions/weight")[static_cast<std::int64_t>(s) * dim + i];
      }
      x.push_back(row);
    }
    for (std::int64_t l = 0; l < layers; ++l) {
      const std::string layer = "decoder/stack/layer" + std::to_string(l) + "/";
      Rows q, k, v;
      for (std::size_t s = 0; s < x.size(); ++s) {
        const Row n = norm(x[s], layer + "attention_norm");
        q.push_back(linear(n, layer + "attention/q_proj", bias));
        k.push_back(linear(n, layer + "attention/k_proj", bias));
        v.push_back(linear(n, layer + "attention/v_proj", bias));
        if (llama) rotate(q.back(), static_cast<std::int64_t>(s), heads);
        if (llama) rotate(k.back(), static_cast<std::int64_t>(s), kv_heads);
      }
      const Rows context = attend(q, k, v, layer);
      for (std::size_t s = 0; s < x.size(); ++s) {
        const Row a = linear(context[s], layer + "attention/o_proj", bias);
        for (std::int64_t i = 0; i < dim; ++i) x[s][i] += a[i];
        const Row n = norm(x[s], layer + "feed_forward_norm");
        Row hidden = linear(n, layer + "feed_forward/up_proj", bias);
        if (llama) {
          const Row gate = linear(n, layer + "feed_forward/gate_proj", false);
          for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] *= silu(gate[i]);
        } else {
          for (double& h : hidden) h = gelu_tanh(h);
        }
        const Row f = linear(hidden, layer + "feed_forward/down_proj", bias);
        for (std::int64_t i = 0; i < dim; ++i) x[s][i] += f[i];
      }
    }
    Rows scores;
    for (const Row& row : x)
      scores.push_back(linear(norm(row, "decoder/norm"), tied ? "decoder/embedding" : "decoder/head", false));
    return scores;
  }

  // Sum over targets >= 0.
  static double loss(const Rows& logits, const std::vector<std::int32_t>& targets) {
    double sum = 0;
    for (std::size_t s = 0; s < targets.size(); ++s) {
      if (targets[s] < 0) continue;
      double total = 0;
      for (const double z : logits[s]) total += std::exp(z);
      sum += std::log(total) - logits[s][targets[s]];
    }
    return sum;
  }
};

}  // namespace meshloom::tests
