template <unsigned WARPS, bool SYNCS> __global__ void sums(float *y, const float *x) {
    __shared__ float part[32 * WARPS];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * 32 * WARPS + t];
    __syncthreads();
    for (int s = 16 * WARPS; s > 0; s /= 2) {
        if (t < s) part[t] += part[t + s];
        if (SYNCS) __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}
__global__ void scaled(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
