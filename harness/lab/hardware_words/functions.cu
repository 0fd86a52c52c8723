// Special-function instructions on many words: result[i] = f(a[i], b[i]), and digests of the results of whole ranges of words.
//
// A digest is the CRC-32 of zip and zlib (polynomial 0xEDB88320) over 2^16 results in ascending order of the argument, each as four
// bytes, lowest first. Any single wrong word changes it.

#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>

namespace {

constexpr uint32_t GOLDEN = 0x9E3779B9u, DISAGREE = 0xDEADBEEFu;

// The mixing of MurmurHash3: a permutation of the 32-bit words.
__host__ __device__ inline uint32_t mixed(uint32_t h) {
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    return h ^ (h >> 16);
}

// The operands with number i: i itself, or a pair of mixed words.
template <class F>
__device__ inline uint32_t numbered(uint32_t i) {
    return F::PAIRS ? F::apply(mixed(i), mixed(i ^ GOLDEN)) : F::apply(i, 0);
}

// A name is the PTX instruction with its dots as underscores.
#define FUNCTION(NAME, MANY, BODY)                                              \
    struct NAME {                                                               \
        static constexpr const char* PTX = #NAME;                               \
        static constexpr bool PAIRS = MANY;                                     \
        static __device__ uint32_t apply(uint32_t a, uint32_t b) {              \
            (void)b;                                                            \
            BODY                                                                \
        }                                                                       \
    };
#define F32(NAME, MNEMONIC) FUNCTION(NAME, false, float d; asm volatile(MNEMONIC " %0, %1;" : "=f"(d) : "f"(__uint_as_float(a))); return __float_as_uint(d);)
#define OF_TWO(NAME, MNEMONIC) FUNCTION(NAME, true, float d; asm volatile(MNEMONIC " %0, %1, %2;" : "=f"(d) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b))); return __float_as_uint(d);)
// The high word of the result for the high word of the argument. DISAGREE where the low word of the argument counts, or the
// result has one.
#define HIGH(NAME, MNEMONIC) FUNCTION(NAME, false,                              \
    double d; double e; asm volatile(MNEMONIC " %0, %1;" : "=d"(d) : "d"(__hiloint2double(a, 0)));               \
    asm volatile(MNEMONIC " %0, %1;" : "=d"(e) : "d"(__hiloint2double(a, mixed(a))));                     \
    bool same = __double2hiint(d) == __double2hiint(e) && !__double2loint(d) && !__double2loint(e);       \
    return same ? uint32_t(__double2hiint(d)) : DISAGREE;)
#define F64(NAME, MNEMONIC, HALF) FUNCTION(NAME, true, double d; asm volatile(MNEMONIC " %0, %1;" : "=d"(d) : "d"(__hiloint2double(a, b))); return HALF(d);)
#define F16(NAME, MNEMONIC) FUNCTION(NAME, false, uint16_t d; asm volatile(MNEMONIC " %0, %1;" : "=h"(d) : "h"(uint16_t(a))); return d;)
#define F16X2(NAME, MNEMONIC) FUNCTION(NAME, false, uint32_t d; asm volatile(MNEMONIC " %0, %1;" : "=r"(d) : "r"(a)); return d;)

