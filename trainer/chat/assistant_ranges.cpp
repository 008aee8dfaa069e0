#include "trainer/chat/assistant_ranges.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "hal/error.h"

namespace meshloom::trainer::jinja {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const std::size_t length = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(length), b.begin()).first - a.begin());
}

class Finder {
 public:
  Finder(const OrderedJson& messages, const Render& render, const std::vector<std::string>& added_tokens,
         const std::string& where)
      : messages_(messages),
        render_(render),
        added_tokens_(added_tokens),
        where_(where),
        text_(render(messages, false)) {}

  RenderedChat run() {
    Ranges ranges;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const auto role = messages_[i].find("role");
      if (role != messages_[i].end() && *role == "assistant") ranges.push_back(range(i));
    }
    // Every turn must come after the one before it.
    for (std::size_t i = 1; i < ranges.size(); ++i)
      if (ranges[i].first < ranges[i - 1].second) refuse(i, "the turns that were found overlap");
    return {text_, joined_ranges(std::move(ranges))};
  }

 private:
  [[noreturn]] void refuse(std::size_t i, const std::string& found) const {
    throw Error(where_ + " messages[" + std::to_string(i) + "]",
                "the assistant's part of the rendered conversation must be recognizable; give the template "
                "generation blocks",
                found);
  }

  OrderedJson before(std::size_t i) const {
    return OrderedJson(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  // Renders a part of the conversation, which the template may refuse.
  std::string part(std::size_t i, const OrderedJson& messages, bool prompt) const {
    try {
      return render_(messages, prompt);
    } catch (const Error& error) {
      refuse(i, "the template refuses a part of the conversation: " + error.rule() + " " + error.found());
    }
  }

  std::pair<std::size_t, std::size_t> range(std::size_t i) const {
    OrderedJson turns = before(i);
    const std::string prompt = part(i, turns, true);
    turns.push_back(messages_[i]);
    const std::string answered = part(i, turns, false);
    if (answered.starts_with(prompt) && text_.starts_with(answered)) return {prompt.size(), answered.size()};
    return by_content(i, prompt, std::move(turns));
  }

  // A text that does not occur in the conversation.
  std::string unique_text() const {
    std::string text = "Qz7content";
    while (text_.find(text) != std::string::npos) text += "7z";
    return text;
  }

  static bool replace_content(OrderedJson& message, const std::string& text) {
    const auto content = message.find("content");
    if (content == message.end()) return false;
    if (content->is_string()) {
      *content = text;
      return true;
    }
    if (!content->is_array()) return false;
    for (OrderedJson& piece : *content)
      if (piece.is_object() && piece.contains("text") && piece["text"].is_string()) {
        OrderedJson only = piece;
        only["text"] = text;
        *content = OrderedJson::array({only});
        return true;
      }
    return false;
  }

  struct Parts {
    std::string before, behind;  // the texts around the content
  };
  Parts around(std::size_t i, const std::string& text, const std::string& content) const {
    const std::size_t at = text.find(content);
    if (at == std::string::npos || text.find(content, at + 1) != std::string::npos)
      refuse(i, "the template does not write the message's content exactly once");
    return {text.substr(0, at), text.substr(at + content.size())};
  }

  // The largest size, at most `size`, such that `text` from `start` on is not cut inside an added token.
  std::size_t between_tokens(std::string_view text, std::size_t start, std::size_t size) const {
    for (std::size_t at = start; at < start + size;) {
      std::size_t longest = 0;
      for (const std::string& token : added_tokens_)
        if (!token.empty() && text.substr(at).starts_with(token)) longest = std::max(longest, token.size());
      if (at + longest > start + size) return at - start;
      at += std::max<std::size_t>(longest, 1);
    }
    return size;
  }

  std::pair<std::size_t, std::size_t> by_content(std::size_t i, const std::string& prompt,
                                                 OrderedJson turns) const {
    const std::string content = unique_text();
    OrderedJson all = messages_;
    if (!replace_content(all[i], content) || !replace_content(turns.back(), content))
      refuse(i, "the content of the message is no text");
    const Parts whole = around(i, part(i, all, false), content),
                turn = around(i, part(i, turns, false), content);
    if (!text_.starts_with(whole.before) || !text_.ends_with(whole.behind) ||
        whole.before.size() + whole.behind.size() > text_.size())
      refuse(i, "the message's content changes the text around it");
    const std::size_t content_end = text_.size() - whole.behind.size();
    return {start(i, prompt, whole.before, turn.before),
            content_end + end_size(i, content_end, whole.behind, turn.behind)};
  }

  std::size_t start(std::size_t i, const std::string& prompt, const std::string& before,
                    const std::string& turn_before) const {
    if (before.starts_with(prompt)) return prompt.size();
    // The prompt opens a reasoning block that earlier answers do not have: the turn starts where the two
    // differ.
    const std::string questions = part(i, this->before(i), false);
    const std::size_t shared = common_prefix(prompt, before);
    if (!added_tokens_.empty() && shared > questions.size() && prompt.starts_with(questions)) {
      const std::size_t head = between_tokens(text_, questions.size(), shared - questions.size());
      if (head > 0) return questions.size() + head;
    }
    std::string_view head;  // the part of the turn between the prompt and the content
    if (turn_before.starts_with(prompt))
      head = std::string_view(turn_before).substr(prompt.size());
    else if (!prompt.starts_with(turn_before))
      refuse(i, "the prompt for an answer is not the beginning of the answer's turn");
    if (!before.ends_with(head)) refuse(i, "the start of the turn is different when more turns follow");
    return before.size() - head.size();
  }

  std::size_t end_size(std::size_t i, std::size_t at, const std::string& behind,
                       const std::string& turn_behind) const {
    if (behind.starts_with(turn_behind)) return turn_behind.size();
    std::size_t size = common_prefix(behind, turn_behind);
    if (!added_tokens_.empty()) size = between_tokens(text_, at, size);
    if (size == 0 || added_tokens_.empty())
      refuse(i, "the end of the turn is different when more turns follow");
    return size;
  }

  const OrderedJson& messages_;
  const Render& render_;
  const std::vector<std::string>& added_tokens_;
  const std::string& where_;
  const std::string text_;
};

}  // namespace

Ranges joined_ranges(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  Ranges joined;
  for (const auto& range : ranges) {
    if (range.first == range.second) continue;
    if (!joined.empty() && range.first <= joined.back().second)
      joined.back().second = std::max(joined.back().second, range.second);
    else
      joined.push_back(range);
  }
  return joined;
}

RenderedChat assistant_ranges_by_prefixes(const OrderedJson& messages, const Render& render,
                                          const std::vector<std::string>& added_tokens,
                                          const std::string& where) {
  return Finder(messages, render, added_tokens, where).run();
}

}  // namespace meshloom::trainer::jinja
