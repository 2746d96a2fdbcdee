#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/view.h"
#include "model/checkpoint.h"
#include "model/partition.h"

namespace lathe {

// Turns checkpoint tensors into views on the device: checks shapes and dtypes, finds names in their spellings, slices
// by the partition table. On a device that shares host memory matrices stay where the file is mapped; only small
// vectors are converted to f32.
class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, Device& device, Partition partition)
      : checkpoint_(checkpoint), device_(device), partition_(partition) {}

  // Name parts of the place that is being loaded: tensor names are place + name. mixer as in find_cut.
  void enter(std::string place, std::string mixer) { place_ = std::move(place), mixer_ = std::move(mixer); }

  bool has(const std::string& name) const { return find(place_ + name) != nullptr; }
  // [out, in], any weight dtype, with scales where `weight_scale_inv` (blocks) or `weight_scale` (rows) stand beside
  // it. `unit`: rows or columns that a cut may not split apart, such as a head's.
  Weight matrix(const std::string& name, int64_t out, int64_t in, int64_t unit = 1);
  // The matrix of one name in the part of another, such as embeddings that serve as LM head: cut as `part` would be.
  Weight matrix_as(const std::string& part, const std::string& name, int64_t out, int64_t in);
  // The same for tensors with more dims that count as a matrix (convolution weights).
  Weight matrix_of_shape(const std::string& name, const std::vector<int64_t>& shape, int64_t out, int64_t in,
                         int64_t unit = 1);
  // Row block `index` of a stacked tensor [n, out, in] (experts), rows [row, row + out) of its `rows` rows.
  Weight stacked(const std::string& name, int64_t n, int64_t rows, int64_t in, int64_t index, int64_t row, int64_t out);
  // f32 values of a small tensor of `count` elements.
  Array<const float> vector(const std::string& name, int64_t count, int64_t unit = 1);
  // Several vectors, one after another.
  Array<const float> vectors(const std::vector<std::string>& names, int64_t count_each, int64_t unit = 1);
  // A tensor of `parts` equal blocks of `count_each`, each cut as `like` would be.
  Array<const float> fused_vector(const std::string& name, const std::string& like, int parts, int64_t count_each,
                                  int64_t unit);
  Array<const float> constant(const std::vector<float>& values);

  // The first error of the calls above; they return empty views after it.
  const Status& status() const { return status_; }
  // What the views of this loader point into; must live as long as they do.
  std::vector<DeviceBuffer> take_buffers() { return std::move(buffers_); }
  int64_t device_bytes() const;                           // what take_buffers() holds
  int64_t mapped_bytes() const { return mapped_bytes_; }  // what views use of the mapped files

 private:
  const TensorSpan* find(const std::string& name) const;
  const TensorSpan* require(const std::string& name, const std::vector<int64_t>& shape);
  Weight view(const TensorSpan& span, int64_t out, int64_t in);
  void attach_scales(const std::string& name, Weight& w);
  Weight whole(const std::string& name, const std::vector<int64_t>& shape, int64_t out, int64_t in);
  Weight cut(const std::string& name, Weight w, int64_t unit);
  Weight upload(Weight w);
  const void* upload_bytes(const void* data, int64_t bytes);
  std::vector<float> floats(const std::string& name, int64_t count);
  std::vector<float> cut_floats(const std::string& name, std::vector<float> values, int64_t unit) const;
  void fail(Status s) {
    if (status_.is_ok()) status_ = std::move(s);
  }

  const Checkpoint& checkpoint_;
  Device& device_;
  Partition partition_;
  std::string place_, mixer_;
  std::vector<DeviceBuffer> buffers_;
  int64_t mapped_bytes_ = 0;
  Status status_;
};

}  // namespace lathe
