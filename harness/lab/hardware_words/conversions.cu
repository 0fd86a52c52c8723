// One conversion instruction on each of many words: result[i] = cvt(source[i]). A pair form is given the word in its low half and
// zero in its high half; the result is the low half's.

#include "from_chip.h"
#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>

namespace {

#define FROM_F32(NAME, BODY)                                                    \
    struct NAME {                                                               \
        static constexpr const char* PTX = #NAME;                               \
        static __device__ uint32_t convert(uint32_t word) {                     \
            uint32_t out = 0;                                                   \
            float value = __uint_as_float(word);                                \
            BODY;                                                               \
            return out;                                                         \
        }                                                                       \
    };
#define FROM_BITS(NAME, BODY)                                                   \
    struct NAME {                                                               \
        static constexpr const char* PTX = #NAME;                               \
        static __device__ uint32_t convert(uint32_t word) {                     \
            uint32_t out = 0;                                                   \
            BODY;                                                               \
            return out;                                                         \
        }                                                                       \
    };
#define TO_16(MNEMONIC) uint16_t half; asm volatile(MNEMONIC " %0, %1;" : "=h"(half) : "f"(value)); out = half
#define TO_PAIR(MNEMONIC) uint16_t pair; asm volatile(MNEMONIC " %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value)); out = pair & 0xFF
#define TO_WORD(MNEMONIC) asm volatile(MNEMONIC " %0, %1;" : "=r"(out) : "f"(value))
#define PAIR_TO_PAIR(MNEMONIC) uint16_t pair; asm volatile(MNEMONIC " %0, %1;" : "=h"(pair) : "r"(word)); out = pair & 0xFF
#define PAIR_TO_WORD(MNEMONIC) asm volatile(MNEMONIC " %0, %1;" : "=r"(out) : "h"(uint16_t(word))); out &= 0xFFFF

// A name is the PTX instruction with its dots as underscores.
FROM_F32(cvt_rn_f16_f32, TO_16("cvt.rn.f16.f32"))
FROM_F32(cvt_rz_f16_f32, TO_16("cvt.rz.f16.f32"))
FROM_F32(cvt_rn_bf16_f32, FROM_SM80(TO_16("cvt.rn.bf16.f32")))
FROM_F32(cvt_rna_tf32_f32, FROM_SM80(TO_WORD("cvt.rna.tf32.f32")))
FROM_F32(cvt_rn_tf32_f32, FROM_SM90(TO_WORD("cvt.rn.tf32.f32")))
FROM_F32(cvt_rn_satfinite_e4m3x2_f32, FROM_SM89(TO_PAIR("cvt.rn.satfinite.e4m3x2.f32")))
FROM_F32(cvt_rn_satfinite_e5m2x2_f32, FROM_SM89(TO_PAIR("cvt.rn.satfinite.e5m2x2.f32")))
FROM_BITS(cvt_rn_satfinite_e4m3x2_f16x2, FROM_SM89(PAIR_TO_PAIR("cvt.rn.satfinite.e4m3x2.f16x2")))
FROM_BITS(cvt_rn_satfinite_e5m2x2_f16x2, FROM_SM89(PAIR_TO_PAIR("cvt.rn.satfinite.e5m2x2.f16x2")))
FROM_BITS(cvt_rn_f16x2_e4m3x2, FROM_SM89(PAIR_TO_WORD("cvt.rn.f16x2.e4m3x2")))
FROM_BITS(cvt_rn_f16x2_e5m2x2, FROM_SM89(PAIR_TO_WORD("cvt.rn.f16x2.e5m2x2")))

template <class Conversion>
__global__ void convert_words(const uint32_t* source, uint32_t* result, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) result[i] = Conversion::convert(source[i]);
}

template <class Conversion>
cudaError_t run(const void* source, void* result, int count) {
    size_t bytes = size_t(count) * sizeof(uint32_t);
    uint32_t* device = nullptr;
    cudaError_t status = cudaMalloc(&device, 2 * bytes);
    if (status != cudaSuccess) return status;
    cudaMemcpy(device, source, bytes, cudaMemcpyHostToDevice);
    convert_words<Conversion><<<(count + 255) / 256, 256>>>(device, device + count, count);
    status = cudaGetLastError();
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    if (status == cudaSuccess) status = cudaMemcpy(result, device + count, bytes, cudaMemcpyDeviceToHost);
    cudaFree(device);
    return status;
}

struct Entry {
    const char* name;
    cudaError_t (*run)(const void*, void*, int);
};

#define ENTRY(C) {C::PTX, run<C>}
const Entry ENTRIES[] = {
    ENTRY(cvt_rn_f16_f32), ENTRY(cvt_rz_f16_f32), ENTRY(cvt_rn_bf16_f32), ENTRY(cvt_rna_tf32_f32), ENTRY(cvt_rn_tf32_f32),
    ENTRY(cvt_rn_satfinite_e4m3x2_f32), ENTRY(cvt_rn_satfinite_e5m2x2_f32), ENTRY(cvt_rn_satfinite_e4m3x2_f16x2),
    ENTRY(cvt_rn_satfinite_e5m2x2_f16x2), ENTRY(cvt_rn_f16x2_e4m3x2), ENTRY(cvt_rn_f16x2_e5m2x2),
};

}  // namespace

// 0 on success, a cudaError_t otherwise, -1 where no such conversion was compiled in. One 32-bit word an element, both ways.
extern "C" int record_conversion(const char* name, const void* source, void* result, int count) {
    for (const Entry& entry : ENTRIES)
        if (!std::strcmp(entry.name, name)) return entry.run(source, result, count);
    return -1;
}
