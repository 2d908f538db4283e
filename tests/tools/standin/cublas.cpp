// libcublas as a program finds it by its name once CuPy has loaded it: functions that call those of tests/tools/standin.

#include <stddef.h>

typedef int (*SetStream)(void*, void*);
typedef int (*SetWorkspace)(void*, void*, size_t);
typedef int (*Gemm)(void*, int, int, int, int, int, const void*, const void*, int, int, long long,
                    const void*, int, int, long long, const void*, void*, int, int, long long, int,
                    int, int);
static SetStream set_stream;
static SetWorkspace set_workspace;
static Gemm gemm;

extern "C" {
void standin_call(SetStream stream, SetWorkspace workspace, Gemm product) {
  set_stream = stream;
  set_workspace = workspace;
  gemm = product;
}

int cublasSetStream_v2(void* handle, void* stream) { return set_stream(handle, stream); }

int cublasSetWorkspace_v2(void* handle, void* workspace, size_t size) {
  return set_workspace(handle, workspace, size);
}

int cublasGemmEx(void* handle, int transa, int transb, int m, int n, int k, const void* alpha,
                 const void* A, int Atype, int lda, const void* B, int Btype, int ldb,
                 const void* beta, void* C, int Ctype, int ldc, int compute, int algo) {
  return gemm(handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0, beta, C,
              Ctype, ldc, 0, 1, compute, algo);
}

int cublasGemmStridedBatchedEx(void* handle, int transa, int transb, int m, int n, int k,
                               const void* alpha, const void* A, int Atype, int lda,
                               long long stride_a, const void* B, int Btype, int ldb,
                               long long stride_b, const void* beta, void* C, int Ctype, int ldc,
                               long long stride_c, int count, int compute, int algo) {
  return gemm(handle, transa, transb, m, n, k, alpha, A, Atype, lda, stride_a, B, Btype, ldb,
              stride_b, beta, C, Ctype, ldc, stride_c, count, compute, algo);
}
}