F32(ex2_approx_ftz_f32, "ex2.approx.ftz.f32")
F32(ex2_approx_f32, "ex2.approx.f32")
F32(lg2_approx_ftz_f32, "lg2.approx.ftz.f32")
F32(lg2_approx_f32, "lg2.approx.f32")
F32(rcp_approx_ftz_f32, "rcp.approx.ftz.f32")
F32(rcp_approx_f32, "rcp.approx.f32")
F32(rsqrt_approx_ftz_f32, "rsqrt.approx.ftz.f32")
F32(rsqrt_approx_f32, "rsqrt.approx.f32")
F32(sqrt_approx_ftz_f32, "sqrt.approx.ftz.f32")
F32(sqrt_approx_f32, "sqrt.approx.f32")
F32(sin_approx_ftz_f32, "sin.approx.ftz.f32")
F32(sin_approx_f32, "sin.approx.f32")
F32(cos_approx_ftz_f32, "cos.approx.ftz.f32")
F32(cos_approx_f32, "cos.approx.f32")
F32(tanh_approx_f32, "tanh.approx.f32")
F32(sqrt_rn_f32, "sqrt.rn.f32")  // known to the bit without a GPU: a check of this file
OF_TWO(div_full_f32, "div.full.f32")
OF_TWO(div_full_ftz_f32, "div.full.ftz.f32")
OF_TWO(div_approx_f32, "div.approx.f32")
OF_TWO(div_approx_ftz_f32, "div.approx.ftz.f32")
OF_TWO(mul_rn_ftz_f32, "mul.rn.ftz.f32")  // what .ftz makes of results next to the smallest normal number
FUNCTION(fma_rn_ftz_f32, true, float d; asm volatile("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)), "f"(0.0f)); return __float_as_uint(d);)
HIGH(rcp_approx_ftz_f64, "rcp.approx.ftz.f64")
HIGH(rsqrt_approx_ftz_f64, "rsqrt.approx.ftz.f64")
F64(rsqrt_approx_f64_high, "rsqrt.approx.f64", __double2hiint)
F64(rsqrt_approx_f64_low, "rsqrt.approx.f64", __double2loint)
F16(ex2_approx_f16, "ex2.approx.f16")
F16(ex2_approx_ftz_bf16, "ex2.approx.ftz.bf16")
F16(tanh_approx_f16, "tanh.approx.f16")
F16(tanh_approx_bf16, "tanh.approx.bf16")
F16X2(ex2_approx_f16x2, "ex2.approx.f16x2")
F16X2(ex2_approx_ftz_bf16x2, "ex2.approx.ftz.bf16x2")
F16X2(tanh_approx_f16x2, "tanh.approx.f16x2")
F16X2(tanh_approx_bf16x2, "tanh.approx.bf16x2")

constexpr int THREADS = 256;
constexpr uint32_t POLYNOMIAL = 0xEDB88320u;

struct Crc {
    uint32_t after[4][256];  // what a byte comes to when 0, 1, 2 or 3 more bytes follow it

    __host__ __device__ void fill(int byte) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        after[0][byte] = crc;
    }
    __host__ __device__ void extend(int byte) {
        for (int more = 1; more < 4; ++more) {
            uint32_t crc = after[more - 1][byte];
            after[more][byte] = crc >> 8 ^ after[0][crc & 255];
        }
    }
    __host__ __device__ uint32_t update(uint32_t crc, uint32_t word) const {
        crc ^= word;
        return after[3][crc & 255] ^ after[2][crc >> 8 & 255] ^ after[1][crc >> 16 & 255] ^ after[0][crc >> 24];
    }
};

template <class F>
__global__ void apply_to_words(const uint32_t* a, const uint32_t* b, uint32_t* result, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) result[i] = F::apply(a[i], b ? b[i] : 0);
}

// One thread a range of 2^16 operands.
template <class F>
__global__ void digest_ranges(uint32_t first, uint32_t* digests, int count) {
    __shared__ Crc table;
    table.fill(threadIdx.x);
    __syncthreads();
    table.extend(threadIdx.x);
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    uint32_t start = (first + i) << 16, crc = 0xFFFFFFFFu;
    for (uint32_t offset = 0; offset < 1u << 16; ++offset) crc = table.update(crc, numbered<F>(start + offset));
    digests[i] = ~crc;
}

template <class F>
cudaError_t apply(const void* a, const void* b, void* result, int count) {
    size_t bytes = size_t(count) * sizeof(uint32_t);
    uint32_t* device = nullptr;  // result, a, b
    cudaError_t status = cudaMalloc(&device, 3 * bytes);
    if (status != cudaSuccess) return status;
    cudaMemcpy(device + count, a, bytes, cudaMemcpyHostToDevice);
    if (b) cudaMemcpy(device + 2 * size_t(count), b, bytes, cudaMemcpyHostToDevice);
    apply_to_words<F><<<(count + THREADS - 1) / THREADS, THREADS>>>(device + count, b ? device + 2 * size_t(count) : nullptr, device, count);
    status = cudaGetLastError();
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    if (status == cudaSuccess) status = cudaMemcpy(result, device, bytes, cudaMemcpyDeviceToHost);
    cudaFree(device);
    return status;
}

