// The two kernels behind multiply_fp8(), which give the same bits.
#pragma once

#include "backend/cuda/dense_fp8.h"
#include "backend/cuda/plan/dense_fp8_plan.h"

namespace cachalot::cuda {

// Few rows of x: the weight's bytes are what takes time, and every 64 rows read it again.
bool fits_few(const DenseMatrix& weight, int64_t rows);
void multiply_fp8_few(Queue& queue, const DenseMatrix& weight, const QuantizedRows& x,
                      const Fp8Output& out);
// Two weights' of up to 64 rows in one kernel. `late`: it lets the next one start when all its
// blocks have waited for x.
bool fits_few_pair(const DenseMatrix& first, const DenseMatrix& second, int64_t rows);
void multiply_fp8_few_pair(Queue& queue, const QuantizedRows& x, const Fp8Product& first,
                           const Fp8Product& second, bool late);
// The same of rows that are not quantized yet, if quantizes_itself(). Whether it applied the norm.
bool linear_fp8_few(Queue& queue, const DenseMatrix& weight, const bf16* x, int64_t rows,
                    const Fp8Output& out);
bool quantizes_itself(const DenseMatrix& weight, int64_t rows);
// Many rows: products are what takes time.
void multiply_fp8_many(Queue& queue, const DenseMatrix& weight, const QuantizedRows& x,
                       const Fp8Output& out);
// Two weights' in one kernel, if they are cut alike and into several chunks; else nothing was
// started, and it is false.
bool multiply_fp8_many_pair(Queue& queue, const QuantizedRows& x, const Fp8Product& first,
                            const Fp8Product& second);

}  // namespace cachalot::cuda
