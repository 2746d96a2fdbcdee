#include "image/clip.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <numeric>

namespace lathe {

namespace {

// Beyond this, names alone cost memory worth refusing: ten hours at 24 a second is 864,000.
constexpr size_t kMaxFiles = 1'000'000;
constexpr double kMinFps = 1e-3, kMaxFps = 1e5;

bool is_frame(const std::filesystem::directory_entry& entry) {
  std::error_code failed;
  std::string name = entry.path().filename(), extension = entry.path().extension();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  const bool known = extension == ".png" || extension == ".jpg" || extension == ".jpeg" || extension == ".webp";
  return known && name[0] != '.' && entry.is_regular_file(failed) && !failed;
}

Result<std::vector<std::string>> list_frames(const std::string& folder) {
  std::error_code failed;
  std::filesystem::directory_iterator entries(folder, failed);
  if (failed) return not_found("{}: not a readable folder of frames: {}", folder, failed.message());
  std::vector<std::string> files;
  for (; entries != std::filesystem::directory_iterator(); entries.increment(failed)) {
    if (failed) return corrupt("{}: reading the folder failed: {}", folder, failed.message());
    if (is_frame(*entries)) files.push_back(entries->path());
    if (files.size() > kMaxFiles) return invalid("{}: more than {} frames", folder, kMaxFiles);
  }
  if (files.empty()) return not_found("{}: no PNG, JPEG or WebP files in this folder", folder);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<double> slice_times(const std::vector<int64_t>& chosen, double fps, int temporal_patch) {
  std::vector<double> times;
  for (size_t i = 0; i < chosen.size(); i += temporal_patch) times.push_back(static_cast<double>(chosen[i]) / fps);
  return times;
}

Result<Clip> read_clip(const std::string& folder, double fps, const VideoConfig& config, const PictureLimits& limits) {
  const bool chosen_before = fps == 0;
  if (chosen_before) fps = kUnknownFps;
  if (!(fps >= kMinFps && fps <= kMaxFps))
    return invalid("{}: {} frames a second; {} to {} is possible", folder, fps, kMinFps, kMaxFps);
  LATHE_ASSIGN(const std::vector<std::string> files, list_frames(folder));
  const int64_t frames = static_cast<int64_t>(files.size());
  if (chosen_before && frames > config.max_frames)
    return invalid("{}: {} frames; at most {} are taken: say their rate, or choose fewer", folder, frames,
                   config.max_frames);
  std::vector<int64_t> chosen(frames);
  std::iota(chosen.begin(), chosen.end(), 0);
  if (!chosen_before) chosen = choose_frames({.frames = frames, .fps = fps}, config);
  if (chosen.empty())
    return invalid("{}: {} frames at {} a second are too short a clip to take {} a second", folder, files.size(), fps,
                   config.fps);
  LATHE_ASSIGN(Picture frame, read_picture(files[chosen[0]], limits));
  auto clip = ClipPatches::create(static_cast<int64_t>(chosen.size()), {frame.height, frame.width}, config.pixels);
  if (!clip.is_ok()) return clip.status().within(folder);
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (i && chosen[i] != chosen[i - 1]) {
      LATHE_ASSIGN(frame, read_picture(files[chosen[i]], limits));
    }
    if (Status s = clip->add(frame); !s.is_ok()) return s.within(files[chosen[i]]);
  }
  return Clip{std::move(*clip).finish(), slice_times(chosen, fps, config.pixels.temporal_patch)};
}

}  // namespace lathe
