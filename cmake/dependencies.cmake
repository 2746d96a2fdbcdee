# Everything comes from the distribution's packages; scripts/setup installs them.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
option(LATHE_WEBP "Read WebP images (needs libwebp)" ON)
if(LATHE_WEBP)
  pkg_check_modules(WEBP REQUIRED IMPORTED_TARGET libwebp)
endif()
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

set(LATHE_DEPENDENCIES Threads::Threads fmt::fmt nlohmann_json::nlohmann_json JPEG::JPEG PNG::PNG
    PkgConfig::PCRE2 PkgConfig::UTF8PROC)
if(LATHE_WEBP)
  list(APPEND LATHE_DEPENDENCIES PkgConfig::WEBP)
endif()
