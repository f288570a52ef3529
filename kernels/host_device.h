// Marks a function as one that a GPU's kernels call as well as the CPU's.
#pragma once

#ifdef __CUDACC__
#define KV_HD __host__ __device__
#else
#define KV_HD
#endif
