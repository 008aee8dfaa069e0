#include "trainer/interop/families/ignored_fields.h"

#include <algorithm>
#include <set>

namespace meshloom::trainer {

// From the configuration classes of transformers 4.57 and 5.23 (the base class and nine families save no
// others), and from config.json files of other tools.
bool is_ignored_field(const Family& family, const std::string& name) {
  static const std::set<std::string> kNames{
      // the origin of the file, and the storage of the weights
      "model_type", "architectures", "transformers_version", "_name_or_path", "name_or_path", "_commit_hash",
      "auto_map", "torch_dtype", "dtype", "use_bfloat16", "torchscript", "tf_legacy_loss",
      "transformers.js_config", "unsloth_fixed", "unsloth_version", "license",
      // how transformers computes
      "attn_implementation", "_attn_implementation", "_attn_implementation_autoset",
      "_attn_implementation_internal", "experts_implementation", "_experts_implementation",
      "_experts_implementation_internal", "use_cache", "return_dict", "use_return_dict", "output_attentions",
      "_output_attentions", "output_hidden_states", "chunk_size_feed_forward", "gradient_checkpointing",
      "pretraining_tp", "initializer_range", "base_model_ep_plan", "base_model_pp_plan", "base_model_tp_plan",
      "base_model_fsdp_plan",
      // tokens and the tokenizer
      "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "cls_token_id",
      "mask_token_id", "decoder_start_token_id", "tokenizer_class", "prefix", "model_max_length",
      "max_sequence_length",
      // encoders, decoders and other heads, which these families do not have
      "is_decoder", "is_encoder_decoder", "tie_encoder_decoder", "cross_attention_hidden_size",
      "finetuning_task", "task_specific_params", "problem_type", "id2label", "label2id", "num_labels",
      "_num_labels", "classifier_dropout",
      // generation
      "assistant_confidence_threshold", "assistant_lookbehind", "bad_words_ids", "begin_suppress_tokens",
      "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
      "encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff", "exponential_decay_length_penalty",
      "forced_bos_token_id", "forced_eos_token_id", "length_penalty", "max_length", "min_length",
      "max_new_tokens", "no_repeat_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule",
      "num_beam_groups", "num_beams", "num_return_sequences", "output_scores", "remove_invalid_values",
      "repetition_penalty", "return_dict_in_generate", "suppress_tokens", "target_lookbehind", "temperature",
      "top_k", "top_p", "typical_p"};
  return kNames.count(name) > 0 || std::find(family.ignored_fields.begin(), family.ignored_fields.end(),
                                             name) != family.ignored_fields.end();
}

bool is_dropout_field(const std::string& name) {
  return name == "attention_dropout" || name == "hidden_dropout" || name == "residual_dropout" ||
         name == "resid_pdrop" || name == "embd_pdrop" || name == "attn_pdrop";
}

}  // namespace meshloom::trainer
