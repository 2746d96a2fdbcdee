#pragma once

#include "ops/embedding/embedding.h"

namespace lathe {
namespace reference {
Status embedding(OpContext& ctx, const EmbeddingArgs& args);
}
namespace portable {
Status embedding(OpContext& ctx, const EmbeddingArgs& args);
}
namespace cuda {
Status embedding(OpContext& ctx, const EmbeddingArgs& args);
}
}  // namespace lathe
