// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "loader/probes/elf_file.h"
#include "loader/probes/function_parts.h"

namespace hostrange {

// Functions whose every byte is known (fixtures/functions.s).
class FixtureFunctions : public testing::Test {
protected:
    FixtureFunctions() {
        std::string error;
        file_ = ElfFile::open(HOSTRANGE_FIXTURES "/libfixture_functions.so", error);
        if (!file_) throw std::runtime_error(error);
        groups_ = group_functions(*file_);
    }

    const FunctionGroup& group(const std::string& name) const {
        for (const FunctionGroup& group : groups_)
            for (const FunctionSymbol* symbol : group.symbols)
                if (symbol->name == name) return group;
        throw std::runtime_error("no function " + name);
    }

    std::unique_ptr<ElfFile> file_;
    std::vector<FunctionGroup> groups_;
};

}  // namespace hostrange
