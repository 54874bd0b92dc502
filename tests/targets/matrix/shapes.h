// SPDX-License-Identifier: Apache-2.0
// Functions of every shape that compilers give to code. Each is a range of matrix.toml.
#pragma once

namespace shapes {

int leaf(int x);
int many_returns(int x);
int jump_table(int x);
int tail_direct(int x);
int tail_callee(int x);
int tail_unprobed(int x);
int tail_plt(const char* text);
int tail_pointer(int (*function)(int), int x);
int tail_conditional(int x);
int pointed_to(int x);
void thrower(int x);
int through(int x);
int catcher(int x);
int cold_path(int x);
[[noreturn]] void never_returns(int x);
int loop_head(volatile int* counter);
int tiny(int x);
int twin_one(int x);
int twin_two(int x);
int with_alloca(int x);
int aligned_stack(int x);
int big_frame(int x);
int variadic(int count, ...);
int recursive(int x);
int static_local(int x);
int cloned(int x, int mode);
int calls_inlined(int x);
int unrolled(int count);
int either(int x);
int retried(int x);
int several_small(int count);
int jumping(int x);
int summing(int x);
int listed(int count);
int parameter_on_stack(int a, int b, int c, int d, int e, int f, int g, int h);

struct Base {
    virtual ~Base();
    virtual int run(int x) const = 0;
};
struct Derived : Base {
    int run(int x) const override;
};
int tail_virtual(const Base& base, int x);

template <typename Number>
[[gnu::noinline]] Number templated(Number x) {
    asm volatile("" ::: "memory");
    return x * 3;
}

}  // namespace shapes
