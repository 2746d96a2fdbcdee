# The CUDA back end: kernels in src/**/*.cu, for Hopper only. Its runtime is linked in, so that a binary made on one machine
# runs on another that has the driver alone.
find_program(CMAKE_CUDA_COMPILER nvcc HINTS /usr/local/cuda/bin)
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# CMake 3.25 doesn't know yet that nvcc takes it.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)

file(GLOB_RECURSE LATHE_CUDA_SOURCES CONFIGURE_DEPENDS src/*.cu)
# -fmad stays on in kernels; a sum that must not be fused says so there.
set(LATHE_CUDA_FLAGS --expt-relaxed-constexpr -diag-suppress=554 -lineinfo)
# nvcc 13 and fmt 9: no consteval, but constexpr.
list(APPEND LATHE_CUDA_FLAGS -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1)
# LATHE_CUDA: only where a list of variants or the device says what there is, so that all other files are those of the CPU
# build.
file(GLOB LATHE_CUDA_LISTS CONFIGURE_DEPENDS src/ops/*/*.cc)
set_source_files_properties(${LATHE_CUDA_LISTS} src/base/device.cc PROPERTIES COMPILE_DEFINITIONS LATHE_CUDA)
