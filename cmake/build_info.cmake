# Run at every build (cmake -P): writes build_info.cc, touching it only when something it says has changed.
# The build id covers every source, the flags and the compiler: two binaries with one id are the same program.
file(GLOB_RECURSE sources LIST_DIRECTORIES false ${SOURCE_DIR}/src/* ${SOURCE_DIR}/include/* ${SOURCE_DIR}/cmake/*)
list(APPEND sources ${SOURCE_DIR}/CMakeLists.txt)
list(SORT sources)
set(digests "${LATHE_COMPILER};${LATHE_FLAGS};${LATHE_BUILD_TYPE}")
foreach(file ${sources})
  file(SHA256 ${file} digest)
  file(RELATIVE_PATH name ${SOURCE_DIR} ${file})
  string(APPEND digests ";${name} ${digest}")
endforeach()
string(SHA256 LATHE_BUILD_ID "${digests}")
string(SUBSTRING ${LATHE_BUILD_ID} 0 16 LATHE_BUILD_ID)

set(LATHE_COMMIT unknown)
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(LATHE_COMMIT ${commit})
    execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} status --porcelain -- src include cmake CMakeLists.txt
                    OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(changes)
      string(APPEND LATHE_COMMIT "+changes")
    endif()
  endif()
endif()
configure_file(${SOURCE_DIR}/src/feedback/build_info.cc.in ${OUTPUT} @ONLY)
