#include "trainer/data/jsonl/chat_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "hal/error.h"
#include "trainer/chat/chat_template.h"
#include "trainer/data/jsonl/jsonl_examples.h"
#include "trainer/data/tokenizer/tokenizer_settings.h"
#include "trainer/io/file.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kConfigDepth = 32;  // of tokenizer_config.json

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

// A text that begins and ends with other characters than `content`, which is not blank.
std::string unlike(const std::string& content) {
  const char first = content[content.find_first_not_of(" \t\r\n")],
             last = content[content.find_last_not_of(" \t\r\n")];
  return std::string(first == 'Q' ? "X" : "Q") + "7k" + (last == 'Q' ? "X" : "Q");
}

// The special tokens that a template may use, by name: those of the tokenizer's own file, or else the tokens
// with which the tokenizer begins and ends a text.
ChatOptions options_of(const TokenizerConfig& config, const Tokenizer& tokenizer) {
  ChatOptions options;
  for (std::int32_t id = 0; id < tokenizer.vocabulary(); ++id)
    if (tokenizer.is_added(id)) options.added_tokens.push_back(tokenizer.token(id));
  if (config.config) {
    const std::string where = "'" + *config.config + "'";
    const TokenizerSettings settings = read_tokenizer_settings(
        parse_ordered_json(read_file(*config.config, where), where, "the file", kConfigDepth), where);
    for (const auto& [name, token] : settings.tokens) {
      if (name == "bos_token")
        options.bos_token = token;
      else if (name == "eos_token")
        options.eos_token = token;
      else
        options.variables[name] = token;
    }
    return options;
  }
  if (const auto begin = tokenizer.begin_of_text(); !begin.empty())
    options.bos_token = tokenizer.token(begin.front());
  if (const auto end = tokenizer.end_of_text()) options.eos_token = tokenizer.token(*end);
  return options;
}

class TemplateFormat : public ChatFormat {
 public:
  TemplateFormat(const std::string& path, const TokenizerConfig& config, const Tokenizer& tokenizer,
                 std::optional<std::int64_t> time)
      : TemplateFormat(read_file(path, "chat template '" + path + "'"), "chat template '" + path + "'",
                       config, tokenizer, time) {}

  Example example(const OrderedJson& messages, const OrderedJson& tools,
                  const std::string& where) const override {
    ChatOptions options = options_;
    if (!tools.is_null()) options.variables["tools"] = tools;
    const RenderedChat chat = rendered(messages, options, where);
    std::vector<std::size_t> bytes;  // the first and the last byte of each part that is trained on
    for (const auto& [begin, end] : chat.assistant_ranges) bytes.insert(bytes.end(), {begin, end - 1});
    const Tokenizer::EncodingWithOffsets encoding = tokenizer_.encode_with_offsets(chat.text, bytes);
    Example example{encoding.ids, std::vector<char>(encoding.ids.size(), 0)};
    for (std::size_t i = 0; i + 1 < encoding.token_at.size(); i += 2)
      train_on(encoding.token_at[i], encoding.token_at[i + 1], example);
    return example;
  }

  std::vector<std::int32_t> prompt(const OrderedJson& messages, const OrderedJson& tools,
                                   const std::string& where) const override {
    ChatOptions options = options_;
    options.add_generation_prompt = true;
    if (!tools.is_null()) options.variables["tools"] = tools;
    try {
      return tokenizer_.encode_with_offsets(template_.render(messages, options), {}).ids;
    } catch (const Error& error) {
      throw Error(where, "the chat template must accept the conversation", error.what());
    }
  }

  std::optional<std::int32_t> end_of_turn() const override { return end_; }
  bool takes_tools() const override { return template_.uses("tools"); }
  std::string_view template_text() const override { return source_; }
  std::optional<std::int64_t> time() const override { return asks_for_time_ ? options_.now : std::nullopt; }
  std::vector<std::string> notes() const override {
    if (end_) return {};
    return {fmt::format(
        "{} ends an answer with no special token, so generation cannot tell where an answer ends", where_)};
  }

 private:
  TemplateFormat(const std::string& source, const std::string& where, const TokenizerConfig& config,
                 const Tokenizer& tokenizer, std::optional<std::int64_t> time)
      : where_(where),
        tokenizer_(tokenizer),
        source_(source),
        template_(source, where),
        options_(options_of(config, tokenizer)),
        asks_for_time_(source.find("strftime_now") != std::string::npos) {
    using Clock = std::chrono::system_clock;
    options_.now =
        time ? *time
             : std::chrono::duration_cast<std::chrono::seconds>(Clock::now().time_since_epoch()).count();
    find_end();
  }