template <class F>
cudaError_t digest(uint32_t first, void* digests, int count) {
    size_t bytes = size_t(count) * sizeof(uint32_t);
    uint32_t* device = nullptr;
    cudaError_t status = cudaMalloc(&device, bytes);
    if (status != cudaSuccess) return status;
    digest_ranges<F><<<(count + THREADS - 1) / THREADS, THREADS>>>(first, device, count);
    status = cudaGetLastError();
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    if (status == cudaSuccess) status = cudaMemcpy(digests, device, bytes, cudaMemcpyDeviceToHost);
    cudaFree(device);
    return status;
}

struct Entry {
    const char* name;
    cudaError_t (*apply)(const void*, const void*, void*, int);
    cudaError_t (*digest)(uint32_t, void*, int);
};

#define ENTRY(F) {F::PTX, apply<F>, digest<F>}
const Entry ENTRIES[] = {
    ENTRY(ex2_approx_ftz_f32), ENTRY(ex2_approx_f32), ENTRY(lg2_approx_ftz_f32), ENTRY(lg2_approx_f32), ENTRY(rcp_approx_ftz_f32),
    ENTRY(rcp_approx_f32), ENTRY(rsqrt_approx_ftz_f32), ENTRY(rsqrt_approx_f32), ENTRY(sqrt_approx_ftz_f32), ENTRY(sqrt_approx_f32),
    ENTRY(sin_approx_ftz_f32), ENTRY(sin_approx_f32), ENTRY(cos_approx_ftz_f32), ENTRY(cos_approx_f32), ENTRY(tanh_approx_f32),
    ENTRY(sqrt_rn_f32), ENTRY(div_full_f32), ENTRY(div_full_ftz_f32), ENTRY(div_approx_f32), ENTRY(div_approx_ftz_f32),
    ENTRY(mul_rn_ftz_f32), ENTRY(fma_rn_ftz_f32),
    ENTRY(rcp_approx_ftz_f64), ENTRY(rsqrt_approx_ftz_f64), ENTRY(rsqrt_approx_f64_high), ENTRY(rsqrt_approx_f64_low),
    ENTRY(ex2_approx_f16), ENTRY(ex2_approx_ftz_bf16), ENTRY(tanh_approx_f16), ENTRY(tanh_approx_bf16), ENTRY(ex2_approx_f16x2),
    ENTRY(ex2_approx_ftz_bf16x2), ENTRY(tanh_approx_f16x2), ENTRY(tanh_approx_bf16x2),
};

const Entry* find(const char* name) {
    for (const Entry& entry : ENTRIES)
        if (!std::strcmp(entry.name, name)) return &entry;
    return nullptr;
}

}  // namespace

// Each returns 0 on success, a cudaError_t otherwise, -1 where no such function was compiled in.

// Results for `count` operand words a (and b of a function of two; null otherwise), one 32-bit word an element.
extern "C" int apply_function(const char* name, const void* a, const void* b, void* result, int count) {
    const Entry* entry = find(name);
    return entry ? entry->apply(a, b, result, count) : -1;
}

// Digests of `count` ranges of 2^16 operand numbers from range `first` on.
extern "C" int digest_function(const char* name, uint32_t first, void* digests, int count) {
    const Entry* entry = find(name);
    return entry ? entry->digest(first, digests, count) : -1;
}

// The digest of words on the host, by the code the kernels run: what a test can hold to zlib without a GPU.
extern "C" uint32_t digest_words(const uint32_t* words, int count) {
    static Crc table;
    for (int byte = 0; byte < 256; ++byte) table.fill(byte);
    for (int byte = 0; byte < 256; ++byte) table.extend(byte);
    uint32_t crc = 0xFFFFFFFFu;
    for (int i = 0; i < count; ++i) crc = table.update(crc, words[i]);
    return ~crc;
}
