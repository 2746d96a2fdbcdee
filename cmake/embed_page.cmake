# Run by the build (cmake -P): the built page as bytes in OUTPUT. An absent page is an empty one.
set(bytes "")
if(EXISTS ${INPUT})
  file(READ ${INPUT} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
endif()
file(WRITE ${OUTPUT} "#include \"serve/page.h\"

namespace lathe::serve {
namespace {
constexpr unsigned char kPage[] = {${bytes}0};
}
std::string_view page_html() { return {reinterpret_cast<const char*>(kPage), sizeof kPage - 1}; }
}  // namespace lathe::serve
")