  RenderedChat rendered(const OrderedJson& messages, const ChatOptions& options,
                        const std::string& where) const {
    try {
      return template_.render_training(messages, options);
    } catch (const Error& error) {
      if (auto chat = by_contents(messages, options)) return *std::move(chat);
      throw Error(where, "the chat template must accept the conversation", error.what());
    }
  }

  // For a template that writes a conversation in another way once it has an answer: the answer is the part of
  // the text that changes with its content. Adds nothing when that part is neither the content nor contained
  // in it.
  std::optional<RenderedChat> by_contents(const OrderedJson& messages, const ChatOptions& options) const {
    try {
      RenderedChat chat{template_.render(messages, options), {}};
      for (std::size_t i = 0; i < messages.size(); ++i) {
        if (messages[i]["role"] != "assistant") continue;
        const auto content = messages[i].find("content");
        if (content == messages[i].end() || !content->is_string() || is_blank(*content)) return {};
        OrderedJson changed = messages;
        changed[i]["content"] = unlike(*content);
        const std::string other = template_.render(changed, options);
        const auto first =
            std::mismatch(chat.text.begin(), chat.text.end(), other.begin(), other.end()).first;
        const auto last =
            std::mismatch(chat.text.rbegin(), chat.text.rend(), other.rbegin(), other.rend()).first.base();
        if (first >= last || content->get<std::string>().find(std::string(first, last)) == std::string::npos)
          return {};
        chat.assistant_ranges.emplace_back(first - chat.text.begin(), last - chat.text.begin());
      }
      return chat;
    } catch (const Error&) {
      return {};
    }
  }

  // The text after the content of an answer begins with the end of a turn; a conversation of two messages
  // shows it.
  void find_end() {
    const std::string content = "Zq7kX";
    const OrderedJson messages = OrderedJson::array(
        {{{"role", "user"}, {"content", "Hello"}}, {{"role", "assistant"}, {"content", content}}});
    std::string text;
    try {
      text = template_.render(messages, options_);
    } catch (const Error&) {
      return;  // a template that needs more than this will refuse the user's conversations
    }
    const std::size_t at = text.rfind(content);
    if (at == std::string::npos) return;
    for (const std::int32_t id : tokenizer_.encode_with_offsets(text.substr(at + content.size()), {}).ids)
      if (tokenizer_.is_added(id) && !is_blank(tokenizer_.token(id))) {
        end_ = id;
        return;
      }
  }

  // Tokens first ... last are the assistant's. Nothing after the token that ends a turn is trained on,
  // because generation ends there; that token itself is trained on even when the template's generation block
  // leaves it out.
  void train_on(std::size_t first, std::size_t last, Example& example) const {
    if (end_) {
      std::size_t end = last + 1;
      while (end > first && example.tokens[end - 1] != *end_) --end;
      if (end > first)
        last = end - 1;
      else if (last + 1 < example.tokens.size() && example.tokens[last + 1] == *end_)
        ++last;
    }
    std::fill(example.loss_mask.begin() + static_cast<std::ptrdiff_t>(first),
              example.loss_mask.begin() + static_cast<std::ptrdiff_t>(last) + 1, 1);
  }

  std::string where_;
  const Tokenizer& tokenizer_;
  std::string source_;
  ChatTemplate template_;
  ChatOptions options_;
  bool asks_for_time_;
  std::optional<std::int32_t> end_;
};

class RolesFormat : public ChatFormat {
 public:
  RolesFormat(const Tokenizer& tokenizer, bool end, bool chosen) : tokenizer_(tokenizer), chosen_(chosen) {
    if (end) end_ = end_of_answers(tokenizer);
  }

  Example example(const OrderedJson& messages, const OrderedJson&, const std::string& where) const override {
    std::string context;
    return turns(messages, where, context);
  }

  std::vector<std::int32_t> prompt(const OrderedJson& messages, const OrderedJson&,
                                   const std::string& where) const override {
    std::string context;
    std::vector<std::int32_t> ids = turns(messages, where, context).tokens;
    append(ids, tokenizer_.encode_part(context + "<|assistant|>\n"));
    return ids;
  }

