#pragma once

namespace lathe {

// A device's in-order queue, opaque to everybody but the device. A .cu file turns it into CUDA's with cuda_stream().
struct Stream {
  void* handle = nullptr;
};

}  // namespace lathe
