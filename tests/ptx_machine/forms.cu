// Structs among the parameters, which a kernel indexes or takes the address of.

struct Rates {
    float values[80];
    int count;
};

extern "C" __global__ void indexed(float *y, const Rates first, const Rates second) {
    int i = threadIdx.x;
    y[i] = first.values[7 * i % first.count] + second.values[i % 3];
}

__device__ __noinline__ float value_at(const Rates *rates, int i) { return rates->values[i]; }

extern "C" __global__ void pointed(float *y, const __grid_constant__ Rates first, const __grid_constant__ Rates second) {
    int i = threadIdx.x;
    y[i] = value_at(&first, 7 * i % first.count) + value_at(&second, i % 3);
}
