#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/status.h"

// Teacher-forced logits: every position of given token lists, by any path through the engine. What the paths compute is
// the same; how they get there is chosen here, so that they can be compared.
namespace lathe {

struct LogitsOptions {
  std::string model;  // folder of a checkpoint
  // -- the path
  std::string dtype;                // "f32" or "bf16" activations and caches; "": as config.json says
  int chunk = 0;                    // prefill in pieces of so many tokens; 0: as the memory plan has room
  int decode_from = -1;             // tokens from this position on are fed one by one; -1: none
  bool replay = false;              // those go through the replay ring
  std::string cut;                  // "tp=N", "ep=N" or "cp=N" in-process ranks; "": whole
  bool hidden = false;              // also return the residual streams after every layer
  std::vector<std::string> images;  // files, in the order of the picture placeholders over all sequences
  std::vector<std::string> videos;  // folders of frames, likewise
  // -- where and how
  std::string device = "cpu";  // or "sim"
  int threads = 1;
  std::vector<std::string> variants;  // "OP=NAME"
};

struct SequenceLogits {
  int64_t rows = 0, vocab = 0;
  std::vector<float> logits;  // [rows, vocab]
  int64_t copies = 0, width = 0;
  std::vector<std::vector<float>> hidden;  // by layer: [rows, copies, width]; empty unless asked for
};

// One result a list, in order. Ids must lie in the vocabulary; lists must not be empty.
Result<std::vector<SequenceLogits>> compute_logits(const LogitsOptions& options,
                                                   const std::vector<std::vector<int32_t>>& tokens);

// A list of token-id lists from a JSON file.
Result<std::vector<std::vector<int32_t>>> read_token_lists(const std::string& path);

// The same, written as it is computed, so that memory doesn't grow with what is asked for: a safetensors file of
// logits.<i> [rows, vocab] and hidden.<i>.<layer> [rows, copies, width], f32.
Status write_logits(const LogitsOptions& options, const std::vector<std::vector<int32_t>>& tokens,
                    const std::string& path);

}  // namespace lathe
