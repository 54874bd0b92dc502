// SPDX-License-Identifier: Apache-2.0
#include "loader/attach/kernel_features.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "loader/failure.h"

namespace hostrange {
namespace {

constexpr const char* kKernelTypes = "/sys/kernel/btf/vmlinux";
constexpr const char* kLockdown = "/sys/kernel/security/lockdown";
constexpr const char* kCompiler = "/proc/sys/net/core/bpf_jit_enable";
constexpr int kOldestMajor = 5;
constexpr int kOldestMinor = 15;

std::string kernel_release() {
    utsname name{};
    uname(&name);
    return name.release;
}

std::string read_lockdown() {
    std::ifstream file(kLockdown);
    std::string text;
    std::getline(file, text);
    const auto begin = text.find('['), end = text.find(']');
    if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
    return text.substr(begin + 1, end - begin - 1);
}

std::uint64_t effective_capabilities() {
    std::ifstream file("/proc/self/status");
    std::string line;
    while (std::getline(file, line)) {
        if (line.rfind("CapEff:", 0) == 0) return std::strtoull(line.c_str() + 7, nullptr, 16);
    }
    return 0;
}

void check_capabilities() {
    const std::uint64_t held = effective_capabilities();
    const auto has = [&](unsigned capability) { return (held >> capability & 1) != 0; };
    if (has(CAP_SYS_ADMIN)) return;
    std::string missing;
    const auto need = [&](unsigned capability, const char* name) {
        if (!has(capability)) missing += (missing.empty() ? "" : ", ") + std::string(name);
    };
    need(CAP_BPF, "CAP_BPF");
    need(CAP_PERFMON, "CAP_PERFMON");
    if (missing.empty()) return;
    throw Failure(ExitCode::kCapability, "attaching probes needs " + missing,
                  "run it with sudo, or give the program those capabilities (docs/requirements.md)");
}

// The smallest program there is, loaded for uprobe_multi links.
int load_empty_program() {
    const bpf_insn instructions[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .src_reg = 0, .off = 0, .imm = 0},
        {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
    };
    LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = static_cast<bpf_attach_type>(kTraceUprobeMulti));
    return bpf_prog_load(BPF_PROG_TYPE_KPROBE, "hostrange_try", "GPL", instructions, 2, &options);
}

// Attaches to "/", which is no regular file: a kernel with uprobe_multi says EBADF, others EINVAL. Before 6.10 the pid
// filter took threads for processes and lost all but the first; those kernels do not refuse a negative pid.
bool has_uprobe_multi() {
    const int program = load_empty_program();
    if (program < 0) return false;
    const auto try_link = [&](int process) {
        const unsigned long offset = 0;
        LIBBPF_OPTS(bpf_link_create_opts, options);
        options.uprobe_multi.path = "/";
        options.uprobe_multi.offsets = &offset;
        options.uprobe_multi.cnt = 1;
        options.uprobe_multi.pid = static_cast<__u32>(process);
        const int link = bpf_link_create(program, -1, static_cast<bpf_attach_type>(kTraceUprobeMulti), &options);
        const int error = link < 0 ? errno : 0;
        if (link >= 0) close(link);
        return error;
    };
    const bool works = try_link(0) == EBADF && try_link(-1) == EINVAL;
    close(program);
    return works;
}

}  // namespace

void check_kernel_usable() {
    const std::string release = kernel_release();
    int major = 0, minor = 0;
    if (std::sscanf(release.c_str(), "%d.%d", &major, &minor) == 2 &&
        (major < kOldestMajor || (major == kOldestMajor && minor < kOldestMinor))) {
        throw Failure(ExitCode::kKernel,
                      fmt::format("kernel {} is too old: {}.{} is needed", release, kOldestMajor, kOldestMinor),
                      "run it on a newer kernel");
    }
    check_capabilities();
    if (access(kKernelTypes, R_OK) != 0) {
        throw Failure(ExitCode::kNoTypeInformation,
                      fmt::format("the kernel's type information, {}, cannot be read", kKernelTypes),
                      "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions do, and mount /sys");
    }
    // Loops over the scopes are callbacks, which kernels do not take in programs that they interpret. The file is
    // missing in a network namespace of a container; loading tells then.
    if (std::ifstream compiler(kCompiler); compiler.get() == '0') {
        throw Failure(ExitCode::kKernel, "the kernel's compiler of BPF programs is switched off",
                      "`sysctl net.core.bpf_jit_enable=1` switches it on; distributions do");
    }
    if (read_lockdown() == "confidentiality") {
        throw Failure(ExitCode::kLockdown,
                      "the kernel is locked down (confidentiality): BPF programs may not read memory",
                      "boot with lockdown=integrity or lockdown=none");
    }
}

KernelFeatures read_kernel_features() {
    KernelFeatures features;
    features.release = kernel_release();
    features.lockdown = read_lockdown();
    features.uprobe_multi = has_uprobe_multi();
    std::unique_ptr<btf, decltype(&btf__free)> types(btf__load_vmlinux_btf(), btf__free);
    if (types) {
        features.signal_task = btf__find_by_name_kind(types.get(), "bpf_send_signal_task", BTF_KIND_FUNC) > 0;
    }
    features.find_vma = libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_find_vma, nullptr) == 1;
    return features;
}

const char* attach_mode_name(AttachMode mode) {
    switch (mode) {
        case AttachMode::kUprobeMulti:
            return "uprobe_multi";
        case AttachMode::kPerfEvent:
            return "perf_event";
        case AttachMode::kAuto:
            break;
    }
    return "auto";
}

}  // namespace hostrange
