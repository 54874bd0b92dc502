// SPDX-License-Identifier: Apache-2.0
#include "tests/targets/matrix/shapes.h"

#include <alloca.h>
#include <setjmp.h>

#include <cstdarg>
#include <cstdlib>
#include <stdexcept>

#define KEPT [[gnu::noinline]]

namespace shapes {

namespace {

volatile int sink;

void use(void* memory) {
    asm volatile("" ::"r"(memory) : "memory");
}

[[gnu::always_inline]] inline int inlined(int x) {
    asm volatile("nop" ::: "memory");
    if (x & 1) sink = x;
    asm volatile("nop" ::: "memory");
    return x + 2;
}

// Inlined code that optimisers like to copy: into loops that they unroll, into both sides of a condition, into
// handlers.
[[gnu::always_inline]] inline int counts_down(int x) {
    sink = sink + 1;
    while (x > 0) {
        sink = x;
        x -= 2;
        if (sink == 7007) return 3;
    }
    return x;
}

[[gnu::always_inline]] inline bool is_wanted(int x) {
    sink = x;
    if (x > 10) {
        sink = 0;
        return x % 3 == 0;
    }
    return x % 5 == 0;
}

[[gnu::always_inline]] inline int may_throw(int x) {
    sink = x;
    if (x % 5 == 4) throw std::runtime_error("may_throw");
    return sink + x;
}

[[gnu::always_inline]] inline int small(int x) {
    sink = x;
    return x * 3;
}

jmp_buf landing;

[[gnu::always_inline]] inline int jumps_away(int x) {
    sink = sink + x;
    if (x % 3 == 0) longjmp(landing, 1);
    return x + sink;
}

// Instances that are inlined into one another, each with statements of the same lines.
template <int kLevel>
[[gnu::always_inline]] inline int summed(int x) {
    sink = sink + x;
    return summed<kLevel - 1>(x * 3 + kLevel) + sink;
}

template <>
[[gnu::always_inline]] inline int summed<0>(int x) {
    sink = sink ^ x;
    return x;
}

struct Node {
    int value;
    Node* next;
};

struct List {
    Node* head = nullptr;
    [[gnu::always_inline]] void add(int value) { head = new Node{value, head}; }
};

// Not a range: those that jump here end when it returns.
KEPT int unprobed(int x) {
    sink = x;
    if (x & 2) return x;
    sink = x + 1;
    return x ^ 1;
}

}  // namespace

KEPT int leaf(int x) {
    return x * 5 + sink;
}

KEPT int many_returns(int x) {
    if (x < 3) {
        sink = 1;
        return 1;
    }
    for (int i = 0; i < 3; ++i)
        if (sink == x + i + 1000) return i;
    if (x < 6) {
        sink = 2;
        return x;
    }
    sink = 3;
    return x ^ 7;
}

KEPT int jump_table(int x) {
    switch (x % 9) {
        case 0:
            return leaf(x);
        case 1:
            sink = 11;
            return 3;
        case 2:
            sink = x;
            return x + sink;
        case 3:
            return tail_callee(x) + 1;
        case 4:
            sink = x + 9;
            break;
        case 5:
            sink = 7;
            return sink * x;
        case 6:
            sink = 2 * x;
            return sink - 1;
        case 7:
            sink = 1;
            return x | 1;
        default:
            return x;
    }
    return sink;
}

KEPT int tail_callee(int x) {
    sink = x;
    return x + 1;
}

KEPT int tail_direct(int x) {
    sink = x;
    return tail_callee(x + 1);
}

KEPT int tail_unprobed(int x) {
    return unprobed(x + 1);
}

KEPT int tail_plt(const char* text) {
    sink = 5;
    return std::atoi(text + 1);
}

KEPT int pointed_to(int x) {
    sink = x;
    return x - 1;
}

KEPT int tail_pointer(int (*function)(int), int x) {
    return function(x + 1);
}

KEPT int tail_conditional(int x) {
    if (x & 1) return tail_callee(x);
    return x;
}

KEPT void thrower(int x) {
    sink = x;
    if (x % 3 == 0) throw x;
    sink = x + 1;
}

KEPT int through(int x) {
    thrower(x);
    return sink + x;
}

KEPT int catcher(int x) {
    try {
        return through(x);
    } catch (int value) {
        return value + 1;
    }
}

KEPT void never_returns(int x) {
    sink = x;
    throw x;
}

KEPT int cold_path(int x) {
    if (__builtin_expect(x % 5 == 0, 0)) {
        try {
            never_returns(x);
        } catch (int value) {
            sink = value;
            return value;
        }
    }
    return x + sink;
}

KEPT int loop_head(volatile int* counter) {
    do {
        *counter = *counter - 1;
    } while (*counter > 0);
    return 0;
}

KEPT int tiny(int x) {
    asm volatile("" ::: "memory");  // else callers work out what it returns, and drop the call
    return x;
}

KEPT int twin_one(int x) {
    sink = x * 77;
    return sink + 77;
}

KEPT int twin_two(int x) {
    sink = x * 77;
    return sink + 77;
}

KEPT int with_alloca(int x) {
    char* memory = static_cast<char*>(alloca(16 + x * 8));
    use(memory);
    return x + memory[0] * 0;
}

KEPT int aligned_stack(int x) {
    alignas(64) char memory[192];
    use(memory);
    return x + memory[x] * 0;
}

KEPT int big_frame(int x) {
    char memory[40000];
    use(memory);
    return x + memory[x] * 0;
}

KEPT int variadic(int count, ...) {
    va_list arguments;
    va_start(arguments, count);
    int sum = 0;
    for (int i = 0; i < count; ++i) sum += va_arg(arguments, int);
    va_end(arguments);
    return sum;
}

KEPT int recursive(int x) {
    if (x == 0) return sink;
    const int inner = recursive(x - 1);
    sink = inner;
    return inner ^ x;
}

KEPT int static_local(int x) {
    static const int first = std::atoi("17") + x;
    return first + x;
}

KEPT int cloned(int x, int mode) {
    sink = x;
    if (mode == 3) sink = x + mode;
    return x * mode;
}

KEPT int calls_inlined(int x) {
    int sum = inlined(x);
    sink = sum;
    if (x % 2 == 0) sum += inlined(x + 1);
    return sum;
}

KEPT int unrolled(int count) {
    int sum = 0;
    for (int i = 0; i < count; ++i) sum += counts_down(i);
    return sum;
}

KEPT int either(int x) {
    return is_wanted(x) || is_wanted(x + 1) ? 1 : 2;
}

KEPT int retried(int x) {
    try {
        return may_throw(x);
    } catch (const std::runtime_error&) {
        return may_throw(x + 1);
    }
}

KEPT int several_small(int count) {
    int sum = 0;
    for (int i = 0; i < 3; ++i) sum += small(count + i);
    for (int i = 0; i < count; ++i) sum ^= small(i);
    return sum;
}

KEPT int jumping(int x) {
    return setjmp(landing) == 0 ? jumps_away(x) : 7;
}

KEPT int summing(int x) {
    return summed<4>(x);
}

KEPT int listed(int count) {
    List list;
    for (int i = 0; i < count; ++i) list.add(i);
    int sum = 0;
    while (const Node* first = list.head) {
        sum = sum * 3 + first->value;
        list.head = first->next;
        delete first;
    }
    return sum;
}

KEPT int parameter_on_stack(int a, int b, int c, int d, int e, int f, int g, int h) {
    sink = a;
    return a + b + c + d + e + f + g * h;
}

Base::~Base() = default;

KEPT int Derived::run(int x) const {
    sink = x;
    return x + 4;
}

KEPT int tail_virtual(const Base& base, int x) {
    return base.run(x + 1);
}

}  // namespace shapes