  std::optional<std::int32_t> end_of_turn() const override { return end_; }
  bool built_in() const override { return true; }
  std::vector<std::string> notes() const override {
    if (chosen_) return {};
    return {fmt::format(
        "the tokenizer has no chat template, so messages are written in the built-in format '{}'; --set "
        "input.tokenizer.chat_template=FILE names a template",
        kRolesFormat)};
  }

 private:
  // Appends the messages up to the last answer; sets `context` to the text after it.
  Example turns(const OrderedJson& messages, const std::string& where, std::string& context) const {
    Example example;
    example.tokens = tokenizer_.begin_of_text();
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const std::string here = where + "[" + std::to_string(i) + "]", role = messages[i]["role"];
      if (role != "system" && role != "user" && role != "assistant")
        throw Error(here, "role must be system, user or assistant", shown(role));
      const auto content = messages[i].find("content");
      if (content == messages[i].end())
        throw Error(here, "must have a member 'content'", shown_json(messages[i]));
      if (!content->is_string()) throw Error(here, "'content' must be text", shown_json(*content));
      context += "<|" + role + "|>\n";
      if (role != "assistant") {
        context += content->get<std::string>() + "\n";
        continue;
      }
      append_turn(context, *content, tokenizer_, example);
      context = "\n";
      if (!end_) continue;
      example.tokens.push_back(*end_);
      example.loss_mask.push_back(1);
    }
    return example;
  }

  const Tokenizer& tokenizer_;
  bool chosen_;
  std::optional<std::int32_t> end_;
};

}  // namespace

std::unique_ptr<ChatFormat> chat_format(const std::string& name, const TokenizerConfig& config,
                                        const Tokenizer& tokenizer, std::optional<std::int64_t> time,
                                        bool end) {
  if (name.empty() && config.chat_template)
    return std::make_unique<TemplateFormat>(*config.chat_template, config, tokenizer, time);
  if (!name.empty() && name != kRolesFormat)
    throw Error(
        "input.chat_template",
        "must be none, for the tokenizer's own template, or the built-in '" + std::string(kRolesFormat) + "'",
        shown(name));
  return std::make_unique<RolesFormat>(tokenizer, end, !name.empty());
}

std::string roles_template(const Tokenizer& tokenizer, bool end) {
  return fmt::format(
      "{}{{%- for message in messages %}}{{{{- '<|' + message['role'] + '|>\\n' + message['content'] }}}}"
      "{{%- if message['role'] == 'assistant' %}}{}{{%- endif %}}"
      "{{%- if not (loop.last and message['role'] == 'assistant') or add_generation_prompt %}}{{{{- '\\n' "
      "}}}}{{%- endif %}}"
      "{{%- endfor %}}{{%- if add_generation_prompt %}}{{{{- '<|assistant|>\\n' }}}}{{%- endif %}}",
      tokenizer.begin_of_text().empty() ? "" : "{{- bos_token }}", end ? "{{- eos_token }}" : "");
}

TargetFormat target_format_of(const ChatFormat* chat, std::optional<std::int32_t> plain_end) {
  TargetFormat format;
  if (plain_end) format.ends.push_back(*plain_end);
  if (!chat) return format;
  if (const auto end = chat->end_of_turn(); end && end != plain_end) format.ends.push_back(*end);
  if (chat->built_in()) format.chat_template = kRolesFormat;
  format.chat_time = chat->time();
  return format;
}

// If the tokens of the whole text begin with the tokens of the context, they are used. Otherwise context and
// answer are encoded separately, so that the answer's tokens are those that a model would write after the
// context.
void append_turn(const std::string& context, const std::string& answer, const Tokenizer& tokenizer,
                 Example& example) {
  const std::vector<std::int32_t> front = tokenizer.encode_part(context);
  std::vector<std::int32_t> whole = tokenizer.encode_part(context + answer);
  const bool prefix = whole.size() >= front.size() && std::equal(front.begin(), front.end(), whole.begin());
  append(example.tokens, front);
  example.loss_mask.resize(example.tokens.size(), 0);
  if (prefix) whole.erase(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(front.size()));
  append(example.tokens, prefix ? whole : tokenizer.encode_part(answer));
  example.loss_mask.resize(example.tokens.size(), 1);
}

}  // namespace meshloom::trainer
