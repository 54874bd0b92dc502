// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs that do nothing: what the kernel alone costs per hit. */
#include <bpf/bpf_helpers.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe")
int empty(struct pt_regs* ctx) {
    return 0;
}
