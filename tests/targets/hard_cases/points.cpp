// SPDX-License-Identifier: Apache-2.0
//
// Ranges without a function of their own: `prepare` lies between the entry of working() and that of hook(), `search`
// between the return of hook() and the entry of finish(), and inlined() is part of the functions that call it.
//
//   mode             range     entered  returned  by exception  abandoned
//   straight         prepare   n        n
//                    search    n        n
//   thrown_before    prepare   n        even      odd                      working() throws before it calls hook()
//                    search    even     even
//   thrown_between   prepare   n        n
//                    search    n        even      odd                      it throws before it calls finish()
//   begun_twice      search    2n       n                       n          it calls hook() twice
//   ended_alone      search    0                                           it calls finish() alone
//   left_open        search    n                                n          it does not call finish()
//   nested           prepare   2n       2n                                 between the two it calls itself
//                    search    2n       2n
//   inlined          inlined   3n       3n                                 a loop of three
//   inlined_throws   inlined   2n       n + even  odd                      caught in the function around it
//   inlined_escapes  inlined   n        even      odd                      caught further out

#include <stdexcept>

#include "target.h"

using hard_cases::Arguments;
using hard_cases::is_odd;
using hard_cases::keep;
using hard_cases::stir;

namespace target {

enum Do : unsigned { kThrowBefore = 1, kThrowBetween = 2, kTwice = 4, kAlone = 8, kOpen = 16, kNest = 32 };

PROBED unsigned hook(int i) {
    return stir(i);
}

PROBED unsigned finish(unsigned value) {
    return stir(value);
}

PROBED unsigned working(int i, unsigned what) {
    unsigned value = stir(i);
    if (what & kThrowBefore && is_odd(i)) throw std::runtime_error("before");
    if (!(what & kAlone)) value += hook(i);
    if (what & kTwice) value += hook(i + 1);
    if (what & kThrowBetween && is_odd(i)) throw std::runtime_error("between");
    if (what & kNest) value += working(i, what & ~kNest);
    if (!(what & kOpen)) value += finish(value);
    return keep(value);
}

[[gnu::always_inline]] inline unsigned inlined(int i) {
    unsigned value = stir(i);
    if (is_odd(i)) throw std::runtime_error("inlined");
    return keep(value) + 1;
}

PROBED unsigned looping(int i) {
    unsigned sum = stir(i);
    for (int turn = 0; turn < 3; turn++) sum = keep(sum) * 3 + inlined(2 * i + 2 * turn);
    return keep(sum);
}

PROBED unsigned catching(int i) {
    unsigned sum = stir(i);
    try {
        sum = keep(sum) * 3 + inlined(i);
    } catch (const std::exception&) {
        sum = keep(sum) + 5;
    }
    sum = keep(sum) * 3 + inlined(2 * i);
    return keep(sum);
}

PROBED unsigned escaping(int i) {
    unsigned sum = keep(stir(i));
    sum = sum * 3 + inlined(i);
    return keep(sum);
}

}  // namespace target

namespace {

void report(const Arguments& arguments, unsigned (*step)(int)) {
    unsigned sum = 0, caught = 0;
    for (int i = 0; i < arguments.repetitions; i++) {
        try {
            sum += step(i);
        } catch (const std::exception&) {
            caught++;
        }
    }
    hard_cases::print_done("checksum=%u caught_by_caller=%u", sum, caught);
}

template <unsigned what>
void work(const Arguments& arguments) {
    report(arguments, [](int i) { return target::working(i, what); });
}

template <unsigned (*step)(int)>
void run(const Arguments& arguments) {
    report(arguments, step);
}

constexpr hard_cases::Mode kModes[] = {
    {"straight", work<0>},
    {"thrown_before", work<target::kThrowBefore>},
    {"thrown_between", work<target::kThrowBetween>},
    {"begun_twice", work<target::kTwice>},
    {"ended_alone", work<target::kAlone>},
    {"left_open", work<target::kOpen>},
    {"nested", work<target::kNest>},
    {"inlined", run<target::looping>},
    {"inlined_throws", run<target::catching>},
    {"inlined_escapes", run<target::escaping>},
};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
