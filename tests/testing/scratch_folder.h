#pragma once

#include <filesystem>
#include <string>

namespace lathe::testing {

// A new folder for one test, gone with it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lathe_test_XXXXXX").string();
    if (!mkdtemp(name.data())) std::abort();
    root_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;

  std::string path(const std::string& relative) const { return root_ + "/" + relative; }

 private:
  std::string root_;
};

}  // namespace lathe::testing
