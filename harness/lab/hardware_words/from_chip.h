// FROM_SMnn(statement): on a chip before sm_nn, which lacks the instruction, an error in place of a word. Those who ask leave it out
// there: `Probe.least`, `conversion_inputs.LEAST`.
#pragma once
#define FROM_SM75(...) __VA_ARGS__
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define FROM_SM80(...) __trap()
#else
#define FROM_SM80(...) __VA_ARGS__
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
#define FROM_SM89(...) __trap()
#else
#define FROM_SM89(...) __VA_ARGS__
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define FROM_SM90(...) __trap()
#else
#define FROM_SM90(...) __VA_ARGS__
#endif
