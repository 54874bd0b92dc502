// SPDX-License-Identifier: Apache-2.0
//
// longjmp out of probed frames in every odd call; every even call returns.
//
//   mode       function       entered  returned  abandoned
//   to_outer   setjmp_outer   n        n                    calls setjmp itself
//              middle         n        even      odd
//              inner          n        even      odd
//   to_caller  outer          n        even      odd        setjmp is called by a caller that is not probed
//              middle         n        even      odd
//              inner          n        even      odd

#include <csetjmp>

#include "target.h"

using hard_cases::Arguments;
using hard_cases::stir;

namespace {

std::jmp_buf landing;

}  // namespace

namespace target {

PROBED unsigned inner(int i) {
    if (hard_cases::is_odd(i)) std::longjmp(landing, 1);
    return stir(i);
}

PROBED unsigned middle(int i) {
    return stir(inner(i));
}

PROBED unsigned outer(int i) {
    return stir(middle(i));
}

PROBED unsigned setjmp_outer(int i) {
    if (setjmp(landing) != 0) return 1;
    return stir(middle(i));
}

}  // namespace target

namespace {

[[gnu::noinline]] unsigned call_outer_after_setjmp(int i) {
    if (setjmp(landing) != 0) return 1;
    return target::outer(i);
}

void run_to_outer(const Arguments& arguments) {
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) sum += target::setjmp_outer(i);
    hard_cases::print_done("checksum=%u", sum);
}

void run_to_caller(const Arguments& arguments) {
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) sum += call_outer_after_setjmp(i);
    hard_cases::print_done("checksum=%u", sum);
}

constexpr hard_cases::Mode kModes[] = {{"to_outer", run_to_outer}, {"to_caller", run_to_caller}};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
