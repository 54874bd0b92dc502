// SPDX-License-Identifier: Apache-2.0
// The kernel takes the programs, and each with room to spare: the verifier gives up after a million instructions, and
// how many it needs differs from one build of the kernel to another.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "bpf/hostrange.h"
#include "tests/bpf/harness.h"

// Its types are those of bpf/hostrange.h.
#include "hostrange_bpf.skel.h"

namespace hostrange::test {
namespace {

constexpr unsigned kRoomy = 250'000;  // verified instructions, of 1,000,000

TEST(Verifier, HasRoomToSpareInEveryProgram) {
    REQUIRE_BPF();
    const std::unique_ptr<hostrange_bpf, decltype(&hostrange_bpf__destroy)> skeleton(hostrange_bpf__open_and_load(),
                                                                                     hostrange_bpf__destroy);
    ASSERT_NE(skeleton, nullptr) << strerror(errno);
    int programs = 0;
    bpf_program* program;
    bpf_object__for_each_program(program, skeleton->obj) {
        bpf_prog_info info{};
        __u32 size = sizeof info;
        ASSERT_EQ(bpf_prog_get_info_by_fd(bpf_program__fd(program), &info, &size), 0) << bpf_program__name(program);
        if (size >= offsetof(bpf_prog_info, verified_insns) + sizeof info.verified_insns) {
            EXPECT_GT(info.verified_insns, 0U) << bpf_program__name(program);  // 0 would be a field that is not read
        }
        EXPECT_LT(info.verified_insns, kRoomy) << bpf_program__name(program);
        ++programs;
    }
    EXPECT_GE(programs, 12);
}

}  // namespace
}  // namespace hostrange::test
