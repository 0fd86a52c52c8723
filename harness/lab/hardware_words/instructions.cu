// One matrix instruction, many independent inner products.
//
//   d[p] = sum_k a[p][k] * b[p][k] + c[p]        p = 0 .. rows-1,  k = 0 .. steps * K-1
//
// Eight products share one instruction: product j of a group lies at one row of A and one column of B, and only the element
// of D where they meet is kept. `turn` moves every product to another row and another column: a result that changes with it
// would depend on its neighbours, and the recorder refuses it.
//
// Rows of A and columns of B are contiguous in memory, K * steps elements each; c and d are words of the accumulator. A step
// is one instruction; its d is the next one's c, in registers.
//
// Fragments (PTX ISA, "Matrix Fragments for mma.m16n8k*"; lane = 4 * g + t): register i of A holds row g + 8 * (i % 2), bytes
// 4 * t + 16 * (i / 2) of it; register i of B holds column g, bytes 4 * t + 16 * i. In bytes this is one rule for 8-, 16- and
// 32-bit elements. The accumulator has columns 2 * t and 2 * t + 1 of rows g and g + 8, two halves a register for fp16.
// wgmma m64n8: warp w holds rows 16 * w .. of the same fragment (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts").

#include "from_chip.h"
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

namespace {

constexpr int GROUP = 8;  // products an instruction

struct Placement {  // where product j of a group lies
    int turn;
    __device__ int product_of_row(int row) const {
        int j = turn == 0 ? row : turn == 1 ? 15 - row : 63 - row;  // 2: in the last warp of a warpgroup
        return (j >= 0 && j < GROUP) ? j : -1;
    }
    __device__ int product_of_column(int column) const { return turn ? (column + 5) % GROUP : column; }
};

template <class Word>
struct Operands {
    const uint8_t* a;
    const uint8_t* b;
    const Word* c;
    Word* d;
    int rows, steps;
};

// ------------------------------------------------------------------------------------------------ accumulators
template <class Word>
struct Accumulator;

template <>
struct Accumulator<uint32_t> {  // fp32 or int32
    static constexpr int REGISTERS = 4;
    template <class Keep>
    static __device__ void each(uint32_t (&r)[4], Keep keep) {
        for (int i = 0; i < 4; ++i) keep(r[i], 8 * (i / 2), i % 2);
    }
};

template <>
struct Accumulator<uint16_t> {  // fp16, two a register
    static constexpr int REGISTERS = 2;
    template <class Keep>
    static __device__ void each(uint32_t (&r)[2], Keep keep) {
        for (int i = 0; i < 2; ++i) {
            uint16_t low = uint16_t(r[i]), high = uint16_t(r[i] >> 16);
            keep(low, 8 * i, 0);
            keep(high, 8 * i, 1);
            r[i] = uint32_t(low) | uint32_t(high) << 16;
        }
    }
};

template <class Word>
__device__ void load_c(uint32_t (&r)[Accumulator<Word>::REGISTERS], const Operands<Word>& o, Placement at, int group, int first_row, int t) {
    Accumulator<Word>::each(r, [&](auto& word, int row, int column) {
        int p = at.product_of_row(first_row + row), q = at.product_of_column(2 * t + column);
        int index = group * GROUP + p;
        word = (p >= 0 && p == q && index < o.rows) ? o.c[index] : Word(0);
    });
}

template <class Word>
__device__ void store_d(uint32_t (&r)[Accumulator<Word>::REGISTERS], const Operands<Word>& o, Placement at, int group, int first_row, int t) {
    Accumulator<Word>::each(r, [&](auto& word, int row, int column) {
        int p = at.product_of_row(first_row + row), q = at.product_of_column(2 * t + column);
        int index = group * GROUP + p;
        if (p >= 0 && p == q && index < o.rows) o.d[index] = word;
    });
}

// Four bytes of product j's operand in this step; zero where no product lies.
template <class Word>
__device__ uint32_t four_bytes(const uint8_t* operand, const Operands<Word>& o, int group, int j, int step, int step_bytes, int byte) {
    int index = group * GROUP + j;
    if (j < 0 || index >= o.rows) return 0;
    return *reinterpret_cast<const uint32_t*>(operand + (size_t(index) * o.steps + step) * step_bytes + byte);
}

// ------------------------------------------------------------------------------------------------ mma.sync
template <class Instruction>
__global__ void mma_rows(Operands<typename Instruction::Word> o, int turn) {
    using Word = typename Instruction::Word;
    constexpr int BYTES = Instruction::K_BYTES;
    Placement at{turn};
    int group = blockIdx.x, g = threadIdx.x / 4, t = threadIdx.x % 4;
    uint32_t acc[Accumulator<Word>::REGISTERS];
    load_c<Word>(acc, o, at, group, g, t);
    for (int step = 0; step < o.steps; ++step) {
        uint32_t a[BYTES / 8], b[BYTES / 16];
        for (int i = 0; i < BYTES / 8; ++i)
            a[i] = four_bytes(o.a, o, group, at.product_of_row(g + 8 * (i % 2)), step, BYTES, 4 * t + 16 * (i / 2));
        for (int i = 0; i < BYTES / 16; ++i) b[i] = four_bytes(o.b, o, group, at.product_of_column(g), step, BYTES, 4 * t + 16 * i);
        Instruction::issue(acc, a, b);
    }
    store_d<Word>(acc, o, at, group, g, t);
}

// ------------------------------------------------------------------------------------------------ wgmma
// Both operands in shared memory, K-major, no swizzle: 8 rows x 16 bytes are contiguous; the leading offset goes to the next 16
// bytes of K, the stride offset to the next 8 rows (PTX ISA, "Matrix Descriptor Format" and "Strides").
__device__ uint64_t descriptor(const void* shared, uint32_t leading, uint32_t stride) {
    auto encode = [](uint32_t x) { return uint64_t((x & 0x3FFFF) >> 4); };
    return encode(uint32_t(__cvta_generic_to_shared(shared))) | encode(leading) << 16 | encode(stride) << 32;
}

// The asynchronous instruction reads and writes registers behind the compiler's back: nothing may be moved across.
template <int N>
__device__ void hold(uint32_t (&r)[N]) {
    for (int i = 0; i < N; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

template <class Instruction>
__global__ void wgmma_rows(Operands<typename Instruction::Word> o, int turn) {
    using Word = typename Instruction::Word;
    __shared__ __align__(128) uint32_t a[2][64][4];  // [16-byte column of K][row][word]
    __shared__ __align__(128) uint32_t b[2][8][4];
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)  // on any other chip: no word, an error
    Placement at{turn};
    int group = blockIdx.x, warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t acc[Accumulator<Word>::REGISTERS];
    load_c<Word>(acc, o, at, group, 16 * warp + g, t);
    for (int step = 0; step < o.steps; ++step) {
        for (int i = threadIdx.x; i < 2 * 64 * 4; i += blockDim.x) {
            int column = i / 256, row = i / 4 % 64, word = i % 4;
            a[column][row][word] = four_bytes(o.a, o, group, at.product_of_row(row), step, 32, 16 * column + 4 * word);
        }
        for (int i = threadIdx.x; i < 2 * 8 * 4; i += blockDim.x) {
            int column = i / 32, row = i / 4 % 8, word = i % 4;
            b[column][row][word] = four_bytes(o.b, o, group, at.product_of_column(row), step, 32, 16 * column + 4 * word);
        }
        asm volatile("fence.proxy.async;" ::: "memory");  // plain stores above, read by the asynchronous proxy below
        __syncthreads();
        hold(acc);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        Instruction::issue(acc, descriptor(a, sizeof(a[0]), 128), descriptor(b, sizeof(b[0]), 128));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        hold(acc);
        __syncthreads();
    }
    store_d<Word>(acc, o, at, group, 16 * warp + g, t);
#else
    __trap();
#endif
}

// ------------------------------------------------------------------------------------------------ the instructions
#define ACC4(r) "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])
#define ACC2(r) "+r"(r[0]), "+r"(r[1])

#define MMA_32B_4(NAME, SHAPE, TYPES, FROM)                                                                                        \
    struct NAME {                                                                                                                  \
        static constexpr const char* PTX = "mma.sync.aligned." SHAPE ".row.col." TYPES;                                            \
        static constexpr int K_BYTES = 32;                                                                                         \
        using Word = uint32_t;                                                                                                     \
        static __device__ void issue(uint32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {                           \
            FROM(asm volatile("mma.sync.aligned." SHAPE ".row.col." TYPES " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                         : ACC4(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])));                           \
        }                                                                                                                          \
    };
#define MMA_16B_4(NAME, SHAPE, TYPES, FROM)                                                                                        \
    struct NAME {                                                                                                                  \
        static constexpr const char* PTX = "mma.sync.aligned." SHAPE ".row.col." TYPES;                                            \
        static constexpr int K_BYTES = 16;                                                                                         \
        using Word = uint32_t;                                                                                                     \
        static __device__ void issue(uint32_t (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1]) {                           \
            FROM(asm volatile("mma.sync.aligned." SHAPE ".row.col." TYPES " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"          \
                         : ACC4(d) : "r"(a[0]), "r"(a[1]), "r"(b[0])));                                                            \
        }                                                                                                                          \
    };
#define MMA_32B_2(NAME, SHAPE, TYPES, FROM)                                                                                        \
    struct NAME {                                                                                                                  \
        static constexpr const char* PTX = "mma.sync.aligned." SHAPE ".row.col." TYPES;                                            \
        static constexpr int K_BYTES = 32;                                                                                         \
        using Word = uint16_t;                                                                                                     \
        static __device__ void issue(uint32_t (&d)[2], const uint32_t (&a)[4], const uint32_t (&b)[2]) {                           \
            FROM(asm volatile("mma.sync.aligned." SHAPE ".row.col." TYPES " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"             \
                         : ACC2(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])));                           \
        }                                                                                                                          \
    };
#define MMA_16B_2(NAME, SHAPE, TYPES, FROM)                                                                                        \
    struct NAME {                                                                                                                  \
        static constexpr const char* PTX = "mma.sync.aligned." SHAPE ".row.col." TYPES;                                            \
        static constexpr int K_BYTES = 16;                                                                                         \
        using Word = uint16_t;                                                                                                     \
        static __device__ void issue(uint32_t (&d)[2], const uint32_t (&a)[2], const uint32_t (&b)[1]) {                           \
            FROM(asm volatile("mma.sync.aligned." SHAPE ".row.col." TYPES " {%0,%1}, {%2,%3}, {%4}, {%0,%1};"                      \
                         : ACC2(d) : "r"(a[0]), "r"(a[1]), "r"(b[0])));                                                            \
        }                                                                                                                          \
    };
// After the accumulator: both descriptors, whether c is added (always here), then the immediates: signs of a and b, majors.
#define WGMMA_4(NAME, TYPES, IMMEDIATES)                                                                                           \
    struct NAME {                                                                                                                  \
        static constexpr const char* PTX = "wgmma.mma_async.sync.aligned." TYPES;                                                  \
        static constexpr int K_BYTES = 32;                                                                                         \
        using Word = uint32_t;                                                                                                     \
        static __device__ void issue(uint32_t (&d)[4], uint64_t a, uint64_t b) {                                                   \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0; wgmma.mma_async.sync.aligned." TYPES                               \
                         " {%0,%1,%2,%3}, %4, %5, p" IMMEDIATES "; }" : ACC4(d) : "l"(a), "l"(b), "r"(1));                         \
        }                                                                                                                          \
    };
#define WGMMA_2(NAME, TYPES, IMMEDIATES)                                                                                           \
    struct NAME {                                                                                                                  \
        static constexpr const char* PTX = "wgmma.mma_async.sync.aligned." TYPES;                                                  \
        static constexpr int K_BYTES = 32;                                                                                         \
        using Word = uint16_t;                                                                                                     \
        static __device__ void issue(uint32_t (&d)[2], uint64_t a, uint64_t b) {                                                   \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; wgmma.mma_async.sync.aligned." TYPES                               \
                         " {%0,%1}, %2, %3, p" IMMEDIATES "; }" : ACC2(d) : "l"(a), "l"(b), "r"(1));                               \
        }                                                                                                                          \
    };

MMA_32B_4(MmaF16K16F32, "m16n8k16", "f32.f16.f16.f32", FROM_SM80)
MMA_32B_2(MmaF16K16F16, "m16n8k16", "f16.f16.f16.f16", FROM_SM80)
MMA_16B_4(MmaF16K8F32, "m16n8k8", "f32.f16.f16.f32", FROM_SM75)
MMA_16B_2(MmaF16K8F16, "m16n8k8", "f16.f16.f16.f16", FROM_SM75)
MMA_32B_4(MmaBf16K16, "m16n8k16", "f32.bf16.bf16.f32", FROM_SM80)
MMA_16B_4(MmaBf16K8, "m16n8k8", "f32.bf16.bf16.f32", FROM_SM80)
MMA_32B_4(MmaTf32K8, "m16n8k8", "f32.tf32.tf32.f32", FROM_SM80)
MMA_16B_4(MmaTf32K4, "m16n8k4", "f32.tf32.tf32.f32", FROM_SM80)
MMA_32B_4(MmaE4E4K32F32, "m16n8k32", "f32.e4m3.e4m3.f32", FROM_SM89)
MMA_32B_2(MmaE4E4K32F16, "m16n8k32", "f16.e4m3.e4m3.f16", FROM_SM89)
MMA_32B_4(MmaE5E5K32F32, "m16n8k32", "f32.e5m2.e5m2.f32", FROM_SM89)
MMA_32B_2(MmaE5E5K32F16, "m16n8k32", "f16.e5m2.e5m2.f16", FROM_SM89)
MMA_32B_4(MmaE5E4K32F32, "m16n8k32", "f32.e5m2.e4m3.f32", FROM_SM89)
MMA_32B_2(MmaE5E4K32F16, "m16n8k32", "f16.e5m2.e4m3.f16", FROM_SM89)
MMA_16B_4(MmaE4E4K16F32, "m16n8k16", "f32.e4m3.e4m3.f32", FROM_SM89)
MMA_16B_2(MmaE4E4K16F16, "m16n8k16", "f16.e4m3.e4m3.f16", FROM_SM89)
MMA_16B_4(MmaE5E5K16F32, "m16n8k16", "f32.e5m2.e5m2.f32", FROM_SM89)
MMA_16B_2(MmaE5E5K16F16, "m16n8k16", "f16.e5m2.e5m2.f16", FROM_SM89)
MMA_32B_4(MmaS8K32, "m16n8k32", "s32.s8.s8.s32", FROM_SM80)
MMA_32B_4(MmaS8K32Saturated, "m16n8k32", "satfinite.s32.s8.s8.s32", FROM_SM80)


WGMMA_4(WgmmaF16F32, "m64n8k16.f32.f16.f16", ", 1, 1, 0, 0")
WGMMA_2(WgmmaF16F16, "m64n8k16.f16.f16.f16", ", 1, 1, 0, 0")
WGMMA_4(WgmmaBf16, "m64n8k16.f32.bf16.bf16", ", 1, 1, 0, 0")
WGMMA_4(WgmmaTf32, "m64n8k8.f32.tf32.tf32", ", 1, 1")
WGMMA_4(WgmmaE4E4F32, "m64n8k32.f32.e4m3.e4m3", ", 1, 1")
WGMMA_2(WgmmaE4E4F16, "m64n8k32.f16.e4m3.e4m3", ", 1, 1")
WGMMA_4(WgmmaE5E5F32, "m64n8k32.f32.e5m2.e5m2", ", 1, 1")
WGMMA_2(WgmmaE5E5F16, "m64n8k32.f16.e5m2.e5m2", ", 1, 1")
WGMMA_4(WgmmaE5E4F32, "m64n8k32.f32.e5m2.e4m3", ", 1, 1")
WGMMA_2(WgmmaE5E4F16, "m64n8k32.f16.e5m2.e4m3", ", 1, 1")
WGMMA_4(WgmmaS8, "m64n8k32.s32.s8.s8", "")
WGMMA_4(WgmmaS8Saturated, "m64n8k32.satfinite.s32.s8.s8", "")

// ------------------------------------------------------------------------------------------------ the host's side
template <class Launch, class Word>
cudaError_t with_copies(Launch launch, const void* a, const void* b, const void* c, void* d, int rows, int steps, int k_bytes) {
    size_t operand = size_t(rows) * steps * k_bytes, words = size_t(rows) * sizeof(Word);
    uint8_t* device = nullptr;
    cudaError_t status = cudaMalloc(&device, 2 * operand + 2 * words);
    if (status != cudaSuccess) return status;
    uint8_t *da = device, *db = da + operand, *dc = db + operand, *dd = dc + words;
    cudaMemcpy(da, a, operand, cudaMemcpyHostToDevice);
    cudaMemcpy(db, b, operand, cudaMemcpyHostToDevice);
    cudaMemcpy(dc, c, words, cudaMemcpyHostToDevice);
    cudaMemset(dd, 0xA5, words);  // an element never written shows
    launch(Operands<Word>{da, db, reinterpret_cast<Word*>(dc), reinterpret_cast<Word*>(dd), rows, steps});
    status = cudaGetLastError();
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    if (status == cudaSuccess) status = cudaMemcpy(d, dd, words, cudaMemcpyDeviceToHost);
    cudaFree(device);
    return status;
}

template <class Instruction>
cudaError_t run_mma(const void* a, const void* b, const void* c, void* d, int rows, int steps, int turn) {
    using Word = typename Instruction::Word;
    auto launch = [&](Operands<Word> o) { mma_rows<Instruction><<<(rows + GROUP - 1) / GROUP, 32>>>(o, turn); };
    return with_copies<decltype(launch), Word>(launch, a, b, c, d, rows, steps, Instruction::K_BYTES);
}

template <class Instruction>
cudaError_t run_wgmma(const void* a, const void* b, const void* c, void* d, int rows, int steps, int turn) {
    using Word = typename Instruction::Word;
    auto launch = [&](Operands<Word> o) { wgmma_rows<Instruction><<<(rows + GROUP - 1) / GROUP, 128>>>(o, turn); };
    return with_copies<decltype(launch), Word>(launch, a, b, c, d, rows, steps, Instruction::K_BYTES);
}

using Run = cudaError_t (*)(const void*, const void*, const void*, void*, int, int, int);
struct Entry {
    const char* name;
    Run run;
};

#define MMA(I) {I::PTX, run_mma<I>}
#define WGMMA(I) {I::PTX, run_wgmma<I>}
const Entry ENTRIES[] = {
    MMA(MmaF16K16F32), MMA(MmaF16K16F16), MMA(MmaF16K8F32), MMA(MmaF16K8F16), MMA(MmaBf16K16), MMA(MmaBf16K8), MMA(MmaTf32K8),
    MMA(MmaTf32K4), MMA(MmaE4E4K32F32), MMA(MmaE4E4K32F16), MMA(MmaE5E5K32F32), MMA(MmaE5E5K32F16), MMA(MmaE5E4K32F32),
    MMA(MmaE5E4K32F16), MMA(MmaE4E4K16F32), MMA(MmaE4E4K16F16), MMA(MmaE5E5K16F32), MMA(MmaE5E5K16F16), MMA(MmaS8K32),
    MMA(MmaS8K32Saturated),
    WGMMA(WgmmaF16F32), WGMMA(WgmmaF16F16), WGMMA(WgmmaBf16), WGMMA(WgmmaTf32), WGMMA(WgmmaE4E4F32), WGMMA(WgmmaE4E4F16),
    WGMMA(WgmmaE5E5F32), WGMMA(WgmmaE5E5F16), WGMMA(WgmmaE5E4F32), WGMMA(WgmmaE5E4F16), WGMMA(WgmmaS8), WGMMA(WgmmaS8Saturated),
};

}  // namespace

extern "C" {

// 0 on success, a cudaError_t otherwise, -1 where no such instruction was compiled in.
int record_words(const char* ptx, const void* a, const void* b, const void* c, void* d, int rows, int steps, int turn) {
    for (const Entry& entry : ENTRIES)
        if (!std::strcmp(entry.name, ptx)) return entry.run(a, b, c, d, rows, steps, turn);
    return -1;
}

const char* error_name(int status) { return cudaGetErrorName(cudaError_t(status)); }

// "name;major.minor;driver's CUDA version;runtime's CUDA version", or an empty string where no device answers.
int describe_device(char* text, int size) {
    cudaDeviceProp properties;
    cudaError_t status = cudaGetDeviceProperties(&properties, 0);
    if (status != cudaSuccess) return status;
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    std::snprintf(text, size, "%s;%d.%d;%d;%d", properties.name, properties.major, properties.minor, driver, runtime);
    return 0;
}

}
