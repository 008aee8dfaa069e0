// Which files the names of training data stand for.
#pragma once

#include <string>
#include <vector>

namespace meshloom::trainer {

struct FoundFiles {
  std::vector<std::string> files;
  std::vector<std::string> notes;  // what was left out
};

// A name is a file (or a pipe), a folder, which stands for all files below it, or a pattern of *, ? and [...]
// (glob(7)), which stands for all files and folders it matches, unless a file has just this name. Names keep
// their order; the files of a folder or a pattern come sorted by path, byte by byte. Hidden files and folders
// (".name") below a folder are left out, with a note; patterns match them only where they have the dot.
//
// Throws Error for a folder or pattern without a file; for a folder that holds links to folders or what is
// neither file nor folder; for a pattern of which matches .jsonl files and others, or a folder that holds
// both; and for a name that is not there and reads like a data set on Hugging Face, with how to download it.
FoundFiles find_files(const std::vector<std::string>& names);

// Whether all files' names end in .jsonl. Throws Error when only some do.
bool all_jsonl(const std::vector<std::string>& files, const std::string& where);

}  // namespace meshloom::trainer
