// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs that do nothing: what the kernel alone costs per hit. */
// libbpf's headers need the kernel's before them.
// clang-format off
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
// clang-format on

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe")
int empty(struct pt_regs* ctx) {
    return 0;
}
