// SPDX-License-Identifier: Apache-2.0
// Calls each shape a known number of times. Prints, for each range, its name, how often it is entered and how often it
// is left by an exception; then a checksum. In every build the same.
#include <cstdio>

#include "tests/targets/matrix/shapes.h"

using namespace shapes;

namespace {

volatile int round_number;  // so that no call is worked out when this is compiled
unsigned checksum;

void add(int value) {
    checksum = checksum * 31 + static_cast<unsigned>(value);
}

template <typename Body>
void repeat(int count, Body body) {
    for (int i = 0; i < count; ++i) {
        round_number = i;
        body(round_number);
    }
}

void expect(const char* name, int entries, int unwound = 0) {
    std::printf("%s %d %d\n", name, entries, unwound);
}

}  // namespace

int main() {
    const Derived derived;
    const Base& base = derived;
    repeat(53, [](int i) { add(many_returns(i)); });
    repeat(45, [](int i) { add(jump_table(i)); });
    repeat(7, [](int i) { add(leaf(i)); });
    repeat(11, [](int i) { add(tail_direct(i)); });
    repeat(13, [](int i) { add(tail_unprobed(i)); });
    repeat(17, [](int) { add(tail_plt("x123")); });
    repeat(19, [](int i) { add(tail_pointer(pointed_to, i)); });
    repeat(20, [](int i) { add(tail_conditional(i)); });
    repeat(23, [&](int i) { add(tail_virtual(base, i)); });
    repeat(30, [](int i) { add(catcher(i)); });
    repeat(12, [](int i) {
        try {
            add(through(i));
        } catch (int value) {
            add(value);
        }
    });
    repeat(25, [](int i) { add(cold_path(i)); });
    repeat(9, [](int i) {
        volatile int counter = 1 + i % 4;
        add(loop_head(&counter));
    });
    repeat(29, [](int i) { add(tiny(i)); });
    repeat(31, [](int i) { add(twin_one(i)); });
    repeat(37, [](int i) { add(twin_two(i)); });
    repeat(41, [](int i) { add(with_alloca(i)); });
    repeat(43, [](int i) { add(aligned_stack(i)); });
    repeat(3, [](int i) { add(big_frame(i)); });
    repeat(47, [](int i) { add(variadic(3, i, 2 * i, 4)); });
    repeat(5, [](int i) { add(recursive(i)); });
    repeat(59, [](int i) { add(static_local(i)); });
    repeat(61, [](int i) { add(cloned(i, 3)); });
    repeat(16, [](int i) { add(calls_inlined(i)); });
    repeat(8, [](int i) { add(unrolled(i)); });
    repeat(20, [](int i) { add(either(i)); });
    repeat(15, [](int i) { add(retried(i)); });
    repeat(6, [](int i) { add(several_small(i)); });
    repeat(30, [](int i) { add(jumping(i)); });
    repeat(14, [](int i) { add(summing(i)); });
    repeat(9, [](int i) { add(listed(i)); });
    repeat(67, [](int i) { add(parameter_on_stack(i, 2, 3, 4, 5, 6, i, 8)); });
    repeat(71, [](int i) { add(templated(i)); });
    repeat(10, [](int i) { add(static_cast<int>(templated(static_cast<long>(i)))); });

    expect("many_returns", 53);
    expect("jump_table", 45);
    expect("leaf", 7 + 5);
    expect("tail_direct", 11);
    expect("tail_callee", 11 + 10 + 5);
    expect("tail_unprobed", 13);
    expect("tail_plt", 17);
    expect("tail_pointer", 19);
    expect("pointed_to", 19);
    expect("tail_conditional", 20);
    expect("tail_virtual", 23);
    expect("virtual_run", 23);
    expect("thrower", 30 + 12, 10 + 4);
    expect("through", 30 + 12, 10 + 4);
    expect("catcher", 30);
    expect("cold_path", 25);
    expect("never_returns", 5, 5);
    expect("loop_head", 9);
    expect("tiny", 29);
    expect("twin_one", 31);
    expect("twin_two", 37);
    expect("with_alloca", 41);
    expect("aligned_stack", 43);
    expect("big_frame", 3);
    expect("variadic", 47);
    expect("recursive", 1 + 2 + 3 + 4 + 5);
    expect("static_local", 59);
    expect("cloned", 61);
    expect("calls_inlined", 16);
    expect("inlined", 16 + 8);
    expect("counts_down", 7 * 8 / 2);
    expect("is_wanted", 20 + 14);
    expect("may_throw", 15 + 3, 3);
    expect("small", 6 * 3 + 5 * 6 / 2);
    expect("jumping", 30);
    expect("jumps_away", 30, 10);
    expect("summing", 14);
    expect("summed", 14);
    expect("summed_around", 14);
    expect("listed", 9);
    expect("list_add", 8 * 9 / 2);
    expect("parameter_on_stack", 67);
    expect("templated", 71 + 10);
    std::printf("checksum %u\n", checksum);
}
