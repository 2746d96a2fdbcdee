#pragma once

#include <bit>
#include <cstdint>

// Plain 16- and 8-bit floats with conversions that a .cu file can include, too.

#ifdef __CUDACC__
#define LATHE_HOST_DEVICE __host__ __device__
#else
#define LATHE_HOST_DEVICE
#endif

namespace lathe {

namespace float_bits {
LATHE_HOST_DEVICE inline uint32_t of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<uint32_t>(x);
#endif
}
LATHE_HOST_DEVICE inline float to(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}
}  // namespace float_bits

struct bf16 {
  uint16_t bits;
};

LATHE_HOST_DEVICE inline float to_float(bf16 x) { return float_bits::to(uint32_t{x.bits} << 16); }

// Round to nearest, ties to even; a NaN stays a (quiet) NaN.
LATHE_HOST_DEVICE inline bf16 to_bf16(float x) {
  const uint32_t b = float_bits::of(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((b >> 16) | 0x40u)};
  return {static_cast<uint16_t>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16)};
}

LATHE_HOST_DEVICE inline float round_bf16(float x) { return to_float(to_bf16(x)); }

struct f16 {
  uint16_t bits;
};

LATHE_HOST_DEVICE inline float to_float(f16 x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16, exponent = (x.bits >> 10) & 31u, mantissa = x.bits & 1023u;
  if (exponent == 31) return float_bits::to(sign | 0x7f800000u | (mantissa << 13));
  if (exponent) return float_bits::to(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float tiny = static_cast<float>(mantissa) * 5.9604644775390625e-08f;  // 2^-24
  return sign ? -tiny : tiny;
}

// e4m3fn: 4 exponent bits (bias 7), 3 mantissa bits, no infinity, NaN = all ones, largest 448.
struct e4m3 {
  uint8_t bits;
};

LATHE_HOST_DEVICE inline float to_float(e4m3 x) {
  const uint32_t sign = uint32_t{x.bits & 0x80u} << 24, exponent = (x.bits >> 3) & 15u, mantissa = x.bits & 7u;
  if (exponent == 15 && mantissa == 7) return float_bits::to(sign | 0x7fc00000u);
  if (exponent) return float_bits::to(sign | ((exponent + 120) << 23) | (mantissa << 20));
  const float tiny = static_cast<float>(mantissa) * 0.001953125f;  // 2^-9
  return sign ? -tiny : tiny;
}

// Round to nearest even; magnitudes past 448 saturate; NaN stays NaN.
LATHE_HOST_DEVICE inline e4m3 to_e4m3(float x) {
  const uint32_t b = float_bits::of(x), magnitude = b & 0x7fffffffu;
  const uint8_t sign = static_cast<uint8_t>((b >> 24) & 0x80u);
  if (magnitude > 0x7f800000u) return {static_cast<uint8_t>(sign | 0x7fu)};
  if (magnitude >= 0x43e80000u) return {static_cast<uint8_t>(sign | 0x7eu)};  // 464 and more: 448
  if (magnitude < 0x3c800000u) {                                              // below 2^-6: steps of 2^-9
    const float scaled = float_bits::to(magnitude) * 512.0f;
    const uint32_t floor = static_cast<uint32_t>(scaled);
    const float rest = scaled - static_cast<float>(floor);
    const uint32_t step = floor + (rest > 0.5f || (rest == 0.5f && (floor & 1u)) ? 1u : 0u);
    return {static_cast<uint8_t>(sign | step)};
  }
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return {static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)))};
}

}  // namespace lathe
