#include <cooperative_groups.h>

// Counts of 0 to 127, of which each of four CTAs keeps 32, as the CUDA C++ Programming Guide spreads a histogram.
template <bool MEETS> __global__ void __cluster_dims__(4) histogram(int *y, const unsigned *x) {
    __shared__ int bins[32];
    auto cluster = cooperative_groups::this_cluster();
    bins[threadIdx.x] = 0;
    cluster.sync();
    unsigned value = x[blockIdx.x * 32 + threadIdx.x];
    atomicAdd(cluster.map_shared_rank(bins, value / 32) + value % 32, 1);
    if (MEETS) cluster.sync();
    y[blockIdx.x * 32 + threadIdx.x] = bins[threadIdx.x];
}
