// SPDX-License-Identifier: Apache-2.0
//
// Recursion of EXTRA = d levels (default 200, at least 1), all open at once.
//
//   mode     function          entered         returned  by exception
//   descend  recurse           n d             all
//   mutual   recurse_odd       n (d / 2 up)    all                      levels d, d - 1, ... 1, by whether they are odd
//            recurse_even      n (d / 2 down)  all
//   unwind   recurse_throwing  n d             0         n d            thrown on the deepest level, caught by a caller
//                                                                       that is not probed

#include <stdexcept>

#include "target.h"

using hard_cases::Arguments;
using hard_cases::stir;

namespace target {

PROBED unsigned recurse(int levels) {
    return levels > 1 ? stir(recurse(levels - 1)) : 1;
}

PROBED unsigned recurse_even(int levels);

PROBED unsigned recurse_odd(int levels) {
    return levels > 1 ? stir(recurse_even(levels - 1)) : 1;
}

PROBED unsigned recurse_even(int levels) {
    return stir(recurse_odd(levels - 1));
}

PROBED unsigned recurse_throwing(int levels) {
    if (levels == 1) throw std::runtime_error("thrown by the deepest level");
    return stir(recurse_throwing(levels - 1));
}

}  // namespace target

namespace {

void run_descend(const Arguments& arguments) {
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) sum += target::recurse(arguments.extra_number(200));
    hard_cases::print_done("checksum=%u", sum);
}

void run_mutual(const Arguments& arguments) {
    const int levels = arguments.extra_number(200);
    const auto first = hard_cases::is_odd(levels) ? target::recurse_odd : target::recurse_even;
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) sum += first(levels);
    hard_cases::print_done("checksum=%u", sum);
}

void run_unwind(const Arguments& arguments) {
    unsigned caught = 0;
    for (int i = 0; i < arguments.repetitions; i++) {
        try {
            target::recurse_throwing(arguments.extra_number(200));
        } catch (const std::exception&) {
            caught++;
        }
    }
    hard_cases::print_done("caught_by_caller=%u", caught);
}

constexpr hard_cases::Mode kModes[] = {{"descend", run_descend}, {"mutual", run_mutual}, {"unwind", run_unwind}};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
