// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hostrange {

// How probes are attached. Both cost the same per hit; a uprobe_multi link takes all sites of a file at once and is
// detached at once.
enum class AttachMode { kAuto, kUprobeMulti, kPerfEvent };

struct KernelFeatures {
    std::string release;        // as uname -r prints it
    std::string lockdown;       // none, integrity, confidentiality; empty if not known
    bool uprobe_multi = false;  // 6.6, with a pid filter that takes whole processes (6.10 and stable kernels since)
    bool find_vma = false;      // bpf_find_vma(), 5.17
    bool signal_task = false;   // bpf_send_signal_task(), 6.13: forked children can be stopped at birth
};

// BPF_TRACE_UPROBE_MULTI of the kernel's interface; the C library's headers may be older than the kernel.
constexpr int kTraceUprobeMulti = 48;

// Throws Failure if this program cannot work here: kernel older than 5.15, no BTF, lockdown=confidentiality, or
// capabilities missing. Needs no privileges itself.
void check_kernel_usable();

// Asks the kernel; call check_kernel_usable() first.
KernelFeatures read_kernel_features();

const char* attach_mode_name(AttachMode mode);  // "uprobe_multi", "perf_event", "auto"

}  // namespace hostrange
