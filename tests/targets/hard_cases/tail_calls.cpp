// SPDX-License-Identifier: Apache-2.0
//
// Functions that leave by a jump into another one ("jumped"), which returns in their stead at the same stack pointer.
// Each is called by outer or catching_outer.
//
//   mode         function           entered        returned  jumped  by exception
//   same_file    outer              n              n
//                front              n              0         n
//                back               n              n
//   plt          outer              n              n
//                remote_front       n              0         n                     through the PLT of the executable
//                remote_back        n              n                               in libtail_callee.so
//   indirect     outer              n              n
//                indirect_front     n              0         n                     jmp *register or jmp *memory
//                back               n              n
//   conditional  outer              n              n
//                conditional_front  n              even      odd
//                back               odd            odd
//   chain        outer              n              n
//                chain_first        n              0         n
//                chain_second       n              0         n
//                chain_third        n              n
//   mutual       outer              n              n                               EXTRA = h jumps (default 5)
//                ping               n (h/2 + 1)    n for even h, else 0            h/2 rounded down; the last of them
//                pong               n (h - h/2)    n for odd h, else 0             returns, the others jump
//   exception    catching_outer     n              n
//                throwing_front     n              0         n                     ends with throwing_back, so odd of
//                throwing_back      n              even              odd           its scopes end by exception
//   unprobed     bare_front         n              0         n                     ends with a function without a
//   range,
//                                                                                  so odd of its scopes by exception;
//                                                                                  the next is entered in the same
//                                                                                  frame

#include <stdexcept>

#include "tail_callee.h"
#include "target.h"

using hard_cases::Arguments;
using hard_cases::is_odd;
using hard_cases::stir;

namespace target {

using Step = unsigned (*)(int);

PROBED unsigned back(int i) {
    return stir(i);
}

PROBED unsigned front(int i) {
    return back(static_cast<int>(stir(i)));
}

PROBED unsigned remote_front(int i) {
    return remote_back(static_cast<int>(stir(i)));
}

Step volatile indirect_callee = back;

PROBED unsigned indirect_front(int i) {
    return indirect_callee(static_cast<int>(stir(i)));
}

PROBED unsigned conditional_front(int i) {
    return is_odd(i) ? back(i) : stir(i + 1);
}

PROBED unsigned chain_third(int i) {
    return stir(i);
}

PROBED unsigned chain_second(int i) {
    return chain_third(static_cast<int>(stir(i)));
}

PROBED unsigned chain_first(int i) {
    return chain_second(static_cast<int>(stir(i)));
}

PROBED unsigned pong(int jumps);

PROBED unsigned ping(int jumps) {
    return jumps > 0 ? pong(jumps - 1) : stir(1);
}

PROBED unsigned pong(int jumps) {
    return jumps > 0 ? ping(jumps - 1) : stir(2);
}

PROBED unsigned throwing_back(int i) {
    if (is_odd(i)) throw std::runtime_error("thrown by throwing_back");
    return stir(i);
}

// Nothing but the jump.
PROBED unsigned throwing_front(int i) {
    return throwing_back(i);
}

// As throwing_back, but not in the probe map.
PROBED unsigned unprobed_back(int i) {
    if (is_odd(i)) throw std::runtime_error("thrown by unprobed_back");
    return stir(i);
}

PROBED unsigned bare_front(int i) {
    return unprobed_back(i);
}

PROBED unsigned outer(int i, Step step) {
    return stir(step(i));
}

PROBED unsigned catching_outer(int i, Step step) {
    try {
        return stir(step(i));
    } catch (const std::exception&) {
        return stir(i);
    }
}

}  // namespace target

namespace {

template <target::Step step>
void run(const Arguments& arguments) {
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) sum += target::outer(i, step);
    hard_cases::print_done("checksum=%u", sum);
}

void run_mutual(const Arguments& arguments) {
    const int jumps = arguments.extra_number(5);
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) sum += target::outer(jumps, target::ping);
    hard_cases::print_done("checksum=%u", sum);
}

void run_exception(const Arguments& arguments) {
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) sum += target::catching_outer(i, target::throwing_front);
    hard_cases::print_done("checksum=%u", sum);
}

// One frame that catches and calls again.
void run_unprobed(const Arguments& arguments) {
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) {
        try {
            sum += target::bare_front(i);
        } catch (const std::exception&) {
            sum += stir(i);
        }
    }
    hard_cases::print_done("checksum=%u", sum);
}

constexpr hard_cases::Mode kModes[] = {
    {"same_file", run<target::front>},
    {"plt", run<target::remote_front>},
    {"indirect", run<target::indirect_front>},
    {"conditional", run<target::conditional_front>},
    {"chain", run<target::chain_first>},
    {"mutual", run_mutual},
    {"exception", run_exception},
    {"unprobed", run_unprobed},
};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
