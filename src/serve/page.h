#pragma once

#include <string_view>

namespace lathe::serve {

// The page of `/`: web/dist/index.html, put into the binary by the build. "" if the tree has none.
std::string_view page_html();

}  // namespace lathe::serve
