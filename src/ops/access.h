// What an operation does with a field of its arguments. Every args struct lists its tensors once in
// fields(); shape printing, the cost model and the checked queue are written against that list.
#pragma once

namespace cachalot {

enum class Access { in, out, inout };

}  // namespace cachalot
