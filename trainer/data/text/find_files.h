// Finds the files of training data.
#pragma once

#include <string>
#include <vector>

namespace meshloom::trainer {

struct FoundFiles {
  std::vector<std::string> files;
  std::vector<std::string> notes;  // what was left out
};

// A name is a file (or a pipe); a folder, which stands for all files below it; or, unless a file has just
// this name, a pattern of *, ? and [...] (glob(7)), which stands for all files and folders that it matches.
// Names keep their order; the files of a folder or a pattern are sorted by path, byte by byte. Hidden files
// and folders (".name") below a folder are left out, with a note; a pattern matches them only if it has the
// dot.
//
// Throws Error for a folder or pattern without files; for a folder that contains links to folders, or entries
// that are neither file nor folder; for a folder or pattern with both .jsonl and other files; and for a name
// that does not exist but reads like a data set on Hugging Face, with the way to download it.
FoundFiles find_files(const std::vector<std::string>& names);

// Whether all files' names end in .jsonl. Throws Error when only some do.
bool all_jsonl(const std::vector<std::string>& files, const std::string& where);

}  // namespace meshloom::trainer
